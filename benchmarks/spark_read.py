"""Goal 13: reads of a table through Spark beside Spark's own Parquet source, over the same files.

Owns: the queries and their table. Does not own: interleaving (`measure`), the rows (`scan_speed`).
Invariants: subject and yardstick answer alike, in one session, in turn; each sample makes its DataFrame again, so that
planning counts. `format("rootline")` is measured beside, for what it costs where it has to be used: with every column,
as Spark asks for them, and with the columns that the query needs.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import rootline
import rootline.spark
from benchmarks.measure import Result, interleaved, load_average
from benchmarks.scan_speed import flights
from benchmarks.spark_session import local_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from rootline.client.lake import Lake

ROWS: Final = int(os.environ.get("ROOTLINE_BENCH_SPARK_ROWS", "10000000"))
_SAMPLES: Final = int(os.environ.get("ROOTLINE_BENCH_SPARK_SAMPLES", "5"))
_FILE_ROWS: Final = 1_000_000
TABLE: Final = "demo.flights"
Query = Callable[["DataFrame"], object]
Open = Callable[[str | None], "DataFrame"]
TABLE_WAY: Final = "rootline.spark.table"
_NAMED_WAY: Final = 'format("rootline") with option columns'
_NAMED: Final = {
    "count": "is_late",
    "scan: one number of each of six columns": "id,ts,tail,arrival_delay,distance,day",
    "filter: delay > 40": "id,delay",
    "aggregate: by carrier": "carrier,distance",
    "selective: one id": "id,number",
}
"""The columns of each query."""
_SUMS: Final = ("sum(id)", "max(ts)", "max(tail)", "sum(arrival_delay)", "sum(distance)", "max(day)")
"""Of whole numbers, which come to the same in any order."""


def measure() -> list[Result]:
    """Each query by `rootline.spark.table` and by `format("rootline")`, beside Spark's Parquet source."""
    with tempfile.TemporaryDirectory(prefix="rootline-bench-", dir=".") as name:
        folder = Path(name).resolve()
        with rootline.connect(str(folder)) as lake:
            make_table(lake, ROWS)
            spark = local_session()
            try:
                paths = [str(path) for path in sorted(folder.rglob("data/*.parquet"))]
                return measured(spark, str(folder), paths)
            finally:
                spark.stop()


def make_table(lake: Lake, rows: int) -> None:
    """The table that is asked, with so many rows in files of a million."""
    table = lake.create_table(TABLE, flights(1, 0).schema)
    for start in range(0, rows, _FILE_ROWS):
        table.append(flights(min(_FILE_ROWS, rows - start), start))


def queries(rows: int) -> dict[str, tuple[Query, str | None, str]]:
    """What to ask, what of it the way is told when it opens the table, and the goal; `rows`: of the table."""
    one = f"id = {rows // 2}"
    return {
        "count": (lambda frame: frame.count(), None, "< 1"),
        "scan: one number of each of six columns": (lambda frame: frame.selectExpr(*_SUMS).collect(), None, "≤ 1.3"),
        "filter: delay > 40": (lambda frame: frame.where("delay > 40").selectExpr("sum(id)").collect(), None, "≤ 1.3"),
        "aggregate: by carrier": (
            lambda frame: sorted(frame.groupBy("carrier").sum("distance").collect()),
            None,
            "≤ 1.3",
        ),
        "selective: one id": (lambda frame: frame.where(one).selectExpr("sum(number)").collect(), one, "< 1"),
    }


def ways_of(spark: SparkSession, warehouse: Path | str, log: str | None = None) -> dict[str, Open]:
    """Each way that Spark has into the table by this library."""

    def table(where: str | None) -> DataFrame:
        return rootline.spark.table(spark, TABLE, where=where, warehouse=str(warehouse), log=log)

    def source(where: str | None) -> DataFrame:
        given = {"warehouse": str(warehouse)} if log is None else {"warehouse": str(warehouse), "log": log}
        reader = spark.read.format("rootline").options(**given)
        return (reader if where is None else reader.option("where", where)).load(TABLE)

    return {TABLE_WAY: table, 'format("rootline")': source}


def measured(spark: SparkSession, warehouse: str, paths: list[str], log: str | None = None) -> list[Result]:
    """Each query by each way; `paths`: of the same files, for Spark's own source."""

    def parquet(_: str | None) -> DataFrame:
        return spark.read.parquet(*paths)

    where_it_is = ", in a bucket" if log else ""
    given = {"warehouse": warehouse, **({"log": log} if log else {})}

    def named(columns: str) -> Open:
        def opened(where: str | None) -> DataFrame:
            reader = spark.read.format("rootline").options(**given, columns=columns)
            return (reader if where is None else reader.option("where", where)).load(TABLE)

        return opened

    return [
        _compared(
            f"{what}, {by}, {ROWS:,} rows{where_it_is}",
            query,
            (opened, parquet),
            where,
            target if by == TABLE_WAY else "",
        )
        for what, (query, where, target) in queries(ROWS).items()
        for by, opened in {**ways_of(spark, warehouse, log), _NAMED_WAY: named(_NAMED[what])}.items()
    ]


def _compared(what: str, query: Query, opened: tuple[Open, Open], where: str | None, target: str) -> Result:
    ours, theirs = opened
    assert query(ours(where)) == query(theirs(where)), what

    async def timed(by: Open) -> float:
        began = time.perf_counter()
        query(by(where))
        return time.perf_counter() - began

    subject, yardstick = asyncio.run(
        interleaved(lambda _: timed(ours), lambda _: timed(theirs), samples=_SAMPLES, warm_up=1)
    )
    ratio = subject.median / yardstick.median
    note = f"by minimum {subject.minimum / yardstick.minimum:.2f} ×"
    return Result("13", what, subject, yardstick, "Spark's Parquet, same files", ratio, target, load_average(), note)
