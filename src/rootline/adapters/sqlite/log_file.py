"""The file of the embedded log: the rows that one connection writes to it or reads from it.

Owns: the SQL, the pragmas, creating the file, the check that an open file is still the one at its path, the meaning of
each SQLite error for a caller. Does not own: threads and waiting (`intent_log`), the rows of `meta` (`meta_rows`).
Invariants: WAL with `synchronous=FULL`, so a committed transaction survives a power cut. Offsets are AUTOINCREMENT
numbers, and never reused. The identity is chosen once, when the file is created, under a lock. Nothing is written to a
file that was moved away, deleted or replaced, because no other process would find it. No connection is open across a
fork.

Theory. SQLite counts its locks on a file in the memory of the process. A forked child has the counts of its parent, but
not its locks, even for a connection that it opens itself: what it believes to have locked is free for other processes.
They delete the WAL that it writes to, and its records are lost. So every connection is closed before a fork.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import random
import sqlite3
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from typing_extensions import override

from rootline.adapters.posix_files import (
    FORKS,
    ClosedByForks,
    make_durable_folder,
    sync_folder,
    unlock_and_close,
    wait_for_lock,
)
from rootline.adapters.sqlite.log_pruning import LogRetention, Pruned, PruningState, prune_step, pruning_state
from rootline.adapters.sqlite.meta_rows import (
    CARRIED,
    DECIDED,
    check_layout,
    create_tables,
)
from rootline.adapters.sqlite.undecided import FILE_NAME
from rootline.ports.intent_log import NewRecord
from rootline.schemas.bytes.record_headers import Lake, content_headers, decode_lake, encode_lake, trace_headers
from rootline.schemas.errors import Corrupt, Fenced, OutcomeUnknown, RootlineError, Unavailable
from rootline.schemas.identifiers import LogId, LogPosition, LogRecord, oldest_file_header
from rootline.schemas.verdict import DeadLetter, Verdict, newest_versions


@dataclass(frozen=True, slots=True)
class OpenFile:
    """The file that was at `path` when it was opened."""

    path: Path
    device: int
    inode: int

    @classmethod
    def at(cls, path: Path) -> Self:
        """The file that is at `path` now. Raises `OSError`."""
        found = path.stat()
        return cls(path, found.st_dev, found.st_ino)

    def check(self) -> None:
        """Raise `Unavailable` (`log-unavailable`) unless the same file is still at `path`."""
        try:
            found = self.path.stat()
            is_there = (found.st_dev, found.st_ino) == (self.device, self.inode)
        except OSError:
            is_there = False
        if not is_there:
            raise Unavailable(
                "log-unavailable",
                f"{self.path}: the log's file was moved away, deleted or replaced while it was open. Put it back, or "
                "stop all processes that use this lake and start them again",
            )


_Answer = TypeVar("_Answer")
_LOCK_NAME: Final = "log.lock"
_APPLICATION_ID: Final = 0x524F4F54  # "ROOT", to distinguish the log from another program's database
_BUSY_WAIT_S: Final = 10.0
_READ_BYTES_MAX: Final = 8_000_000
_OFFSETS_PER_QUERY: Final = 500
_BUSY: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_NOT_A_LOG: Final = (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)


class _Connection(ClosedByForks):
    """A connection to the file at `path`, which each fork closes, and the next use reopens.

    All methods but `close_for_fork` are called in a block that no fork interrupts.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: OpenFile | None = None
        self._open: sqlite3.Connection | None = None
        self._is_patient = True
        self._is_closed = False
        self.times_opened = 0
        FORKS.close_before_forks(self)

    def get(self) -> sqlite3.Connection:
        """The open connection. Raises `sqlite3.Error`, and the errors of `check`."""
        if self._is_closed:
            raise sqlite3.ProgrammingError("the log was closed")
        if self._open is None:
            self.check()
            opened = _connect(self._path)
            try:
                self._file = self._file or OpenFile.at(self._path)
                self.check()
            except BaseException:
                opened.close()
                raise
            self._open = opened
            self.times_opened += 1
            if not self._is_patient:
                self.wait_no_more()
        return self._open

    def check(self) -> None:
        """Raise `Unavailable` (`log-unavailable`) unless the file that was opened first is still at its path."""
        if self._file is not None:
            self._file.check()

    def wait_no_more(self) -> None:
        """Let statements fail at once while another process has the lock that they need."""
        self._is_patient = False
        self.get().execute("PRAGMA busy_timeout=0")

    def close(self) -> None:
        """Close it for ever."""
        self._is_closed = True
        if self._open is not None:
            self._open.close()

    @override
    def close_for_fork(self) -> None:
        opened, self._open = self._open, None
        if opened is not None:
            with contextlib.suppress(sqlite3.Error):
                opened.close()


class LogWriter:
    """A connection that writes."""

    def __init__(self, path: Path, opened: _Connection, identity: LogId) -> None:
        self.path = path
        self.identity = identity
        self._opened = opened

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Open the log in `folder`, and create it if it does not exist.

        Raises:
            Unavailable: `log-unavailable`. Corrupt: `log-corrupt`.
        """
        path = folder / FILE_NAME
        try:
            make_durable_folder(folder, top=folder.parent)
            with _locked(folder / _LOCK_NAME), FORKS.shut():
                opened = _Connection(path)
                try:
                    identity = _prepare(opened.get(), path)
                    opened.wait_no_more()  # `_begin` waits instead
                    sync_folder(folder)
                except BaseException:
                    opened.close()
                    raise
        except (sqlite3.Error, OSError) as error:
            raise _failed(path, error) from error
        return cls(path, opened, identity)

    @property
    def connection(self) -> sqlite3.Connection:
        """The open connection."""
        return self._opened.get()

    def in_one_transaction(self, works: Sequence[Callable[[Self], object]]) -> list[object]:
        """Run `works` in order in one transaction, which is durable when this returns.

        Raises:
            Unavailable: nothing was written. OutcomeUnknown: `publish-unknown`, the commit itself failed.
        """
        with FORKS.shut():
            return self._in_one_transaction(works)

    def _in_one_transaction(self, works: Sequence[Callable[[Self], object]]) -> list[object]:
        self._opened.check()
        try:
            _begin(self.connection)
            answers = [work(self) for work in works]
        except Exception as error:
            self._roll_back()
            if isinstance(error, sqlite3.Error | OSError):
                raise _failed(self.path, error) from error
            raise
        try:
            self.connection.execute("COMMIT")
        except sqlite3.Error as error:
            # a transaction that is still open was not committed, but one that is closed may be in the file or not
            still_open = self.connection.in_transaction
            self._roll_back()
            failed = _failed(self.path, error)
            if still_open and error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:
                raise failed from error
            raise OutcomeUnknown("publish-unknown", failed.message) from error
        return answers

    def _roll_back(self) -> None:
        with contextlib.suppress(sqlite3.Error, OSError, Unavailable):
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")

    def append(
        self, records: Sequence[NewRecord], oldest_file_ms: int | None = None, trace: bytes | None = None
    ) -> list[int]:
        """Append records, and return their offsets. `oldest_file_ms`: when the first file of them was uploaded."""
        now_ms = time.time_ns() // 1_000_000
        columns = f"key, value, appended_ms, {', '.join(CARRIED)}"
        statement = f"INSERT INTO intents ({columns}) VALUES (?, ?, ?, ?, ?, ?)"
        rows = [
            (key, value, now_ms, content[0] if content else None, oldest_file_ms, trace)
            for key, value, *content in records
        ]
        return [_row_id(self.connection.execute(statement, row)) for row in rows]

    def decide(
        self, verdicts: Sequence[Verdict], dead_letters: Sequence[DeadLetter], last_read: LogRecord | None = None
    ) -> list[Verdict]:
        """Store verdicts and dead letters, the first one of each offset, and return the verdicts that are stored.

        `last_read`: the newest record that the coordinator has read. Raises `Fenced` unless it is still in the log,
        because the verdicts would apply to other records.
        """
        if last_read is not None:
            check_is_there(self.connection, last_read)
        for letter in dead_letters:
            self.connection.execute(
                "INSERT OR IGNORE INTO dead_letters (log_offset, body, key, value) VALUES (?, ?, ?, ?)",
                (letter.offset, _letter_body(letter), letter.key, letter.value),
            )
        for table, version in newest_versions(verdicts).items():
            self.connection.execute(
                "INSERT INTO heads VALUES (?, ?) ON CONFLICT (table_name) DO UPDATE SET version = excluded.version"
                " WHERE excluded.version > version",
                (table, version),
            )
        return [self._decide(verdict) for verdict in verdicts]

    def _decide(self, verdict: Verdict) -> Verdict:
        kept = self.connection.execute(DECIDED, (verdict.offset, verdict.model_dump_json()))
        return verdict if kept.rowcount == 1 else _verdicts_at(self.connection, (verdict.offset,))[0]

    def accept_head(self, table: str, version: int | None) -> None:
        """Forget that verdicts have named versions of `table` above `version`. `None`: forget all of them."""
        self.connection.execute("DELETE FROM heads WHERE table_name = ? AND version > ?", (table, version or -1))
        if version is not None:
            self.connection.execute("INSERT OR IGNORE INTO heads VALUES (?, ?)", (table, version))

    def lake(self, lake: Lake) -> Lake:
        """Store `lake` if the log has none yet, and return the lake that the log serves."""
        self.connection.execute("INSERT OR IGNORE INTO meta VALUES ('lake', ?)", (encode_lake(lake).decode(),))
        found = self.connection.execute("SELECT value FROM meta WHERE name = 'lake'").fetchone()
        return decode_lake(found[0].encode()) or lake

    def accept_as_another(self) -> LogId:
        """Give the log another identity, to which its records belong from now on, and return it."""
        self.connection.execute("INSERT OR REPLACE INTO meta VALUES ('identity', ?)", (str(uuid.uuid4()),))
        return _identity_of(self.connection, self.path)

    def first_undecided(self) -> int:
        """The lowest offset without a verdict. Stores the result, so that the next search starts there."""
        known = self.connection.execute("SELECT value FROM meta WHERE name = 'decided-below'").fetchone()
        found = self.connection.execute(
            "SELECT i.log_offset FROM intents i LEFT JOIN verdicts v ON v.log_offset = i.log_offset"
            " WHERE i.log_offset >= ? AND v.log_offset IS NULL ORDER BY i.log_offset LIMIT 1",
            (int(known[0]) if known else 0,),
        ).fetchone()
        offset = _end_offset(self.connection) if found is None else int(found[0])
        self.connection.execute("INSERT OR REPLACE INTO meta VALUES ('decided-below', ?)", (str(offset),))
        return offset

    def prune(self, retention: LogRetention, *, now_ms: int, limit: int) -> Pruned:
        """Delete some records that were decided longer ago than `retention`, at most `limit` of them."""
        decided_below = self.first_undecided()
        return prune_step(self.connection, retention, now_ms=now_ms, decided_below=decided_below, limit=limit)

    def close(self) -> None:
        """Close the connection. The last connection to close writes the WAL into the file."""
        with FORKS.shut():
            self._opened.close()


class LogReader:
    """A connection that reads."""

    def __init__(self, path: Path) -> None:
        self._path, self._opened = path, _Connection(path)
        with self._failures():
            self.identity = _identity_of(self._connection, path)

    @property
    def _connection(self) -> sqlite3.Connection:
        return self._opened.get()

    def data_version(self) -> int:
        """A number that changes when another connection has committed. It may change without that after a fork."""
        with self._failures():
            version = int(self._connection.execute("PRAGMA data_version").fetchone()[0])
            return (self._opened.times_opened << 32) + version

    def end_offset(self) -> int:
        """The offset of the next record."""
        with self._failures():
            return _end_offset(self._connection)

    def check_is_there(self, last_read: LogRecord) -> None:
        """Raise `Fenced` unless this record is still in the log."""
        with self._failures():
            check_is_there(self._connection, last_read)

    def ask(self, question: Callable[[sqlite3.Connection], _Answer]) -> _Answer:
        """The answer to a question about the file, such as `pauses_in`."""
        with self._failures():
            return question(self._connection)

    def pruning_state(self) -> PruningState:
        """The pruning state. Every record from `records_below` on is still in the log."""
        with self._failures():
            return pruning_state(self._connection)

    def confirmed_version(self, table: str) -> int | None:
        """The highest version of `table` in any verdict of this log."""
        with self._failures():
            query = "SELECT version FROM heads WHERE table_name = ?"
            found = self._connection.execute(query, (table,)).fetchone()
            return None if found is None else int(found[0])

    def records(self, from_offset: int, limit: int) -> list[LogRecord]:
        """Up to `limit` records from `from_offset` on, stopping after 8 MB of values."""
        return self._records("log_offset >= ? ORDER BY log_offset LIMIT ?", (from_offset, limit))

    def records_before(
        self, before_offset: int, limit: int, *, key: bytes | None = None, since_ms: int = 0
    ) -> list[LogRecord]:
        """Up to `limit` records below `before_offset`, newest first, stopping after 8 MB of values."""
        where, values = "log_offset < ? AND appended_ms >= ?", [before_offset, since_ms]
        if key is None:
            return self._records(f"{where} ORDER BY log_offset DESC LIMIT ?", (*values, limit))
        return self._records(f"{where} AND key = ? ORDER BY log_offset DESC LIMIT ?", (*values, key, limit))

    def _records(self, where: str, values: tuple[int | bytes, ...]) -> list[LogRecord]:
        columns = f"log_offset, key, appended_ms, {', '.join(CARRIED)}, value"
        rows = self._rows(f"SELECT {columns} FROM intents WHERE {where}", values)
        return [
            LogRecord(
                LogPosition(self.identity, 0, offset),
                key,
                value,
                appended_ms,
                (*content_headers(content), *oldest_file_header(oldest_file_ms), *trace_headers(trace)),
            )
            for offset, key, appended_ms, content, oldest_file_ms, trace, value in rows
        ]

    def verdict(self, offset: int) -> Verdict | None:
        """The verdict on the record at `offset`."""
        return next(iter(self.verdicts((offset,))), None)

    def verdicts(self, offsets: Sequence[int]) -> list[Verdict]:
        """The existing verdicts on the records at `offsets`."""
        with self._failures():
            return [
                verdict
                for start in range(0, len(offsets), _OFFSETS_PER_QUERY)
                for verdict in _verdicts_at(self._connection, offsets[start : start + _OFFSETS_PER_QUERY])
            ]

    def dead_letters_before(self, before_offset: int, limit: int, *, since_ms: int = 0) -> list[DeadLetter]:
        """Up to `limit` rejected records below `before_offset`, newest first, stopping after 8 MB of values."""
        rows = self._rows(
            "SELECT d.body, d.key, d.value FROM dead_letters d LEFT JOIN intents i ON i.log_offset = d.log_offset"
            " WHERE d.log_offset < ? AND coalesce(i.appended_ms, ?) >= ? ORDER BY d.log_offset DESC LIMIT ?",
            (before_offset, since_ms, since_ms, limit),
        )
        return [_letter(body, key, value) for body, key, value in rows]

    def close(self) -> None:
        """Close the connection."""
        with FORKS.shut():
            self._opened.close()

    def _rows(self, query: str, values: Sequence[int | bytes]) -> list[tuple[Any, ...]]:
        """The rows of `query`, stopping after 8 MB of values. The last column must be a record's value."""
        found: list[tuple[Any, ...]] = []
        size = 0
        with self._failures(), contextlib.closing(self._connection.execute(query, values)) as rows:
            for row in rows:
                found.append(row)
                size += len(row[-1])
                if size >= _READ_BYTES_MAX:
                    break
        return found

    @contextlib.contextmanager
    def _failures(self) -> Iterator[None]:
        """A block of statements."""
        try:
            with FORKS.shut():
                yield
        except (sqlite3.Error, OSError) as error:
            raise _failed(self._path, error) from error


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=_BUSY_WAIT_S)
    connection.execute("PRAGMA synchronous=FULL")
    return connection


def _prepare(connection: sqlite3.Connection, path: Path) -> LogId:
    """Return the log's identity. A new file is filled first, in one transaction."""
    application_id = connection.execute("PRAGMA application_id").fetchone()[0]
    is_new = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
    if application_id != _APPLICATION_ID and not is_new:
        raise Corrupt(
            "log-corrupt", f"{path}: this is a SQLite database of another program. Use another folder for the log"
        )
    if not is_new:
        check_layout(connection, path)
    mode = connection.execute("PRAGMA journal_mode=WAL").fetchone()[0]
    if mode != "wal":
        raise Unavailable(
            "log-unavailable",
            f"{path}: the file system does not support SQLite's WAL (the journal mode stays {mode}). Use a local disk",
        )
    if is_new:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(f"PRAGMA application_id={_APPLICATION_ID}")
        create_tables(connection)
        connection.execute("INSERT INTO meta VALUES ('identity', ?)", (str(uuid.uuid4()),))
        connection.execute("COMMIT")
    return _identity_of(connection, path)


def _identity_of(connection: sqlite3.Connection, path: Path) -> LogId:
    return LogId(f"embedded/{uuid.UUID(check_layout(connection, path)['identity'])}")


def _begin(connection: sqlite3.Connection) -> None:
    """Begin a transaction with the write lock.

    SQLite's own wait pauses up to 100 ms between attempts, too long for several writers.
    """
    deadline = time.monotonic() + _BUSY_WAIT_S
    while True:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF not in _BUSY or time.monotonic() > deadline:
                raise
            time.sleep(random.uniform(0.0002, 0.002))
        else:
            return


def _end_offset(connection: sqlite3.Connection) -> int:
    # AUTOINCREMENT's own row, which is kept when records are deleted
    found = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'intents'").fetchone()
    return 1 if found is None else int(found[0]) + 1


def _verdicts_at(connection: sqlite3.Connection, offsets: Sequence[int]) -> list[Verdict]:
    places = ",".join("?" * len(offsets))
    found = connection.execute(f"SELECT body FROM verdicts WHERE log_offset IN ({places})", tuple(offsets))
    return [Verdict.model_validate_json(body) for (body,) in found.fetchall()]


def check_is_there(connection: sqlite3.Connection, last_read: LogRecord) -> None:
    """Check that the record that was read last is still in the log, or was pruned.

    Raises:
        Fenced: `log-behind-root`.
    """
    log, _, offset = last_read.position
    row = connection.execute("SELECT appended_ms FROM intents WHERE log_offset = ?", (offset,)).fetchone()
    if (row is None and offset < pruning_state(connection).records_below) or row == (last_read.appended_ms,):
        return
    raise Fenced(
        "log-behind-root",
        f"{log}: the record at offset {offset} was read, but the file now has another record there, or none: an older "
        "copy has overwritten it while it was open. Tables with decisions that it lacks are stopped. See `rootline "
        "explain log-behind-root`",
    )


def _letter_body(letter: DeadLetter) -> str:
    """The JSON of a dead letter without its key and value, which are columns, and without empty headers."""
    return letter.model_dump_json(exclude={"key", "value"}, exclude_defaults=True)


def _letter(body: str, key: bytes | None, value: bytes) -> DeadLetter:
    written = DeadLetter.model_validate_json(json.dumps({**json.loads(body), "key": None, "value": ""}))
    return written.model_copy(update={"key": key, "value": value})


def _row_id(cursor: sqlite3.Cursor) -> int:
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def _failed(path: Path, error: sqlite3.Error | OSError) -> RootlineError:
    code = getattr(error, "sqlite_errorcode", None)
    if code is not None and code & 0xFF in _NOT_A_LOG:
        return Corrupt("log-corrupt", f"{path}: this is not a Rootline log, or damaged: {error}. Restore a copy")
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    reason += ": free some space" if code == sqlite3.SQLITE_FULL else ""
    return Unavailable("log-unavailable", f"{path}: {reason}")


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        wait_for_lock(file, fcntl.LOCK_EX, patience_s=_BUSY_WAIT_S)
        yield
    finally:
        unlock_and_close(file)
