"""Batch appends and triggers of streams into tables of both formats.

Owns: the writes, and that both sides have the same rows afterwards. Does not own: how a side writes (`sides`).
Invariants: every sample of an append writes all rows of one DataFrame into an empty table; the queries of all sides
read the same files, one a trigger; a trigger takes what Spark itself reports of it, and the first ones of each query,
which start workers, do not count.
"""

from __future__ import annotations

import os
import shutil
from functools import partial
from typing import TYPE_CHECKING, Final

from benchmarks.iceberg_runtime.places import FLIGHTS, Places, data_folder
from benchmarks.iceberg_runtime.sides import IcebergSide, RootlineSide, Side, SparkWriterSide, rows_of
from benchmarks.iceberg_runtime.turns import Times, Way, cpu_of_all, in_turn
from benchmarks.measure import Result
from benchmarks.spark_trigger import ROWS, WARM_UP, triggers_of, write_source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROUNDS: Final = int(os.environ.get("ROOTLINE_BENCH_TRIGGER_ROUNDS", "2"))


def _sides(spark: SparkSession, places: Places) -> tuple[Side, ...]:
    """The yardstick is the last one."""
    return SparkWriterSide(spark, places), RootlineSide(spark, places), IcebergSide(spark, places)


def compare_appends(spark: SparkSession, places: Places, rows: int) -> list[Result]:
    """An append of all rows at once."""
    frame = spark.read.parquet(*places.data_of(FLIGHTS))
    expected = rows_of(frame)
    assert expected["rows"] == rows
    sides = _sides(spark, places)

    def way(at: int, side: Side) -> Way:
        def table(number: int) -> str:
            return f"written.side_{at}_sample_{number}"

        def check(number: int) -> None:
            found = rows_of(side.read(table(number)))
            assert found == expected, (side.name, found, expected)
            for warehouse in (places.lake, places.iceberg):
                shutil.rmtree(data_folder(warehouse, table(number)), ignore_errors=True)

        return Way(lambda number: side.append(frame, table(number)), lambda number: side.create(table(number)), check)

    times = in_turn({side.name: way(at, side) for at, side in enumerate(sides)})
    *ours, theirs = sides
    return [
        times[side.name].beside(
            times[theirs.name], "13", f"append, {side.name}, {rows:,} rows", "Iceberg's runtime", "≤ 1.3"
        )
        for side in ours
    ]


def compare_triggers(spark: SparkSession, places: Places) -> list[Result]:
    """Triggers of `ROWS` rows."""
    source = places.root / "triggers"
    write_source(source)
    expected = rows_of(spark.read.parquet(str(source)))
    sides = _sides(spark, places)
    times = {side.name: Times() for side in sides}
    for number in range(_ROUNDS + 1):
        for at, side in enumerate(sides):
            table, checkpoint = f"streamed.side_{at}_round_{number}", places.root / f"checkpoint-{at}-{number}"
            side.create(table)
            began_cpu = cpu_of_all()
            taken = triggers_of(spark, source, checkpoint, partial(side.start, table=table))
            cpu = cpu_of_all() - began_cpu
            found = rows_of(side.read(table))
            assert found == expected, (side.name, found, expected)
            if number:  # the first round warms up
                times[side.name].add([one["triggerExecution"] / 1000 for one in taken[WARM_UP:]], cpu)
    *ours, theirs = sides
    return [
        times[side.name].beside(
            times[theirs.name], "14", f"trigger of {ROWS:,} rows, {side.name}", "Iceberg's runtime", "≤ 1.3"
        )
        for side in ours
    ]
