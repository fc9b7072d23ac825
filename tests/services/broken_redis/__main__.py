"""`python -m tests.services.broken_redis --seconds S`: ingest while Valkey breaks in every way in turn, judged."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import traceback
from pathlib import Path

from tests.services.broken_redis.ingest import Plan, ingest_of
from tests.services.kafka_service import running_kafka
from tests.services.s3_service import running_s3
from tests.services.valkey_service import running_valkey


def main() -> int:
    """Exit code 0 when everything held."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=180, help="how long writers write at least")
    parser.add_argument("--writers", type=int, default=16)
    parser.add_argument("--think", type=float, default=0.3, help="mean pause of a writer, seconds")
    parser.add_argument("--folder", type=Path, default=None, help="where a folder with logs and objects is made")
    options = parser.parse_args()
    if options.folder is not None:
        options.folder.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="rootline-broken-redis-", dir=options.folder))
    places = [folder / name for name in ("s3", "kafka", "valkey")]
    for place in places:
        place.mkdir()
    plan = Plan(options.seconds, options.writers, options.think)
    try:
        with (
            running_s3(places[0]) as s3,
            running_kafka(places[1]) as kafka,
            running_valkey(places[2]) as valkey,
            ingest_of(s3, kafka, valkey, folder, plan, lambda line: print(line, flush=True)) as ingest,
        ):
            phases = asyncio.run(ingest.run())
    except BaseException:
        traceback.print_exc()
        print(f"FAILED; logs in {folder}")
        return 1
    verdicts, maintained = sum(phase.answers for phase in phases), sum(phase.maintained for phase in phases)
    print(f"held: {verdicts} verdicts, {maintained} commits of workers; logs in {folder}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
