"""Conversions: equality deletes become deletion vectors.

Owns: what is read to plan one, and how many deletes are tried after a loss. Does not own: which deletes go together
(`rootline.maintenance.conversion_plan`), which rows equality deletes delete (`rootline.storage.rows`), the steps of a
job (`maintenance_job`).
Invariants: nothing is read while none is due; one data file is held at a time; deletes that are too large to convert
are named in the log once, and are no reason to read the table again.
"""

from __future__ import annotations

import asyncio
from typing import Final

import structlog
from pyroaring import BitMap64

from rootline.maintenance.conversion_plan import (
    DELETES_MAX,
    ChosenDeletes,
    ConversionLimits,
    ConversionPlan,
    NewVector,
    choose_deletes,
)
from rootline.maintenance.data_compaction_plan import TableFiles
from rootline.ports.object_store import ObjectStore
from rootline.schemas.bytes.root.root_codec import Root
from rootline.schemas.identifiers import TableName
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.rows.data_file_reader import RowsWanted, read_rows
from rootline.storage.rows.metadata_columns import POS
from rootline.storage.rows.row_deletes import DeletesOfScan, RowDeletes
from rootline.storage.stored_objects import read_file
from rootline.tree.scan.file_task import FileTask
from rootline.workers.jobs.job import JobContext
from rootline.workers.jobs.loaded_table import read_table_files
from rootline.workers.jobs.maintenance_job import MaintenanceJob

_log = structlog.get_logger("rootline.workers")


class ConversionPlanner:
    """Plans conversions. By hand, a single equality delete is enough."""

    what: Final = "conversion of equality deletes"
    stale: Final = "stale-source"
    corrupt: Final = "vector-corrupt"

    def __init__(self, context: JobContext) -> None:
        self._context = context
        self._left: dict[TableName, int] = {}
        self._tried: dict[TableName, tuple[str, int]] = {}

    async def plan(self, table: TableName, root: Root, definition: TableDefinition) -> ConversionPlan | None:
        """What is due in `root`; as `Planner.plan`."""
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
        """How many deletes are tried: half as many as last time if that came to nothing."""
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
                reason="they reach more files or bytes, or hold more rows, than rootline.convert.* allows",
            )


async def read_conversion(
    reads: ObjectStore, table: TableName, files: TableFiles, chosen: ChosenDeletes
) -> ConversionPlan:
    """The plan of the chosen deletes: the rows that they delete of each file. Raises as `Planner.plan`."""
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
    """The rows of a file that its equality deletes delete."""
    staying = BitMap64()
    wanted = RowsWanted.of(definition, [POS])
    for batch in read_rows(body, task.data, wanted, RowDeletes(None, deletes.keys), None):
        staying.update(batch.column(0).to_pylist())
    return BitMap64(range(task.record_count)) - staying


def conversion_job(context: JobContext) -> MaintenanceJob:
    """A job that turns equality deletes into deletion vectors."""
    return MaintenanceJob(context, ConversionPlanner(context))
