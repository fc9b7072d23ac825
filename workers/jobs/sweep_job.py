"""Sweeps: unreferenced objects are condemned, which means listed for deletion, and after a retention they are deleted.

Owns: the order of the steps, deletion. Does not own: the choice (`rootline.maintenance.orphan_sweep_plan`), the reads
(`sweep_reads`, `neighbour_reads`), publishing an intent and waiting for its verdict (`maintenance_job`).
Invariants: an object is deleted only if all of this is true: a page that the head references condemns it, the retention
has passed, no root that exists references it, and no other table of the warehouse does. Only keys below the table's own
folder are deleted, with names that Rootline or clients of its REST catalog give. An error before or while reading
deletes nothing. An object that cannot be deleted stops nothing else. A crash between any two steps leaves unreferenced
objects, never references to absent ones.

Several sweepers at once are safe: the second one finds nothing to delete, and an object that both condemn is condemned
twice.

Source: definitions page, section 4; decision 0063.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from typing_extensions import override

from rootline.maintenance.limits import INTERVAL_S_DEFAULT, SWEEP_PROPERTY, SweepLimits
from rootline.maintenance.orphan_sweep_plan import (
    Inventory,
    SweepPlan,
    Tally,
    due_deletions,
    plan_sweep,
)
from rootline.ports.object_remover import ObjectRemover
from rootline.schemas.bytes.root.location_pages import CONDEMNED_PAGES, CondemnedPage
from rootline.schemas.bytes.root.root_codec import Root
from rootline.schemas.errors import Invalid, RootlineError, Unavailable
from rootline.schemas.identifiers import TableName
from rootline.schemas.table_definition import TableDefinition
from rootline.schemas.table_properties import switch
from rootline.storage.metadata.page_reader import read_pages_of
from rootline.workers.jobs.job import Job, JobContext, JobOutcome, JobReport, Removed, remove_batches
from rootline.workers.jobs.maintenance_job import MaintenanceJob
from rootline.workers.jobs.neighbour_reads import NeighbourReads
from rootline.workers.jobs.sweep_reads import (
    Listed,
    References,
    keys_of,
    list_table,
    mark_exports,
)

_REMOVED_AT_ONCE: Final = 500
REFUSED_AGAIN_S: Final = 3600.0
"""Interval of checks of a table that cannot be swept. The reason does not change without an operator."""


class Found(NamedTuple):
    """The result of one run: objects to condemn, and objects that were deleted or, in a dry run, would be.

    * `again_s`: seconds until the next run.
    * `left`: the error because of which some objects were not deleted.
    * `troubles`: a sentence for each key that cannot be deleted, and for each unreadable table that may need objects
      here, which are therefore kept.
    """

    condemned: tuple[Removed, ...] = ()
    removed: tuple[Removed, ...] = ()
    again_s: float | None = None
    left: Unavailable | None = None
    troubles: tuple[str, ...] = ()


class SweepPlanner:
    """Plans sweeps, and deletes objects that were condemned earlier. `deletes`: false in a dry run."""

    what: Final = "sweep"
    stale: Final = "sweep-stale"
    corrupt: Final = "page-corrupt"

    def __init__(self, context: JobContext, *, deletes: bool) -> None:
        self._context = context
        self.deletes = deletes
        self._known: dict[TableName, tuple[CondemnedPage, ...]] = {}
        self.intervals_s: dict[TableName, int] = {}
        """Seconds between two sweeps of each table."""
        self._neighbours = NeighbourReads(context.reads)
        self.found: dict[TableName, Found] = {}
        """Results that the job has not taken yet. Several tables may be swept concurrently."""

    async def plan(self, table: TableName, root: Root, definition: TableDefinition) -> SweepPlan | None:
        """Delete the objects whose retention has passed, and plan the intent that condemns others.

        Raises:
            Invalid: `sweep-refused`, this table cannot be swept, or not by this process.
        """
        context = self._context
        is_off = not (context.now or switch(definition.properties, SWEEP_PROPERTY, default=False))
        keeps = None if is_off or context.keeps is None else await context.keeps()
        limits = (
            None
            if keeps is None
            else SweepLimits.of_properties(definition.properties, keeps.records_s, keeps.dead_letters_s)
        )
        self.intervals_s[table] = INTERVAL_S_DEFAULT if limits is None else limits.interval_s
        if is_off:
            return None
        if limits is None:
            raise Invalid(
                "sweep-refused",
                f"{table}: the log has no retention limit, or its retention is not known, so an undecided intent may "
                "name any file. Limit the log's retention",
            )
        if context.remover is None:
            raise Invalid(
                "sweep-refused",
                f"{table}: this process may not delete objects. Run the sweep in a process that has this permission",
            )
        return await self._look(table, root, limits, context.remover)

    async def _look(
        self, table: TableName, root: Root, limits: SweepLimits, remover: ObjectRemover
    ) -> SweepPlan | None:
        reads, header = self._context.reads, root.header
        pages = await read_pages_of(reads, header, CONDEMNED_PAGES, self._known.get(table, ()))
        self._known[table] = pages
        store_ms = await self._context.store_ms(table)
        listed = await list_table(remover, table, of_clients=limits.of_clients)
        references = References(reads, root, listed.inventory)
        await references.read(listed.roots)
        are_known = await mark_exports(
            reads,
            header,
            listed.exports,
            listed.inventory,
            young_ms=store_ms - limits.export_age_ms,
            roots=references.readable,
        )
        listed = replace(listed, has_unread=listed.has_unread or not are_known)
        due, plan = await self._choose(root, pages, listed, limits, store_ms)
        troubles = listed.troubles
        if due or (plan is not None and plan.entries):
            neighbours = await self._neighbours.mark(
                table, listed.inventory, remover, limits, store_ms=store_ms, stores=self.deletes
            )
            troubles += neighbours.troubles
            if neighbours.kept or not neighbours.are_known:
                listed = replace(listed, has_unread=listed.has_unread or not neighbours.are_known)
                due, plan = await self._choose(root, pages, listed, limits, store_ms)
        is_due = bool(due) and self.deletes
        left = await self._delete(table, listed.inventory, due, remover, limits) if is_due else None
        removed = _by_kind(Tally.of(listed.inventory, due))
        condemned = () if plan is None else _by_kind(plan.tally)
        again_s: float | None = None
        waiting_ms = [item.since_ms + limits.scan_retention_ms - store_ms for item in header.locations.condemned]
        if waiting_ms or plan is not None:
            again_s = max(limits.interval_s, min([item for item in waiting_ms if item > 0], default=0) / 1000)
        if table in self.found:  # a replan, because the first intent was stale
            removed = (*self.found[table].removed, *removed)
            left = left or self.found[table].left
        self.found[table] = Found(condemned, removed, again_s, left, troubles)
        return plan

    async def _choose(
        self, root: Root, pages: Sequence[CondemnedPage], listed: Listed, limits: SweepLimits, store_ms: int
    ) -> tuple[list[int], SweepPlan | None]:
        """Choose among the objects that nothing has marked as referenced so far.

        Returns the positions in the inventory of the objects to delete, and the plan that condemns others.
        """
        due = await asyncio.to_thread(self._due, root, pages, listed, limits, store_ms)
        inventory, has_unread = listed.inventory, listed.has_unread
        plan = await asyncio.to_thread(
            plan_sweep, root.header, pages, inventory, limits, store_ms=store_ms, has_unread=has_unread
        )
        return due, plan

    def _due(
        self, root: Root, pages: Sequence[CondemnedPage], listed: Listed, limits: SweepLimits, store_ms: int
    ) -> list[int]:
        header = root.header
        dated: dict[int, int] = {int(version): at for version, at in listed.roots.items()}
        for number, item in enumerate(header.locations.condemned):
            if item.page.location in listed.pages:
                dated[-1 - number] = listed.pages[item.page.location]
        inventory, exports = listed.inventory, listed.has_unread
        return due_deletions(header, pages, inventory, limits, dated=dated, store_ms=store_ms, has_unread=exports)

    async def _delete(
        self, table: TableName, inventory: Inventory, due: Sequence[int], remover: ObjectRemover, limits: SweepLimits
    ) -> Unavailable | None:
        """Delete the objects at the positions in `due`. Returns an error if some were not deleted."""
        wanted = {inventory.hash_of(at): int(inventory.stored_ms[at]) for at in due}
        batches = (
            keys[start : start + _REMOVED_AT_ONCE]
            async for keys in keys_of(remover, table, wanted, of_clients=limits.of_clients)
            for start in range(0, len(keys), _REMOVED_AT_ONCE)
        )
        return await remove_batches(remover, batches, self._context.environment.monotonic_s)


class SweepJob(Job):
    """A `Job` that condemns and deletes. A worker sweeps a table once in each interval of the table's properties."""

    def __init__(self, context: JobContext) -> None:
        self._context = context
        self._planner = SweepPlanner(context, deletes=True)
        self._job = MaintenanceJob(context, self._planner)
        self._next_s: dict[TableName, float] = {}

    @override
    async def run(self, table: TableName) -> JobReport:
        """Sweep `table` if its interval has passed. A long sweep makes a worker's next interval longer."""
        context = self._context
        if context.now:
            return self._told(table, await self._job.run(table), self._planner)
        if context.remover is None:
            return JobReport(JobOutcome.NOTHING_DUE)
        settings, clock = context.settings, context.environment.monotonic_s
        began_s = clock()
        if table not in self._next_s:  # a short-lived process does not start with work that can wait for days
            self._next_s[table] = began_s + settings.sweep_delay_s
        if began_s < self._next_s[table]:
            return JobReport(JobOutcome.NOTHING_DUE, again_s=self._next_s[table] - began_s)
        self._next_s[table] = began_s + REFUSED_AGAIN_S
        try:
            report = self._told(table, await self._job.run(table), self._planner)
        except RootlineError as error:
            if isinstance(error, Unavailable):
                self._next_s[table] = began_s + self._planner.intervals_s.get(table, INTERVAL_S_DEFAULT)
            self._planner.found.pop(table, None)
            raise
        interval_s = self._planner.intervals_s.get(table, INTERVAL_S_DEFAULT)
        self._next_s[table] = began_s + max(interval_s, (clock() - began_s) / settings.sweep_time_share_max)
        return report

    @override
    async def dry_run(self, table: TableName) -> JobReport:
        """Report the objects that would be condemned and those that would be deleted now."""
        planner = SweepPlanner(self._context, deletes=False)
        return self._told(table, await MaintenanceJob(self._context, planner).dry_run(table), planner)

    def _told(self, table: TableName, report: JobReport, planner: SweepPlanner) -> JobReport:
        """Add the deleted objects to the report. Raises `Unavailable` if some were not deleted."""
        found = planner.found.pop(table, Found())
        if found.left is not None:
            raise found.left
        if report.outcome is JobOutcome.NOTHING_DUE and found.removed:
            removed = JobOutcome.REMOVED if planner.deletes else JobOutcome.PLANNED
            report = replace(report, outcome=removed)
        return replace(
            report, condemned=found.condemned, removed=found.removed, again_s=found.again_s, troubles=found.troubles
        )


def _by_kind(tally: Tally) -> tuple[Removed, ...]:
    return tuple(Removed(kind.value, count, tally.bytes[kind]) for kind, count in sorted(tally.objects.items()))
