"""A store and a log that do something of the test's before and after each call: wait, fail, or let others go on.

Whoever lets them wait runs on `rootline.testing.virtual_loop`, where waiting takes no time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from rootline.adapters.memory import MemoryIntentLog, MemoryObjectStore
from rootline.ports.intent_feed import RecordedRejection
from rootline.ports.object_store import Listing, ObjectStore, Predecessor, PutReply, StoredObject
from rootline.schemas.identifiers import LogId, LogPosition, LogRecord, ObjectKey
from rootline.schemas.verdict import DeadLetter, Verdict

Hook = Callable[[str, str], Awaitable[None]]
"""Called with the operation (get, put, list, read, verdicts, …) and the key."""


async def nothing(operation: str, key: str) -> None:
    """The hook that does nothing."""


def turning(**turns: int) -> Hook:
    """During each operation everybody else takes a turn of the loop, or as many as are named."""

    async def hook(operation: str, key: str) -> None:
        for _ in range(turns.get(operation, 1)):
            await asyncio.sleep(0)

    return hook


def taking(**seconds: float) -> Hook:
    """Each operation named takes so many (virtual) seconds."""

    async def hook(operation: str, key: str) -> None:
        await asyncio.sleep(seconds.get(operation, 0.0))

    return hook


@dataclass(slots=True)
class HookedStore:
    """`inner`, with `before` and `after` around each call; `calls` names them all."""

    inner: ObjectStore = field(default_factory=MemoryObjectStore)
    before: Hook = nothing
    after: Hook = nothing
    calls: list[tuple[str, str]] = field(default_factory=list)

    async def get(self, key: ObjectKey) -> StoredObject | None:
        await self._begin("get", key)
        found = await self.inner.get(key)
        await self.after("get", key)
        return found

    async def put_if_absent(self, key: ObjectKey, body: bytes, *, after: Predecessor | None = None) -> PutReply:
        await self._begin("put", key)
        reply = await self.inner.put_if_absent(key, body, after=after)
        await self.after("put", key)
        return reply

    async def list(self, prefix: str, *, limit: int | None = None) -> Listing:
        await self._begin("list", prefix)
        found = await self.inner.list(prefix, limit=limit)
        await self.after("list", prefix)
        return found

    async def stored_ms(self, key: ObjectKey) -> int | None:
        await self._begin("head", key)
        return await self.inner.stored_ms(key)

    async def folders(self, prefix: str) -> Sequence[str]:
        await self._begin("folders", prefix)
        found = await self.inner.folders(prefix)
        await self.after("folders", prefix)
        return found

    async def close(self) -> None:
        await self.inner.close()

    async def _begin(self, operation: str, key: str) -> None:
        self.calls.append((operation, key))
        await self.before(operation, key)


class HookedLog(MemoryIntentLog):
    """A memory log with `before` and `after` around what a coordinator asks of it. Writers see no hooks."""

    def __init__(self, *, before: Hook = nothing, after: Hook = nothing, read_max: int = 1_024) -> None:
        super().__init__(clock_ms=lambda: 1_700_000_000_000 + int(asyncio.get_running_loop().time() * 1000))
        self.before = before
        self.after = after
        self.read_max = read_max
        self.published: list[Verdict] = []

    async def identity(self) -> LogId:
        await self.before("identity", "")
        return await super().identity()

    async def read(self, from_offset: int, *, limit: int, wait_s: float) -> list[LogRecord]:
        await self.before("read", str(from_offset))
        found = await super().read(from_offset, limit=min(limit, self.read_max), wait_s=wait_s)
        await self.after("read", str(from_offset))
        return found

    async def record_rejections(self, rejections: Sequence[RecordedRejection]) -> None:
        """Nothing to do on a log of one partition."""

    async def publish_verdicts(self, verdicts: Sequence[Verdict], dead_letters: Sequence[DeadLetter]) -> None:
        await self.before("verdicts", "")
        await super().publish_verdicts(verdicts, dead_letters)
        self.published.extend(verdicts)
        await self.after("verdicts", "")

    async def verdicts(self) -> list[Verdict | None]:
        """What stands for each record, by offset."""
        own = await super().identity()
        end = await self.end_offset()
        return [await self.wait_verdict(LogPosition(own, 0, offset), timeout_s=0) for offset in range(end)]
