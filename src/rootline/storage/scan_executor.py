"""Carries a scan out: tasks in, Arrow batches out.

Owns: fetching files and vectors a little ahead of the reader, and keeping memory bounded. Does not own: planning
(`rootline.tree.scan_plan`), decoding (`data_file_reader`).
Invariants: batches come in the tasks' order; at most `look_ahead` files beyond the one being read are held; a file is
never read without all of its vectors; nothing is left running when the reader stops early.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
from pyroaring import BitMap64

from rootline.ports.object_store import ObjectStore
from rootline.schemas.content_entry import ContentEntry
from rootline.schemas.identifiers import TableName
from rootline.storage.arrow_types import arrow_field_of
from rootline.storage.data_file_reader import RowsWanted, read_rows, refuse_unreadable
from rootline.storage.stored_file import read_stored
from rootline.storage.vector_reader import vector_in
from rootline.tree.file_task import FileTask
from rootline.tree.scan_plan import ScanPlan

LOOK_AHEAD: Final = 2
_VECTOR_FILES_KEPT: Final = 8


@dataclass(frozen=True, slots=True)
class _Fetched:
    task: FileTask
    body: bytes
    deleted: BitMap64 | None


@dataclass
class _VectorFiles:
    """The Puffin files read last: many tasks in a row may share one."""

    store: ObjectStore
    table: TableName
    kept: OrderedDict[str, asyncio.Task[bytes]] = field(default_factory=OrderedDict)

    async def vector(self, entry: ContentEntry) -> BitMap64:
        reading = self.kept.get(entry.location)
        if reading is None:
            reading = asyncio.ensure_future(
                read_stored(
                    self.store, self.table, entry.location, code="vector-corrupt", length=entry.file_size_in_bytes
                )
            )
            self.kept[entry.location] = reading
            while len(self.kept) > _VECTOR_FILES_KEPT:
                self.kept.popitem(last=False)
        return vector_in(await asyncio.shield(reading), entry)


async def scan_batches(
    store: ObjectStore,
    table: TableName,
    tasks: Iterable[FileTask],
    wanted: RowsWanted,
    *,
    look_ahead: int = LOOK_AHEAD,
) -> AsyncIterator[pa.RecordBatch]:
    """The rows of `tasks` that live and match, in batches of at most 65,536.

    Raises:
        Corrupt: an object is missing, or not what was written.
        Invalid: `file-unreadable`.
        Unavailable: `store-unavailable`.

    """
    source = iter(tasks)
    vectors = _VectorFiles(store, table)
    ahead: deque[asyncio.Task[_Fetched]] = deque()

    def fetch_next() -> None:
        task = next(source, None)
        if task is not None:
            ahead.append(asyncio.ensure_future(_fetch(store, table, task, vectors)))

    try:
        for _ in range(look_ahead + 1):
            fetch_next()
        while ahead:
            fetched = await ahead[0]
            ahead.popleft()
            fetch_next()
            batches = read_rows(fetched.body, fetched.task.data, wanted, fetched.deleted, fetched.task.residual)
            while (batch := await asyncio.to_thread(_next_batch, batches)) is not None:
                yield batch
    finally:
        running = [*ahead, *vectors.kept.values()]
        for future in running:
            future.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def _next_batch(batches: Iterator[pa.RecordBatch]) -> pa.RecordBatch | None:
    return next(batches, None)


async def _fetch(store: ObjectStore, table: TableName, task: FileTask, vectors: _VectorFiles) -> _Fetched:
    entry = task.data
    refuse_unreadable(entry)
    deleted: BitMap64 | None = None
    for vector in task.vectors:
        found = await vectors.vector(vector)
        deleted = found if deleted is None else deleted | found
    body = await read_stored(store, table, entry.location, code="data-file-corrupt", length=entry.file_size_in_bytes)
    return _Fetched(task, body, deleted)


async def scan_table(store: ObjectStore, table: TableName, tasks: Iterable[FileTask], wanted: RowsWanted) -> pa.Table:
    """The rows of `tasks` as one table; raises as `scan_batches`."""
    batches = [batch async for batch in scan_batches(store, table, tasks, wanted)]
    return pa.Table.from_batches(batches, output_schema(wanted))


def output_schema(wanted: RowsWanted) -> pa.Schema:
    """The schema of a scan's batches."""
    return pa.schema([arrow_field_of(column) for column in wanted.fields])


async def count_rows(store: ObjectStore, table: TableName, plan: ScanPlan, wanted: RowsWanted) -> int:
    """How many rows a scan yields; reads only the files whose entries do not say. Raises as `scan_batches`."""
    known = plan.row_count()
    if known is not None:
        return known
    total, unsure = 0, []
    for task in plan.tasks():
        count = task.row_count()
        if count is None:
            unsure.append(task)
        else:
            total += count
    nothing = RowsWanted(wanted.schema, (), wanted.properties)
    async for batch in scan_batches(store, table, unsure, nothing):
        total += batch.num_rows
    return total
