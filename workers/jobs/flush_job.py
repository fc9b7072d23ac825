"""Carries a flush out: plan, write the leaves, publish one intent, wait for its verdict.

Owns: the order of these steps, and what each outcome means for the next look. Does not own: what is moved
(`rootline.maintenance.flush_plan`), rebasing over what happened meanwhile (`rootline.tree`), when to look
(`rootline.workers.head_watcher`).
Invariants: never writes a root; deletes nothing: leaves of a flush that did not land are orphans for the sweep; while
the outcome of one flush is unknown, the same table gets no second one.

Source: protocol page, section 5.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, Protocol
from uuid import UUID

from rootline.maintenance.flush_limits import FlushLimits
from rootline.maintenance.flush_plan import FlushPlan, InPlan, InRoot, PlannedLeaf, RootLoad, plan_flush
from rootline.ports.environment import Environment
from rootline.ports.intent_log import IntentSink, VerdictSource
from rootline.ports.object_store import ObjectStore
from rootline.schemas.content_entry import ContentEntry, ContentType, FileFormat
from rootline.schemas.errors import Fenced, OutcomeUnknown, Unavailable
from rootline.schemas.identifiers import TableName
from rootline.schemas.intent import PROCESS_WRITER_PREFIX, AddedManifest, Intent, IntentKind
from rootline.schemas.intent_codec import encode_intent
from rootline.schemas.leaf_codec import EncodedLeaf, LeafContent, encode_leaf
from rootline.schemas.log_position import LogPosition
from rootline.schemas.root_codec import Root
from rootline.schemas.verdict import Verdict, VerdictKind
from rootline.storage.head_finder import find_head
from rootline.storage.leaf_writer import write_leaf
from rootline.storage.root_reader import read_definition, read_root
from rootline.workers.leaf_cache import LeafCache
from rootline.workers.settings import WorkerSettings

LOOKS_AT_UNKNOWN_MAX: Final = 10
"""After so many looks without an answer a flush is planned anew: safe, because what moved already is masked."""


class WorkerLog(IntentSink, VerdictSource, Protocol):
    """The two sides of a log that a worker needs."""


class FlushOutcome(StrEnum):
    """What came of one look at one table."""

    NOTHING_DUE = "nothing-due"
    COMMITTED = "committed"
    STALE = "stale"  # everything changed under the plan, again and again
    REJECTED = "rejected"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class FlushReport:
    """`version`: the root that holds the leaves. `code` and `message` of a rejection."""

    outcome: FlushOutcome
    leaves: int = 0
    entries: int = 0
    version: int | None = None
    code: str | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class _Published:
    """An intent whose verdict is not known yet. `position` is `None` when not even its publication is certain."""

    intent: Intent
    entries: int
    position: LogPosition | None = None
    looks: int = 0

    @property
    def report(self) -> FlushReport:
        return FlushReport(FlushOutcome.UNKNOWN, len(self.intent.add_manifests), self.entries)


class FlushJob:
    """Flushes tables one look at a time. `limits`: instead of what the tables' properties say."""

    def __init__(
        self,
        store: ObjectStore,
        log: WorkerLog,
        environment: Environment,
        settings: WorkerSettings,
        *,
        limits: FlushLimits | None = None,
    ) -> None:
        self._store, self._log, self._environment, self._settings = store, log, environment, settings
        self._limits = limits
        self._leaves = LeafCache(settings.leaf_cache_bytes_max)
        self._writer_id = f"{PROCESS_WRITER_PREFIX}{environment.fresh_id()}"
        self._sequences: dict[TableName, int] = {}
        self._undecided: dict[TableName, _Published] = {}

    async def run(self, table: TableName) -> FlushReport:
        """Flush `table` if it is due, planning anew when the plan came too late.

        Raises:
            Unavailable: the store or the log cannot be reached; nothing needs undoing.
            Corrupt: the table's stored bytes are damaged; nothing was written.
            Invalid: `setting-invalid`, a threshold in the table's properties.

        """
        report = FlushReport(FlushOutcome.NOTHING_DUE)
        for _ in range(self._settings.replans_max + 1):
            root = await self._read_head(table)
            if root is None:
                return report
            undecided = self._undecided.get(table)
            published = await self._publish_plan(table, root) if undecided is None else undecided
            if published is None:
                return report
            report = await self._settle(table, published, root)
            if report.outcome is not FlushOutcome.STALE:
                return report
        return report

    async def _read_head(self, table: TableName) -> Root | None:
        async with _deadline(self._settings.request_timeout_s, f"reading the head of {table}"):
            head = await find_head(self._store, table)
            return None if head is None else await read_root(self._store, table, head.version)

    async def _publish_plan(self, table: TableName, root: Root) -> _Published | None:
        async with _deadline(self._settings.request_timeout_s, f"planning a flush of {table}"):
            definition = await read_definition(self._store, root.header)
            limits = self._limits or FlushLimits.of_properties(definition.properties)
            load = RootLoad.of(root)
            wanted = set(load.leaves_to_read(limits))
            rows = [row.entry for row in root.rows if row.entry.location in wanted and _is_data_leaf(row.entry)]
            leaves = await self._leaves.leaves(self._store, table, rows)
        plan = plan_flush(root, definition, limits, load=load, leaves=leaves)
        if not plan.leaves:
            return None
        manifests: list[AddedManifest] = []
        for planned in plan.leaves:
            leaf_uuid = UUID(self._environment.fresh_id())
            leaf = await asyncio.to_thread(
                encode_leaf, planned.entries, definition, leaf_uuid=leaf_uuid, content=planned.content
            )
            async with _deadline(self._settings.request_timeout_s, f"writing leaf {leaf.location} of {table}"):
                await write_leaf(self._store, table, leaf)
            manifests.append(_manifest(planned, leaf, manifests))
        return await self._publish(table, _Published(self._intent(table, root, plan, manifests), plan.entries))

    def _intent(self, table: TableName, root: Root, plan: FlushPlan, manifests: list[AddedManifest]) -> Intent:
        return Intent(
            intent_id=self._environment.fresh_id(),
            table=table,
            table_uuid=root.header.table_uuid,
            kind=IntentKind.FLUSH,
            writer_id=self._writer_id,
            writer_sequence=self._sequences.setdefault(table, 0),
            add_manifests=tuple(manifests),
            made_from_version=plan.made_from_version,
        )

    async def _publish(self, table: TableName, published: _Published) -> _Published:
        self._undecided[table] = published
        try:
            async with _deadline(self._settings.request_timeout_s, f"publishing a flush of {table}"):
                position = await self._log.publish(table.encode(), encode_intent(published.intent))
        except OutcomeUnknown:
            return published  # the next look sends the same intent again: its writer and sequence make it land once
        placed = replace(published, position=position)
        self._undecided[table] = placed
        return placed

    async def _settle(self, table: TableName, published: _Published, root: Root) -> FlushReport:
        ours = {manifest.location for manifest in published.intent.add_manifests}
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

    def _given_up(self, table: TableName, published: _Published, reason: str) -> FlushReport:
        self._undecided.pop(table)
        self._sequences[table] += 1  # the old intent may yet be committed under its sequence
        return replace(published.report, outcome=FlushOutcome.STALE, message=reason)

    def _decided(self, table: TableName, published: _Published, verdict: Verdict) -> FlushReport:
        if verdict.kind is not VerdictKind.REJECTED:
            return self._landed(table, published, verdict.version)
        # a rejected sequence stays open: the next intent of this table fills it
        self._undecided.pop(table)
        outcome = FlushOutcome.STALE if verdict.code == "flush-stale" else FlushOutcome.REJECTED
        return replace(published.report, outcome=outcome, code=verdict.code, message=verdict.message)

    def _landed(self, table: TableName, published: _Published, version: int | None) -> FlushReport:
        self._undecided.pop(table)
        self._sequences[table] += 1
        return replace(published.report, outcome=FlushOutcome.COMMITTED, version=version)


@contextlib.asynccontextmanager
async def _deadline(seconds: float, what: str) -> AsyncIterator[None]:
    """Raises `Unavailable` (`store-unavailable`) when what it surrounds takes longer."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise Unavailable("store-unavailable", f"{what} took longer than {seconds:g} s") from error


def _manifest(planned: PlannedLeaf, leaf: EncodedLeaf, before: list[AddedManifest]) -> AddedManifest:
    referenced: str | None = None
    if isinstance(planned.affinity, InPlan):
        referenced = before[planned.affinity.index].location
    elif isinstance(planned.affinity, InRoot):
        referenced = planned.affinity.location
    is_data = planned.content is LeafContent.DATA
    return AddedManifest(
        location=leaf.location,
        content_type=ContentType.DATA_MANIFEST if is_data else ContentType.DELETE_MANIFEST,
        file_format=FileFormat.PARQUET,
        file_size_in_bytes=len(leaf.body),
        record_count=len(planned.entries),
        partition_spec_id=planned.spec_id,
        referenced_file=referenced,
    )


def _is_data_leaf(entry: ContentEntry) -> bool:
    return entry.content_type is ContentType.DATA_MANIFEST
