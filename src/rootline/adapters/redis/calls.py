"""Calls to Redis: each has a deadline, and a Redis that does not answer is left alone for a while.

Owns: the connection, deadlines, the circuit. Does not own: what is asked (`head_hints`, `task_queue`).
Invariants: a call ends within its deadline and is sent once; after `FAILURES_MAX` calls in a row without an answer no
call is sent for `silence_s`, then one is, and its answer ends the silence; an answer that says no ends no silence and
begins none.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol
from urllib.parse import urlsplit

import structlog
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as NoConnection
from redis.exceptions import RedisError, ResponseError

from rootline.adapters.redis.metrics import RedisMetrics
from rootline.adapters.redis.settings import RedisSettings
from rootline.ports.environment import Environment
from rootline.schemas.errors import Invalid, Unavailable

FAILURES_MAX: Final = 3
_AT_ONCE: Final = 16
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
        self._at_once = asyncio.Semaphore(_AT_ONCE)
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
