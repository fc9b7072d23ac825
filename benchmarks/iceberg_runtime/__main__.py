"""`python -m benchmarks.iceberg_runtime ROOT JAR ADDRESS ROWS ANSWER`: measure, and write the results to `ANSWER`.

`benchmarks.spark_iceberg` starts it, with a PySpark on its path that Iceberg's runtime was made for.
`ROOTLINE_BENCH_ICEBERG_PARTS` names what to measure, of `reads,appends,triggers,writers`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.iceberg_runtime.many_writers import compare_many_writers
from benchmarks.iceberg_runtime.places import Places
from benchmarks.iceberg_runtime.reads import compare_reads
from benchmarks.iceberg_runtime.sides import session_settings
from benchmarks.iceberg_runtime.writes import compare_appends, compare_triggers
from benchmarks.measure import Result
from benchmarks.spark_session import local_session
from tests.engines.iceberg_software import SPARK


def main() -> None:
    """All measurements, in one session."""
    import pyspark

    assert pyspark.__version__ == SPARK, pyspark.__file__
    root, jar, address, rows, answer = sys.argv[1:]
    places = Places(Path(root))
    spark = local_session(**session_settings(jar, places, address))
    parts: dict[str, Callable[[], list[Result]]] = {
        "reads": lambda: compare_reads(spark, places, int(rows)),
        "appends": lambda: compare_appends(spark, places, int(rows)),
        "triggers": lambda: compare_triggers(spark, places),
        "writers": lambda: compare_many_writers(spark, places),
    }
    chosen = os.environ.get("ROOTLINE_BENCH_ICEBERG_PARTS", ",".join(parts)).split(",")
    results: list[Result] = []
    try:
        for part in chosen:
            began = time.perf_counter()
            results += parts[part]()
            print(f"  {part}: {time.perf_counter() - began:.0f} s", flush=True)
    finally:
        spark.stop()
    Path(answer).write_text(json.dumps([result.as_json() for result in results]))


if __name__ == "__main__":
    main()
