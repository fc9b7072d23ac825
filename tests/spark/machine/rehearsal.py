"""What a Spark runs once, so that Java has loaded the classes that tests and demos ask for."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession

import rootline.spark


def rehearse(spark: SparkSession, folder: Path) -> None:
    """Write, read, join and stream a few rows."""
    spark.conf.set("spark.rootline.warehouse", str(folder / "lake"))
    rootline.spark.register(spark)
    rows = spark.createDataFrame([(1, "a", None), (2, "b", 0.5)], "id long, carrier string, delay double")
    rows.write.parquet(str(folder / "source"))
    rows.write.format("rootline").mode("append").options(createTable=True, partitionedBy="carrier").save("demo.t")
    source = spark.readStream.schema(rows.schema).parquet(str(folder / "source"))
    stream = source.writeStream.format("rootline").option("checkpointLocation", str(folder / "checkpoint"))
    stream.trigger(availableNow=True).start("demo.t").awaitTermination()
    read = spark.read.format("rootline").load("demo.t").where("delay is null or delay > 0")
    assert read.join(rows, "id").groupBy(read.carrier).count().orderBy("carrier").collect()
    assert rootline.spark.table(spark, "demo.t").distinct().count() == 2
    rootline.spark.update_where(spark, "demo.t", "id = 1", {"delay": "delay + 1"})


def main() -> None:
    """Until Java has ended: it writes its archive last."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.sql.shuffle.partitions", "2")
    for name in ("ui.enabled", "ui.showConsoleProgress"):
        builder = builder.config(f"spark.{name}", "false")
    for name in ("driver.host", "driver.bindAddress"):
        builder = builder.config(f"spark.{name}", "127.0.0.1")
    spark = builder.getOrCreate()
    with tempfile.TemporaryDirectory() as folder:
        rehearse(spark, Path(folder))
    gateway: Any = SparkContext._gateway
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


if __name__ == "__main__":
    main()
