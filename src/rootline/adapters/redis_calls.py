"""Calls to Redis with a deadline each, the keys of a lake there, and hints about the newest version of each table.

Owns: the connection, deadlines, the circuit breaker, one expiring key for each table's hint, sending hints in the
background. Does not own: the value of a hint (`rootline.storage.metadata.read_cache`), tasks (`redis_task_queue`).
Invariants: A call ends within its deadline and is sent once. After `FAILURES_MAX` calls in a row without an answer, the
circuit opens: no call is sent for `silence_s`. Then one call is sent, and its answer closes the circuit. An error
answer of Redis neither opens nor closes it. A hint costs its caller a dictionary entry, whatever Redis does, and only a
table's latest version is queued to be sent. At most 32 bytes of an answer are read, and anything but a version counts
as no hint.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from dataclasses import dataclass
from typing import Final, Protocol
from urllib.parse import urlsplit

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as NoConnection
from redis.exceptions import RedisError, ResponseError
from typing_extensions import override

from rootline.adapters.redis_metrics import RedisMetrics
from rootline.adapters.settings import RedisSettings
from rootline.library_log import library_logger
from rootline.ports.environment import Environment
from rootline.ports.head_hints import HeadHints, HintOutcome
from rootline.schemas.errors import Invalid, Unavailable
from rootline.schemas.identifiers import TableName, Version
from rootline.schemas.object_keys import MAX_VERSION


@dataclass(frozen=True, slots=True)
class LakeKeys:
    """The keys of one lake. `stem`: their common prefix."""

    stem: str

    @staticmethod
    def of(prefix: str, warehouse: str) -> LakeKeys:
        """The keys of the lake whose warehouse has this URL."""
        digest = hashlib.sha256(warehouse.rstrip("/").encode()).hexdigest()[:16]
        return LakeKeys(f"{prefix}:{digest}")

    def head(self, table: TableName) -> str:
        """The key of the hint about the newest version of `table`."""
        return f"{self.stem}:head:{table}"

    @property
    def tasks(self) -> str:
        """The key of the stream of tasks."""
        return f"{self.stem}:tasks"

    @property
    def queued(self) -> str:
        """The key of a hash: kind and table → the task's entry in the stream."""
        return f"{self.stem}:queued"

    @property
    def leases(self) -> str:
        """The key of a hash: kind and table → the lease of the running task, with its expiry and its worker."""
        return f"{self.stem}:leases"

    @property
    def done(self) -> str:
        """The key of a hash: kind and table → the version that was checked last, and when."""
        return f"{self.stem}:done"

    @property
    def dead(self) -> str:
        """The key of a hash: kind and table → the dead task, which failed too often and is not retried."""
        return f"{self.stem}:dead"


FAILURES_MAX: Final = 3
_CALLS_AT_ONCE: Final = 16
_REASON_MAX: Final = 300
_log = library_logger("rootline.redis")


class _Client(Protocol):
    """The methods of the library's client that are used."""

    async def execute_command(self, *command: str | int | bytes) -> object: ...

    async def aclose(self) -> None: ...


class RedisCalls:
    """One Redis for all uses of a process. For one event loop. Connects at the first call.

    Raises:
        Invalid: `setting-invalid`, the URL is invalid, or the password's file cannot be read.
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
                retry=Retry(NoBackoff(), 0),  # one attempt, because the circuit breaker counts failures
                socket_timeout=None,  # one deadline covers the whole call
                socket_connect_timeout=None,
                protocol=2,
            )
        except (ValueError, TypeError):  # the library's own message may contain a part of the password
            raise Invalid(
                "setting-invalid",
                "ROOTLINE_REDIS__URL is not a Redis URL. Write redis://host:port/0 or rediss://host:port/0",
            ) from None
        self._at_once = asyncio.Semaphore(_CALLS_AT_ONCE)
        self._failures = 0
        self._silent_until_s = float("-inf")

    @property
    def is_silent(self) -> bool:
        """Whether the circuit is open, so that a call would fail without being sent."""
        return self.environment.monotonic_s() < self._silent_until_s

    async def send(self, use: str, *command: str | int | bytes) -> object:
        """Send one command, and return its answer. `use` is a label of the metrics.

        Raises:
            Unavailable: `redis-unavailable`. The command may have been carried out nevertheless.
        """
        now_s = self.environment.monotonic_s()
        if now_s < self._silent_until_s:
            self.metrics.calls.labels(use, "skipped").inc()
            raise self._unavailable("it did not answer, and is retried soon")
        if self._failures >= FAILURES_MAX:
            self._silent_until_s = now_s + self.settings.silence_s  # only this one call tests whether Redis answers
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
            # the server may not be Redis at all
            raise self._failed(use, f"{type(error).__name__}: {error}") from error
        self._answered()
        self.metrics.calls.labels(use, "answered").inc()
        return answer

    async def close(self) -> None:
        """Close the connections."""
        try:
            async with asyncio.timeout(1.0):
                await self._client.aclose()
        except (RedisError, OSError, TimeoutError):
            pass  # the server has ended, and so have its connections

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
                    "Redis does not answer, so this process works without it",
                    action="redis-down",
                    server=self._place,
                    reason=reason[:_REASON_MAX],
                )
            self.metrics.up.set(0)
            self._silent_until_s = self.environment.monotonic_s() + self.settings.silence_s
        return self._unavailable(reason[:_REASON_MAX])

    def _unavailable(self, reason: str) -> Unavailable:
        return Unavailable(
            "redis-unavailable", f"Redis at {self._place}: {reason}. Check ROOTLINE_REDIS__URL and the server"
        )


_USE: Final = "hint"
_KEPT_MS: Final = 7 * 86_400_000
_QUEUED_MAX: Final = 10_000
_BATCH_MAX: Final = 100
_VERSION: Final = re.compile(rb"0|[1-9][0-9]{0,18}")
_SET: Final = """
for number, key in ipairs(KEYS) do redis.call('SET', key, ARGV[number + 1], 'PX', ARGV[1]) end
return #KEYS
"""


class RedisHeadHints(HeadHints):
    """The hints about the newest versions of one lake's tables."""

    def __init__(self, calls: RedisCalls, keys: LakeKeys) -> None:
        self._calls, self._keys = calls, keys
        self._queued: dict[TableName, Version] = {}
        self._sending: asyncio.Task[None] | None = None

    @property
    @override
    def are_kept(self) -> bool:
        """Whether hints are sent: the circuit breaker is closed."""
        return not self._calls.is_silent

    @override
    def tell(self, table: TableName, version: Version) -> None:
        """Queue a hint to be sent, unless the circuit breaker is open."""
        if self._calls.is_silent:
            self._queued.clear()
            return
        self._queued[table] = version
        if len(self._queued) > _QUEUED_MAX:
            del self._queued[next(iter(self._queued))]
        if self._sending is None:
            self._sending = asyncio.get_running_loop().create_task(self._send_queued(), name="rootline head hints")

    @override
    async def newest(self, table: TableName) -> Version | None:
        try:
            answer = await self._calls.send(_USE, "GETRANGE", self._keys.head(table), 0, 31)
        except Unavailable:
            return None
        if not isinstance(answer, bytes) or _VERSION.fullmatch(answer) is None:
            return None
        version = int(answer)
        return Version(version) if version <= MAX_VERSION else None

    @override
    def judged(self, outcome: HintOutcome) -> None:
        self._calls.metrics.hints.labels(outcome.value).inc()

    async def drained(self) -> None:
        """Wait until all queued hints were sent. Each attempt has a deadline."""
        while self._sending is not None:
            await asyncio.wait({self._sending})

    async def close(self) -> None:
        """Discard the hints that were not sent yet."""
        self._queued.clear()
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.wait({self._sending})

    async def _send_queued(self) -> None:
        try:
            while self._queued:
                batch = dict(list(self._queued.items())[:_BATCH_MAX])
                for table in batch:
                    del self._queued[table]
                keys = [self._keys.head(table) for table in batch]
                await self._calls.send(_USE, "EVAL", _SET, len(keys), *keys, _KEPT_MS, *batch.values())
        except Unavailable:
            self._queued.clear()  # without a hint, a reader lists the table's roots anyway
        finally:
            self._sending = None
