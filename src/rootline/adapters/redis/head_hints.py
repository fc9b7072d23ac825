"""Hints at the newest version of each table, in Redis.

Owns: one key for each table, which expires; sending in the background. Does not own: what a hint is worth
(`rootline.storage.metadata.read_cache`).
Invariants: telling costs the caller a dictionary entry, whatever Redis does; of a table only its latest version waits
to be sent; at most 32 bytes of an answer are read, and what is not a version counts as no hint.
"""

from __future__ import annotations

import asyncio
import re
from typing import Final

from rootline.adapters.redis.calls import RedisCalls
from rootline.adapters.redis.lake_keys import LakeKeys
from rootline.ports.head_hints import HintOutcome
from rootline.schemas.errors import Unavailable
from rootline.schemas.identifiers import TableName, Version
from rootline.schemas.object_keys import MAX_VERSION

_USE: Final = "hint"
_KEPT_MS: Final = 7 * 86_400_000
_UNTOLD_MAX: Final = 10_000
_AT_ONCE: Final = 100
_VERSION: Final = re.compile(rb"0|[1-9][0-9]{0,18}")
_TELL: Final = """
for number, key in ipairs(KEYS) do redis.call('SET', key, ARGV[number + 1], 'PX', ARGV[1]) end
return #KEYS
"""


class RedisHeadHints:
    """The hints of one lake."""

    def __init__(self, calls: RedisCalls, keys: LakeKeys) -> None:
        self._calls, self._keys = calls, keys
        self._untold: dict[TableName, Version] = {}
        self._telling: asyncio.Task[None] | None = None

    @property
    def are_kept(self) -> bool:
        """Not while Redis is down."""
        return not self._calls.is_silent

    def tell(self, table: TableName, version: Version) -> None:
        """Send it soon, unless Redis is down."""
        if self._calls.is_silent:
            self._untold.clear()
            return
        self._untold[table] = version
        if len(self._untold) > _UNTOLD_MAX:
            del self._untold[next(iter(self._untold))]
        if self._telling is None:
            self._telling = asyncio.get_running_loop().create_task(self._tell(), name="rootline head hints")

    async def newest(self, table: TableName) -> Version | None:
        """What was told last."""
        try:
            answer = await self._calls.send(_USE, "GETRANGE", self._keys.head(table), 0, 31)
        except Unavailable:
            return None
        if not isinstance(answer, bytes) or _VERSION.fullmatch(answer) is None:
            return None
        version = int(answer)
        return Version(version) if version <= MAX_VERSION else None

    def judged(self, outcome: HintOutcome) -> None:
        """Count it."""
        self._calls.metrics.hints.labels(outcome.value).inc()

    async def told(self) -> None:
        """Wait until nothing waits to be sent; each attempt has its deadline."""
        while self._telling is not None:
            await asyncio.wait({self._telling})

    async def close(self) -> None:
        """Send nothing more."""
        self._untold.clear()
        if self._telling is not None:
            self._telling.cancel()
            await asyncio.wait({self._telling})

    async def _tell(self) -> None:
        try:
            while self._untold:
                batch = dict(list(self._untold.items())[:_AT_ONCE])
                for table in batch:
                    del self._untold[table]
                keys = [self._keys.head(table) for table in batch]
                await self._calls.send(_USE, "EVAL", _TELL, len(keys), *keys, _KEPT_MS, *batch.values())
        except Unavailable:
            self._untold.clear()  # a table without a hint is listed all the same
        finally:
            self._telling = None
