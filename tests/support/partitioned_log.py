"""A log of several partitions in memory: records, verdicts, dead letters, and who waits for them.

Owns: what is on the log, the writers' side of it, and what a test does to a log: grow, cut, make again. Does not own:
who reads which partition (`consumer_group`).
Invariants: offsets of a partition ascend from 0, perhaps with gaps as transactions leave them; a key's records go to
one partition as long as there are no more of them; no record gets two different verdicts: the second fails the test.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from rootline.ports.intent_log import NewRecord
from rootline.schemas.bytes.record_headers import content_headers
from rootline.schemas.errors import Fenced
from rootline.schemas.identifiers import Headers, LogId, LogPosition, LogRecord, oldest_file_header
from rootline.schemas.verdict import DeadLetter, Verdict, VerdictKind

_EPOCH_MS = 1_700_000_000_000


def loop_clock_ms() -> int:
    """The running loop's time as a wall clock."""
    return _EPOCH_MS + int(asyncio.get_running_loop().time() * 1000)


@dataclass(slots=True)
class Changes:
    """Something happened: all that wait look again."""

    _event: asyncio.Event = field(default_factory=asyncio.Event)

    def tell(self) -> None:
        """Wake who waits now; who comes later waits for the next time."""
        self._event.set()
        self._event = asyncio.Event()

    async def wait(self, wait_s: float) -> None:
        """Until the next time, or for `wait_s` seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._event.wait()


@dataclass(slots=True)
class _Partition:
    """`records` by offset; `None`: what is no record (a transaction's marker), or was removed."""

    begin: int = 0
    settled: int = 0
    """Below it no record lacks a verdict or a letter: one that has them never loses them."""
    records: list[LogRecord | None] = field(default_factory=list)


class PartitionedLog:
    """`partitions` of them. `clock_ms`: append times; by default those of the running loop."""

    def __init__(
        self,
        partitions: int = 1,
        *,
        identity: uuid.UUID | None = None,
        clock_ms: Callable[[], int] = loop_clock_ms,
    ) -> None:
        self._identity = identity or uuid.uuid4()
        self._generation = 0
        self._clock_ms = clock_ms
        self._partitions = [_Partition() for _ in range(partitions)]
        self._turn = 0
        self._waiting: dict[LogPosition, list[asyncio.Future[Verdict]]] = {}
        self.changes = Changes()
        self.verdicts: dict[LogPosition, Verdict] = {}
        self.letters: list[DeadLetter] = []
        self.violations: list[str] = []
        """What was done to this log that must never be; each was raised as well."""
        self._lettered: set[LogPosition] = set()

    @property
    def log_id(self) -> LogId:
        """The log's identity, which changes when it is made again."""
        return LogId(f"group/{self._identity}.{self._generation}")

    @property
    def partitions(self) -> int:
        """How many partitions there are."""
        return len(self._partitions)

    def partition_of(self, key: bytes) -> int:
        """Where a key's records go, as long as there are no more partitions."""
        return int.from_bytes(hashlib.sha256(key).digest()[:4], "big") % len(self._partitions)

    # the writers' side

    async def publish(self, key: bytes | None, value: bytes, headers: Headers = ()) -> LogPosition:
        """Append one record."""
        return self.append(key, value, headers=headers)

    async def publish_many(
        self, records: Sequence[NewRecord], *, oldest_file_ms: int | None = None
    ) -> list[LogPosition]:
        """Append records in order."""
        claim = oldest_file_header(oldest_file_ms)
        return [self.append(key, value, headers=(*content_headers(*said), *claim)) for key, value, *said in records]

    def append(
        self, key: bytes | None, value: bytes, *, partition: int | None = None, headers: Headers = ()
    ) -> LogPosition:
        """Append one record, where its key says or in `partition`."""
        if partition is None:
            if key is None:
                self._turn += 1
                partition = self._turn % len(self._partitions)
            else:
                partition = self.partition_of(key)
        records = self._partitions[partition].records
        position = LogPosition(self.log_id, partition, len(records))
        records.append(
            LogRecord(position, None if key is None else bytes(key), bytes(value), self._clock_ms(), headers)
        )
        self.changes.tell()
        return position

    async def wait_verdict(self, position: LogPosition, *, timeout_s: float) -> Verdict | None:
        """The verdict on the record at `position`; `None` when none came in `timeout_s` seconds."""
        found = self.verdicts.get(position)
        if found is not None or timeout_s <= 0:
            return found
        future: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(position, [])  # told in order: a seed must give the same run again
        waiting.append(future)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    return await future
            return self.verdicts.get(position)
        finally:
            waiting.remove(future)

    # the coordinators' side

    def keep_verdicts(self, verdicts: Sequence[Verdict], dead_letters: Sequence[DeadLetter]) -> None:
        """Keep the verdicts, each perhaps once more; and every dead letter.

        Raises:
            Fenced: `log-replaced`. AssertionError: a record got another verdict than before.
        """
        for log in {item.log for item in verdicts} | {item.log for item in dead_letters}:
            if log != self.log_id:
                raise Fenced("log-replaced", f"the position is of log {log}, but this is log {self.log_id}")
        for letter in dead_letters:
            self.letters.append(letter)
            self._lettered.add(LogPosition(LogId(letter.log), letter.partition, letter.offset))
        for verdict in verdicts:
            position = LogPosition(LogId(verdict.log), verdict.partition, verdict.offset)
            known = self.verdicts.setdefault(position, verdict)
            if known != verdict:
                self.must(False, f"two verdicts on {position}: {known}, then {verdict}")
            for future in self._waiting.pop(position, ()):
                if not future.done():
                    future.set_result(verdict)

    def must(self, holds: bool, otherwise: str) -> None:
        """Fail the test unless it `holds`, even if the code that gets the error goes on."""
        if not holds:
            self.violations.append(otherwise)
            raise AssertionError(otherwise)

    def is_settled(self, position: LogPosition) -> bool:
        """Whether there is a verdict, and a dead letter if it rejects."""
        verdict = self.verdicts.get(position)
        return verdict is not None and (verdict.kind is not VerdictKind.REJECTED or position in self._lettered)

    def span(self, partition: int) -> tuple[int, int]:
        """The first offset that is there, and the one that the next record gets."""
        held = self._partitions[partition]
        return held.begin, len(held.records)

    def read(self, partition: int, offset: int, limit: int) -> tuple[list[LogRecord], int]:
        """Up to `limit` records from `offset` on, and where to go on."""
        records = self._partitions[partition].records
        found: list[LogRecord] = []
        while offset < len(records) and len(found) < limit:
            record = records[offset]
            if record is not None:
                found.append(record)
            offset += 1
        return found, offset

    # for tests

    def records(self, partition: int | None = None) -> Iterator[LogRecord]:
        """All that are there, partition by partition."""
        for number, held in enumerate(self._partitions):
            if partition in (None, number):
                yield from (record for record in held.records if record is not None)

    def undecided(self) -> list[LogPosition]:
        """The records that lack a verdict, or the dead letter that goes with it."""
        return list(self._undecided())

    def is_decided(self) -> bool:
        """Whether there is no such record. Asked often, of a long log."""
        return next(self._undecided(), None) is None

    def _undecided(self) -> Iterator[LogPosition]:
        for held in self._partitions:
            for offset in range(held.settled, len(held.records)):
                record = held.records[offset]
                if record is not None and not self.is_settled(record.position):
                    yield record.position
                elif offset == held.settled:
                    held.settled += 1

    def skip(self, partition: int, offsets: int = 1) -> None:
        """Offsets that no record has: a transaction's markers, or what it wrote before it was aborted."""
        self._partitions[partition].records += [None] * offsets
        self.changes.tell()

    def truncate_before(self, partition: int, offset: int) -> None:
        """Remove what is older, as retention does."""
        held = self._partitions[partition]
        held.begin = max(held.begin, offset)
        held.records[:offset] = [None] * min(offset, len(held.records))
        self.changes.tell()

    def hide_before(self, partition: int, offset: int) -> None:
        """The same, but what is older can still be examined by the test."""
        held = self._partitions[partition]
        held.begin = max(held.begin, offset)

    def cut_after(self, partition: int, end: int) -> None:
        """Lose what is newer, as a restore from a backup does."""
        held = self._partitions[partition]
        del held.records[end:]
        held.settled = min(held.settled, end)
        self.changes.tell()

    def add_partition(self) -> int:
        """One more; some keys' records go there from now on. Its number."""
        self._partitions.append(_Partition())
        self.changes.tell()
        return len(self._partitions) - 1

    def recreate(self) -> None:
        """The log is deleted and made again under its name: another identity, offsets from 0."""
        self._generation += 1
        self._partitions = [_Partition() for _ in self._partitions]
        self.changes.tell()
