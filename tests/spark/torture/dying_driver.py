"""A driver of its own process: streams what is in a folder to a table, from its checkpoint to the end of the source."""

from __future__ import annotations

import json
import os
import sys

from pyspark.sql import SparkSession

from tests.spark.torture.killing_source import GROUP_VARIABLE, KillingSource

COLUMNS = "stream int, number long, doomed boolean"


def main(source: str, checkpoint: str, table: str, options: str) -> None:
    """Run until all that is there is in the table."""
    os.environ[GROUP_VARIABLE] = str(os.getpgid(0))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {"ui.enabled": "false", "driver.host": "127.0.0.1", "driver.bindAddress": "127.0.0.1"}
    builder = SparkSession.builder.master("local[1]").config("spark.sql.shuffle.partitions", "1")
    for name, value in settings.items():
        builder = builder.config(f"spark.{name}", value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    spark.dataSource.register(KillingSource)
    rows = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 2).json(source)
    writer = rows.writeStream.format("rootline").options(**json.loads(options))
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start(table)
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
