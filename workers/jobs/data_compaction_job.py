"""Data compaction: small and worn data files are written again.

Owns: what is read to plan one, its new files and intent, what is tried after a loss, and which tables a cluster is
given. Does not own: which files go together (`rootline.maintenance.data_compaction_plan`), how rows become files
(`WriteRows`), the steps of a job (`maintenance_job`), whether the intent still holds (`rootline.tree.intents.rewrite`),
the cluster (`HandOver`).
Invariants: nothing is read for a table that does not ask for it; one group of bounded bytes is in memory at a time;
rows keep their ids, and the order that the table has; files that are too large are named in the log once; while a
cluster compacts a table, this worker does not.
"""

from __future__ import annotations

import asyncio
import math
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count
from typing import Final

import pyarrow as pa
import structlog

from rootline.maintenance.data_compaction_plan import (
    FILES_MAX,
    ChosenFiles,
    DataCompactionLimits,
    TableFiles,
    choose_files,
)
from rootline.maintenance.plan import IntentStamp, WrittenPlan
from rootline.schemas.bytes.root.root_codec import Root
from rootline.schemas.content_entry import ContentType, EntryPlace
from rootline.schemas.identifiers import Location, TableName, Version
from rootline.schemas.intent import IntentKind, RemovedFile
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.rows.data_file_reader import RowsWanted
from rootline.storage.rows.scan_executor import scan_table
from rootline.tree.state.pending_object import PendingObject
from rootline.workers.jobs.job import JobContext, JobOutcome, JobReport, WriteRows
from rootline.workers.jobs.loaded_table import read_table_files
from rootline.workers.jobs.maintenance_job import MaintenanceJob

_log = structlog.get_logger("rootline.workers")


@dataclass(frozen=True, slots=True)
class DataCompactionPlan:
    """`removed` become files of `rows`, which `write_rows` makes."""

    made_from_version: Version
    read_sequence_number: int
    removed: tuple[RemovedFile, ...]
    rows: pa.Table
    target_bytes: int
    write_rows: WriteRows

    @property
    def entries(self) -> int:
        """Data files that are replaced."""
        return len(self.removed)

    @property
    def leaf_count(self) -> int:
        """New leaves: none."""
        return 0

    def write(self, stamp: IntentStamp, definition: TableDefinition) -> WrittenPlan:
        """The new files, and the intent; as `Plan.write`."""
        ids: Iterator[uuid.UUID] = map(stamp.object_uuid, count())
        written = self.write_rows(self.rows, definition, ids, target_file_size_bytes=self.target_bytes)
        intent = stamp.intent(
            IntentKind.REWRITE,
            self.made_from_version,
            schema_id=definition.current_schema_id,
            read_sequence_number=self.read_sequence_number,
            remove_files=self.removed,
            add_data_files=tuple(file.data_file for file in written),
        )
        return WrittenPlan(
            tuple(PendingObject(Location(file.data_file.location), file.body) for file in written), intent
        )


class DataCompactionPlanner:
    """Plans data compactions. By hand, two small files are enough, whether or not the table asks for it."""

    what: Final = "compaction of data"
    stale: Final = "stale-source"
    corrupt: Final = "data-file-corrupt"

    def __init__(self, context: JobContext) -> None:
        self._context = context
        self._tried: dict[TableName, tuple[str, ...]] = {}
        self._lost: dict[TableName, Counter[str]] = {}
        self._rested: dict[TableName, tuple[int, int]] = {}
        self._left: dict[TableName, frozenset[str]] = {}
        self._cluster_again_s: dict[TableName, float] = {}
        self._for_cluster: set[TableName] = set()

    def take_for_cluster(self, table: TableName) -> bool:
        """Whether the last plan left the table to the cluster; asking ends that."""
        is_left = table in self._for_cluster
        self._for_cluster.discard(table)
        return is_left

    def cluster_ended(self, table: TableName) -> None:
        """For a while the table is compacted here, as far as that goes."""
        settings, now_s = self._context.settings, self._context.environment.monotonic_s()
        self._cluster_again_s[table] = now_s + settings.spark_interval_s
        self._tried.pop(table, None)

    async def plan(self, table: TableName, root: Root, definition: TableDefinition) -> DataCompactionPlan | None:
        """What is due in `root`; as `Planner.plan`."""
        context, write_rows = self._context, self._context.write_rows
        limits = DataCompactionLimits.of_properties(definition.properties)
        limits = limits.now if context.now else limits
        if not limits.is_on or write_rows is None or self._rests(table, root, limits):
            return None
        files = await read_table_files(context, table, root, definition)
        chosen = await asyncio.to_thread(
            choose_files, files, limits, self._lost.get(table, Counter()), self._at_most(table, files)
        )
        if self._is_for_cluster(table, chosen):
            self._for_cluster.add(table)
            return None
        self._tell_left(table, chosen)
        if not chosen.files:
            self._rested[table] = _size_of(root)
            return None
        self._rested.pop(table, None)
        self._tried[table] = tuple(entry.location for entry in chosen.files)
        index = files.index(files.equality_deletes)
        tasks = [files.task(entry, index) for entry in chosen.files]
        rows = await scan_table(context.reads, table, tasks, RowsWanted.to_rewrite(definition))
        removed = tuple(
            RemovedFile(location=entry.location, vector=files.vector_of(entry.location)) for entry in chosen.files
        )
        number = root.header.snapshot.sequence_number
        return DataCompactionPlan(root.header.version, number, removed, rows, limits.target_bytes, write_rows)

    def _is_for_cluster(self, table: TableName, chosen: ChosenFiles) -> bool:
        context = self._context
        if context.hand_over is None or not (chosen.files or chosen.left):
            return False
        if context.environment.monotonic_s() < self._cluster_again_s.get(table, -math.inf):
            return False
        return bool(chosen.left) or chosen.due_bytes >= context.settings.spark_bytes_min

    def _rests(self, table: TableName, root: Root, limits: DataCompactionLimits) -> bool:
        """Whether too little has happened since nothing was due to look at all files again."""
        known, now = self._rested.get(table), _size_of(root)
        return known is not None and all(abs(one - other) < limits.files for one, other in zip(known, now, strict=True))

    def _at_most(self, table: TableName, files: TableFiles) -> int:
        """How many files are tried: half as many as last time if that came to nothing."""
        tried = self._tried.pop(table, ())
        if not tried:
            return FILES_MAX
        live = [name for name in tried if files.draft.find(EntryPlace(ContentType.DATA, name)) is not None]
        if not live:
            self._lost.pop(table, None)
            return FILES_MAX
        lost = self._lost.setdefault(table, Counter())
        lost.update(live)
        return max(1, len(tried) // 2)

    def _tell_left(self, table: TableName, chosen: ChosenFiles) -> None:
        left = frozenset(entry.location for entry in chosen.left)
        if left - self._left.get(table, frozenset()):
            _log.warning(
                "worn data files are too large to be written again here",
                action="data-compaction-left",
                table=table,
                files=len(left),
                first=chosen.left[0].location,
                reason="they have more bytes than rootline.compact.data-bytes: use table.rewrite, or Spark",
            )
        self._left[table] = left


def _size_of(root: Root) -> tuple[int, int]:
    return root.header.snapshot.sequence_number, root.header.totals.data_files


class DataCompactionJob:
    """A `Job` that writes small and worn data files again, or has a cluster do it where there is one."""

    def __init__(self, context: JobContext) -> None:
        self._planner = DataCompactionPlanner(context)
        self._here = MaintenanceJob(context, self._planner)
        self._hand_over = context.hand_over

    async def run(self, table: TableName) -> JobReport:
        """As `Job.run`."""
        report = await self._here.run(table)
        if self._hand_over is None or not self._planner.take_for_cluster(table):
            return report
        _log.info("data files are compacted on Spark", action="data-compaction-handed-over", table=table)
        try:
            done = await self._hand_over(table)
        finally:
            self._planner.cluster_ended(table)
        if done.version is not None:
            outcome = JobOutcome.COMMITTED
        else:
            outcome = JobOutcome.STALE if done.refused else JobOutcome.NOTHING_DUE
        message = f"{done.refused} groups of files came too late" if done.refused else None
        return replace(report, outcome=outcome, entries=done.files, version=done.version, message=message)

    async def dry_run(self, table: TableName) -> JobReport:
        """As `Job.dry_run`."""
        return await self._here.dry_run(table)
