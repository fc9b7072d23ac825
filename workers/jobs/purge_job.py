"""Purges of tables that were dropped some time ago: their files go for good.

Owns: which clocks are asked: the earlier one of the store's and the worker's. Does not own: what is due
(`rootline.maintenance.expiry_plan`), the steps of publishing (`maintenance_job`), deletion (`expiry_job`, `sweep_job`).
Invariants: a worker or a store whose clock is wrong purges nothing early, because the coordinator compares the log's
time with the drop's; one that comes late hits no table that came back.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from rootline.maintenance.expiry_plan import PurgePlan, plan_purge, purge_due_ms
from rootline.schemas.bytes.root.root_codec import Root
from rootline.schemas.identifiers import TableName
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.metadata.root_reader import find_head
from rootline.workers.jobs.job import JobContext, JobOutcome, JobReport, Removed
from rootline.workers.jobs.maintenance_job import MaintenanceJob


class PurgePlanner:
    """Plans purges."""

    what: Final = "purge"
    stale: Final = "purge-stale"
    corrupt: Final = "page-corrupt"

    def __init__(self, context: JobContext) -> None:
        self._reads, self._environment = context.reads, context.environment
        self.waits_s: dict[TableName, float] = {}
        """Until a dropped table is due, of the last look at each."""

    async def plan(self, table: TableName, root: Root, definition: TableDefinition) -> PurgePlan | None:
        """What is due in `root`; as `Planner.plan`."""
        self.waits_s.pop(table, None)
        due_ms = purge_due_ms(root.header, definition)
        if due_ms is None:
            return None
        head = await find_head(self._reads, table)
        stated_ms = None if head is None else head.store_ms
        now_ms = self._environment.now_ms()
        if stated_ms is not None:
            now_ms = min(stated_ms, now_ms)
        if now_ms < due_ms:
            self.waits_s[table] = (due_ms - now_ms) / 1000
        return plan_purge(root.header, definition, now_ms)


class PurgeJob:
    """A `Job`: publishes what is due, and says when to look again."""

    def __init__(self, context: JobContext) -> None:
        self._planner = PurgePlanner(context)
        self._publishing = MaintenanceJob(context, self._planner)

    async def run(self, table: TableName) -> JobReport:
        """Do to `table` what is due; as `Job.run`."""
        report = await self._publishing.run(table)
        return replace(report, again_s=self._planner.waits_s.get(table))

    async def dry_run(self, table: TableName) -> JobReport:
        """What `run` would do first; as `Job.dry_run`."""
        plan = await self._publishing.planned(table)
        if not isinstance(plan, PurgePlan):
            return JobReport(JobOutcome.NOTHING_DUE, again_s=self._planner.waits_s.get(table))
        files = Removed("data files of a dropped table", plan.entries, plan.data_bytes)
        return JobReport(JobOutcome.PLANNED, 0, plan.entries, plan.made_from_version, condemned=(files,))
