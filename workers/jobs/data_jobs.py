"""Jobs that read and write rows: conversions of equality deletes to vectors, and compactions of data files.

Owns: the reads of these plans, the new files and the intent of a compaction, smaller retries after a lost race, the
hand-over of tables to a cluster. Does not own: the choice (`conversion_plan`, `data_compaction_plan`), the rows that
match equality deletes (`rootline.storage.rows`), the encoding of data files (`WriteRows`), the steps of a job
(`maintenance_job`), the check that an intent is still valid (`rootline.tree.intents.rewrite`), the cluster
(`HandOver`).
Invariants: nothing is read unless something is due and the table's properties enable it. A conversion has one data file
in memory at a time, a compaction one group of bounded bytes. Rows keep their ids and their sort order. Deletes and
files that are too large are logged once, and cause no second read of the table. While a cluster (Spark) compacts a
table, this worker does not.
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
from pyroaring import BitMap64
from typing_extensions import override

from rootline.library_log import library_logger
from rootline.maintenance.conversion_plan import (
    DELETES_MAX,
    ChosenDeletes,
    ConversionLimits,
    ConversionPlan,
    NewVector,
    choose_deletes,
)
from rootline.maintenance.data_compaction_plan import (
    FILES_MAX,
    ChosenFiles,
    DataCompactionLimits,
    TableFiles,
    choose_files,
)
from rootline.maintenance.plan import IntentStamp, WrittenPlan
from rootline.ports.object_store import ObjectStore
from rootline.schemas.bytes.root.root_codec import Root
from rootline.schemas.content_entry import LEAF_TYPES, ContentType, EntryPlace, Status
from rootline.schemas.identifiers import Location, TableName, Version
from rootline.schemas.intent import IntentKind, RemovedFile
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.metadata.table_loader import load_state
from rootline.storage.rows.data_file_reader import RowsWanted, read_rows
from rootline.storage.rows.metadata_columns import POS
from rootline.storage.rows.row_deletes import DeletesOfScan, RowDeletes
from rootline.storage.rows.scan_executor import scan_table
from rootline.storage.stored_objects import read_file
from rootline.tree.scan.file_task import FileTask
from rootline.tree.state.table_state import PendingObject
from rootline.workers.jobs.job import Job, JobContext, JobOutcome, JobReport, WriteRows
from rootline.workers.jobs.maintenance_job import MaintenanceJob


async def read_table_files(
    context: JobContext, table: TableName, root: Root, definition: TableDefinition
) -> TableFiles:
    """Read the live files of `root` and of its leaves. Raises `Unavailable`, `Corrupt`."""
    rows = [row.entry for row in root.rows if row.entry.content_type in LEAF_TYPES]
    live = [entry for entry in rows if entry.version_info.status is not Status.DELETED]
    leaves = await context.leaves.leaves(context.reads, table, live, definition)
    return TableFiles(await load_state(context.reads, root, known_leaves=leaves))


_log = library_logger("rootline.workers")


class ConversionPlanner:
    """Plans conversions of equality deletes. For an operator's command one equality delete is enough."""

    what: Final = "conversion of equality deletes"
    stale: Final = "stale-source"
    corrupt: Final = "vector-corrupt"

    def __init__(self, context: JobContext) -> None:
        self._context = context
        self._left: dict[TableName, int] = {}
        self._tried: dict[TableName, tuple[str, int]] = {}

    async def plan(self, table: TableName, root: Root, definition: TableDefinition) -> ConversionPlan | None:
        """Plan a conversion, or return `None` if none is due. Raises the errors of `Planner.plan`."""
        limits = ConversionLimits.of_properties(definition.properties)
        limits = limits.now if self._context.now else limits
        live = root.header.totals.equality_deletes
        if not limits.is_on or live - self._left.get(table, 0) < limits.deletes:
            self._left[table] = min(self._left.get(table, 0), live)
            return None
        files = await read_table_files(self._context, table, root, definition)
        at_most = self._at_most(table, files)
        chosen = await asyncio.to_thread(choose_deletes, files, limits, at_most)
        self._tell_left(table, chosen)
        if not chosen.deletes:
            return None
        self._tried[table] = chosen.deletes[0].location, len(chosen.deletes)
        return await read_conversion(self._context.reads, table, files, chosen)

    def _at_most(self, table: TableName, files: TableFiles) -> int:
        """The most deletes to convert: half as many as in the last plan if that was not committed."""
        first, count = self._tried.pop(table, ("", DELETES_MAX))
        is_live = any(delete.location == first for delete in files.equality_deletes)
        return max(1, count // 2) if is_live else DELETES_MAX

    def _tell_left(self, table: TableName, chosen: ChosenDeletes) -> None:
        known, self._left[table] = self._left.get(table, 0), len(chosen.left)
        if len(chosen.left) > known:
            first = chosen.left[0]
            _log.warning(
                "equality deletes are too large to convert",
                action="conversion-left",
                table=table,
                deletes=len(chosen.left),
                first=first.location,
                reason="they apply to more files or bytes, or have more rows, than rootline.convert.* allows",
            )


async def read_conversion(
    reads: ObjectStore, table: TableName, files: TableFiles, chosen: ChosenDeletes
) -> ConversionPlan:
    """Find the rows of each file that the chosen deletes remove. Raises the errors of `Planner.plan`."""
    definition, header = files.state.definition, files.state.header
    vectors: dict[str, NewVector] = {}
    clean: list[str] = []
    deletes = DeletesOfScan(reads, table, definition)
    try:
        for task in chosen.tasks:
            of_task = await deletes.of_task(task)
            body = await read_file(reads, table, task.data, code="data-file-corrupt")
            found = await asyncio.to_thread(_deleted_by_value, body, task, definition, of_task)
            known = of_task.positions or BitMap64()
            if found <= known:
                clean.append(task.location)
            else:
                vectors[task.location] = NewVector(found | known, files.vector_of(task.location))
    finally:
        await deletes.close()
    number = header.snapshot.sequence_number
    return ConversionPlan(header.version, number, chosen.deletes, vectors, tuple(clean))


def _deleted_by_value(body: bytes, task: FileTask, definition: TableDefinition, deletes: RowDeletes) -> BitMap64:
    """The positions of the rows that the file's equality deletes remove."""
    staying = BitMap64()
    wanted = RowsWanted.of(definition, [POS])
    for batch in read_rows(body, task.data, wanted, RowDeletes(None, deletes.keys), None):
        staying.update(batch.column(0).to_pylist())
    return BitMap64(range(task.record_count)) - staying


def conversion_job(context: JobContext) -> MaintenanceJob:
    """A job that turns equality deletes into deletion vectors."""
    return MaintenanceJob(context, ConversionPlanner(context))


@dataclass(frozen=True, slots=True)
class DataCompactionPlan:
    """A plan that replaces the data files in `removed` by new ones of their live `rows`, encoded by `write_rows`."""

    made_from_version: Version
    read_sequence_number: int
    removed: tuple[RemovedFile, ...]
    rows: pa.Table
    target_bytes: int
    write_rows: WriteRows

    @property
    def entries(self) -> int:
        """The number of replaced data files."""
        return len(self.removed)

    @property
    def leaf_count(self) -> int:
        """The number of new leaves, which is 0."""
        return 0

    def write(self, stamp: IntentStamp, definition: TableDefinition) -> WrittenPlan:
        """Encode the new files, and make the intent that names them."""
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
    """Plans data compactions.

    For an operator's command two small files are enough, and the table need not enable data compaction.
    """

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
        """Whether the last plan decided that the cluster compacts the table. The next call returns false."""
        is_left = table in self._for_cluster
        self._for_cluster.discard(table)
        return is_left

    def cluster_ended(self, table: TableName) -> None:
        """Note that the cluster's compaction ended. For `spark_interval_s` only this process compacts the table."""
        settings, now_s = self._context.settings, self._context.environment.monotonic_s()
        self._cluster_again_s[table] = now_s + settings.spark_interval_s
        self._tried.pop(table, None)

    async def plan(self, table: TableName, root: Root, definition: TableDefinition) -> DataCompactionPlan | None:
        """Plan a data compaction, or return `None` if none is due here. Raises the errors of `Planner.plan`."""
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
        """Whether the table has hardly changed since a scan of all its files found nothing due."""
        known, now = self._rested.get(table), _size_of(root)
        return known is not None and all(abs(one - other) < limits.files for one, other in zip(known, now, strict=True))

    def _at_most(self, table: TableName, files: TableFiles) -> int:
        """The most files to compact: half as many as in the last plan if that was not committed."""
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
                "delete-heavy data files are too large to rewrite here",
                action="data-compaction-left",
                table=table,
                files=len(left),
                first=chosen.left[0].location,
                reason="they have more bytes than rootline.compact.data-bytes: use table.rewrite, or Spark",
            )
        self._left[table] = left


def _size_of(root: Root) -> tuple[int, int]:
    return root.header.snapshot.sequence_number, root.header.totals.data_files


class DataCompactionJob(Job):
    """A `Job` that rewrites small and delete-heavy data files, or has a cluster rewrite them if there is one."""

    def __init__(self, context: JobContext) -> None:
        self._planner = DataCompactionPlanner(context)
        self._here = MaintenanceJob(context, self._planner)
        self._hand_over = context.hand_over

    @override
    async def run(self, table: TableName) -> JobReport:
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
        message = f"{done.refused} commits were rejected, because their files changed" if done.refused else None
        return replace(report, outcome=outcome, entries=done.files, version=done.version, message=message)

    @override
    async def dry_run(self, table: TableName) -> JobReport:
        return await self._here.dry_run(table)
