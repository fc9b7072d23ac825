"""`python -m tests.spark.torture --seconds S --seed N`: drivers and executors die for so long, and all is judged."""

from __future__ import annotations

import argparse
import os
import secrets
import sys
import tempfile
import traceback
from pathlib import Path

from tests.kafka.kafka_lake import KafkaLake
from tests.services.kafka_service import running_kafka
from tests.services.s3_service import running_s3
from tests.spark.machine.spark_software import spark_variables
from tests.spark.machine.warm_workers import warm_python
from tests.spark.torture.tortured_lake import Torture, tortured


def main() -> int:
    """Exit code 0 when everything held."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=None, help="chooses sources and deaths (default: a fresh one)")
    parser.add_argument("--seconds", type=float, default=300, help="how long drivers die")
    parser.add_argument("--drivers", type=int, default=2, help="every other one writes by Spark's own writer, to S3A")
    parser.add_argument("--days", type=int, default=9, help="that pass in the end, until orphans are deleted (0: none)")
    parser.add_argument("--folder", type=Path, default=None, help="where a folder with the logs is made")
    options = parser.parse_args()
    os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")  # a life is short
    os.environ.update(spark_variables())
    seed = secrets.randbelow(10**9) if options.seed is None else options.seed
    if options.folder is not None:
        options.folder.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f"rootline-torture-{seed}-", dir=options.folder))
    places = [folder / name for name in ("s3", "kafka")]
    for place in places:
        place.mkdir()
    again = f"python -m tests.spark.torture --seed {seed} --seconds {options.seconds:.0f}; logs in {folder}"
    try:
        with running_s3(places[0]) as s3, running_kafka(places[1]) as kafka, warm_python() as command:
            os.environ["PYSPARK_PYTHON"] = command
            address = KafkaLake(s3, kafka.with_topics(partitions=2))
            torture = Torture(options.seconds, seed, options.drivers, days=options.days)
            outcome = tortured(address, folder, torture, lambda line: print(line, flush=True))
    except BaseException:
        traceback.print_exc()
        print(f"FAILED: {again}")
        return 1
    print("\n".join(outcome.text()))
    print(f"FAILED: {again}" if outcome.faults else f"held: seed {seed}; logs in {folder}", flush=True)
    return 1 if outcome.faults else 0


if __name__ == "__main__":
    sys.exit(main())
