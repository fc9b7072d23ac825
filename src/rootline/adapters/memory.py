"""Store, remover, log and task queue in memory, for tests, simulations and `memory://`.

Owns: objects, records, verdicts and tasks, which end with the process. Does not own: faults
(`rootline.testing.object_stores`), framing of records, the meaning of tasks.
Invariants: each passes the contract of its port. With a clock the store dates its answers as S3 does and ignores
`after`, without one it checks `after` as a local folder does. Objects with absolute keys are made by `place` alone and
never listed. Offsets of the log count up from 0. The task queue is bounded and used from one event loop only.
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

from rootline.adapters.object_key_rules import FILE_SCHEMES, S3_SCHEMES, AbsoluteKeys, check_key, check_prefix
from rootline.adapters.system_environment import publishing
from rootline.ports.intent_log import NewRecord, check_identity
from rootline.ports.object_remover import DatedObject
from rootline.ports.object_store import Listing, Predecessor, PutReply, PutStatus, StoredObject
from rootline.ports.task_queue import Ending, Offer, Task, TaskKind
from rootline.schemas.bytes.record_headers import content_headers, trace_headers
from rootline.schemas.identifiers import LogId, LogPosition, LogRecord, ObjectKey, TableName, oldest_file_header
from rootline.schemas.object_keys import is_absolute
from rootline.schemas.verdict import DeadLetter, Verdict, newest_versions

_ABSOLUTE: Final = AbsoluteKeys("a store in memory", (*FILE_SCHEMES, *S3_SCHEMES))


class MemoryObjectStore:
    """One warehouse in memory. `clock_ms`: the store's own clock, milliseconds since the epoch; `None`: no dates."""

    def __init__(self, clock_ms: Callable[[], int] | None = None) -> None:
        self._clock_ms = clock_ms
        self._objects: dict[ObjectKey, tuple[bytes, int | None]] = {}
        self._keys: list[ObjectKey] = []

    async def get(self, key: ObjectKey) -> StoredObject | None:
        """The whole object, or `None` when there is none; an absolute key exactly as it was placed."""
        found = self._found(key)
        return None if found is None else StoredObject(key, found[0], found[1], self._now_ms())

    async def length_of(self, key: ObjectKey) -> int | None:
        """How many bytes are stored, or `None` when there is no such object."""
        found = self._found(key)
        return None if found is None else len(found[0])

    async def part_of(self, key: ObjectKey, start: int, length: int) -> bytes | None:
        """`length` bytes from `start` on, fewer where the object ends."""
        found = self._found(key)
        return None if found is None else found[0][start : start + length]

    async def put_if_absent(self, key: ObjectKey, body: bytes, *, after: Predecessor | None = None) -> PutReply:
        """Create `key` with `body` unless it exists."""
        check_key(key)
        now_ms = self._now_ms()
        if key in self._objects:
            return PutReply(PutStatus.EXISTS, now_ms)
        if after is not None and self._clock_ms is None and self._first_in_folder_of(key) != after.key:
            return PutReply(PutStatus.STALE, now_ms, f"{after.key} is not the first key of its folder")
        self.place(key, body)
        return PutReply(PutStatus.CREATED, now_ms)

    async def list(self, prefix: str, *, limit: int | None = None) -> Listing:
        """The keys under `prefix`, ascending; the first `limit` of them."""
        check_prefix(prefix)
        return Listing(tuple(islice(self._keys_under(prefix), limit)), self._now_ms())

    async def stored_ms(self, key: ObjectKey) -> int | None:
        """When the object was stored, by this store's clock; without one everything is of the epoch."""
        check_key(key)
        found = self._objects.get(key)
        return None if found is None else found[1] or 0

    async def folders(self, prefix: str) -> Sequence[str]:
        """The prefixes one level below `prefix`, each ending in `/`, that hold keys; ascending."""
        check_prefix(prefix)
        rests = (key[len(prefix) :] for key in self._keys_under(prefix))
        return tuple(dict.fromkeys(f"{prefix}{rest[: rest.index('/') + 1]}" for rest in rests if "/" in rest))

    async def close(self) -> None:
        """Keep everything: a test may go on looking."""

    def place(self, key: ObjectKey, body: bytes) -> None:
        """Write or replace an object outside the port: for tests that damage bytes and for stores that lie.

        The key may be absolute; then only `get` finds it.
        """
        if key not in self._objects and not is_absolute(key):
            insort(self._keys, key)
        self._objects[key] = (bytes(body), self._now_ms())

    def discard(self, key: ObjectKey) -> None:
        """Delete an object outside the port, as expiry and operators do."""
        if self._objects.pop(key, None) is not None and not is_absolute(key):
            del self._keys[bisect_left(self._keys, key)]

    def dated(self, prefix: str) -> Sequence[DatedObject]:
        """The objects under `prefix`, ascending by key; without a clock all of them are dated 0."""
        held = ((key, self._objects[key]) for key in self._keys_under(prefix))
        return [DatedObject(key, len(body), date_ms or 0) for key, (body, date_ms) in held]

    def _found(self, key: ObjectKey) -> tuple[bytes, int | None] | None:
        if is_absolute(key):
            _ABSOLUTE.place_of(key)
        else:
            check_key(key)
        return self._objects.get(key)

    def _now_ms(self) -> int | None:
        return None if self._clock_ms is None else self._clock_ms()

    def _keys_under(self, prefix: str) -> Sequence[ObjectKey]:
        # a slice by bisection: the character after the last one that a key may hold ends the range
        start = bisect_left(self._keys, prefix)
        end = bisect_left(self._keys, f"{prefix}\U0010ffff")
        return self._keys[start:end]

    def _first_in_folder_of(self, key: ObjectKey) -> ObjectKey | None:
        folder = key[: key.rfind("/") + 1]
        return next((found for found in self._keys_under(folder) if "/" not in found[len(folder) :]), None)


_PAGE = 1_000


class MemoryObjectRemover:
    """For the objects of `store`; without a clock all of them are dated 0."""

    def __init__(self, store: MemoryObjectStore) -> None:
        self._store = store

    async def inventory(self, prefix: str) -> AsyncIterator[Sequence[DatedObject]]:
        """All objects under `prefix`, ascending by key, a page at a time."""
        check_prefix(prefix)
        found = self._store.dated(prefix)
        for start in range(0, len(found), _PAGE):
            yield found[start : start + _PAGE]

    async def remove(self, keys: Sequence[ObjectKey]) -> None:
        """Remove these; keys that are not there are passed over."""
        for key in keys:
            check_key(key)
        for key in keys:
            self._store.discard(key)

    async def close(self) -> None:
        """Nothing is held."""


def _wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class MemoryIntentLog:
    """One log in memory, for the coroutines of one event loop. `clock_ms`: append times, milliseconds."""

    def __init__(self, *, identity: uuid.UUID | None = None, clock_ms: Callable[[], int] = _wall_clock_ms) -> None:
        self._identity = LogId(f"embedded/{identity or uuid.uuid4()}")
        self._clock_ms = clock_ms
        self._records: list[LogRecord] = []
        self._verdicts: dict[int, Verdict] = {}
        self._dead_letters: dict[int, DeadLetter] = {}
        self._first_undecided = 0
        self._heads: dict[str, int] = {}
        self._changed = asyncio.Event()

    async def publish(self, key: bytes, value: bytes, *, oldest_file_ms: int | None = None) -> LogPosition:
        """Append one record."""
        return (await self.publish_many([(key, value)], oldest_file_ms=oldest_file_ms))[0]

    async def publish_many(
        self, records: Sequence[NewRecord], *, oldest_file_ms: int | None = None
    ) -> list[LogPosition]:
        """Append records in order."""
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

    async def identity(self) -> LogId:
        """`embedded/<uuid>`."""
        return self._identity

    async def first_undecided(self) -> int:
        """The lowest offset without a verdict; the next offset when every record has one."""
        while self._first_undecided in self._verdicts:
            self._first_undecided += 1
        return self._first_undecided

    async def beginning(self) -> int:
        """The first offset: nothing is ever deleted."""
        return 0

    async def confirmed_version(self, table: str) -> int | None:
        """The highest version of `table` that a verdict ever named."""
        return self._heads.get(table)

    async def end_offset(self) -> int:
        """The offset that the next record will get."""
        return len(self._records)

    async def read(self, from_offset: int, *, limit: int, wait_s: float) -> list[LogRecord]:
        """Up to `limit` records at or after `from_offset`, waiting up to `wait_s` seconds for the first one."""
        start = max(from_offset, 0)
        await self._wait_for(lambda: len(self._records) > start, wait_s)
        return self._records[start : start + limit]

    async def publish_verdicts(self, verdicts: Sequence[Verdict], dead_letters: Sequence[DeadLetter]) -> None:
        """Keep the first verdict and the first dead letter of each offset."""
        for log in {item.log for item in verdicts} | {item.log for item in dead_letters}:
            check_identity(self._identity, log)
        for verdict in verdicts:
            self._verdicts.setdefault(verdict.offset, verdict)
        for table, version in newest_versions(verdicts).items():
            self._heads[table] = max(version, self._heads.get(table, 0))
        for letter in dead_letters:
            self._dead_letters.setdefault(letter.offset, letter)
        self._wake()

    async def wait_verdict(self, position: LogPosition, *, timeout_s: float) -> Verdict | None:
        """The verdict on the record at `position`; `None` when none came in `timeout_s` seconds."""
        check_identity(self._identity, position.log)
        await self._wait_for(lambda: position.offset in self._verdicts, timeout_s)
        return self._verdicts.get(position.offset)

    async def dead_letters(self, *, limit: int = 1_000) -> list[DeadLetter]:
        """The newest `limit` rejected records, in offset order."""
        return [self._dead_letters[offset] for offset in sorted(self._dead_letters)[-limit:]]

    async def close(self) -> None:
        """Keep everything: a test may go on looking."""

    async def _wait_for(self, holds: Callable[[], bool], wait_s: float) -> None:
        if holds() or wait_s <= 0:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                while not holds():
                    await self._changed.wait()

    def _wake(self) -> None:
        # present waiters wake; later ones wait for a fresh event
        self._changed.set()
        self._changed = asyncio.Event()


class MemoryTaskQueue:
    """Holds up to `tasks_max` tasks that were not taken yet."""

    is_shared: bool = False

    def __init__(self, *, tasks_max: int = 1_024) -> None:
        self._waiting: asyncio.Queue[Task] = asyncio.Queue(maxsize=tasks_max)
        self._held: set[tuple[TaskKind, TableName]] = set()
        self._counts: Counter[TaskKind] = Counter()

    async def offer(self, task: Task) -> Offer:
        """Queue `task` unless one of its kind and table is there or the queue is full."""
        like = (task.kind, task.table)
        if like in self._held:
            return Offer.ALREADY_THERE
        try:
            self._waiting.put_nowait(task)
        except asyncio.QueueFull:
            return Offer.FULL
        self._held.add(like)
        self._counts[task.kind] += 1
        return Offer.QUEUED

    async def take(self, *, wait_s: float) -> Task | None:
        """The oldest task, or `None` when none came in `wait_s` seconds."""
        try:
            async with asyncio.timeout(wait_s):
                task = await self._waiting.get()
        except TimeoutError:
            return None
        self._counts[task.kind] -= 1
        return task

    async def finish(self, task: Task, ending: Ending = Ending.DONE) -> None:
        """Let go of `task`."""
        self._held.discard((task.kind, task.table))

    async def renew(self) -> float:
        """No one else could take what is in hand."""
        return math.inf

    async def waiting(self) -> Mapping[TaskKind, int]:
        """How many tasks of each kind were not taken yet."""
        return dict(self._counts)

    async def close(self) -> None:
        """Does nothing."""
