"""The Spark jobs that write one group of data files again.

Owns: how a group is cut into tasks, and the jobs' order. Does not own: what a task does (`group_tasks`), which groups
there are, publishing (`compaction`).
Invariants: a job is one call, so groups run side by side on threads of the driver; only descriptions of files and
samples of keys come to the driver, never rows.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa

from rootline.client.session import oldest_date
from rootline.maintenance.data_compaction_plan import filled, size_of
from rootline.schemas.errors import Invalid
from rootline.schemas.table_definition import TableDefinition
from rootline.spark.maintenance.group_tasks import (
    PART_ROWS,
    RESULT,
    FilesOfGroup,
    GroupWork,
    keys_like,
    numbers_of,
    pack,
    result_batch,
    sample,
    share_out,
    write_part,
    write_whole,
)
from rootline.tree.scan.file_task import FileTask

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SAMPLE_ROWS_OF_PART: Final = 1_000
_SAMPLE_ROWS_MIN: Final = 20_000
_SHARE_FILES_MAX: Final = 500
_Found = TypeVar("_Found")


def packed(spark: SparkSession, work: GroupWork) -> FilesOfGroup:
    """The group's files as one task writes them."""
    [written] = on_cluster(spark, len(work.shares), partial(pack, work))
    return written


def ordered(spark: SparkSession, work: GroupWork) -> FilesOfGroup:
    """The group's files with their rows in order, within each file and from file to file.

    One task is enough for what makes one file. Otherwise a first job takes a sample of the keys, and a second sends
    each row to the part that its key is in.
    """
    tasks = [task for share in work.shares for task in share]
    parts = math.ceil(sum(map(_live_bytes, tasks)) / work.target_bytes)
    if parts < 2:
        [written] = on_cluster(spark, len(work.shares), partial(write_whole, work))
        return written
    shared = GroupWork(
        work.options, work.definition_json, _shares(tasks, work.target_bytes), work.target_bytes, work.order
    )
    rows = sum(task.record_count for task in tasks)
    rate = max(_SAMPLE_ROWS_MIN, _SAMPLE_ROWS_OF_PART * parts) / max(rows, 1)
    samples = on_cluster(spark, len(shared.shares), partial(sample, shared, rate))
    order, definition = shared.ordering(), TableDefinition.from_json(work.definition_json)
    cuts = order.cuts(keys_like(samples, order, definition), parts)

    def sent(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in numbers_of(batches):
            yield from share_out(shared, cuts, number)

    def written_part(rows_of_part: pa.Table) -> pa.Table:
        part = rows_of_part.column("part")[0].as_py()
        return pa.Table.from_batches([result_batch((part, write_part(shared, cuts, rows_of_part)))])

    count = len(shared.shares)
    frame = spark.range(0, count, 1, count).mapInArrow(sent, PART_ROWS)
    found = frame.repartition(parts, "part").groupBy("part").applyInArrow(written_part, RESULT).collect()
    results = [result for _, result in sorted(map(_unpacked, found), key=_part_of)]
    dates = oldest_date(result.oldest_ms for result in results)
    return FilesOfGroup(tuple(file for result in results for file in result.files), dates)


def _part_of(found: tuple[int, FilesOfGroup]) -> int:
    return found[0]


def _shares(tasks: list[FileTask], target_bytes: int) -> tuple[tuple[FileTask, ...], ...]:
    """One for each task of a job: about as many bytes as a new file has."""
    return tuple(filled(tasks, target_bytes, _SHARE_FILES_MAX))


def _live_bytes(task: FileTask) -> float:
    """About how many bytes of the file are of rows that live."""
    deleted = sum(vector.record_count for vector in task.vectors)
    return size_of(task) * max(0.0, 1 - deleted / max(task.record_count, 1))


def on_cluster(spark: SparkSession, count: int, run: Callable[[int], _Found]) -> list[_Found]:
    """The results of `run` for each number, each from its own task.

    Raises:
        Invalid: as `run` raised it first; in an error of Spark's it would be a text.

    """

    def each(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in numbers_of(batches):
            yield result_batch(_outcome(run, number))

    found = [_unpacked(row) for row in spark.range(0, count, 1, count).mapInArrow(each, RESULT).collect()]
    for result in found:
        if isinstance(result, Invalid):
            raise result
    return found


def _outcome(run: Callable[[int], _Found], number: int) -> _Found | Invalid:
    try:
        return run(number)
    except Invalid as error:  # trying the task again would not mend it
        return error


def _unpacked(row: Any) -> Any:
    return pickle.loads(bytes(row.result))
