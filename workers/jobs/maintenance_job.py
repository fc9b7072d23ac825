"""Carries maintenance of one kind out: plan, write leaves or vectors, publish one intent, wait for its verdict.

Owns: the order of these steps, and what each outcome means for the next look. Does not own: what is moved (the
planners: `flush_job`, `leaf_compaction_job`, `vector_compaction_job`), rebasing over what happened meanwhile
(`rootline.tree`), when to look (`rootline.workers.head_watcher`).
Invariants: never writes a root; deletes nothing: what a job wrote that did not land is an orphan for the sweep; while
the outcome of one intent is unknown, the same table gets no second one of its kind.

Source: protocol page, section 5.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final, Protocol
from uuid import UUID

from pyroaring import BitMap64

from rootline.maintenance.flush_plan import FlushPlan
from rootline.maintenance.leaf_compaction_plan import LeafCompactionPlan
from rootline.maintenance.planned_leaf import manifest_of
from rootline.maintenance.vector_compaction_plan import VectorCompactionPlan
from rootline.ports.environment import Environment
from rootline.ports.intent_log import IntentSink, VerdictSource
from rootline.ports.object_store import ObjectStore
from rootline.schemas.bytes.leaf.leaf_codec import encode_leaf
from rootline.schemas.bytes.log.intent_codec import encode_intent
from rootline.schemas.bytes.root.root_codec import Root
from rootline.schemas.bytes.vector.puffin_codec import VectorBlob, encode_puffin, puffin_name
from rootline.schemas.errors import Fenced, OutcomeUnknown, Unavailable
from rootline.schemas.identifiers import TableName
from rootline.schemas.intent import PROCESS_WRITER_PREFIX, AddedManifest, AddedVector, Intent, IntentKind, Reaffiliation
from rootline.schemas.log_position import LogPosition
from rootline.schemas.table_definition import TableDefinition
from rootline.schemas.verdict import Verdict, VerdictKind
from rootline.storage.metadata.head_finder import find_head
from rootline.storage.metadata.leaf_writer import write_leaf
from rootline.storage.metadata.root_reader import read_definition, read_root
from rootline.storage.metadata.vector_writer import write_puffin
from rootline.workers.settings import WorkerSettings

LOOKS_AT_UNKNOWN_MAX: Final = 10
"""After so many looks without an answer a job is planned anew: safe, because what moved already is masked."""


class WorkerLog(IntentSink, VerdictSource, Protocol):
    """The two sides of a log that a worker needs."""


WorkPlan = FlushPlan | LeafCompactionPlan | VectorCompactionPlan


class JobOutcome(StrEnum):
    """What came of one look at one table."""

    NOTHING_DUE = "nothing-due"
    PLANNED = "planned"  # and not carried out
    COMMITTED = "committed"
    STALE = "stale"  # everything changed under the plan, again and again
    REJECTED = "rejected"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class JobReport:
    """`version`: the root that holds the leaves, or was planned from. `code` and `message` of a rejection."""

    outcome: JobOutcome
    leaves: int = 0
    entries: int = 0
    version: int | None = None
    code: str | None = None
    message: str | None = None
    has_leaves: bool = False
    """The table has."""


@dataclass(frozen=True, slots=True)
class _Published:
    """An intent whose verdict is not known yet. `position` is `None` when not even its publication is certain."""

    intent: Intent
    entries: int
    position: LogPosition | None = None
    looks: int = 0

    @property
    def report(self) -> JobReport:
        return JobReport(JobOutcome.UNKNOWN, len(self.intent.add_manifests), self.entries)


class Planner(Protocol):
    """What is to be done to a table. Each request has a deadline of its own: decoding Avro leaves takes long."""

    @property
    def kind(self) -> IntentKind:
        """Of the intents."""
        ...

    @property
    def stale(self) -> str:
        """The code of an intent that came too late."""
        ...

    async def plan(self, table: TableName, root: Root, definition: TableDefinition) -> WorkPlan | None:
        """What is due, with all that takes reading; `None`: nothing. Raises what reading raises, and `Invalid`."""
        ...


class MaintenanceJob:
    """Maintains tables one look at a time."""

    def __init__(
        self,
        store: ObjectStore,
        log: WorkerLog,
        environment: Environment,
        settings: WorkerSettings,
        planner: Planner,
    ) -> None:
        self._store, self._log, self._environment, self._settings = store, log, environment, settings
        self._planner = planner
        self._what = planner.kind.replace("_", " ")
        self._writer_id = f"{PROCESS_WRITER_PREFIX}{environment.fresh_id()}"
        self._sequences: dict[TableName, int] = {}
        self._undecided: dict[TableName, _Published] = {}

    async def run(self, table: TableName) -> JobReport:
        """Do to `table` what is due, planning anew when the plan came too late.

        Raises:
            Unavailable: the store or the log cannot be reached; nothing needs undoing.
            Corrupt: the table's stored bytes are damaged; nothing was written.
            Invalid: `setting-invalid`, a threshold in the table's properties.

        """
        report = JobReport(JobOutcome.NOTHING_DUE)
        for _ in range(self._settings.replans_max + 1):
            root = await self._read_head(table)
            if root is None:
                return report
            undecided = self._undecided.get(table)
            published = await self._publish_plan(table, root) if undecided is None else undecided
            if published is None:
                return replace(report, has_leaves=_has_leaves(root))
            report = await self._settle(table, published, root)
            if report.outcome is not JobOutcome.STALE:
                return report
        return report

    async def dry_run(self, table: TableName) -> JobReport:
        """What `run` would do first; nothing is written. Raises as `run`."""
        root = await self._read_head(table)
        plan = None if root is None else await self._plan(table, root, await read_definition(self._store, root.header))
        if plan is None:
            return JobReport(JobOutcome.NOTHING_DUE)
        leaves = 0 if isinstance(plan, VectorCompactionPlan) else len(plan.leaves)
        return JobReport(JobOutcome.PLANNED, leaves, plan.entries, plan.made_from_version)

    async def _read_head(self, table: TableName) -> Root | None:
        async with _deadline(self._settings.request_timeout_s, f"reading the head of {table}"):
            head = await find_head(self._store, table)
            return None if head is None else await read_root(self._store, table, head.version)

    async def _publish_plan(self, table: TableName, root: Root) -> _Published | None:
        definition = await read_definition(self._store, root.header)
        plan = await self._plan(table, root, definition)
        if plan is None:
            return None
        if isinstance(plan, VectorCompactionPlan):
            cargo: dict[str, Any] = {"add_vectors": await self._write_vectors(table, plan)}
        else:
            cargo = await self._write_leaves(table, plan, definition)
        return await self._publish(table, _Published(self._intent(table, root, plan, cargo), plan.entries))

    async def _write_vectors(self, table: TableName, plan: VectorCompactionPlan) -> tuple[AddedVector, ...]:
        blobs = [VectorBlob(leaf, BitMap64(ordinals)) for leaf, ordinals in plan.vectors.items()]
        puffin = encode_puffin(blobs)
        location = puffin_name(f"metadata/vectors/{UUID(self._environment.fresh_id())}", puffin.body)
        async with _deadline(self._settings.request_timeout_s, f"writing vectors {location} of {table}"):
            await write_puffin(self._store, table, location, puffin.body)
        return tuple(
            AddedVector(
                location=location,
                offset=place.offset,
                size_in_bytes=place.size,
                file_size_in_bytes=len(puffin.body),
                cardinality=place.cardinality,
                referenced_file=blob.referenced_data_file,
            )
            for blob, place in zip(blobs, puffin.places, strict=True)
        )

    async def _write_leaves(
        self, table: TableName, plan: FlushPlan | LeafCompactionPlan, definition: TableDefinition
    ) -> dict[str, Any]:
        manifests: list[AddedManifest] = []
        for planned in plan.leaves:
            leaf_uuid = UUID(self._environment.fresh_id())
            leaf = await asyncio.to_thread(
                encode_leaf, planned.entries, definition, leaf_uuid=leaf_uuid, content=planned.content
            )
            async with _deadline(self._settings.request_timeout_s, f"writing leaf {leaf.location} of {table}"):
                await write_leaf(self._store, table, leaf)
            manifests.append(manifest_of(planned, leaf, manifests))
        if isinstance(plan, FlushPlan):
            return {"add_manifests": tuple(manifests)}
        moved = [
            Reaffiliation(location=location, referenced_file=manifests[owner.index].location)
            for location, owner in plan.reaffiliate
        ]
        return {"add_manifests": tuple(manifests), "replaces": plan.replaces, "reaffiliate": tuple(moved)}

    async def _plan(self, table: TableName, root: Root, definition: TableDefinition) -> WorkPlan | None:
        try:
            return await self._planner.plan(table, root, definition)
        except TimeoutError as error:
            reason = f"planning a {self._what} of {table}: no answer within {self._settings.request_timeout_s:g} s"
            raise Unavailable("store-unavailable", reason) from error

    def _intent(self, table: TableName, root: Root, plan: WorkPlan, cargo: dict[str, Any]) -> Intent:
        return Intent(
            intent_id=self._environment.fresh_id(),
            table=table,
            table_uuid=root.header.table_uuid,
            kind=self._planner.kind,
            writer_id=self._writer_id,
            writer_sequence=self._sequences.setdefault(table, 0),
            made_from_version=plan.made_from_version,
            **cargo,
        )

    async def _publish(self, table: TableName, published: _Published) -> _Published:
        self._undecided[table] = published
        try:
            async with _deadline(self._settings.request_timeout_s, f"publishing a {self._what} of {table}"):
                position = await self._log.publish(table.encode(), encode_intent(published.intent))
        except OutcomeUnknown:
            return published  # the next look sends the same intent again: its writer and sequence make it land once
        placed = replace(published, position=position)
        self._undecided[table] = placed
        return placed

    async def _settle(self, table: TableName, published: _Published, root: Root) -> JobReport:
        intent = published.intent
        ours = {item.location for items in (intent.add_manifests, intent.add_vectors) for item in items}
        if any(row.entry.location in ours for row in root.rows):
            return self._landed(table, published, root.header.version)
        if published.looks >= LOOKS_AT_UNKNOWN_MAX:
            return self._given_up(table, published, f"no verdict came in {published.looks} looks")
        if published.position is None:
            published = await self._publish(table, published)
        self._undecided[table] = replace(published, looks=published.looks + 1)
        if published.position is None:
            return published.report
        try:
            verdict = await self._log.wait_verdict(published.position, timeout_s=self._settings.verdict_timeout_s)
        except Fenced as error:  # the log was made anew: the old one's verdicts are gone with it
            return self._given_up(table, published, error.message)
        return published.report if verdict is None else self._decided(table, published, verdict)

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
    """Raises `Unavailable` (`store-unavailable`) when what it surrounds takes longer."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise Unavailable("store-unavailable", f"{what} took longer than {seconds:g} s") from error


def _has_leaves(root: Root) -> bool:
    return root.header.totals.data_manifests + root.header.totals.delete_manifests > 0
