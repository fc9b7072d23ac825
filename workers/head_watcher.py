"""Polls the heads of all tables, and queues a task for each table that changed.

Owns: the time of the next check of each table, its last known version. Does not own: waiting (`app`), the plans
(`rootline.maintenance`), the queue. Tasks of kind `HISTORY` expire, sweep and purge.
Invariants: a check costs one cheap LIST. A table that is quiet or failing is checked less and less often, down to a
limit. One table's failure does not change the checks of others. A head counts as seen only after its task is queued.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from rootline.library_log import library_logger
from rootline.ports.environment import Environment
from rootline.ports.object_store import ObjectStore
from rootline.ports.retry_policy import RetryPolicy
from rootline.ports.task_queue import OFFERED_AGAIN_S, Offer, Task, TaskKind, TaskQueue
from rootline.schemas.errors import Unavailable
from rootline.schemas.identifiers import TableName, Version
from rootline.storage.metadata.root_reader import find_head, list_names
from rootline.workers.jobs.job import WorkerCounters
from rootline.workers.settings import WorkerSettings

VERSIONS_A_LOOK: Final = 25
"""Versions per check. A table with more is checked more often, because its roots would grow long between checks."""
HURRY_MAX: Final = 8.0
_log = library_logger("rootline.workers")


@dataclass(slots=True)
class _Watched:
    """The state of one table.

    * `quiet`, `failed`: consecutive checks without a change, and consecutive failures.
    * `hurry`: divisor of the polling interval, above 1 if the last check found many new versions.
    * `history_due_s`: the time at which a `HISTORY` task is due, even without a change.
    * `offered_s`: the time at which a task for its head was last offered to the queue.
    * `unseen`: the reason why the last check found no head or no task. `undone`: kind of maintenance → its failure.
    """

    due_s: float
    seen: Version | None = None
    quiet: int = 0
    failed: int = 0
    history_due_s: float | None = None
    newest: Version | None = None
    hurry: float = 1.0
    offered_s: float = 0.0
    unseen: str = ""
    undone: dict[str, str] = field(default_factory=dict)


class HeadWatcher:
    """Polls the newest roots of tables. Call `look` in a loop. It returns the seconds to wait before the next call."""

    def __init__(
        self,
        store: ObjectStore,
        queue: TaskQueue,
        environment: Environment,
        settings: WorkerSettings,
        counters: WorkerCounters,
        failed: Callable[[Exception], None],
    ) -> None:
        self._store, self._queue, self._environment = store, queue, environment
        self._settings, self._counters = settings, counters
        self._watched: dict[TableName, _Watched] = {}
        self._discover_s = environment.monotonic_s()
        self._failed = failed
        self.trouble = ""
        """The reason why some or all tables cannot be listed. Empty if they can."""

    @property
    def tables(self) -> list[TableName]:
        """The watched tables, sorted."""
        return sorted(self._watched)

    async def look(self) -> float:
        """Check every table that is due. Returns the seconds until another one is due."""
        now_s = self._environment.monotonic_s()
        if now_s >= self._discover_s:
            await self._discover(now_s)
        for table, watched in self._watched.items():
            if now_s >= watched.due_s:
                await self._look_at(table, watched)
        next_s = min((watched.due_s for watched in self._watched.values()), default=self._discover_s)
        return max(0.0, min(next_s, self._discover_s) - self._environment.monotonic_s())

    @property
    def failing(self) -> Mapping[TableName, str]:
        """The tables whose last check or task failed, with the reason."""
        found = {}
        for table, watched in self._watched.items():
            why = [watched.unseen] if watched.unseen else [f"{kind}: {why}" for kind, why in watched.undone.items()]
            if why:
                found[table] = "; ".join(why)
        return found

    def succeeded(self, table: TableName, kind: str) -> None:
        """Note that maintenance of this kind succeeded on `table`."""
        watched = self._watched.get(table)
        if watched is not None:
            watched.undone.pop(kind, None)
            watched.failed = watched.failed if watched.undone else 0

    def look_again(self, table: TableName, after_s: float) -> None:
        """Schedule a `HISTORY` task for `table` after `after_s` seconds, even if its head does not change."""
        watched = self._watched.get(table)
        if watched is not None:
            due_s = self._environment.monotonic_s() + after_s
            before_s = watched.history_due_s
            watched.history_due_s = due_s if before_s is None else min(before_s, due_s)

    def failed(self, table: TableName, kind: str, why: str) -> None:
        """Note that maintenance of this kind failed on `table`. Its next check queues a task even if the head is known.

        The interval to that check grows with each failure.
        """
        watched = self._watched.get(table)
        if watched is not None:
            watched.seen = None
            watched.undone[kind] = why
            watched.failed += 1
            self._plan_next(watched)

    async def _discover(self, now_s: float) -> None:
        self._discover_s = now_s + self._settings.discovery_interval_s
        unread: list[Unavailable] = []
        try:
            async with asyncio.timeout(self._settings.request_timeout_s):
                found = await list_names(self._store, known=frozenset(self._watched), unread=unread)
        except Exception as error:
            self._counters.failures += 1
            self._failed(error)
            self.trouble = f"the tables cannot be listed: {str(error) or repr(error)}"
            _log.warning("cannot list the tables", action="tables-not-listed", reason=str(error) or repr(error))
            return
        self.trouble = ""
        if unread:
            self._counters.failures += 1
            self._failed(unread[0])
            self.trouble = f"some tables cannot be listed: {unread[0].message}"
            reasons = [error.message for error in unread[:10]]
            _log.warning("cannot list some tables", action="tables-not-listed", reason="; ".join(reasons))
        for table in found:
            if table not in self._watched:
                self._watched[table] = _Watched(due_s=now_s)
        self._counters.tables = len(self._watched)

    async def _look_at(self, table: TableName, watched: _Watched) -> None:
        self._counters.looks += 1
        try:
            async with asyncio.timeout(self._settings.request_timeout_s):
                head = await find_head(self._store, table)
            watched.unseen = ""
            is_known = head is not None and head.version == watched.seen
            if head is None or (is_known and not self._may_be_lost(watched)):
                watched.quiet += 1
                watched.hurry = 1.0
                if head is not None:
                    await self._offer_history(table, watched, head.version)
                self._plan_next(watched)
                return
            offer = await self._queue.offer(Task(TaskKind.ROOT, table, head.version))
        except Exception as error:
            self._counters.failures += 1
            self._failed(error)
            watched.unseen = f"its head cannot be found: {str(error) or repr(error)}"
            _log.warning("cannot find the head", action="head-not-found", table=table, reason=str(error) or repr(error))
            watched.failed += 1
            self._plan_next(watched)
            return
        moved = 0 if watched.newest is None else head.version - watched.newest
        watched.newest, watched.hurry = head.version, min(max(1.0, moved / VERSIONS_A_LOOK), HURRY_MAX)
        if offer in (Offer.QUEUED, Offer.DONE):
            watched.seen, watched.offered_s = head.version, self._environment.monotonic_s()
            if offer is Offer.DONE:  # done by another worker, without a later failure
                watched.undone.clear()
                watched.failed = 0
        elif offer is Offer.GIVEN_UP:
            watched.unseen = (
                "its task was taken too often and never ended, so it may kill workers. It is retried later: see "
                "`rootline tasks list`"
            )
        elif offer is Offer.FULL:
            self._counters.tasks_refused += 1
            _log.warning("the task queue is full", action="task-refused", table=table, version=head.version)
        watched.quiet = watched.quiet + 1 if is_known or (offer is Offer.GIVEN_UP and not moved) else 0
        self._plan_next(watched)

    def _may_be_lost(self, watched: _Watched) -> bool:
        """Whether the last task was offered so long ago (`OFFERED_AGAIN_S`) that it is offered once more.

        A shared queue may have lost it, or another worker may have ended with its schedule of this table.
        """
        return self._queue.is_shared and self._environment.monotonic_s() - watched.offered_s > OFFERED_AGAIN_S

    async def _offer_history(self, table: TableName, watched: _Watched, version: Version) -> None:
        due_s = watched.history_due_s
        if due_s is None or self._environment.monotonic_s() < due_s:
            return
        if await self._queue.offer(Task(TaskKind.HISTORY, table, version)) is not Offer.FULL:
            watched.history_due_s = None

    def _plan_next(self, watched: _Watched) -> None:
        polling = RetryPolicy(self._settings.poll_interval_s, self._settings.poll_interval_s_max)
        interval_s = polling.after_failure(max(watched.quiet, watched.failed) + 1, jitter=1.0)
        spread = 0.9 + 0.2 * self._environment.jitter()
        watched.due_s = self._environment.monotonic_s() + spread * interval_s / (
            1.0 if watched.failed else watched.hurry
        )
