"""What the test of the daemon submits: how the workers of a cluster began, and which code they imported."""

from __future__ import annotations

import gc
import json
import sys

from pyspark.sql import SparkSession


def begun(_: int) -> tuple[bool, str]:
    """Of one task: whether its worker was forked from our daemon, and the compiled file of a module."""
    module = sys.modules.get("rootline.spark.batch_reader")
    return gc.get_freeze_count() > 0, str(getattr(module, "__cached__", None) or getattr(module, "__file__", None))


def main() -> None:
    """Print what came out."""
    spark = SparkSession.builder.appName("rootline's daemon on a cluster").getOrCreate()
    found = spark.sparkContext.parallelize(range(4), 4).map(begun).collect()
    spark.stop()
    print("said: " + json.dumps({key: sorted({row[at] for row in found}) for at, key in enumerate(KEYS)}))


KEYS = ("imported at the start", "code")

if __name__ == "__main__":
    main()
