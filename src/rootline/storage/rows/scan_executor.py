"""Carries a scan out: tasks in, Arrow batches out.

Owns: fetching files a little ahead of the reader, and keeping memory bounded. Does not own: planning
(`rootline.tree.scan.scan_plan`), what deletes rows (`row_deletes`), decoding (`data_file_reader`).
Invariants: batches come in the tasks' order; at most `look_ahead` files beyond the one being read are held; a file is
never read without all that deletes rows of it; nothing is left running when the reader stops early; with a limit, no
file is fetched beyond those that are sure to have enough rows.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from rootline.ports.object_store import ObjectStore
from rootline.schemas.identifiers import TableName
from rootline.storage.metadata.stored_file import read_file
from rootline.storage.rows.data_file_formats import refuse_unreadable
from rootline.storage.rows.data_file_reader import RowsWanted, output_schema, read_rows
from rootline.storage.rows.row_deletes import DeletesOfScan, RowDeletes
from rootline.tree.scan.file_task import FileTask
from rootline.tree.scan.scan_plan import ScanPlan

LOOK_AHEAD: Final = 2


@dataclass(frozen=True, slots=True)
class _Fetched:
    task: FileTask
    body: bytes
    deletes: RowDeletes


async def scan_batches(
    store: ObjectStore,
    table: TableName,
    tasks: Iterable[FileTask],
    wanted: RowsWanted,
    *,
    look_ahead: int = LOOK_AHEAD,
    limit: int | None = None,
) -> AsyncIterator[pa.RecordBatch]:
    """The rows of `tasks` that live and match, in batches of at most 65,536; at most `limit` rows.

    Raises:
        Corrupt: an object is missing, or not what was written.
        Invalid: `file-unreadable`.
        Unavailable: `store-unavailable`.

    """
    source = iter(tasks)
    deletes = DeletesOfScan(store, table, wanted.definition)
    ahead: deque[tuple[FileTask, asyncio.Task[_Fetched]]] = deque()
    left = math.inf if limit is None else limit

    def fetch_ahead(being_read: FileTask | None = None) -> None:
        """Fetch as many files as may be held, but none beyond those that are sure to have all rows that are left."""
        while len(ahead) <= look_ahead and (
            limit is None or _sure_rows(being_read, *(task for task, _ in ahead)) < left
        ):
            task = next(source, None)
            if task is None:
                return
            ahead.append((task, asyncio.ensure_future(_fetch(store, table, task, deletes))))

    try:
        fetch_ahead()
        while ahead:
            fetched = await ahead[0][1]
            ahead.popleft()
            fetch_ahead(fetched.task)
            batches = read_rows(fetched.body, fetched.task.data, wanted, fetched.deletes, fetched.task.residual)
            while (batch := await asyncio.to_thread(_next_batch, batches)) is not None:
                if batch.num_rows >= left:
                    yield batch.slice(0, int(left))
                    return
                left -= batch.num_rows
                yield batch
            fetch_ahead()
    finally:
        for _, future in ahead:
            future.cancel()
        await asyncio.gather(*(future for _, future in ahead), return_exceptions=True)
        await deletes.close()


def _sure_rows(*tasks: FileTask | None) -> int:
    """At least so many rows come of `tasks`."""
    return sum(task.row_count() or 0 for task in tasks if task is not None)


def _next_batch(batches: Iterator[pa.RecordBatch]) -> pa.RecordBatch | None:
    return next(batches, None)


async def _fetch(store: ObjectStore, table: TableName, task: FileTask, deletes: DeletesOfScan) -> _Fetched:
    entry = task.data
    refuse_unreadable(entry)
    found = await deletes.of_task(task)
    body = await read_file(store, table, entry, code="data-file-corrupt")
    return _Fetched(task, body, found)


async def scan_table(
    store: ObjectStore, table: TableName, tasks: Iterable[FileTask], wanted: RowsWanted, *, limit: int | None = None
) -> pa.Table:
    """The rows of `tasks` as one table; `limit` and errors as of `scan_batches`."""
    batches = [batch async for batch in scan_batches(store, table, tasks, wanted, limit=limit)]
    return pa.Table.from_batches(batches, output_schema(wanted))


async def count_rows(
    store: ObjectStore, table: TableName, plan: ScanPlan, wanted: RowsWanted, *, limit: int | None = None
) -> int:
    """How many rows a scan yields; reads only the files whose entries do not say, and none beyond `limit` rows.

    Raises as `scan_batches`.
    """
    known = plan.row_count()
    most = math.inf if limit is None else limit
    if known is not None:
        return int(min(known, most))
    total, unsure = 0, []
    for task in plan.tasks():
        count = task.row_count()
        if count is None:
            unsure.append(task)
        else:
            total += count
        if total >= most:
            return int(most)
    nothing = RowsWanted.of(wanted.definition, ())
    rest = None if limit is None else limit - total
    async for batch in scan_batches(store, table, unsure, nothing, limit=rest):
        total += batch.num_rows
    return total
