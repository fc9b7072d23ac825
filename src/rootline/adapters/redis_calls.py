"""Calls to Redis with a deadline each, the keys of a lake there, and hints at the newest version of each table.

Owns: the connection, deadlines, the circuit, one expiring key for each table's hint, sending hints in the background.
Does not own: the value of a hint (`rootline.storage.metadata.read_cache`), tasks (`redis_task_queue`).
Invariants: a call ends within its deadline and is sent once. After `FAILURES_MAX` calls in a row without an answer no
call is sent for `silence_s`, then one is, and its answer ends the silence. An error that Redis answers ends no silence
and begins none. A hint costs its caller a dictionary entry, whatever Redis does, and only a table's latest version
waits to be sent. At most 32 bytes of an answer are read, and anything but a version counts as no hint.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from dataclasses import dataclass
from typing import Final, Protocol
from urllib.parse import urlsplit

import structlog
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as NoConnection
from redis.exceptions import RedisError, ResponseError

from rootline.adapters.redis_metrics import RedisMetrics
from rootline.adapters.settings import RedisSettings
from rootline.ports.environment import Environment
from rootline.ports.head_hints import HintOutcome
from rootline.schemas.errors import Invalid, Unavailable
from rootline.schemas.identifiers import TableName, Version
from rootline.schemas.object_keys import MAX_VERSION


@dataclass(frozen=True, slots=True)
class LakeKeys:
    """`stem`: how they all begin."""

    stem: str

    @staticmethod
    def of(prefix: str, warehouse: str) -> LakeKeys:
        """The keys of the lake whose warehouse has this URL."""
        digest = hashlib.sha256(warehouse.rstrip("/").encode()).hexdigest()[:16]
        return LakeKeys(f"{prefix}:{digest}")

    def head(self, table: TableName) -> str:
        """The hint at the newest version of `table`."""
        return f"{self.stem}:head:{table}"

    @property
    def tasks(self) -> str:
        """The stream of tasks."""
        return f"{self.stem}:tasks"

    @property
    def queued(self) -> str:
        """Look and table → the entry of the stream that stands for them."""
        return f"{self.stem}:queued"

    @property
    def leases(self) -> str:
        """Look and table → until when, and by whom they are worked on."""
        return f"{self.stem}:leases"

    @property
    def done(self) -> str:
        """Look and table → the version that was looked at last, and when."""
        return f"{self.stem}:done"

    @property
    def dead(self) -> str:
        """Look and table → tasks that no worker ended."""
        return f"{self.stem}:dead"


FAILURES_MAX: Final = 3
_CALLS_AT_ONCE: Final = 16
_REASON_MAX: Final = 300
_log = structlog.get_logger("rootline.redis")


class _Client(Protocol):
    """What is used of the library."""

    async def execute_command(self, *command: str | int | bytes) -> object: ...

    async def aclose(self) -> None: ...


class RedisCalls:
    """One Redis for all uses of a process. Connects at the first call; used on one event loop.

    Raises:
        Invalid: `setting-invalid`, the URL or the file of the password.

    """

    def __init__(self, settings: RedisSettings, environment: Environment, metrics: RedisMetrics) -> None:
        self.settings, self.environment, self.metrics = settings, environment, metrics
        self._timeout_s = settings.timeout_ms / 1000
        url = settings.url or ""
        self._place = urlsplit(url).hostname or urlsplit(url).path
        try:
            self._client: _Client = Redis.from_url(
                url,
                username=settings.username,
                password=settings.secret(),
                retry=Retry(NoBackoff(), 0),  # one attempt: the circuit judges
                socket_timeout=None,  # the deadline is around the whole call
                socket_connect_timeout=None,
                protocol=2,
            )
        except (ValueError, TypeError):  # the library's own sentence may repeat a part of a password
            raise Invalid(
                "setting-invalid", "ROOTLINE_REDIS__URL: no such URL: write redis://host:port/0 or rediss://host:port/0"
            ) from None
        self._at_once = asyncio.Semaphore(_CALLS_AT_ONCE)
        self._failures = 0
        self._silent_until_s = float("-inf")

    @property
    def is_silent(self) -> bool:
        """Whether a call would be refused now, without being sent."""
        return self.environment.monotonic_s() < self._silent_until_s

    async def send(self, use: str, *command: str | int | bytes) -> object:
        """The answer to one command; `use` is a label of the metrics.

        Raises:
            Unavailable: `redis-unavailable`; the command may have been carried out all the same.

        """
        now_s = self.environment.monotonic_s()
        if now_s < self._silent_until_s:
            self.metrics.calls.labels(use, "skipped").inc()
            raise self._unavailable("it did not answer, and is asked again soon")
        if self._failures >= FAILURES_MAX:
            self._silent_until_s = now_s + self.settings.silence_s  # only this one call finds out whether it is back
        try:
            async with asyncio.timeout(self._timeout_s):
                async with self._at_once:
                    answer = await self._client.execute_command(*command)
        except TimeoutError:
            raise self._failed(use, f"no answer within {self.settings.timeout_ms:g} ms") from None
        except NoConnection as error:
            raise self._failed(use, str(error)) from error
        except ResponseError as error:
            self._answered()
            self.metrics.calls.labels(use, "refused").inc()
            raise self._unavailable(f"{command[0]!r} was answered {str(error)[:_REASON_MAX]!r}") from error
        except (RedisError, OSError, ValueError, TypeError, LookupError, ArithmeticError, RecursionError) as error:
            # what comes over the wire need not be Redis
            raise self._failed(use, f"{type(error).__name__}: {error}") from error
        self._answered()
        self.metrics.calls.labels(use, "answered").inc()
        return answer

    async def close(self) -> None:
        """Give back connections."""
        try:
            async with asyncio.timeout(1.0):
                await self._client.aclose()
        except (RedisError, OSError, TimeoutError):
            pass  # the server is gone, and so are its connections

    def _answered(self) -> None:
        if self._failures >= FAILURES_MAX:
            _log.info("Redis answers again", action="redis-back", server=self._place)
        self._failures, self._silent_until_s = 0, float("-inf")
        self.metrics.up.set(1)

    def _failed(self, use: str, reason: str) -> Unavailable:
        self.metrics.calls.labels(use, "failed").inc()
        self._failures += 1
        if self._failures >= FAILURES_MAX:
            if self._failures == FAILURES_MAX:
                _log.warning(
                    "Redis does not answer, this process works alone until it does",
                    action="redis-down",
                    server=self._place,
                    reason=reason[:_REASON_MAX],
                )
            self.metrics.up.set(0)
            self._silent_until_s = self.environment.monotonic_s() + self.settings.silence_s
        return self._unavailable(reason[:_REASON_MAX])

    def _unavailable(self, reason: str) -> Unavailable:
        return Unavailable(
            "redis-unavailable", f"Redis at {self._place}: {reason}: check ROOTLINE_REDIS__URL and the server"
        )


_USE: Final = "hint"
_KEPT_MS: Final = 7 * 86_400_000
_UNTOLD_MAX: Final = 10_000
_HINTS_AT_ONCE: Final = 100
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

    async def drained(self) -> None:
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
                batch = dict(list(self._untold.items())[:_HINTS_AT_ONCE])
                for table in batch:
                    del self._untold[table]
                keys = [self._keys.head(table) for table in batch]
                await self._calls.send(_USE, "EVAL", _TELL, len(keys), *keys, _KEPT_MS, *batch.values())
        except Unavailable:
            self._untold.clear()  # a table without a hint is listed all the same
        finally:
            self._telling = None
