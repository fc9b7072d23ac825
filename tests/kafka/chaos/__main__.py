"""`python -m tests.kafka.chaos --seconds S --seed N`: chaos for longer, with progress, and a summary at the end."""

from __future__ import annotations

import argparse
import asyncio
import secrets
import sys
import tempfile
import traceback
from pathlib import Path

from tests.kafka.chaos.world import Chaos, Services, run_chaos
from tests.services.kafka_service import running_kafka
from tests.services.s3_service import running_s3
from tests.services.toxiproxy import running_toxiproxy


def main() -> int:
    """Exit code 0 when everything held."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=None, help="chooses the faults (default: a fresh one)")
    parser.add_argument("--seconds", type=float, default=600, help="how long faults last")
    parser.add_argument("--writers", type=int, default=32)
    parser.add_argument("--folder", type=Path, default=None, help="where a folder with the logs is made")
    options = parser.parse_args()
    seed = secrets.randbelow(10**9) if options.seed is None else options.seed
    if options.folder is not None:
        options.folder.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f"rootline-chaos-{seed}-", dir=options.folder))
    chaos = Chaos(seed, options.seconds, options.writers, kills_broker=True)
    try:
        summary = asyncio.run(_run(folder, chaos))
    except BaseException:
        traceback.print_exc()
        print(f"FAILED: python -m tests.kafka.chaos --seed {seed} --seconds {options.seconds:.0f}; logs in {folder}")
        return 1
    print(f"held: seed {seed}; {summary}", flush=True)
    return 0


async def _run(folder: Path, chaos: Chaos) -> object:
    places = [folder / name for name in ("s3", "kafka", "toxiproxy")]
    for place in places:
        place.mkdir(exist_ok=True)
    with running_s3(places[0]) as s3, running_kafka(places[1]) as kafka, running_toxiproxy(places[2]) as toxiproxy:
        return await run_chaos(Services(s3, kafka, toxiproxy), folder, chaos, lambda line: print(line, flush=True))


if __name__ == "__main__":
    sys.exit(main())
