"""`python -m tests.services.constant_ingest --seconds S --speed F`: constant ingest, with all upkeep on, judged."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import traceback
from pathlib import Path

from tests.services.constant_ingest.proof import LEAPS, Plan, proof
from tests.services.constant_ingest.report import Report
from tests.services.kafka_service import running_kafka
from tests.services.s3_service import running_s3


def main() -> int:
    """Exit code 0 when everything held."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600, help="how long writers write, in real time")
    parser.add_argument("--speed", type=float, default=60, help="how fast the clocks of store, log and services run")
    parser.add_argument("--leaps", type=int, default=None, help="days without writers; none at the real speed")
    parser.add_argument("--writers", type=int, default=32, help="of each of the two lakes")
    parser.add_argument("--readers", type=int, default=3)
    parser.add_argument("--think", type=float, default=2.0, help="mean pause of a writer, seconds")
    parser.add_argument("--folder", type=Path, default=None, help="where a folder with logs and objects is made")
    options = parser.parse_args()
    if options.folder is not None:
        options.folder.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="rootline-ingest-", dir=options.folder))
    leaps = options.leaps if options.leaps is not None else LEAPS if options.speed > 1 else 0
    plan = Plan(options.seconds, options.speed, options.writers, options.readers, options.think, leaps)
    try:
        report = run(folder, plan)
    except BaseException:
        traceback.print_exc()
        print(f"FAILED; logs in {folder}")
        return 1
    for line in report.text():
        print(line, flush=True)
    print(f"{'FAILED' if report.failures else 'held'}; logs in {folder}", flush=True)
    return 1 if report.failures else 0


def run(folder: Path, plan: Plan) -> Report:
    """On services of its own."""
    places = [folder / name for name in ("s3", "kafka")]
    for place in places:
        place.mkdir()
    with running_s3(places[0]) as s3, running_kafka(places[1]) as kafka, proof(s3, kafka, folder, plan, _tell) as made:
        return asyncio.run(made.run())


def _tell(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
