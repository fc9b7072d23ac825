"""The batches of one file, decoded a little ahead of their reader.

Owns: the task that fetches and decodes, and how far ahead it goes. Does not own: which files are read
(`scan_executor`), fetching (`stored_rows`), decoding (`data_file_reader`).
Invariants: batches come in the file's order; at most `room` portions wait to be taken; a place among those who decode
is held while decoding only, so that a file no one reads yet never keeps back the one that is read.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Final

import pyarrow as pa

from rootline.storage.rows.data_file_reader import FileReading
from rootline.storage.rows.held_parts import CachedPart
from rootline.storage.rows.stored_rows import StoredRows

_PORTION_ROWS: Final = 131_072
_PORTION_BYTES: Final = 16 * 1024 * 1024
UNLIMITED: Final = sys.maxsize


@dataclass(frozen=True, slots=True)
class OpenedFile:
    """A file, and how its rows are read."""

    stored: StoredRows
    reading: FileReading


@dataclass(frozen=True, slots=True)
class _Portion:
    batches: list[pa.RecordBatch]
    is_last: bool


@dataclass(frozen=True, slots=True)
class _Begun:
    """An opened file and, if all of it is at hand, its first portion."""

    opened: OpenedFile
    rows: Iterator[pa.RecordBatch]
    first: _Portion


class DecodingAhead:
    """Starts at once; `decoders` bounds how many files are decoded at the same moment. Stop it when it is done with."""

    def __init__(
        self, finding: Callable[[], Awaitable[Callable[[], OpenedFile]]], decoders: asyncio.Semaphore, room: int
    ) -> None:
        self._finding, self._decoders = finding, decoders
        self._room = asyncio.Semaphore(room)
        self._decoded: asyncio.Queue[list[pa.RecordBatch] | None] = asyncio.Queue()
        self._task = asyncio.ensure_future(self._decode())

    async def batches(self) -> AsyncIterator[pa.RecordBatch]:
        """All of them. Raises what opening and decoding raise."""
        while (found := await self._decoded.get()) is not None:
            for batch in found:
                yield batch
            self._room.release()
        await self._task

    async def stop(self) -> None:
        """Fetch and decode no further."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _decode(self) -> None:
        try:
            opening = await self._finding()
            await self._room.acquire()
            async with self._decoders:
                begun = await asyncio.to_thread(_begun, opening)
            self._decoded.put_nowait(begun.first.batches)
            if begun.opened.stored.is_at_hand:
                await self._decode_rest(begun.rows, is_over=begun.first.is_last)
            else:
                await self._decode_in_parts(begun.opened)
        finally:
            self._decoded.put_nowait(None)

    async def _decode_in_parts(self, opened: OpenedFile) -> None:
        stored, reading = opened.stored, opened.reading
        async with _FetchingAhead(stored, reading) as fetching:
            for run in reading.runs:
                stored.hold(await fetching.next())
                await self._decode_rest(reading.rows(run))

    async def _decode_rest(self, rows: Iterator[pa.RecordBatch], *, is_over: bool = False) -> None:
        while not is_over:
            await self._room.acquire()
            async with self._decoders:
                portion = await asyncio.to_thread(_next_portion, rows)
            self._decoded.put_nowait(portion.batches)
            is_over = portion.is_last


class _FetchingAhead:
    """The parts of a file's runs in turn, those of one run fetched ahead."""

    def __init__(self, stored: StoredRows, reading: FileReading) -> None:
        self._stored, self._reading = stored, reading
        self._left = iter(reading.runs)
        self._coming: asyncio.Task[list[CachedPart]] | None = None

    async def __aenter__(self) -> _FetchingAhead:
        self._begin()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._coming is not None:
            self._coming.cancel()
            await asyncio.gather(self._coming, return_exceptions=True)

    async def next(self) -> list[CachedPart]:
        """The parts of the next run."""
        assert self._coming is not None, "asked once for each run"
        found = await self._coming
        self._begin()
        return found

    def _begin(self) -> None:
        run = next(self._left, None)
        self._coming = None if run is None else asyncio.ensure_future(self._stored.fetch(run, self._reading.names))


def _begun(opening: Callable[[], OpenedFile]) -> _Begun:
    """On a thread: one handing over for a small file."""
    opened = opening()
    reading = opened.reading
    if not opened.stored.is_at_hand:
        return _Begun(opened, iter(()), _Portion([], is_last=True))
    rows = chain.from_iterable(map(reading.rows, reading.runs))
    return _Begun(opened, rows, _next_portion(rows))


def _next_portion(batches: Iterator[pa.RecordBatch]) -> _Portion:
    """On a thread: the next batches, as many as are worth a portion."""
    found: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        found.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= _PORTION_ROWS or size >= _PORTION_BYTES:
            return _Portion(found, is_last=False)
    return _Portion(found, is_last=True)
