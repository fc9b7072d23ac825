"""An embedded log for inspection: the records that are still in it, newest first.

Owns: reading in portions. Does not own: the SQL of records (`log_file`).
Invariants: All invariants of the port `LogArchive`. No file is created. No lock is taken that a writer waits for.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from typing_extensions import override

from rootline.adapters.sqlite.log_file import LogReader
from rootline.adapters.sqlite.undecided import FILE_NAME
from rootline.ports.intent_log import LogArchive
from rootline.schemas.errors import Unavailable
from rootline.schemas.identifiers import LogPosition, LogRecord
from rootline.schemas.root_header import RootHeader
from rootline.schemas.verdict import DeadLetter, Verdict
from rootline.tree.commit.verdicts import is_last_decided, log_went_back, next_offset

_PORTION: Final = 1_024


class SqliteLogArchive(LogArchive):
    """The archive of the log in `folder`.

    Raises:
        Unavailable: `log-unavailable`, there is no log, or it cannot be opened. Corrupt: `log-corrupt`.
    """

    def __init__(self, folder: Path) -> None:
        path = folder.absolute() / FILE_NAME
        if not path.is_file():
            raise Unavailable("log-unavailable", f"{path}: there is no log here. Check the warehouse or the log's URL")
        self._reader = LogReader(path)

    @override
    async def records(
        self, *, key: bytes | None = None, since_ms: int = 0
    ) -> AsyncGenerator[Sequence[LogRecord], None]:
        """Read as the port describes. With a `key`, no other records are read."""
        before = self._reader.end_offset()
        while portion := self._reader.records_before(before, _PORTION, key=key, since_ms=since_ms):
            yield portion
            before = portion[-1].position.offset

    @override
    async def dead_letters(self, *, since_ms: int = 0) -> AsyncGenerator[Sequence[DeadLetter], None]:
        """Read as the port describes. `since_ms` applies to the append time of the rejected record."""
        before = self._reader.end_offset()
        while portion := self._reader.dead_letters_before(before, _PORTION, since_ms=since_ms):
            yield portion
            before = portion[-1].offset

    @override
    async def verdict_on(self, record: LogRecord) -> Verdict | None:
        return self._reader.verdict(record.position.offset)

    @override
    async def dead_letter_of(self, record: LogRecord) -> DeadLetter | None:
        offset = record.position.offset
        letters = self._reader.dead_letters_before(offset + 1, 1)
        return letters[0] if letters and letters[0].offset == offset else None

    @override
    async def close(self) -> None:
        self._reader.close()


def behind_root(folder: Path, header: RootHeader) -> str | None:
    """The reason why this log is not the one whose records the root has decided. `None`: nothing shows that.

    Raises:
        Unavailable: `log-unavailable`. Corrupt: `log-corrupt`.
    """
    with _reading(folder) as reader:
        if reader is None:
            return None
        applied = next_offset(header, reader.identity, 0)
        last, end = LogPosition(reader.identity, 0, applied - 1), reader.end_offset()
        if applied > end:
            return log_went_back(header, last, end)
        if header.log.mark_at(reader.identity, 0) is None or last.offset < reader.pruning_state().records_below:
            return None
        same = [raw for raw in reader.records(last.offset, 1) if raw.position == last]
        is_decided = bool(same) and is_last_decided(header, last, same[0].value, same[0].appended_ms)
        return None if is_decided else log_went_back(header, last)


def confirmed_in(folder: Path, table: str) -> int | None:
    """The highest version of `table` in any verdict of this log, or `None` without a log or such a verdict.

    Raises:
        Unavailable: `log-unavailable`. Corrupt: `log-corrupt`.
    """
    with _reading(folder) as reader:
        return None if reader is None else reader.confirmed_version(table)


@contextmanager
def _reading(folder: Path) -> Iterator[LogReader | None]:
    """Open a reader of the log in `folder` until the block ends, or `None` if there is no log."""
    path = folder.absolute() / FILE_NAME
    if not path.is_file():
        yield None
        return
    reader = LogReader(path)
    try:
        yield reader
    finally:
        reader.close()
