"""Executes a plan: plan, store its objects, publish its intent, wait for the verdict.

Owns: the order of these steps, and the consequence of each outcome for the next run. Does not own: the reads of a
plan (the planners in `metadata_jobs`, `data_jobs`, `expiry_job`, `sweep_job`), the contents of a plan
(`rootline.maintenance`), rebasing over later changes (`rootline.tree`), the schedule
(`rootline.workers.head_watcher`).
Invariants: never writes a root. Deletes nothing: if a plan is not committed, a later sweep removes its objects. While
the verdict on an intent is unknown, the job publishes no second intent for the same table. After `LOOKS_AT_UNKNOWN_MAX`
runs without a verdict it replans.

Source: protocol page, section 5.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Final, Protocol

from typing_extensions import override

from rootline.maintenance.plan import IntentStamp, Plan, WrittenPlan
from rootline.schemas.bytes.intent_codec import encode_intent
from rootline.schemas.bytes.root.root_codec import Root
from rootline.schemas.errors import Corrupt, Fenced, OutcomeUnknown, Unavailable
from rootline.schemas.identifiers import PROCESS_WRITER_PREFIX, LogPosition, TableName
from rootline.schemas.intent import Intent
from rootline.schemas.object_keys import key_of
from rootline.schemas.parts.name import NameState
from rootline.schemas.table_definition import TableDefinition
from rootline.schemas.verdict import Verdict, VerdictKind, is_about, lost_place
from rootline.storage.metadata.root_reader import at_head, read_definition
from rootline.storage.replanning import drive_async
from rootline.storage.stored_objects import store_object
from rootline.tree.state.table_state import PendingObject
from rootline.workers.jobs.job import Job, JobContext, JobOutcome, JobReport

_OF_NO_TABLES: Final = ("expiry", "sweep", "purge")
"""`Planner.what` of plans that also apply to views and to dropped tables."""
OF_ANY_NAME: Final = ("expire", "sweep", "purge")
"""The kinds with these plans, by their names in `rootline.workers.kinds`."""
LOOKS_AT_UNKNOWN_MAX: Final = 10
"""Runs without a verdict before a job replans. A second intent is safe: it cannot move what the first one moved."""


@dataclass(frozen=True, slots=True)
class _Published:
    """An intent whose verdict is not known yet.

    * `locations`: its new objects. If a root names one of them, the intent was committed.
    * `position`: its place on the log, `None` if it is not known whether the log has it.
    * `looks`: the number of runs in which its verdict was not found.
    """

    intent: Intent
    locations: frozenset[str]
    leaves: int
    entries: int
    position: LogPosition | None = None
    looks: int = 0

    @staticmethod
    def of(plan: Plan, written: WrittenPlan) -> _Published:
        locations = frozenset(item.location for item in written.objects)
        return _Published(written.intent, locations, plan.leaf_count, plan.entries)

    @property
    def report(self) -> JobReport:
        return JobReport(JobOutcome.UNKNOWN, self.leaves, self.entries)


@dataclass(frozen=True, slots=True)
class _Attempt:
    """The intent of a plan made from `root`, new or of an earlier run. A report if `root` expired meanwhile."""

    root: Root
    what: _Published | JobReport


class Planner(Protocol):
    """Plans one kind of maintenance: reads what it needs from the store, and chooses the work."""

    @property
    def what(self) -> str:
        """The name of this maintenance in messages, such as "flush"."""
        ...

    @property
    def stale(self) -> str:
        """The code with which a coordinator rejects the plan's intent if the table has changed meanwhile."""
        ...

    @property
    def corrupt(self) -> str:
        """The code of the error that the store already has other bytes under the name of a new object."""
        ...

    async def plan(self, table: TableName, root: Root, definition: TableDefinition) -> Plan | None:
        """The plan for `root`, or `None` if nothing is due. Every request has a deadline.

        Raises:
            Unavailable: the store does not answer.
            Corrupt: stored bytes are damaged or missing.
            Invalid: `property-invalid`, a property has an invalid value, and its default might delete something.
        """
        ...


class MaintenanceJob(Job):
    """A `Job` that publishes one intent for each plan."""

    def __init__(self, context: JobContext, planner: Planner) -> None:
        self._store, self._log = context.store, context.log
        self._environment, self._settings = context.environment, context.settings
        self._planner, self._last_root = planner, context.last_root
        self._writer_id = f"{PROCESS_WRITER_PREFIX}{context.environment.fresh_id()}"
        self._sequences: dict[TableName, int] = {}
        self._undecided: dict[TableName, _Published] = {}
        self._in_hand: defaultdict[TableName, asyncio.Lock] = defaultdict(asyncio.Lock)

    @override
    async def run(self, table: TableName) -> JobReport:
        """Do the work that is due on `table`, and replan if the table has changed.

        A shared queue that has lost its leases may hand out a task twice. Then the second run waits for the first, and
        makes a new plan.
        """
        async with self._in_hand[table]:
            return await self._run(table)

    async def _run(self, table: TableName) -> JobReport:
        report = JobReport(JobOutcome.NOTHING_DUE)  # of the last intent, also if a later plan finds nothing

        async def plan() -> _Attempt | None:
            nonlocal report
            root = await self._read_head(table)
            if root is None:
                return None
            undecided = self._undecided.get(table)
            if undecided is not None:
                return _Attempt(root, undecided)
            try:
                stored = await self._stored_plan(table, root)
            except Corrupt as error:
                return _Attempt(root, await self._expired_meanwhile(table, root, error))
            if stored is None:
                report = replace(report, has_leaves=_has_leaves(root))
                return None
            return _Attempt(root, stored)

        async def publish(attempt: _Attempt) -> JobReport:
            nonlocal report
            if isinstance(attempt.what, JobReport):
                return attempt.what
            is_new = table not in self._undecided
            published = await self._publish(table, attempt.what) if is_new else attempt.what
            report = await self._settle(table, published, attempt.root)
            return report

        def delay_of(outcome: JobReport, replans: int) -> float | None:
            is_again = outcome.outcome is JobOutcome.STALE and replans < self._settings.replans_max
            return 0.0 if is_again else None

        last = await drive_async(plan, publish, delay_of)
        return report if last is None or report.outcome is not JobOutcome.NOTHING_DUE else last

    @override
    async def dry_run(self, table: TableName) -> JobReport:
        plan = await self.planned(table)
        if plan is None:
            return JobReport(JobOutcome.NOTHING_DUE)
        return JobReport(JobOutcome.PLANNED, plan.leaf_count, plan.entries, plan.made_from_version)

    async def planned(self, table: TableName) -> Plan | None:
        """The plan that is due now, or `None`. Raises the errors of `Job`."""
        while (root := await self._read_head(table)) is not None:
            try:
                return await self._plan(table, root, await read_definition(self._store, root.header))
            except Corrupt as error:
                await self._expired_meanwhile(table, root, error)
        return None

    async def _expired_meanwhile(self, table: TableName, root: Root, error: Corrupt) -> JobReport:
        """Judge a missing object: if the table has a newer head, `root` may have expired while it was read.

        Returns the report that makes the job replan. Raises `error` if `root` is still the head.
        """
        newest = await self._read_head(table) if error.code == "object-missing" else root
        if newest is None or newest.header.version <= root.header.version:
            raise error
        reason = f"{table}: versions expired while a {self._planner.what} of version {root.header.version} was planned"
        return JobReport(JobOutcome.STALE, message=reason)

    async def _read_head(self, table: TableName) -> Root | None:
        async with _deadline(self._settings.request_timeout_s, f"reading the head of {table}"):
            return await at_head(
                self._store, table, lambda head: self._last_root.read(self._store, table, head.version)
            )

    async def _stored_plan(self, table: TableName, root: Root) -> _Published | None:
        """Make a plan and store its objects. Returns its intent, not published yet, or `None` if nothing is due."""
        definition = await read_definition(self._store, root.header)
        plan = await self._plan(table, root, definition)
        if plan is None:
            return None
        written = await asyncio.to_thread(plan.write, self._stamp(table, root), definition)
        for item in written.objects:
            await self._store_object(table, item)
        return _Published.of(plan, written)

    def _stamp(self, table: TableName, root: Root) -> IntentStamp:
        return IntentStamp(
            intent_id=self._environment.fresh_id(),
            table=table,
            table_uuid=root.header.table_uuid,
            writer_id=self._writer_id,
            writer_sequence=self._sequences.setdefault(table, 0),
        )

    async def _store_object(self, table: TableName, item: PendingObject) -> None:
        key = key_of(table, item.location)
        async with _deadline(self._settings.request_timeout_s, f"storing {item.location} of {table}"):
            held = await store_object(self._store, key, item.body)
        if held != item.body:
            reason = f"{key}: other bytes are stored under this name: find out who wrote them; nothing was published"
            raise Corrupt(self._planner.corrupt, reason)

    async def _plan(self, table: TableName, root: Root, definition: TableDefinition) -> Plan | None:
        if root.header.name.state is not NameState.TABLE and self._planner.what not in _OF_NO_TABLES:
            return None
        try:
            return await self._planner.plan(table, root, definition)
        except TimeoutError as error:
            what, most_s = self._planner.what, self._settings.request_timeout_s
            raise Unavailable(
                "store-unavailable", f"{table}: planning a {what} got no answer within {most_s:g} s: retry"
            ) from error

    async def _publish(self, table: TableName, published: _Published) -> _Published:
        self._undecided[table] = published
        try:
            async with _deadline(self._settings.request_timeout_s, f"publishing a {self._planner.what} of {table}"):
                position = await self._log.publish(table.encode(), encode_intent(published.intent))
        except OutcomeUnknown:
            return (
                published  # the next run republishes the same intent: its writer and sequence let it commit only once
            )
        placed = replace(published, position=position)
        self._undecided[table] = placed
        return placed

    async def _settle(self, table: TableName, published: _Published, root: Root) -> JobReport:
        if any(row.entry.location in published.locations for row in root.rows):
            return self._landed(table, published, root.header.version)
        if published.looks >= LOOKS_AT_UNKNOWN_MAX:
            return self._given_up(table, published, f"there was no verdict in {published.looks} runs")
        if published.position is None:
            published = await self._publish(table, published)
        self._undecided[table] = replace(published, looks=published.looks + 1)
        if published.position is None:
            return published.report
        try:
            verdict = await self._log.wait_verdict(published.position, timeout_s=self._settings.verdict_timeout_s)
        except Fenced as error:  # another log has this address now: the verdicts of the old one are lost
            return self._given_up(table, published, error.message)
        if verdict is None:
            return published.report
        intent_id = published.intent.intent_id
        if not is_about(verdict, intent_id):
            return self._given_up(table, published, lost_place(intent_id, verdict))
        return self._decided(table, published, verdict)

    def _given_up(self, table: TableName, published: _Published, reason: str) -> JobReport:
        self._undecided.pop(table)
        self._sequences[table] += 1  # the old intent may yet be committed under its sequence
        return replace(published.report, outcome=JobOutcome.STALE, message=reason)

    def _decided(self, table: TableName, published: _Published, verdict: Verdict) -> JobReport:
        if verdict.kind is not VerdictKind.REJECTED:
            return self._landed(table, published, verdict.version)
        # a rejected sequence stays open: the next intent of this table fills it
        self._undecided.pop(table)
        outcome = JobOutcome.STALE if verdict.code == self._planner.stale else JobOutcome.REJECTED
        return replace(published.report, outcome=outcome, code=verdict.code, message=verdict.message)

    def _landed(self, table: TableName, published: _Published, version: int | None) -> JobReport:
        self._undecided.pop(table)
        self._sequences[table] += 1
        return replace(published.report, outcome=JobOutcome.COMMITTED, version=version, has_leaves=True)


@contextlib.asynccontextmanager
async def _deadline(seconds: float, what: str) -> AsyncIterator[None]:
    """Raise `Unavailable` (`store-unavailable`) when the block takes longer."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise Unavailable("store-unavailable", f"{what} took longer than {seconds:g} s: retry") from error


def _has_leaves(root: Root) -> bool:
    return root.header.totals.data_manifests + root.header.totals.delete_manifests > 0
