"""`python -m tests.simulation --seed S --steps N [--worlds W] [--trace FILE]`: run worlds, print what they came to."""

from __future__ import annotations

import argparse
import logging
import secrets
import sys
import time
import traceback
from collections import Counter
from pathlib import Path

import structlog

from tests.simulation.simulation import Outcome, simulate


def main() -> int:
    """Exit code 0 when everything held."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=None, help="the first world's seed (default: a fresh one)")
    parser.add_argument("--steps", type=int, default=300, help="intents per world, about")
    parser.add_argument("--worlds", type=int, default=1, help="how many worlds, with seeds counting up")
    parser.add_argument("--engines", type=int, default=0, help="clients of REST catalogs beside the writers")
    parser.add_argument("--jobs", type=int, default=0, help="streaming jobs that commit through REST catalogs")
    parser.add_argument("--expires", action="store_true", help="versions expire, and a worker sweeps")
    parser.add_argument("--drops", action="store_true", help="writers drop, create, restore and replace tables")
    parser.add_argument("--trace", type=Path, default=None, help="write the last world's trace to this file")
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    first = secrets.randbelow(10**9) if options.seed is None else options.seed
    for seed in range(first, first + options.worlds):
        print(f"seed {seed} steps {options.steps}", flush=True)
        began = time.perf_counter()
        try:
            outcome = simulate(
                seed,
                options.steps,
                keep_trace=options.trace is not None,
                engines=options.engines,
                jobs=options.jobs,
                expires=options.expires,
                drops=options.drops,
            )
        except BaseException:
            traceback.print_exc()
            counted = {"engines": options.engines, "jobs": options.jobs}
            chosen = [f"--{name} {count}" for name, count in counted.items() if count]
            chosen += [f"--{name}" for name in ("expires", "drops") if getattr(options, name)]
            more = f' ARGS="{" ".join(chosen)}"' if chosen else ""
            print(f"FAILED: make simulate SEED={seed} STEPS={options.steps}{more}", flush=True)
            return 1
        elapsed_s = time.perf_counter() - began
        print(
            f"  held: {outcome.intents} intents ({outcome.committed} committed, {outcome.duplicates} duplicates, "
            f"{outcome.rejected} rejected) in {outcome.versions} roots and {outcome.leaves} live leaves, "
            f"{outcome.kills} kills, {outcome.rebalances} rebalances, {outcome.rereads} rereads, "
            f"{_appends(outcome)}{outcome.virtual_s:.0f} virtual s in {elapsed_s:.1f} s, "
            f"trace {outcome.trace_digest}",
            flush=True,
        )
        if options.trace is not None:
            options.trace.write_text("\n".join(outcome.trace_lines) + "\n")
    return 0


def _appends(outcome: Outcome) -> str:
    heard = Counter(append.heard.value for append in outcome.appends)
    ends = ", ".join(f"{count} {word}" for word, count in sorted(heard.items()))
    return f"appends of engines: {ends}, {outcome.catalog_kills} catalogs killed, " if heard else ""


if __name__ == "__main__":
    sys.exit(main())
