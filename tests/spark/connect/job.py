"""What the test of Spark Connect runs as a client: every function of `rootline.spark`, and what each one did.

Owns: the story of one table. Does not own: the server. Invariants: this process has no JVM; a function that fails is
in the report with its error, and the others are tried all the same.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as everyone calls it

import rootline
import rootline.spark

TABLE = "demo.flights"
ROWS = 1_000


def rows(spark: SparkSession, start: int, count: int) -> DataFrame:
    return spark.range(start, start + count, numPartitions=2).selectExpr("id", "concat('C', id % 5) AS carrier")


def stream(spark: SparkSession, folder: Path) -> DataFrame:
    pq.write_table(pa.table({"id": [5_000, 5_001], "carrier": ["S", "S"]}), _made(folder / "incoming") / "1.parquet")
    return spark.readStream.schema("id long, carrier string").parquet(f"file://{folder / 'incoming'}")


def _made(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    return folder


class Story:
    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder, self.warehouse = spark, folder, folder / "lake"

    def format(self) -> Any:
        """A batch read, of columns and rows that options name."""
        every = self.spark.read.format("rootline").load(TABLE)
        reader = self.spark.read.format("rootline").option("columns", "carrier").option("where", "id < 10")
        some = reader.load(TABLE)
        return [every.count(), len(some.collect()), some.columns]

    def write(self) -> Any:
        """A batch write that makes the table."""
        writer = rows(self.spark, 0, ROWS).write.format("rootline").mode("append").option("createTable", True)
        writer.save(TABLE)

    def table(self) -> Any:
        """Spark's own reader."""
        frame = rootline.spark.table(self.spark, TABLE, where="carrier = 'C2'")
        plan = frame._explain_string() if hasattr(frame, "_explain_string") else ""  # type: ignore[operator]
        return [
            rootline.spark.table(self.spark, TABLE).count(),
            frame.agg(F.sum("id").alias("total")).collect()[0]["total"],
            "FileScan parquet" in plan,
        ]

    def append(self) -> Any:
        """Spark's own writer."""
        rootline.spark.append(rows(self.spark, ROWS, 100), TABLE, writer_id="nightly", writer_sequence=1)
        rootline.spark.append(rows(self.spark, ROWS, 100), TABLE, writer_id="nightly", writer_sequence=1)
        names = [path.name for path in (self.warehouse / "demo/flights/data").rglob("spark*")]
        return [rootline.spark.table(self.spark, TABLE).count(), len(names)]

    def update_where(self) -> Any:
        return rootline.spark.update_where(self.spark, TABLE, "id = 1", {"carrier": "'UA'"}).updated

    def delete_where(self) -> Any:
        return rootline.spark.delete_where(self.spark, TABLE, F.col("id") == 2).deleted

    def merge_into(self) -> Any:
        source = self.spark.createDataFrame([(3, "DL"), (9_999, "B6")], "id long, carrier string")
        merged = rootline.spark.merge_into(self.spark, TABLE, source, on=["id"])
        return [merged.updated, merged.inserted]

    def stream(self) -> Any:
        """A streaming write and a streaming read."""
        writer = stream(self.spark, self.folder).writeStream.format("rootline").trigger(availableNow=True)
        writer.option("checkpointLocation", str(self.folder / "checkpoint")).start(TABLE).awaitTermination()
        reader = self.spark.readStream.format("rootline").load(TABLE)
        query = reader.writeStream.format("memory").queryName("seen").trigger(availableNow=True)
        query.option("checkpointLocation", str(self.folder / "seen")).start().awaitTermination()
        return [
            self.spark.table("seen").where("carrier = 'S'").count(),
            rootline.spark.table(self.spark, TABLE).count(),
        ]

    def batch_appender(self) -> Any:
        return self._appended(rootline.spark.batch_appender(TABLE, writer_id="appender"), "named")

    def batch_appender_without_a_name(self) -> Any:
        return self._appended(rootline.spark.batch_appender(TABLE), "unnamed")

    def _appended(self, appender: Callable[[DataFrame, int], None], name: str) -> Any:
        writer = stream(self.spark, self.folder).writeStream.foreachBatch(appender).trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(self.folder / name))
        while True:
            try:
                writer.start().awaitTermination()
            except Exception as error:
                if "worker failed to connect back" in str(
                    error
                ):  # Spark waits for ten seconds, which a busy machine takes
                    continue
                raise
            return rootline.spark.table(self.spark, TABLE, where="carrier = 'S'").count()

    def compact(self) -> Any:
        done = rootline.spark.compact(self.spark, TABLE)
        return [done.files_before > done.files_after, done.files_left]

    def sort(self) -> Any:
        return rootline.spark.compact(self.spark, TABLE, strategy="sort", sort_by=["id"]).files_after

    def add_folder(self) -> Any:
        place = self.warehouse / "demo/flights/backfill"
        place.mkdir(parents=True)
        pq.write_table(pa.table({"id": [7_000], "carrier": ["F"]}), place / "1.parquet")
        return rootline.spark.add_folder(self.spark, TABLE, "backfill").rows

    def pinned(self) -> Any:
        """DataFrames that are used again after a commit, and a new one."""
        free = self.spark.read.format("rootline").load(TABLE)
        pinned = rootline.spark.table(self.spark, TABLE)
        before = [free.count(), len(pinned.collect())]
        rows(self.spark, 20_000, 1).write.format("rootline").mode("append").save(TABLE)
        new = self.spark.read.format("rootline").load(TABLE)
        return [free.count() - before[0], len(pinned.collect()) - before[1], new.count() - before[0]]


STEPS = (
    "write",
    "format",
    "table",
    "append",
    "update_where",
    "delete_where",
    "merge_into",
    "stream",
    "batch_appender",
    "batch_appender_without_a_name",
    "compact",
    "sort",
    "add_folder",
    "pinned",
)


def main(address: str, folder: str) -> None:
    """Try every step, and print what came out."""
    spark = SparkSession.builder.remote(address).getOrCreate()
    spark.conf.set("spark.rootline.warehouse", str(Path(folder, "lake")))
    rootline.spark.register(spark)
    story, said = Story(spark, Path(folder)), {}
    for step in STEPS:
        try:
            said[step] = getattr(story, step)()
        except Exception as error:
            said[step] = f"{type(error).__name__}: {error}"[:2_000]
    spark.stop()
    print("said: " + json.dumps(said, default=str))


if __name__ == "__main__":
    main(*sys.argv[1:])
