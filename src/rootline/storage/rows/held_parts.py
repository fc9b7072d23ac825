"""Parts of an object as the file that Arrow reads, while only these parts are in memory.

Owns: which parts are asked for together, and reading from those that are held. Does not own: fetching them
(`stored_rows`), which bytes a column has (`parquet_file`).
Invariants: bytes that are not held are an error, never zeros; a read hands out what is held, without a copy.
"""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

HOLE_BYTES_MAX: Final = 128 * 1024
"""Bytes that no one asked for and that are read all the same, because another request costs more."""
JOINED_BYTES_MAX: Final = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True, order=True)
class ByteRange:
    """The bytes from `start` to before `end`."""

    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class CachedPart:
    """The bytes of an object from `start` on."""

    start: int
    body: bytes

    @property
    def end(self) -> int:
        """Where the part ends."""
        return self.start + len(self.body)


def joined(
    ranges: Iterable[ByteRange], *, hole_bytes_max: int = HOLE_BYTES_MAX, joined_bytes_max: int = JOINED_BYTES_MAX
) -> list[ByteRange]:
    """Ranges to ask for, ascending: each of `ranges` lies in one of them."""
    found: list[ByteRange] = []
    for one in sorted(ranges):
        last = found[-1] if found else None
        if last is not None and one.end <= last.end:
            continue
        if last is not None and one.start - last.end <= hole_bytes_max and one.end - last.start <= joined_bytes_max:
            found[-1] = ByteRange(last.start, one.end)
        else:
            found.append(one)
    return found


class CachedParts(io.RawIOBase):
    """An object of `length` bytes, of which `tail` is always held, and what `hold` was given last."""

    def __init__(self, length: int, tail: CachedPart) -> None:
        super().__init__()
        self._length, self._tail, self._at = length, tail, 0
        self.hold(())

    def hold(self, parts: Sequence[CachedPart]) -> None:
        """Read from these, ascending by `start`, and no longer from those before."""
        self._starts, self._parts = [part.start for part in parts], parts

    def holds(self, wanted: ByteRange) -> bool:
        """Whether the tail has these bytes."""
        return self._tail.start <= wanted.start and wanted.end <= self._tail.end

    def readable(self) -> bool:
        """Yes."""
        return True

    def seekable(self) -> bool:
        """Yes."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """As `io.RawIOBase.seek`."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._length}[whence]
        self._at = max(0, start + offset)
        return self._at

    def tell(self) -> int:
        """Where the next read begins."""
        return self._at

    def size(self) -> int:
        """The object's length."""
        return self._length

    def read(self, size: int | None = -1) -> bytes:
        """As `io.RawIOBase.read`, and raises `OSError` for bytes that are not held."""
        return bytes(self.read_buffer(size))

    def read_buffer(self, size: int | None = -1) -> memoryview:
        """The same without a copy: what Arrow calls."""
        left = max(0, self._length - self._at)
        wanted = left if size is None or size < 0 else min(size, left)
        end = self._at + wanted
        number = bisect_right(self._starts, self._at) - 1
        for part in (*self._parts[max(0, number) : number + 1], self._tail):
            if part.start <= self._at and end <= part.end:
                found = memoryview(part.body)[self._at - part.start : end - part.start]
                self._at = end
                return found
        if not wanted:
            return memoryview(b"")
        raise OSError(f"bytes {self._at} to {end} lie outside the columns that the footer names")
