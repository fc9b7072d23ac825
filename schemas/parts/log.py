"""The part `log`: the offsets to apply next, the log's time, and the marks of the last decided records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from rootline.schemas.identifiers import MARK_BYTES, LogId
from rootline.schemas.parts.header_part import HeaderPart, count_of, json_of, list_in, string_of

OFFSETS_KEY: Final = "rootline.offsets"
LOG_TIME_KEY: Final = "rootline.log-time"
MARKS_KEY: Final = "rootline.marks"
"""Absent if the root has no marks, as in roots of older releases."""


class PartitionOffset(NamedTuple):
    """The *next* offset to apply of one partition of one log."""

    log: LogId
    partition: int
    next_offset: int


class ClockJump(NamedTuple):
    """A forward jump of append times, which began at `at_ms`. Its `skipped_ms` do not count as idle time of writers
    that were seen before it.
    """

    at_ms: int
    skipped_ms: int


class LogTime(NamedTuple):
    """The newest append time (milliseconds, epoch) of decided records, and the recent jumps."""

    newest_ms: int
    jumps: tuple[ClockJump, ...] = ()


@dataclass(frozen=True, slots=True)
class LogProgress:
    """The progress on each partition of the log: a record before the next offset has its verdict.

    `time` is `None` in a root of an older release. `marks`: for each of `offsets`, the mark (`mark_of`) of the record
    before that offset. A mark is `None` or absent if unknown.
    """

    offsets: tuple[PartitionOffset, ...] = ()
    time: LogTime | None = None
    marks: tuple[bytes | None, ...] = ()

    def mark_at(self, log: LogId, partition: int) -> bytes | None:
        """The mark of the last decided record of this partition, or `None` if unknown."""
        for offset, mark in zip(self.offsets, self.marks, strict=False):
            if offset.log == log and offset.partition == partition:
                return mark
        return None


def _encode_marks(log: LogProgress) -> bytes | None:
    return json_of([None if mark is None else mark.hex() for mark in log.marks]) if any(log.marks) else None


def _decode(metadata: Mapping[str, bytes]) -> LogProgress:
    return LogProgress(
        tuple(
            PartitionOffset(LogId(string_of(log)), count_of(partition), count_of(next_offset))
            for log, partition, next_offset in list_in(metadata, OFFSETS_KEY)
        ),
        _log_time(*list_in(metadata, LOG_TIME_KEY)) if LOG_TIME_KEY in metadata else None,
        tuple(map(_mark, list_in(metadata, MARKS_KEY))) if MARKS_KEY in metadata else (),
    )


def _log_time(newest_ms: Any, jumps: Any) -> LogTime:
    return LogTime(count_of(newest_ms), tuple(ClockJump(count_of(at), count_of(skipped)) for at, skipped in jumps))


def _mark(value: Any) -> bytes | None:
    mark = None if value is None else bytes.fromhex(string_of(value))
    if mark is not None and len(mark) != MARK_BYTES:
        raise ValueError(f"{MARKS_KEY} has a mark of {len(mark)} bytes, not {MARK_BYTES}")
    return mark


LOG: Final[HeaderPart[LogProgress]] = HeaderPart(
    "log",
    {
        OFFSETS_KEY: lambda log: json_of(log.offsets),
        LOG_TIME_KEY: lambda log: None if log.time is None else json_of(log.time),
        MARKS_KEY: _encode_marks,
    },
    _decode,
)
