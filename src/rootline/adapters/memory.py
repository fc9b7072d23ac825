"""Store, remover, log and task queue in memory, for tests, simulations and `memory://`.

Owns: objects, records, verdicts and tasks, which are lost when the process ends. Does not own: faults
(`rootline.testing.object_stores`), framing of records, the meaning of tasks.
Invariants: Each class passes the contract suite of its port. With a clock, the store dates its answers as S3 does, and
ignores the argument `after` of a put. Without a clock, it checks `after` as a local folder does. Objects with absolute
keys are created only by `place`, and never listed. Offsets of the log count up from 0. The task queue is bounded, and
for one event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
import uuid
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from itertools import islice
from typing import Final

from typing_extensions import override

from rootline.adapters.object_key_rules import FILE_SCHEMES, S3_SCHEMES, AbsoluteKeys, check_key, check_prefix
from rootline.adapters.system_environment import publishing
from rootline.ports.intent_log import IntentLog, NewRecord, check_identity
from rootline.ports.object_remover import DatedObject, ObjectRemover
from rootline.ports.object_store import (
    Listing,
    ObjectParts,
    ObjectStore,
    Predecessor,
    PutReply,
    PutStatus,
    StoredObject,
)
from rootline.ports.task_queue import Ending, Offer, Task, TaskKind, TaskQueue
from rootline.schemas.bytes.record_headers import content_headers, trace_headers
from rootline.schemas.identifiers import LogId, LogPosition, LogRecord, ObjectKey, TableName, oldest_file_header
from rootline.schemas.object_keys import is_absolute
from rootline.schemas.verdict import DeadLetter, Verdict, newest_versions

_ABSOLUTE: Final = AbsoluteKeys("a store in memory", (*FILE_SCHEMES, *S3_SCHEMES))


class MemoryObjectStore(ObjectStore, ObjectParts):
    """A warehouse in memory.

    `clock_ms`: the store's own clock, milliseconds since the epoch. `None`: the store has no dates.
    """

    def __init__(self, clock_ms: Callable[[], int] | None = None) -> None:
        self._clock_ms = clock_ms
        self._objects: dict[ObjectKey, tuple[bytes, int | None]] = {}
        self._keys: list[ObjectKey] = []

    @override
    async def get(self, key: ObjectKey) -> StoredObject | None:
        found = self._found(key)
        return None if found is None else StoredObject(key, found[0], found[1], self._now_ms())

    @override
    async def length_of(self, key: ObjectKey) -> int | None:
        found = self._found(key)
        return None if found is None else len(found[0])

    @override
    async def part_of(self, key: ObjectKey, start: int, length: int) -> bytes | None:
        found = self._found(key)
        return None if found is None else found[0][start : start + length]

    @override
    async def put_if_absent(self, key: ObjectKey, body: bytes, *, after: Predecessor | None = None) -> PutReply:
        check_key(key)
        now_ms = self._now_ms()
        if key in self._objects:
            return PutReply(PutStatus.EXISTS, now_ms)
        if after is not None and self._clock_ms is None and self._first_in_folder_of(key) != after.key:
            return PutReply(PutStatus.STALE, now_ms, f"{after.key} is not the first key of its folder")
        self.place(key, body)
        return PutReply(PutStatus.CREATED, now_ms)

    @override
    async def list(self, prefix: str, *, limit: int | None = None) -> Listing:
        check_prefix(prefix)
        return Listing(tuple(islice(self._keys_under(prefix), limit)), self._now_ms())

    @override
    async def stored_ms(self, key: ObjectKey) -> int | None:
        """The object's date by this store's clock, or 0 if the store has no clock."""
        check_key(key)
        found = self._objects.get(key)
        return None if found is None else found[1] or 0

    @override
    async def folders(self, prefix: str) -> Sequence[str]:
        check_prefix(prefix)
        rests = (key[len(prefix) :] for key in self._keys_under(prefix))
        return tuple(dict.fromkeys(f"{prefix}{rest[: rest.index('/') + 1]}" for rest in rests if "/" in rest))

    @override
    async def close(self) -> None:
        """Keep all objects, so that a test can read them."""

    def place(self, key: ObjectKey, body: bytes) -> None:
        """Write or replace an object outside the port: for tests that damage bytes or imitate a faulty store.

        The key may be absolute. Then only `get` finds the object.
        """
        if key not in self._objects and not is_absolute(key):
            insort(self._keys, key)
        self._objects[key] = (bytes(body), self._now_ms())

    def discard(self, key: ObjectKey) -> None:
        """Delete an object outside the port, as expiry and operators do."""
        if self._objects.pop(key, None) is not None and not is_absolute(key):
            del self._keys[bisect_left(self._keys, key)]

    def dated(self, prefix: str) -> Sequence[DatedObject]:
        """The objects under `prefix`, ascending by key. Without a clock, every date is 0."""
        found = ((key, self._objects[key]) for key in self._keys_under(prefix))
        return [DatedObject(key, len(body), date_ms or 0) for key, (body, date_ms) in found]

    def _found(self, key: ObjectKey) -> tuple[bytes, int | None] | None:
        if is_absolute(key):
            _ABSOLUTE.place_of(key)
        else:
            check_key(key)
        return self._objects.get(key)

    def _now_ms(self) -> int | None:
        return None if self._clock_ms is None else self._clock_ms()

    def _keys_under(self, prefix: str) -> Sequence[ObjectKey]:
        # a slice by bisection: the range ends at a character above every character that a key may contain
        start = bisect_left(self._keys, prefix)
        end = bisect_left(self._keys, f"{prefix}\U0010ffff")
        return self._keys[start:end]

    def _first_in_folder_of(self, key: ObjectKey) -> ObjectKey | None:
        folder = key[: key.rfind("/") + 1]
        return next((found for found in self._keys_under(folder) if "/" not in found[len(folder) :]), None)


_PAGE = 1_000


class MemoryObjectRemover(ObjectRemover):
    """Removes objects of `store`. Without a clock, every date is 0."""

    def __init__(self, store: MemoryObjectStore) -> None:
        self._store = store

    @override
    async def inventory(self, prefix: str) -> AsyncIterator[Sequence[DatedObject]]:
        check_prefix(prefix)
        found = self._store.dated(prefix)
        for start in range(0, len(found), _PAGE):
            yield found[start : start + _PAGE]

    @override
    async def remove(self, keys: Sequence[ObjectKey]) -> None:
        for key in keys:
            check_key(key)
        for key in keys:
            self._store.discard(key)

    @override
    async def close(self) -> None:
        """Do nothing."""


def _wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class MemoryIntentLog(IntentLog):
    """A log in memory, for the coroutines of one event loop. `clock_ms`: append times, milliseconds since the epoch."""

    def __init__(self, *, identity: uuid.UUID | None = None, clock_ms: Callable[[], int] = _wall_clock_ms) -> None:
        self._identity = LogId(f"embedded/{identity or uuid.uuid4()}")
        self._clock_ms = clock_ms
        self._records: list[LogRecord] = []
        self._verdicts: dict[int, Verdict] = {}
        self._dead_letters: dict[int, DeadLetter] = {}
        self._first_undecided = 0
        self._heads: dict[str, int] = {}
        self._changed = asyncio.Event()

    @override
    async def publish_many(
        self, records: Sequence[NewRecord], *, oldest_file_ms: int | None = None
    ) -> list[LogPosition]:
        positions = []
        with publishing(records[0][0] if records else b"", len(records)) as trace:
            claim = (*oldest_file_header(oldest_file_ms), *trace_headers(trace))
        for key, value, *said in records:
            position = LogPosition(self._identity, 0, len(self._records))
            headers = (*content_headers(*said), *claim)
            self._records.append(LogRecord(position, bytes(key), bytes(value), self._clock_ms(), headers))
            positions.append(position)
        self._wake()
        return positions

    @override
    async def identity(self) -> LogId:
        """`embedded/<uuid>`."""
        return self._identity

    @override
    async def first_undecided(self) -> int:
        while self._first_undecided in self._verdicts:
            self._first_undecided += 1
        return self._first_undecided

    @override
    async def beginning(self) -> int:
        """Always 0, because no record is ever deleted."""
        return 0

    @override
    async def confirmed_version(self, table: str) -> int | None:
        return self._heads.get(table)

    @override
    async def end_offset(self) -> int:
        return len(self._records)

    @override
    async def read(self, from_offset: int, *, limit: int, wait_s: float) -> list[LogRecord]:
        start = max(from_offset, 0)
        await self._wait_for(lambda: len(self._records) > start, wait_s)
        return self._records[start : start + limit]

    @override
    async def publish_verdicts(self, verdicts: Sequence[Verdict], dead_letters: Sequence[DeadLetter]) -> None:
        """Store the first verdict and the first dead letter of each offset."""
        for log in {item.log for item in verdicts} | {item.log for item in dead_letters}:
            check_identity(self._identity, log)
        for verdict in verdicts:
            self._verdicts.setdefault(verdict.offset, verdict)
        for table, version in newest_versions(verdicts).items():
            self._heads[table] = max(version, self._heads.get(table, 0))
        for letter in dead_letters:
            self._dead_letters.setdefault(letter.offset, letter)
        self._wake()

    @override
    async def wait_verdict(self, position: LogPosition, *, timeout_s: float) -> Verdict | None:
        check_identity(self._identity, position.log)
        await self._wait_for(lambda: position.offset in self._verdicts, timeout_s)
        return self._verdicts.get(position.offset)

    async def dead_letters(self, *, limit: int = 1_000) -> list[DeadLetter]:
        """The newest `limit` rejected records, in offset order."""
        return [self._dead_letters[offset] for offset in sorted(self._dead_letters)[-limit:]]

    @override
    async def close(self) -> None:
        """Keep all records, so that a test can read them."""

    async def _wait_for(self, is_met: Callable[[], bool], wait_s: float) -> None:
        if is_met() or wait_s <= 0:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                while not is_met():
                    await self._changed.wait()

    def _wake(self) -> None:
        # wakes the present waiters, later ones wait for a new event
        self._changed.set()
        self._changed = asyncio.Event()


class MemoryTaskQueue(TaskQueue):
    """A queue of up to `tasks_max` tasks that were not taken yet."""

    is_shared: bool = False

    def __init__(self, *, tasks_max: int = 1_024) -> None:
        self._waiting: asyncio.Queue[Task] = asyncio.Queue(maxsize=tasks_max)
        self._queued_or_running: set[tuple[TaskKind, TableName]] = set()
        self._counts: Counter[TaskKind] = Counter()

    @override
    async def offer(self, task: Task) -> Offer:
        like = (task.kind, task.table)
        if like in self._queued_or_running:
            return Offer.ALREADY_THERE
        try:
            self._waiting.put_nowait(task)
        except asyncio.QueueFull:
            return Offer.FULL
        self._queued_or_running.add(like)
        self._counts[task.kind] += 1
        return Offer.QUEUED

    @override
    async def take(self, *, wait_s: float) -> Task | None:
        try:
            async with asyncio.timeout(wait_s):
                task = await self._waiting.get()
        except TimeoutError:
            return None
        self._counts[task.kind] -= 1
        return task

    @override
    async def finish(self, task: Task, ending: Ending = Ending.DONE) -> None:
        self._queued_or_running.discard((task.kind, task.table))

    @override
    async def renew(self) -> float:
        """Return infinity: tasks need no renewal, because no other process can take a running task."""
        return math.inf

    @override
    async def waiting(self) -> Mapping[TaskKind, int]:
        return dict(self._counts)

    @override
    async def close(self) -> None:
        """Do nothing."""
