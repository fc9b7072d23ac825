"""Expiry: versions are given up by an intent, and the roots of those that are given up are removed.

Owns: what is read to plan, and the order: first a root gives versions up, then others are removed. Does not own: which
versions go (`rootline.maintenance.expiry_plan`), which roots may be removed by now (`root_removal`), the steps of
publishing (`maintenance_job`).
Invariants: nothing is removed that the head names; without a remover nothing is removed; an unknown outcome removes
nothing, because only a head that was read says what was given up.

Source: definitions page, section 4; invariants page, 14 and 15.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from rootline.maintenance.expiry_plan import ExpiryPlan, plan_expiry
from rootline.maintenance.limits import EVERY_COMMITS, EVERY_COMMITS_IN_FOLDER, ExpiryLimits
from rootline.maintenance.plan import Plan
from rootline.schemas.bytes.root.kept_page import KeptVersion
from rootline.schemas.bytes.root.root_codec import Root
from rootline.schemas.identifiers import TableName, Version
from rootline.schemas.root_header import Expiry
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.metadata.object_reader import read_kept
from rootline.storage.metadata.root_reader import find_head, read_root
from rootline.workers.jobs.job import JobContext, JobOutcome, JobReport
from rootline.workers.jobs.maintenance_job import MaintenanceJob
from rootline.workers.jobs.root_removal import GivesUp, RootRemoval


class ExpiryPlanner:
    """Plans expiries."""

    what: Final = "expiry"
    stale: Final = "expiry-stale"
    corrupt: Final = "page-corrupt"

    def __init__(self, context: JobContext) -> None:
        self._reads, self._now, self._environment = context.reads, context.now, context.environment
        self.given_up: dict[TableName, Expiry | None] = {}
        """What the heads that were looked at last have given up."""
        self._every_commits = EVERY_COMMITS_IN_FOLDER  # until the store has said that it dates its objects

    async def plan(self, table: TableName, root: Root, definition: TableDefinition) -> ExpiryPlan | None:
        """What is due in `root`; as `Planner.plan`."""
        limits = ExpiryLimits.of_properties(definition.properties, every_commits=self._every_commits)
        header = root.header
        self.given_up[table] = header.expiry
        if not (limits.is_on or self._now):
            return None
        if not self._now and header.version - header.oldest_version < limits.every_commits:
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


class ExpiryJob:
    """A `Job`: publishes what is due, and removes roots that nothing names any more."""

    def __init__(self, context: JobContext) -> None:
        self._planner = ExpiryPlanner(context)
        self._publishing = MaintenanceJob(context, self._planner)
        self._known: dict[TableName, Expiry | None] = {}
        self._removal = None if context.remover is None else RootRemoval(context, context.remover)

    async def run(self, table: TableName) -> JobReport:
        """Do to `table` what is due; as `Job.run`."""
        report = await self._publishing.run(table)
        if self._removal is None:
            return report
        seen = self._planner.given_up.get(table)
        is_news = report.outcome is JobOutcome.COMMITTED or seen != self._known.get(table)  # perhaps by another worker
        self._known[table] = seen
        return _with(report, await self._removal.run(table, is_news=is_news))

    async def dry_run(self, table: TableName) -> JobReport:
        """What `run` would do first; as `Job.dry_run`."""
        plan = await self._publishing.planned(table)
        removed = () if self._removal is None else await self._removal.would_remove(table, _gives_up(plan))
        if plan is None:
            return JobReport(JobOutcome.PLANNED if removed else JobOutcome.NOTHING_DUE, removed=removed)
        return JobReport(JobOutcome.PLANNED, 0, plan.entries, plan.made_from_version, removed=removed)


def _with(report: JobReport, removal: JobReport) -> JobReport:
    """Both as one: what was removed counts, unless the intent did not come through."""
    if report.outcome is JobOutcome.NOTHING_DUE:
        return replace(removal, has_leaves=report.has_leaves)
    return replace(report, removed=removal.removed, again_s=removal.again_s)


def _gives_up(plan: Plan | None) -> GivesUp:
    """Which versions a plan gives up."""
    if not isinstance(plan, ExpiryPlan):
        return lambda _: False
    oldest, kept = plan.oldest, {item.version for item in plan.kept}
    return lambda version: version < oldest and version not in kept
