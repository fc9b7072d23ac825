"""Expiry and purge: an intent expires versions, then expired roots are removed, and dropped tables are purged.

Owns: the reads of the plans, the order (an intent first expires versions, then their root objects are deleted), the
choice of root objects that may be deleted now, the time of a purge (the store's or the worker's, whichever is earlier).
Does not own: the choice of versions (`expiry_plan`), the steps of publishing (`maintenance_job`), deletion itself (the
`ObjectRemover`).
Invariants: the head is never removed, nor a version that the head can read, nor a key that is not exactly a root's. In
a store that dates its objects, a root is removed only `root_retention_s` after the root that expired it was stored. The
time now is the store's, or the worker's if that is earlier. Without a remover nothing is removed. An unknown outcome
and a failed read remove nothing. An expired version never becomes readable again. So an outdated head, an interrupted
removal and two removals at once are all safe. A worker or a store whose clock is wrong purges nothing early, because
the coordinator compares the log's time with the time of the drop. A late purge affects no table that was restored.

Theory. Root N may be removed `root_retention_s` after the root that expired version N. One GET decides for all: the
newest root that is at least so old states which versions were readable then. An expired version that it does not name
has been expired for long enough. A folder on a local disk has only this machine's dates. There commits and removals
exclude each other by a lock, and nothing has to wait.

Source: definitions page, section 4; protocol page, section 1; invariants page, 14 and 15.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from typing_extensions import override

from rootline.maintenance.expiry_plan import ExpiryPlan, PurgePlan, plan_expiry, plan_purge, purge_due_ms
from rootline.maintenance.limits import EVERY_COMMITS, EVERY_COMMITS_IN_FOLDER, ExpiryLimits
from rootline.maintenance.plan import Plan
from rootline.ports.object_remover import DatedObject, ObjectRemover
from rootline.schemas.bytes.root.retained_page import KeptVersion
from rootline.schemas.bytes.root.root_codec import Root
from rootline.schemas.errors import Corrupt
from rootline.schemas.identifiers import TableName, Version
from rootline.schemas.parts.versions import Expiry
from rootline.schemas.root_header import RootHeader
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.metadata.page_reader import read_kept
from rootline.storage.metadata.root_reader import find_head, read_definition, read_root
from rootline.tree.state.addressable import Addressable
from rootline.workers.jobs.job import (
    Job,
    JobContext,
    JobOutcome,
    JobReport,
    Removed,
    in_batches,
    remove_batches,
    stored_roots,
)
from rootline.workers.jobs.maintenance_job import MaintenanceJob

GivesUp = Callable[[Version], bool]
AGAIN_S: Final = 60.0
"""Interval of checks of a table whose expired roots must wait. They are removed in the order of their expiry."""
_BATCH: Final = 1_000


@dataclass(frozen=True, slots=True)
class _Found:
    """Expired roots that may be removed now, and those that must wait."""

    free: Sequence[DatedObject] = ()
    waiting: Sequence[DatedObject] = ()


class RootRemoval:
    """Removes expired roots, for any number of tables.

    A table is scanned after an expiry. While some of its expired roots must wait, it is scanned every `AGAIN_S`
    seconds.
    """

    def __init__(self, context: JobContext, remover: ObjectRemover) -> None:
        self._reads, self._remover, self._environment = context.reads, remover, context.environment
        self._due_s: dict[TableName, float] = {}
        self._now, self._last_root = context.now, context.last_root

    async def run(self, table: TableName, *, is_news: bool) -> JobReport:
        """Remove the roots that may be removed. `is_news`: versions have just expired."""
        now_s = self._environment.monotonic_s()
        if not is_news and not self._now and now_s < self._due_s.get(table, now_s):
            return JobReport(JobOutcome.NOTHING_DUE)
        self._due_s[table] = now_s + AGAIN_S  # also if this fails
        found = await self._found(table)
        batches = in_batches([item.key for item in found.free], _BATCH)
        left = await remove_batches(self._remover, batches, self._environment.monotonic_s)
        if left is not None:
            raise left
        again_s = AGAIN_S if found.waiting else None
        if not found.waiting:
            self._due_s[table] = float("inf")
        if not found.free:
            return JobReport(JobOutcome.NOTHING_DUE, again_s=again_s)
        return JobReport(JobOutcome.REMOVED, removed=_summed(found.free), again_s=again_s)

    async def would_remove(self, table: TableName, gives_up: GivesUp) -> tuple[Removed, ...]:
        """The roots that `run` would remove now, and the roots that it would remove after the retention.

        `gives_up`: whether a planned expiry would expire this version, too.
        """
        found = await self._found(table, gives_up)
        return (*_summed(found.free), *_summed(found.waiting, "roots later"))

    async def _found(self, table: TableName, gives_up: GivesUp | None = None) -> _Found:
        head = await find_head(self._reads, table)
        if head is None:
            return _Found()
        newest = await self._last_root.read(self._reads, table, head.version)
        header = newest.header
        if header.versions.expiry is None and gives_up is None:
            return _Found()
        stored = stored_roots(self._remover, table)
        objects = {version: item async for version, item in stored if version <= header.version}
        named = Addressable.of(header, await read_kept(self._reads, header))
        gone = {
            version: item
            for version, item in objects.items()
            if version < header.version and (not named.has(version) or (gives_up is not None and gives_up(version)))
        }
        if not gone or head.store_ms is None:
            return _Found(list(gone.values()))
        limits = ExpiryLimits.of_properties((await read_definition(self._reads, header)).properties)
        now_ms = min(
            head.store_ms, self._environment.now_ms()
        )  # a store clock that is ahead must not make roots look old
        cutoff_ms = now_ms - limits.root_retention_s * 1_000
        witness = await self._newest_until(table, cutoff_ms, objects)
        if witness is None:
            return _Found((), list(gone.values()))
        then = Addressable.of(witness, await read_kept(self._reads, witness))
        free = {
            version
            for version, item in gone.items()
            if version < witness.version and not then.has(version) and item.last_modified_ms <= cutoff_ms
        }
        return _Found(
            [gone[version] for version in free], [item for version, item in gone.items() if version not in free]
        )

    async def _newest_until(
        self, table: TableName, cutoff_ms: int, objects: dict[Version, DatedObject]
    ) -> RootHeader | None:
        """The newest root stored before the cutoff. `None` if all roots are newer, or if nothing was expired then."""
        old = [version for version, item in objects.items() if item.last_modified_ms <= cutoff_ms]
        if not old:
            return None
        try:
            header = (await read_root(self._reads, table, max(old))).header
        except Corrupt as error:
            if error.code != "object-missing":
                raise
            return None  # another process has just removed it: the next run finds a newer one
        return None if header.versions.expiry is None else header


def _summed(objects: Sequence[DatedObject], kind: str = "roots") -> tuple[Removed, ...]:
    return (Removed(kind, len(objects), sum(item.length for item in objects)),) if objects else ()


class ExpiryPlanner:
    """Plans expiries."""

    what: Final = "expiry"
    stale: Final = "expiry-stale"
    corrupt: Final = "page-corrupt"

    def __init__(self, context: JobContext) -> None:
        self._reads, self._now, self._environment = context.reads, context.now, context.environment
        self.given_up: dict[TableName, Expiry | None] = {}
        """The expired range of each table's last read head."""
        self._every_commits = EVERY_COMMITS_IN_FOLDER  # until a response shows that the store dates its objects

    async def plan(self, table: TableName, root: Root, definition: TableDefinition) -> ExpiryPlan | None:
        """Plan an expiry of old versions, or return `None` if none is due. Raises the errors of `Planner.plan`."""
        limits = ExpiryLimits.of_properties(definition.properties, every_commits=self._every_commits)
        header = root.header
        self.given_up[table] = header.versions.expiry
        if not (limits.is_on or self._now):
            return None
        if not self._now and header.version - header.versions.oldest < limits.every_commits:
            return None
        head = await find_head(self._reads, table)
        stated_ms = None if head is None else head.store_ms
        now_ms = self._environment.now_ms() if stated_ms is None else stated_ms
        if stated_ms is not None and self._every_commits != EVERY_COMMITS:
            self._every_commits = EVERY_COMMITS
            limits = ExpiryLimits.of_properties(definition.properties)
        steps = plan_expiry(header, await read_kept(self._reads, header), limits, now_ms=now_ms, now=self._now)
        said: KeptVersion | None = None
        while True:
            try:
                wanted = next(steps) if said is None else steps.send(said)
            except StopIteration as ended:
                plan: ExpiryPlan | None = ended.value
                return plan
            said = await self._said(table, wanted, root)

    async def _said(self, table: TableName, version: Version, head: Root) -> KeptVersion:
        root = await read_root(self._reads, table, version, known=head)
        return KeptVersion(version, root.header.snapshot.timestamp_ms, root.size_in_bytes)


class ExpiryJob(Job):
    """A `Job` that publishes an expiry if it is due, and removes roots of expired versions."""

    def __init__(self, context: JobContext) -> None:
        self._planner = ExpiryPlanner(context)
        self._publishing = MaintenanceJob(context, self._planner)
        self._known: dict[TableName, Expiry | None] = {}
        self._removal = None if context.remover is None else RootRemoval(context, context.remover)

    @override
    async def run(self, table: TableName) -> JobReport:
        report = await self._publishing.run(table)
        if self._removal is None:
            return report
        seen = self._planner.given_up.get(table)
        is_news = report.outcome is JobOutcome.COMMITTED or seen != self._known.get(table)  # perhaps by another worker
        self._known[table] = seen
        return _with(report, await self._removal.run(table, is_news=is_news))

    @override
    async def dry_run(self, table: TableName) -> JobReport:
        plan = await self._publishing.planned(table)
        removed = () if self._removal is None else await self._removal.would_remove(table, _gives_up(plan))
        if plan is None:
            return JobReport(JobOutcome.PLANNED if removed else JobOutcome.NOTHING_DUE, removed=removed)
        return JobReport(JobOutcome.PLANNED, 0, plan.entries, plan.made_from_version, removed=removed)


def _with(report: JobReport, removal: JobReport) -> JobReport:
    """One report of both steps. Its outcome is the intent's, or the removal's if no expiry was due."""
    if report.outcome is JobOutcome.NOTHING_DUE:
        return replace(removal, has_leaves=report.has_leaves)
    return replace(report, removed=removal.removed, again_s=removal.again_s)


def _gives_up(plan: Plan | None) -> GivesUp:
    """A function that returns whether the plan expires a version."""
    if not isinstance(plan, ExpiryPlan):
        return lambda _: False
    oldest, kept = plan.oldest, {item.version for item in plan.kept}
    return lambda version: version < oldest and version not in kept


class PurgePlanner:
    """Plans purges."""

    what: Final = "purge"
    stale: Final = "purge-stale"
    corrupt: Final = "page-corrupt"

    def __init__(self, context: JobContext) -> None:
        self._context = context
        self.waits_s: dict[TableName, float] = {}
        """Seconds until each dropped table may be purged, by its last check."""

    async def plan(self, table: TableName, root: Root, definition: TableDefinition) -> PurgePlan | None:
        """Plan a purge of a dropped table, or return `None` if none is due. Raises the errors of `Planner.plan`."""
        self.waits_s.pop(table, None)
        due_ms = purge_due_ms(root.header, definition)
        if due_ms is None:
            return None
        now_ms = await self._context.store_ms(table)
        if now_ms < due_ms:
            self.waits_s[table] = (due_ms - now_ms) / 1000
        return plan_purge(root.header, definition, now_ms)


class PurgeJob(Job):
    """A `Job` that publishes a purge if it is due, and reports the time of the next check."""

    def __init__(self, context: JobContext) -> None:
        self._planner = PurgePlanner(context)
        self._publishing = MaintenanceJob(context, self._planner)

    @override
    async def run(self, table: TableName) -> JobReport:
        report = await self._publishing.run(table)
        return replace(report, again_s=self._planner.waits_s.get(table))

    @override
    async def dry_run(self, table: TableName) -> JobReport:
        plan = await self._publishing.planned(table)
        if not isinstance(plan, PurgePlan):
            return JobReport(JobOutcome.NOTHING_DUE, again_s=self._planner.waits_s.get(table))
        files = Removed("data files of a dropped table", plan.entries, plan.data_bytes)
        return JobReport(JobOutcome.PLANNED, 0, plan.entries, plan.made_from_version, condemned=(files,))
