"""The execution of a scan: tasks in, Arrow batches out.

Owns: reading several files concurrently, decoding a little ahead of the reader, bounding memory. Does not own: planning
(`rootline.tree.scan.scan_plan`), deletes (`row_deletes`), fetching (`stored_rows`), decoding (`data_file_reader`).
Words: a *task* is a data file to read with its deletes. A *portion* is a list of batches that are decoded together.
Invariants: batches are in the order of the tasks and of the file. At most `look_ahead` files beyond the current one are
open, and at most `room` decoded portions of each wait. A decoder slot is used during decoding only, so a file that is
not read yet never delays the current one. A file is never read without all its deletes. No task keeps running when the
reader stops early. With a limit of rows, no file is fetched if the files before it certainly have enough rows.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import sys
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Final

import pyarrow as pa

from rootline.ports.object_store import ObjectStore
from rootline.schemas.content_entry import ContentEntry
from rootline.schemas.identifiers import TableName
from rootline.storage.rows.data_file_formats import StatedRows, refuse_unreadable
from rootline.storage.rows.data_file_reader import FileReading, RowsWanted, output_schema
from rootline.storage.rows.parquet_file import BATCH_ROWS, COLLECTED, DECODED_ROWS, CachedPart, Run
from rootline.storage.rows.row_deletes import DeletesOfScan, RowDeletes
from rootline.storage.rows.stored_rows import PART_READS, PartReads, StoredRows, find_stored
from rootline.tree.filter.filters import BoundFilter
from rootline.tree.filter.pruning import PruningFilter
from rootline.tree.scan.file_task import FileTask
from rootline.tree.scan.scan_plan import ScanPlan

_PORTION_BYTES: Final = 16 * 1024 * 1024
UNLIMITED: Final = sys.maxsize


@dataclass(frozen=True, slots=True)
class Pace:
    """The portions of each file to decode ahead of the reader (`room`), their rows, and the maximum size of batches."""

    room: int
    portion_rows: int
    handed_rows_max: int


_STREAM: Final = Pace(room=2, portion_rows=4 * DECODED_ROWS, handed_rows_max=BATCH_ROWS)
_LIMITED: Final = Pace(room=1, portion_rows=1, handed_rows_max=BATCH_ROWS)
_WHOLE: Final = Pace(room=UNLIMITED, portion_rows=UNLIMITED, handed_rows_max=COLLECTED.rows_max)
"""For rows that are all kept in memory."""


@dataclass(slots=True)
class Outlook:
    """The expectation about the next rows of a scan with a filter: they match if the last ones did."""

    expects_rows: bool = False


@dataclass(frozen=True, slots=True)
class OpenedFile:
    """A file, and the reading of its rows."""

    stored: StoredRows
    reading: FileReading
    outlook: Outlook


@dataclass(frozen=True, slots=True)
class _Portion:
    batches: list[pa.RecordBatch]
    is_last: bool


@dataclass(frozen=True, slots=True)
class _Begun:
    """An opened file and, if it needs no further fetch, its first portion."""

    opened: OpenedFile
    rows: Iterator[pa.RecordBatch]
    first: _Portion


class DecodingAhead:
    """The decoding of one file. The constructor starts it, and `stop` must end it.

    `decoders` limits the files that are decoded concurrently.
    """

    def __init__(
        self, finding: Callable[[], Awaitable[Callable[[], OpenedFile]]], decoders: asyncio.Semaphore, pace: Pace
    ) -> None:
        self._finding, self._decoders, self._rows_max = finding, decoders, pace.portion_rows
        self._room = asyncio.Semaphore(pace.room)
        self._decoded: asyncio.Queue[list[pa.RecordBatch] | None] = asyncio.Queue()
        self._task = asyncio.ensure_future(self._decode())

    async def portions(self) -> AsyncIterator[list[pa.RecordBatch]]:
        """Yield all portions. Raises the errors of opening and decoding."""
        while (found := await self._decoded.get()) is not None:
            yield found
            self._room.release()
        await self._task

    async def stop(self) -> None:
        """Stop fetching and decoding."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _decode(self) -> None:
        try:
            opening = await self._finding()
            await self._room.acquire()
            async with self._decoders:
                begun = await asyncio.to_thread(_begun, opening, self._rows_max)
            self._decoded.put_nowait(begun.first.batches)
            if begun.opened.stored.needs_no_fetch:
                await self._decode_rest(begun.rows, is_over=begun.first.is_last)
            else:
                await self._decode_in_parts(begun.opened)
        finally:
            self._decoded.put_nowait(None)

    async def _decode_in_parts(self, opened: OpenedFile) -> None:
        stored, reading = opened.stored, opened.reading
        async with _FetchingAhead(opened) as fetching:
            for run in reading.runs:
                fetched = await fetching.next()
                stored.use(fetched.parts)
                if fetched.lacks:
                    async with self._decoders:
                        has_rows = await asyncio.to_thread(reading.has_rows, run)
                    if not has_rows:
                        continue
                    stored.use([*fetched.parts, *await stored.fetch(run, fetched.lacks)])
                opened.outlook.expects_rows = await self._decode_rest(reading.rows(run))

    async def _decode_rest(self, rows: Iterator[pa.RecordBatch], *, is_over: bool = False) -> bool:
        """Decode in portions. Returns whether there were rows."""
        has_rows = False
        while not is_over:
            await self._room.acquire()
            async with self._decoders:
                portion = await asyncio.to_thread(_next_portion, rows, self._rows_max)
            self._decoded.put_nowait(portion.batches)
            has_rows = has_rows or bool(portion.batches)
            is_over = portion.is_last
        return has_rows


_WORTH_A_REQUEST_BYTES: Final = 1024 * 1024
"""Fewer bytes of other columns are fetched with the filter's columns, because another request takes as long."""


@dataclass(frozen=True, slots=True)
class _Fetched:
    """The parts of a run. `lacks`: the columns that are not in them."""

    parts: list[CachedPart]
    lacks: tuple[str, ...]


class _FetchingAhead:
    """Fetches the byte ranges of a file's runs in order, those of one run ahead of the reader.

    If no rows are expected to match, only the columns of the filter are fetched.
    """

    def __init__(self, opened: OpenedFile) -> None:
        self._opened = opened
        self._left = iter(opened.reading.runs)
        self._next_parts: asyncio.Task[_Fetched] | None = None

    async def __aenter__(self) -> _FetchingAhead:
        self._begin()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._next_parts is not None:
            self._next_parts.cancel()
            await asyncio.gather(self._next_parts, return_exceptions=True)

    async def next(self) -> _Fetched:
        """The parts of the next run."""
        assert self._next_parts is not None, "called once for each run"
        found = await self._next_parts
        self._begin()
        return found

    def _begin(self) -> None:
        run = next(self._left, None)
        self._next_parts = None if run is None else asyncio.ensure_future(self._fetched(run))

    async def _fetched(self, run: Run) -> _Fetched:
        stored, reading, outlook = self._opened.stored, self._opened.reading, self._opened.outlook
        others = reading.other_names if reading.filter_names and not outlook.expects_rows else ()
        if not others or stored.bytes_of(run, others) < _WORTH_A_REQUEST_BYTES:
            return _Fetched(await stored.fetch(run, reading.names), ())
        return _Fetched(await stored.fetch(run, reading.filter_names), others)


def _begun(opening: Callable[[], OpenedFile], rows_max: int) -> _Begun:
    """Open a file and decode its first portion. Runs on a thread, so a small file needs only one switch to it."""
    opened = opening()
    reading = opened.reading
    if not opened.stored.needs_no_fetch:
        return _Begun(opened, iter(()), _Portion([], is_last=True))
    rows = chain.from_iterable(map(reading.rows, reading.runs))
    return _Begun(opened, rows, _next_portion(rows, rows_max))


def _next_portion(batches: Iterator[pa.RecordBatch], rows_max: int) -> _Portion:
    """The next batches, up to `rows_max` rows or the size of a portion. Runs on a thread."""
    found: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        found.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= rows_max or size >= _PORTION_BYTES:
            return _Portion(found, is_last=False)
    return _Portion(found, is_last=True)


_LOOK_AHEAD: Final = 2
_DECODERS: Final = max(2, pa.cpu_count())


@dataclass
class _FilesOfScan:
    """Opens the data files of one scan."""

    store: ObjectStore
    table: TableName
    wanted: RowsWanted
    pace: Pace
    part_reads: PartReads = PART_READS
    deletes: DeletesOfScan = field(init=False)
    outlook: Outlook = field(default_factory=Outlook)
    _pruning: tuple[BoundFilter, PruningFilter] | None = None

    def __post_init__(self) -> None:
        self.deletes = DeletesOfScan(self.store, self.table, self.wanted.definition)

    async def find(self, task: FileTask) -> Callable[[], OpenedFile]:
        """Read the deletes of the task's file. Returns a function that opens the file, to be called on a thread."""
        entry, residual = task.data, task.residual
        refuse_unreadable(entry)
        found = await self.deletes.of_task(task)
        open_stored = await self._find_stored(entry, residual, found)
        pruning = None if residual is None else self._pruning_of(residual)

        def opened() -> OpenedFile:
            stored = open_stored()
            handed = self.pace.handed_rows_max
            reading = FileReading.of(stored.file, entry, self.wanted, found, residual, pruning, handed)
            return OpenedFile(stored, reading, self.outlook)

        return opened

    async def _find_stored(
        self, entry: ContentEntry, residual: BoundFilter | None, deletes: RowDeletes
    ) -> Callable[[], StoredRows]:
        if residual is None and not self.wanted.reads_files and not deletes.keys:
            return partial(StoredRows, StatedRows(entry.record_count))
        every_column = residual is None and len(self.wanted.own_fields) >= len(self.wanted.schema.fields)
        reads = self.part_reads
        return await find_stored(self.store, self.table, entry, every_column=every_column, reads=reads)

    def _pruning_of(self, residual: BoundFilter) -> PruningFilter:
        """The pruning filter, built once for consecutive files with the same residual filter."""
        if self._pruning is None or self._pruning[0] is not residual:
            self._pruning = residual, PruningFilter.of(residual, self.wanted.definition)
        return self._pruning[1]


async def scan_batches(
    store: ObjectStore, table: TableName, tasks: Iterable[FileTask], wanted: RowsWanted, *, limit: int | None = None
) -> AsyncGenerator[pa.RecordBatch]:
    """Yield the batches of `scan_portions`, one by one. Raises its errors."""
    async with contextlib.aclosing(scan_portions(store, table, tasks, wanted, limit=limit)) as portions:
        async for portion in portions:
            for batch in portion:
                yield batch


def scan_portions(
    store: ObjectStore, table: TableName, tasks: Iterable[FileTask], wanted: RowsWanted, *, limit: int | None = None
) -> AsyncGenerator[list[pa.RecordBatch]]:
    """Yield the live, matching rows of `tasks`, in batches of at most 65,536, and at most `limit` rows.

    A portion is for readers on another thread, because a switch between threads takes as long as decoding 10,000 rows.

    Raises:
        Corrupt: an object is missing or damaged.
        Invalid: `file-unreadable`.
        Unavailable: `store-unavailable`.
    """
    files = _FilesOfScan(store, table, wanted, _STREAM if limit is None else _LIMITED)
    return _portions(files, tasks, _LOOK_AHEAD, limit)


async def _portions(
    files: _FilesOfScan, tasks: Iterable[FileTask], look_ahead: int, limit: int | None
) -> AsyncGenerator[list[pa.RecordBatch]]:
    source = iter(tasks)
    ahead: deque[tuple[FileTask, DecodingAhead]] = deque()
    decoders = asyncio.Semaphore(_DECODERS)
    left = math.inf if limit is None else limit

    def open_ahead() -> None:
        """Open files up to `look_ahead`, but not more than certainly have all rows that the limit still allows."""
        while len(ahead) <= look_ahead and (limit is None or _sure_rows(task for task, _ in ahead) < left):
            task = next(source, None)
            if task is None:
                return
            ahead.append((task, DecodingAhead(partial(files.find, task), decoders, files.pace)))

    try:
        open_ahead()
        while ahead:
            async for portion in ahead[0][1].portions():
                rows = sum(batch.num_rows for batch in portion)
                if rows >= left:
                    yield _first_rows(portion, int(left))
                    return
                left -= rows
                yield portion
            ahead.popleft()
            open_ahead()
    finally:
        await asyncio.gather(*(decoding.stop() for _, decoding in ahead), return_exceptions=True)
        await files.deletes.close()


def _first_rows(batches: Iterable[pa.RecordBatch], rows: int) -> list[pa.RecordBatch]:
    found: list[pa.RecordBatch] = []
    for batch in batches:
        if rows > 0:
            found.append(batch.slice(0, rows))
            rows -= batch.num_rows
    return found


def _sure_rows(tasks: Iterable[FileTask]) -> int:
    """A lower bound of the number of rows that `tasks` yield."""
    return sum(task.row_count() or 0 for task in tasks)


async def scan_table(
    store: ObjectStore,
    table: TableName,
    tasks: Iterable[FileTask],
    wanted: RowsWanted,
    *,
    limit: int | None = None,
    part_reads: PartReads = PART_READS,
) -> pa.Table:
    """Read the rows of `tasks` as one table. See `scan_batches` for `limit` and errors."""
    files = _FilesOfScan(store, table, wanted, _WHOLE if limit is None else _LIMITED, part_reads)
    portions = _portions(files, tasks, max(_LOOK_AHEAD, _DECODERS), limit)
    batches = [batch async for portion in portions for batch in portion]
    return pa.Table.from_batches(batches, output_schema(wanted))


async def count_rows(
    store: ObjectStore, table: TableName, plan: ScanPlan, wanted: RowsWanted, *, limit: int | None = None
) -> int:
    """Count the rows that a scan yields, up to `limit`. Only files whose entries do not state the number are read.

    Raises the errors of `scan_batches`.
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
