"""`python -m benchmarks.peers [--scale SCALE] [--only SCENARIO …] [--peers NAME,…]`: measure, and write the results.

The results are in `benchmarks/results/peers.json`, the page in `docs/benchmarks.md`. The JSON is written after each
scenario, so a run that is interrupted keeps the figures that it has. A run of some scenarios and peers replaces their
records, and keeps the others from earlier runs on the same machine.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import structlog

from benchmarks.peers.bench import Bench, Run
from benchmarks.peers.page import RESULTS, write_page
from benchmarks.peers.scenarios import SCALES, SCENARIOS, Scale
from benchmarks.peers.subjects import Subject, chosen, peers
from benchmarks.report import commit_of_the_code, earlier_results


def main() -> int:
    """Measure what is asked for; exit code 0, whatever the figures are."""
    parser = argparse.ArgumentParser(prog="make bench-peers ARGS=…", description=__doc__)
    parser.add_argument("--scale", choices=SCALES, default="full", help="how much of everything (full)")
    parser.add_argument("--only", choices=SCENARIOS, action="append", help="measure only this scenario (repeatable)")
    parser.add_argument("--peers", default="", help=f"with commas, of: {'; '.join(peers())}; a beginning is enough")
    parser.add_argument("--into", type=Path, help="write the JSON there, and no page")
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        subjects = chosen(name.strip() for name in options.peers.split(",") if name.strip())
    except ValueError as error:
        parser.error(str(error))
    words = " ".join(sys.argv[1:])
    command = f"make bench-peers ARGS='{words}'" if words else "make bench-peers"
    body = measure(subjects, SCALES[options.scale], options.only or list(SCENARIOS), options.into or RESULTS, command)
    if options.into is None:
        write_page(body)
    return 0


def measure(subjects: list[Subject], scale: Scale, names: list[str], place: Path, command: str) -> dict[str, Any]:
    """Run the scenarios, and write the JSON to `place` after each.

    `runs` in the JSON lists the command, the scale, the time and the commit of each run. A record names its run.
    """
    body = earlier_results(place, "runs", {"runs": [], "versions": {}, "records": []})
    for name, measured in SCENARIOS.items():
        if name not in names:
            continue
        print(f"{name} …", flush=True)
        began, run = time.perf_counter(), Run()
        taken = {
            "command": command,
            "scale": next(name for name, one in SCALES.items() if one == scale),
            "taken": datetime.now(UTC).isoformat(timespec="seconds"),
            "commit": commit_of_the_code(),
        }
        with ExitStack() as stack:
            measured(Bench(subjects, run, stack), scale)
        print(f"{name}: {time.perf_counter() - began:.0f} s", flush=True)
        body["runs"].append(taken)
        body["versions"] |= run.versions
        measured_now = {(name, one.peer, one.settings) for one in subjects}
        others = (r for r in body["records"] if (r["scenario"], r["peer"], r["settings"]) not in measured_now)
        body["records"] = [*others, *({**record, "run": len(body["runs"]) - 1} for record in run.as_json())]
        place.write_text(json.dumps(body, indent=1) + "\n")
    return body


if __name__ == "__main__":
    sys.exit(main())
