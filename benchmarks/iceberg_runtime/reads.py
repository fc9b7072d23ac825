"""Reads of the same rows: of an Iceberg table, and of a table of ours by each way that Spark has into it.

Owns: making the Iceberg table. Does not own: the queries and our ways (`spark_read`), taking samples (`turns`).
Invariants: all ways answer alike, each sample makes its DataFrame again, and each asks for the newest version; the
yardstick is Spark's own Parquet over the files of ours; the Iceberg table has a file, written by Iceberg, for each.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.iceberg_runtime.places import FLIGHTS, Places, data_folder
from benchmarks.iceberg_runtime.sides import HADOOP, REST, IcebergSide, rows_of
from benchmarks.iceberg_runtime.turns import Way, in_turn
from benchmarks.measure import Result
from benchmarks.spark_read import TABLE_WAY, Open, Query, queries, ways_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PARQUET: Final = "Spark's Parquet, our files"


def compare_reads(spark: SparkSession, places: Places, rows: int) -> list[Result]:
    """Each query by each way, beside Spark's own Parquet over our files."""
    _make_iceberg_table(spark, places)
    ways = _ways(spark, places)
    found = {name: rows_of(opened(None)) for name, opened in ways.items()}
    assert len(set(map(str, found.values()))) == 1, found
    size = f"data: {_megabytes(places.lake):.1f} MB, of Iceberg {_megabytes(places.iceberg):.1f} MB"
    results = []
    for what, (query, where, target) in queries(rows).items():
        answers = {name: query(opened(where)) for name, opened in ways.items()}
        assert len(set(map(str, answers.values()))) == 1, (what, answers)
        times = in_turn({name: Way(_reading(query, opened, where)) for name, opened in ways.items()})
        results += [
            times[name].beside(
                times[_PARQUET],
                "13",
                f"{what}, {name}, {rows:,} rows",
                _PARQUET,
                target if name == TABLE_WAY else "–",
                size if name == TABLE_WAY else "",
            )
            for name in ways
            if name != _PARQUET
        ]
    return results


def _reading(query: Query, opened: Open, where: str | None) -> Callable[[int], object]:
    return lambda _: query(opened(where))


def _make_iceberg_table(spark: SparkSession, places: Places) -> None:
    side = IcebergSide(spark, places)
    side.create(FLIGHTS)
    for path in places.data_of(FLIGHTS):
        side.append(spark.read.parquet(path).coalesce(1), FLIGHTS)


def _ways(spark: SparkSession, places: Places) -> dict[str, Open]:
    """Iceberg's runtime is handed the filters of the DataFrame by Spark itself."""
    return {
        **ways_of(spark, places.lake),
        "Iceberg's runtime on our table, by REST": lambda _: spark.table(f"{REST}.{FLIGHTS}"),
        "Iceberg's runtime, its own table": lambda _: spark.table(f"{HADOOP}.{FLIGHTS}"),
        _PARQUET: lambda _: spark.read.parquet(*places.data_of(FLIGHTS)),
    }


def _megabytes(warehouse: Path) -> float:
    return sum(path.stat().st_size for path in data_folder(warehouse, FLIGHTS).rglob("*.parquet")) / 1e6
