"""The worker service: watches the heads (newest roots) of tables, queues tasks that may be due, carries them out.

Owns: the asyncio tasks of the service, their start and clean stop, its readiness, the order of tasks for one table
(root, then leaves, rows and history). Does not own: the kinds of maintenance (`kinds`), their plans
(`rootline.maintenance`), their execution (`rootline.workers.jobs`).
Invariants: nothing starts before `run`. A failing table never stops the others. Every queue is bounded. A stop lets
running jobs end, and cancels them after `stop_timeout_s`. Objects that a cancelled job has stored do no harm.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from prometheus_client import CollectorRegistry

from rootline.adapters.memory import MemoryTaskQueue
from rootline.adapters.system_environment import SystemEnvironment
from rootline.library_log import library_logger
from rootline.ports.environment import Environment
from rootline.ports.intent_log import AskLogKeeps
from rootline.ports.object_remover import ObjectRemover
from rootline.ports.object_store import ObjectStore
from rootline.ports.task_queue import Ending, Task, TaskKind, TaskQueue
from rootline.schemas.errors import Corrupt, Invalid, RootlineError, Unavailable
from rootline.schemas.identifiers import TableName
from rootline.workers.head_watcher import HeadWatcher
from rootline.workers.jobs.job import (
    HandOver,
    Job,
    JobContext,
    JobOutcome,
    JobReport,
    WorkerCounters,
    WorkerLog,
    WriteRows,
)
from rootline.workers.kinds import KINDS
from rootline.workers.metrics import CANCELLED, FAILED, WorkerMetrics
from rootline.workers.settings import WorkerSettings, worker_settings

_TABLES_SHOWN_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class WorkerReadiness:
    """The readiness of a worker. `reason`: why it is not ready, empty if it is.

    `failing`: the tables whose last check or task failed, with the reasons. They do not make the worker unready.
    """

    reason: str
    failing: Mapping[TableName, str]

    @property
    def ready(self) -> bool:
        """Whether the worker finds its tables and its tasks."""
        return not self.reason

    def to_json(self) -> dict[str, Any]:
        """The JSON of /readyz: the first failing tables, and the number of the rest."""
        shown = dict(sorted(self.failing.items())[:_TABLES_SHOWN_MAX])
        more = len(self.failing) - len(shown)
        told = {"ready": self.ready, "reason": self.reason, "failing": shown}
        return {**told, "failing_more": more} if more else told


_log = library_logger("rootline.workers")
HISTORY_AGAIN_S: Final = 60.0
"""The delay before a failed task of kind `HISTORY` is retried. A change of the table also retries it."""
_TAKE_WAIT_S: Final = 5.0
_FINE: Final = (JobOutcome.NOTHING_DUE, JobOutcome.COMMITTED, JobOutcome.REMOVED)
_Result = TypeVar("_Result")


class WorkerService:
    """One worker. Await `run` once. It returns after `request_stop`. `counters` may be read at any time."""

    def __init__(
        self,
        *,
        store: ObjectStore,
        log: WorkerLog,
        settings: WorkerSettings | None = None,
        queue: TaskQueue | None = None,
        environment: Environment | None = None,
        remover: ObjectRemover | None = None,
        keeps: AskLogKeeps | None = None,
        write_rows: WriteRows | None = None,
        hand_over: HandOver | None = None,
        registry: CollectorRegistry | None = None,
    ) -> None:
        self.settings = settings or worker_settings()
        self.counters = WorkerCounters()
        self._environment = environment or SystemEnvironment()
        self._queue = queue or MemoryTaskQueue(tasks_max=self.settings.tasks_max)
        self.metrics = WorkerMetrics(registry or CollectorRegistry(), [kind.name for kind in KINDS])
        self._watcher = HeadWatcher(
            store, self._queue, self._environment, self.settings, self.counters, self._count_failure
        )
        self._state = "it has not started"
        self._queue_trouble = ""
        context = JobContext.of(
            store,
            log,
            self._environment,
            self.settings,
            remover=remover,
            keeps=keeps,
            write_rows=write_rows,
            hand_over=hand_over,
        )
        self._jobs = [(kind, kind.job(context)) for kind in KINDS]
        self._stopping = asyncio.Event()

    def request_stop(self) -> None:
        """Start a clean stop. Call it in the service's event loop. Repeated calls are safe."""
        self._stopping.set()

    async def run(self) -> None:
        """Work until `request_stop`."""
        self._state = ""
        try:
            await self._run()
        finally:
            self._state = "it has stopped"

    def readiness(self) -> WorkerReadiness:
        """The worker's readiness, with the reason if it is not ready."""
        state = self._state or ("it is stopping" if self._stopping.is_set() else "")
        return WorkerReadiness(state or self._watcher.trouble or self._queue_trouble, self._watcher.failing)

    async def measure(self) -> None:
        """Update the gauges. Call this before the metrics are read."""
        try:
            waiting = await self._queue.waiting()
        except Unavailable:
            waiting = None
        self.metrics.measure(self.counters, waiting)

    async def _run(self) -> None:
        _log.info("worker started", action="worker-started", jobs_at_once=self.settings.jobs_at_once)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._watch(), name="rootline head watcher")]
            tasks += [
                group.create_task(self._work(), name=f"rootline worker {number}")
                for number in range(self.settings.jobs_at_once)
            ]
            renewing = group.create_task(self._renew(), name="rootline worker leases")
            await self._stopping.wait()
            _, late = await asyncio.wait(tasks, timeout=self.settings.stop_timeout_s)
            for task in (*late, renewing):
                task.cancel()
        await self._queue.close()
        _log.info("worker stopped", action="worker-stopped", cancelled=len(late))

    async def look_once(self) -> float:
        """Check the heads of all tables that are due. Returns the seconds until the next check."""
        return await self._watcher.look()

    async def carry_out_one(self, *, wait_s: float = 0.0) -> JobReport | None:
        """Take one task and carry it out. `None` if no task arrived within `wait_s` seconds, or if it failed."""
        task = await self._queue.take(wait_s=wait_s)
        return None if task is None else await self._carry_out(task)

    async def _watch(self) -> None:
        while not self._stopping.is_set():
            wait_s = await self._watcher.look()
            await self._unless_stopping(asyncio.sleep(wait_s))

    async def _work(self) -> None:
        while not self._stopping.is_set():
            try:
                task = await self._unless_stopping(self._queue.take(wait_s=_TAKE_WAIT_S))
                self._queue_trouble = ""
            except Unavailable as error:
                self.counters.failures += 1
                self._count_failure(error)
                self._queue_trouble = f"the task queue cannot be reached: {error.message}"
                _log.warning("the task queue cannot be reached", action="queue-unavailable", reason=error.message)
                await self._unless_stopping(asyncio.sleep(self.settings.poll_interval_s))
                continue
            if task is not None:
                await self._carry_out(task)

    async def _renew(self) -> None:
        """Renew the leases of running tasks, so that no other worker takes them."""
        while True:
            try:
                wait_s = await self._queue.renew()
            except Unavailable:
                wait_s = self.settings.poll_interval_s
            if wait_s == math.inf:
                return
            await asyncio.sleep(wait_s)

    async def _carry_out(self, task: Task) -> JobReport | None:
        self.counters.jobs_running += 1
        ending = Ending.CUT_OFF
        try:
            report = await self._look(task)
            ending = Ending.DONE if report is not None and report.outcome in _FINE else Ending.FAILED
            return report
        finally:
            self.counters.jobs_running -= 1
            self.counters.jobs_done += 1
            await self._queue.finish(task, ending)

    async def _look(self, task: Task) -> JobReport | None:
        """Run the jobs of the task's kinds of maintenance in turn, until one finds work. `None` if a job failed.

        A `ROWS` task runs all of its jobs. In a `HISTORY` task the next job runs even if one failed.
        """
        report, name, label = JobReport(JobOutcome.NOTHING_DUE), task.kind.value, task.kind.value
        has_failed = False
        try:
            for kind, job in self._jobs:
                if kind.task is not task.kind:
                    continue
                name, label = kind.name, kind.label
                has_leaves = report.has_leaves
                try:
                    report = await self._timed(name, job, task)
                except Exception as error:
                    if task.kind is not TaskKind.HISTORY:
                        raise
                    self._failed(name, label, task, error)
                    has_failed = True  # a table whose sweep is refused still expires versions
                    continue
                report = replace(report, has_leaves=report.has_leaves or has_leaves)
                self._record(name, label, task, report)
                if report.again_s is not None:
                    self._watcher.look_again(task.table, report.again_s)
                if report.outcome is not JobOutcome.NOTHING_DUE and task.kind is not TaskKind.ROWS:
                    break
            if task.kind is TaskKind.ROOT:
                if report.has_leaves:
                    await self._queue.offer(Task(TaskKind.LEAVES, task.table, task.noticed_version))
                await self._queue.offer(Task(TaskKind.ROWS, task.table, task.noticed_version))
                await self._queue.offer(Task(TaskKind.HISTORY, task.table, task.noticed_version))
        except Exception as error:  # any error: the other tables continue
            self._failed(name, label, task, error)
            return None
        return None if has_failed and report.outcome is JobOutcome.NOTHING_DUE else report

    async def _timed(self, name: str, job: Job, task: Task) -> JobReport:
        began_s, outcome = self._environment.monotonic_s(), CANCELLED
        self.metrics.began(name)
        try:
            report = await job.run(task.table)
            outcome = report.outcome.value
            self.metrics.reported(name, report, self._environment.now_ms())
            return report
        except Exception:
            outcome = FAILED
            raise
        finally:
            self.metrics.ended(name, outcome, self._environment.monotonic_s() - began_s)

    def _count_failure(self, error: Exception) -> None:
        self.metrics.failed(error.code if isinstance(error, RootlineError) else type(error).__name__)

    def _failed(self, name: str, label: str, task: Task, error: Exception) -> None:
        self.counters.failures += 1
        self._count_failure(error)
        if task.kind is not TaskKind.ROWS or not isinstance(
            error, (Invalid, Corrupt)
        ):  # those need a change of the table first
            self._try_later(task, name, str(error) or repr(error))
        facts = {"action": f"{label}-failed", "table": task.table}
        if isinstance(error, RootlineError):
            _log.warning(f"{label} failed", code=error.code, reason=error.message, **facts)
        else:
            _log.exception(f"{label} failed", exc_info=error, **facts)

    def _record(self, name: str, label: str, task: Task, report: JobReport) -> None:
        if report.outcome in _FINE and task.kind is not TaskKind.HISTORY:
            self._watcher.succeeded(task.table, name)
        self._record_removed(label, task, report)
        for trouble in report.troubles:
            self.metrics.failed("sweep-refused")
            _log.warning(f"{label} kept unneeded objects", action=f"{label}-held-up", table=task.table, reason=trouble)
        if report.outcome is JobOutcome.NOTHING_DUE:
            _log.debug(f"no {label} is due", action=f"{label}-not-due", table=task.table, version=task.noticed_version)
            return
        self.counters.outcomes[label, report.outcome] += 1
        if report.outcome is JobOutcome.REMOVED:
            return
        facts = {"table": task.table, "leaves": report.leaves, "entries": report.entries, "version": report.version}
        if report.outcome is JobOutcome.COMMITTED:
            self.counters.leaves_committed += report.leaves
            self.counters.entries_moved += report.entries
            _log.info(f"{label} committed", action=f"{label}-committed", **facts)
            return
        if task.kind is not TaskKind.ROWS or report.outcome is not JobOutcome.REJECTED:
            self._try_later(task, name, f"{report.outcome}: {report.message or report.code or 'not committed'}")
        action = f"{label}-{report.outcome}"
        _log.warning(f"{label} not committed", action=action, code=report.code, reason=report.message, **facts)

    def _try_later(self, task: Task, name: str, why: str) -> None:
        """Schedule a retry. A failed `HISTORY` task does not delay the table's other checks."""
        if task.kind is TaskKind.HISTORY:
            self._watcher.look_again(task.table, HISTORY_AGAIN_S)
        else:
            self._watcher.failed(task.table, name, why)

    def _record_removed(self, label: str, task: Task, report: JobReport) -> None:
        for removed in report.removed:
            self.counters.objects_removed[removed.kind] += removed.objects
            self.counters.bytes_removed[removed.kind] += removed.size_in_bytes
            facts = {"table": task.table, "kind": removed.kind, "objects": removed.objects}
            _log.info(f"{label} removed", action=f"{label}-removed", bytes=removed.size_in_bytes, **facts)

    async def _unless_stopping(self, wanted: Awaitable[_Result]) -> _Result | None:
        """The result of `wanted`, or `None` if a stop is requested first."""
        wanted_task = asyncio.ensure_future(wanted)
        stop_task = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait((wanted_task, stop_task), return_when=asyncio.FIRST_COMPLETED)
            return wanted_task.result() if wanted_task.done() else None
        finally:
            stop_task.cancel()
            wanted_task.cancel()
