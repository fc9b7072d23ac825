"""Goal 13: batch writes of a table through Spark beside Spark's own Parquet sink, of the same DataFrame.

Owns: the DataFrames, the writes and their tables. Does not own: interleaving (`measure`), the rows (`scan_speed`).
Invariants: subject and yardstick write the same rows in one session, in turn, and both write as many rows. Where the
table has partitions or a sort order, the yardstick writes as many partitions, or sorts by the same columns.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow.parquet as pq

import rootline
import rootline.spark
from benchmarks.measure import Result, Spread, interleaved, load_average
from benchmarks.scan_speed import flights
from benchmarks.spark_session import cpu_seconds, local_session
from rootline.spark.spark_types import arrow_schema_for_spark

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

ROWS: Final = int(os.environ.get("ROOTLINE_BENCH_SPARK_ROWS", "4000000"))
_SAMPLES: Final = int(os.environ.get("ROOTLINE_BENCH_SPARK_SAMPLES", "5"))
_FILE_ROWS: Final = 1_000_000
_TABLE: Final = "demo.flights"
_Append = Callable[["DataFrame", Path], None]


def measure() -> list[Result]:
    """An append of all rows at once, by Spark's writer and by ours."""
    with tempfile.TemporaryDirectory(prefix="rootline-bench-", dir=".") as name:
        folder = Path(name).resolve()
        source = folder / "source"
        source.mkdir()
        for start in range(0, ROWS, _FILE_ROWS):
            pq.write_table(flights(min(_FILE_ROWS, ROWS - start), start), source / f"{start}.parquet")
        spark = local_session(spark__sql__parquet__outputTimestampType="TIMESTAMP_MICROS")
        try:
            plain = [_compared(spark, folder, what, append, _PLAIN) for what, append in _WAYS.items()]
            return plain + [
                _compared(spark, folder, "rootline.spark.append", _by_sparks_writer, kind) for kind in _KINDS
            ]
        finally:
            spark.stop()


def _by_sparks_writer(frame: DataFrame, warehouse: Path) -> None:
    rootline.spark.append(frame, _TABLE, warehouse=str(warehouse))


def _by_format(frame: DataFrame, warehouse: Path) -> None:
    frame.write.format("rootline").option("warehouse", str(warehouse)).mode("append").save(_TABLE)


_WAYS: Final[dict[str, _Append]] = {
    "rootline.spark.append": _by_sparks_writer,
    'format("rootline"), append': _by_format,
}


@dataclass(frozen=True, slots=True)
class _Kind:
    """Rows of one kind, made of the flights; the schema and layout of their table; and Spark's write of the same."""

    what: str
    rows: Callable[[DataFrame], DataFrame]
    schema: Callable[[DataFrame], pa.Schema]
    layout: dict[str, list[str]]
    theirs: Callable[[DataFrame], DataFrameWriter]


def _of_frame(frame: DataFrame) -> pa.Schema:
    return arrow_schema_for_spark(frame.schema.toNullable())


_PLAIN: Final = _Kind("", lambda frame: frame, _of_frame, {}, lambda frame: frame.write)
_NESTED: Final = (
    "id", "named_struct('carrier', carrier, 'tail', tail, 'at', ts) plane", "array(delay, arrival_delay) delays",
    "array(named_struct('number', number, 'late', is_late)) legs", "map(carrier, distance) distances", "day",
)  # fmt: skip
_KINDS: Final = (
    replace(_PLAIN, what=", nested", rows=lambda frame: frame.selectExpr(*_NESTED)),
    replace(
        _PLAIN,
        what=", 8 buckets",
        layout={"partition_by": ["bucket(8, tail)"]},
        theirs=lambda frame: frame.selectExpr("*", "pmod(hash(tail), 8) bucket").write.partitionBy("bucket"),
    ),
    replace(
        _PLAIN,
        what=", sorted",
        layout={"sort_by": ["carrier", "-delay"]},
        theirs=lambda frame: frame.selectExpr("*").sortWithinPartitions("carrier", frame.delay.desc()).write,
    ),
    replace(
        _PLAIN,
        what=", cast",
        rows=lambda frame: frame.withColumns({"number": frame.number.cast("long"), "id": frame.id.cast("int")}),
        schema=lambda _: flights(1, 0).schema,
    ),
)


def _compared(spark: SparkSession, folder: Path, what: str, append: _Append, kind: _Kind) -> Result:
    frame = kind.rows(spark.read.parquet(str(folder / "source")))
    cpu: tuple[list[float], list[float]] = ([], [])
    schema = kind.schema(frame)

    def ours(number: int) -> float:
        warehouse = folder / f"lake-{number}"
        with rootline.connect(str(warehouse)) as lake:
            lake.create_table(_TABLE, schema, **kind.layout)
        taken = _timed(cpu[0], lambda: append(frame, warehouse))
        with rootline.connect(str(warehouse)) as lake:
            assert lake.table(_TABLE).scan().count() == ROWS
        shutil.rmtree(warehouse)
        return taken

    def theirs(number: int) -> float:
        place = folder / f"parquet-{number}"
        taken = _timed(cpu[1], lambda: kind.theirs(frame).parquet(str(place)))
        shutil.rmtree(place)
        return taken

    async def subject(number: int) -> float:
        return ours(number)

    async def yardstick(number: int) -> float:
        return theirs(number)

    mine, other = asyncio.run(interleaved(subject, yardstick, samples=_SAMPLES, warm_up=1))
    spent, allowed = (Spread.of(seconds[1:]) for seconds in cpu)
    note = (
        f"by minimum {mine.minimum / other.minimum:.2f} ×; CPU by median {spent.median / allowed.median:.2f} ×, "
        f"by minimum {spent.minimum / allowed.minimum:.2f} ×"
    )
    ratio = mine.median / other.median
    return Result(
        "13",
        f"{what}{kind.what}, {ROWS:,} rows",
        mine,
        other,
        "Spark's Parquet sink",
        ratio,
        "≤ 1.3",
        load_average(),
        note,
    )


def _timed(cpu: list[float], work: Callable[[], None]) -> float:
    began, began_cpu = time.perf_counter(), cpu_seconds()
    work()
    taken = time.perf_counter() - began
    cpu.append(cpu_seconds() - began_cpu)
    return taken
