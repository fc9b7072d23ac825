"""The driver's side of a write: publishes one intent for all files of a batch, and waits for its verdict.

Owns: the way from the tasks' messages to a commit, for appends and overwrites, batch and stream, the plan of a write
with `mergeSchema`, the report of a verdict to the driver. Does not own: writing files (`file_sink`), publishing and
waiting (`rootline.client`), metrics (`stream_metrics`).
Invariants: a batch is one intent, with its new columns. A replayed batch (same writer, same sequence) commits once. A
rejected batch fails the query, unless the option sends it to the dead letters. Nothing is ever undone, because a
published intent may have been committed already. Files are published only under a definition in which their columns'
ids have the same meaning as when the files were written.

Theory. With `mergeSchema`, executors write columns by id, so the plan precedes the files and cannot follow later
changes of the table. If the same columns were added meanwhile, by this stream's last batch or by another writer in the
same order, no change remains. If other columns have those ids, Spark must write the rows again.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial

import pyarrow as pa
from pyspark.sql.types import StructType

from rootline.client.given_rows import GivenRows
from rootline.client.lake import Lake
from rootline.client.matched_rows import seen_vector
from rootline.client.merged_rows import MergePlan, merge_plan
from rootline.client.new_files import NewFiles, for_intent
from rootline.client.producer import await_verdict
from rootline.client.session import Session, oldest_date
from rootline.client.time_travel import read_head
from rootline.library_log import library_logger
from rootline.ports.intent_feed import Pause
from rootline.schemas.errors import Corrupt, Invalid
from rootline.schemas.identifiers import TableName, Version
from rootline.schemas.intent import DataFile, EqualityDeleteFile, Intent, IntentKind, Isolation, RemovedFile
from rootline.schemas.table_definition import TableDefinition
from rootline.schemas.verdict import Verdict, VerdictKind
from rootline.spark.connection import committing_lake
from rootline.spark.file_sink import FilesWritten, check_upsert
from rootline.spark.options import OnRejected, PartitionMode, SourceOptions
from rootline.spark.replaced_rows import Replaced, replaced_by
from rootline.spark.spark_types import arrow_schema_for_spark, as_table_names
from rootline.storage.metadata.root_reader import read_definition, read_root
from rootline.storage.replanning import Patience, drive, no_jitter
from rootline.tree.evolution.evolution_rules import may_become, placed_fields


@dataclass(frozen=True, slots=True)
class MergedWrite:
    """The changes of the table that a write needs. Picklable. `definition`: the definition for its files, as JSON."""

    columns: pa.Schema
    definition: bytes

    @staticmethod
    def planned(
        table: TableName, rows: StructType, definition: bytes, digest: bytes, *, is_case_sensitive: bool = False
    ) -> MergedWrite | None:
        """The plan for `rows`, or `None` if the table needs no change. `definition`, `digest`: JSON and digest of the
        table's definition.

        Raises:
            Invalid: `definition-invalid` or `evolution-illegal`, naming the column.
        """
        now = TableDefinition.from_json(definition)
        empty = pa.RecordBatch.from_pylist([], arrow_schema_for_spark(rows))
        columns = as_table_names(empty, now.schema, is_case_sensitive=is_case_sensitive).schema
        plan = _plan(table, columns, now, digest)
        return None if plan.changes is None else MergedWrite(columns, plan.definition.to_json())

    def on_head(self, lake: Lake, table: TableName) -> MergePlan:
        """The changes that the newest version still needs, after the files were written.

        Raises:
            Invalid: `definition-changed`, the files' columns no longer match those of the table.
        """

        async def operation(session: Session) -> tuple[TableDefinition, bytes]:
            header = (await read_head(session.store, table)).header
            return await read_definition(session.store, header), header.definition.digest

        plan = _plan(table, self.columns, *lake.holder.run(operation))
        if not means_the_same(TableDefinition.from_json(self.definition), plan.definition):
            raise Invalid(
                "definition-changed",
                f"{table}: its columns were changed while the batch was written, so the batch's files do not fit: run "
                "the write again. A stream's next run rewrites this batch",
            )
        return plan


def means_the_same(written: TableDefinition, now: TableDefinition) -> bool:
    """Whether files that were written under one definition have the same meaning under the other."""
    there = placed_fields(now.schema)
    for field_id, placed in placed_fields(written.schema).items():
        found = there.get(field_id)
        if found is None or (found.name, found.parent) != (placed.name, placed.parent):
            return False
        if not may_become(placed.field.field_type, found.field.field_type):
            return False
    known = (now.tracked_fields, *now.past_tracked_fields)
    return written.table_uuid == now.table_uuid and written.tracked_fields in known


def _plan(table: TableName, columns: pa.Schema, definition: TableDefinition, digest: bytes) -> MergePlan:
    return merge_plan(table, GivenRows.of(columns.empty_table()), definition, digest)


QUERY_WRITER_PREFIX = "spark/"
"""Prefix of the writer id of a streaming query without `writerId`. The query's id follows, one for each checkpoint."""
_log = library_logger("rootline.spark")
_REPORT_WAIT_S = 1.0
WAITING = "waiting"
"""The `verdict` of a report about a batch that has none yet. Its `code` is `paused`, or `undecided`."""
_STEP_S = 10.0


@dataclass(frozen=True, slots=True)
class WrittenBatch:
    """All files of a batch, the table and schema for which they were written, and the batch's name if it has one.

    `oldest_ms`: the time of the first upload, in the store's milliseconds, or `None` if unknown. `session_mode`: the
    session's setting for the rows that an overwrite replaces. `query_id`: of the streaming query, if there is one.
    """

    files: tuple[DataFile, ...]
    table_uuid: uuid.UUID
    schema_id: int
    writer_id: str | None = None
    sequence: int | None = None
    oldest_ms: int | None = None
    session_mode: PartitionMode = PartitionMode.STATIC
    deletes: tuple[EqualityDeleteFile, ...] = ()
    query_id: str | None = None

    @property
    def row_count(self) -> int:
        """The number of rows in all files."""
        return sum(file.record_count for file in self.files)

    @staticmethod
    def of(written: Sequence[FilesWritten], writer_id: str | None, sequence: int | None) -> WrittenBatch:
        """The batch of all tasks' files. There must be at least one task.

        Raises:
            Invalid: `table-uuid-mismatch`, the tasks did not write for one table.
        """
        if len({message.table_uuid for message in written}) != 1:
            raise Invalid(
                "table-uuid-mismatch",
                "the table was dropped and created again while the batch was written: run the write again",
            )
        files = tuple(data_file for message in written for data_file in message.files)
        schema_id = max(message.schema_id for message in written)
        oldest_ms = oldest_date(message.oldest_ms for message in written if message.files)
        is_dynamic = any(message.session_mode is PartitionMode.DYNAMIC for message in written)
        mode = PartitionMode.DYNAMIC if is_dynamic else PartitionMode.STATIC
        deletes = tuple(delete for message in written for delete in message.deletes)
        query_id = next((message.query_id for message in written if message.query_id), None)
        named = (writer_id, sequence, oldest_ms, mode, deletes, query_id)
        return WrittenBatch(files, written[0].table_uuid, schema_id, *named)


def commit_append(
    batch: WrittenBatch, definition: TableDefinition, options: SourceOptions, merged: MergedWrite | None = None
) -> Verdict | None:
    """Publish one `append` and wait for its verdict. `None` when there are no files. An upsert is a `row_delta`.

    Many files are first put into leaves (files that list data files). `definition`: the one under which the files were
    written. `merged`: the changes of the table that it needs.

    Raises:
        Invalid: the intent was rejected, and `onRejected` is `fail`; `definition-changed`, the files cannot be used.
        OutcomeUnknown: there was no verdict in time. Spark replays the batch, which commits once.
    """
    if not batch.files:
        return None
    with committing_lake(options) as lake:
        if batch.deletes:
            check_upsert(
                options.table, lake.table(options.table).definition()
            )  # the table may have changed since the stream started
        new = carried_files(lake, batch, definition, options)

        def planned() -> Intent:
            plan = None if merged is None else merged.on_head(lake, options.table)
            return Intent(
                intent_id=str(uuid.uuid4()),
                table=options.table,
                table_uuid=batch.table_uuid,
                kind=IntentKind.ROW_DELTA if batch.deletes else IntentKind.APPEND,
                schema_id=batch.schema_id if plan is None else plan.definition.current_schema_id,
                add_data_files=new.files,
                add_manifests=new.leaves,
                add_equality_deletes=batch.deletes,
                definition=None if plan is None else plan.changes,
            )

        verdict = _decided_in_the_end(lake, planned, batch, options, merged)
        if verdict is not None and verdict.kind is VerdictKind.DUPLICATE:
            _check_same_rows(lake, verdict, batch, options)
        return verdict


def _check_same_rows(lake: Lake, verdict: Verdict, batch: WrittenBatch, options: SourceOptions) -> None:
    """Compare a batch whose verdict is `DUPLICATE` with the version in which it was committed.

    A replay has the same rows in other files. After a deleted checkpoint, however, a query counts from 0 again and
    reuses the sequences of earlier batches if the user named the writer. So does a query whose checkpoint was replaced
    by an older copy. Its replays may also differ because its source does, so for them there is only a warning.

    Raises:
        Invalid: `sequence-reused`, that version added another number of rows.
    """
    version = verdict.version
    if version is None or batch.writer_id is None:
        return
    rows = batch.row_count

    async def brought(session: Session) -> tuple[int, bool]:
        """The number of rows that the version added, and whether one intent alone added them."""
        snapshot = (await read_root(session.store, options.table, Version(version))).header.snapshot
        earlier = (await read_root(session.store, options.table, Version(version - 1))).header.snapshot
        return int(snapshot.summary["added-records"]), snapshot.sequence_number == earlier.sequence_number + 1

    try:
        added, is_alone = lake.holder.run(brought)
    except (Corrupt, KeyError):  # the version expired, so its rows cannot be compared
        return
    if rows <= added and not (is_alone and rows != added):
        return
    if batch.writer_id.startswith(QUERY_WRITER_PREFIX):
        _log.warning(
            "a replayed batch has other rows, which were not added",
            action="batch-replayed",
            table=options.table,
            batch=batch.sequence,
            version=version,
            rows=rows,
            rows_committed=added,
        )
    else:
        raise Invalid(
            "sequence-reused",
            f"{options.table}: batch {batch.sequence} of writer {batch.writer_id!r} was committed in version {version} "
            f"with {added:,} rows{'' if is_alone else ' at most'}. Now it has {rows:,} rows, which are not in the "
            "table. A query with a new checkpoint counts its batches from 0 again: give it a new writerId. If this is "
            "a replay whose rows differ each time, the table has its first rows, and a new writerId would add more",
        )


def commit_overwrite(
    batch: WrittenBatch, definition: TableDefinition, options: SourceOptions, merged: MergedWrite | None = None
) -> Verdict | None:
    """Replace rows of the table by the rows of the batch, in one intent. Replan it if the table changes meanwhile.

    The option `replaceWhere` selects the rows to replace. `partitionOverwriteMode` selects all rows in the partitions
    of the batch. Without both options, every row is replaced.

    Raises:
        Invalid, OutcomeUnknown: as `commit_append`.
    """
    mode = options.partition_overwrite or batch.session_mode
    replaced = replaced_by(batch.files, definition, options.replace_where, mode)
    if replaced is None:
        return None
    with committing_lake(options) as lake:
        planned = partial(_overwrite, lake, batch, replaced, options, merged)
        return _decided_in_the_end(lake, planned, batch, options, merged)


def _decided_in_the_end(
    lake: Lake,
    planned: Callable[[], Intent | None],
    batch: WrittenBatch,
    options: SourceOptions,
    merged: MergedWrite | None,
) -> Verdict | None:
    """Publish the planned intent and return its verdict. If another commit was first, plan and publish a new one."""
    patience = Patience.of(options.verdict_timeout_ms / 1000, time.monotonic, no_jitter)

    def publish(intent: Intent) -> Verdict:
        return decided(lake, intent, batch, patience.verdict_wait_s, options)

    def delay_of(verdict: Verdict, replans: int) -> float | None:
        if merged is None and verdict.code == "definition-changed":
            return None  # each plan has the files of one schema
        return patience.delay_of(verdict, replans)

    began_s = time.monotonic()
    verdict = drive(planned, publish, delay_of)
    if verdict is None:
        return None
    if options.reports_to is not None:
        CommitReport.about(verdict, batch, time.monotonic() - began_s).send(options.reports_to)
    return _settled(verdict, options)


@dataclass(frozen=True, slots=True)
class CommitReport:
    """The verdict on a batch, or a step of the wait for it, for the metrics of the driver.

    `seconds`: the wait for the verdict, with all retries, or the length of the step.
    """

    query: str | None
    table: str
    verdict: str
    code: str | None
    version: int | None
    rows: int
    seconds: float

    @staticmethod
    def about(verdict: Verdict, batch: WrittenBatch, seconds: float) -> CommitReport:
        """The report of a verdict."""
        return CommitReport(
            batch.query_id, verdict.table, verdict.kind, verdict.code, verdict.version, batch.row_count, seconds
        )

    @staticmethod
    def of(data: bytes) -> CommitReport | None:
        """A report that was sent, or `None` if these bytes are something else."""
        try:
            return CommitReport(**json.loads(data))
        except (TypeError, ValueError):
            return None

    def send(self, address: str) -> None:
        """Send the report to the driver's socket, if there still is one."""
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.settimeout(_REPORT_WAIT_S)
            sender.sendto(json.dumps(asdict(self)).encode(), address)


def carried_files(lake: Lake, batch: WrittenBatch, definition: TableDefinition, options: SourceOptions) -> NewFiles:
    """The batch's files in the form for its intent. Many files are put into leaves (files that list data files)."""

    async def carried(session: Session) -> NewFiles:
        if batch.oldest_ms is not None:  # a swept table checks the age of files, which only the executors know
            for file in (*batch.files, *batch.deletes):
                session.uploads.note(options.table, file.location, batch.oldest_ms)
        return await for_intent(session, options.table, definition, batch.files)

    return lake.holder.run(carried)


def _overwrite(
    lake: Lake, batch: WrittenBatch, replaced: Replaced, options: SourceOptions, merged: MergedWrite | None
) -> Intent | None:
    changes = None if merged is None else merged.on_head(lake, options.table)
    # without changes, the head that is planned may be a newer one than that of `on_head`
    becomes = None if changes is None or changes.changes is None else changes.definition
    plan, removal = lake.holder.run(
        lambda session: replaced.planned(session, options.table, becomes, options.target_file_size_bytes)
    )
    now = becomes or plan.definition  # rows that stay may have columns that the batch lacks
    if not removal.removed and not batch.files:
        return None
    new = carried_files(lake, replace(batch, files=(*batch.files, *removal.rewritten)), now, options)
    is_serializable = options.isolation is Isolation.SERIALIZABLE
    return Intent(
        intent_id=str(uuid.uuid4()),
        table=options.table,
        table_uuid=batch.table_uuid,
        kind=IntentKind.OVERWRITE,
        schema_id=batch.schema_id if changes is None else changes.definition.current_schema_id,
        read_version=plan.root.header.version,
        read_sequence_number=plan.sequence_number if is_serializable else None,
        isolation=options.isolation,
        filter=replaced.filter_for(now) if is_serializable else None,
        add_data_files=new.files,
        add_manifests=new.leaves,
        remove_files=tuple(RemovedFile(location=task.location, vector=seen_vector(task)) for task in removal.removed),
        definition=None if changes is None else changes.changes,
    )


def decided(lake: Lake, intent: Intent, batch: WrittenBatch, timeout_s: float, options: SourceOptions) -> Verdict:
    """Publish `intent` under the batch's name, and wait for the verdict. Raises `OutcomeUnknown`
    (`verdict-timeout`).

    A long wait is logged, and reported to the driver's metrics.
    """
    with lake.producer(batch.writer_id) as producer:
        # a replayed batch has other file names, so only its writer and its number identify it
        receipt = producer.publish(intent, writer_sequence=batch.sequence, content="")

    async def awaited(session: Session) -> Verdict:
        reporting = asyncio.ensure_future(_report_waits(batch, options))
        try:
            return await await_verdict(session, receipt.intent, receipt.position, timeout_s=timeout_s)
        finally:
            reporting.cancel()

    return lake.holder.run(awaited)


async def _report_waits(batch: WrittenBatch, options: SourceOptions) -> None:
    """Report each step of a wait, until it is cancelled. An error of a report must not end the wait."""
    counted_s = time.monotonic()
    await asyncio.sleep(_STEP_S)
    from rootline.connect import PauseQuestion

    async with contextlib.aclosing(PauseQuestion(options.warehouse, options.log, options.table)) as question:
        while True:
            now_s = time.monotonic()
            with contextlib.suppress(Exception):
                await _report_wait(batch, options, await question.pause(), now_s - counted_s)
            counted_s = now_s
            await asyncio.sleep(_STEP_S)


async def _report_wait(batch: WrittenBatch, options: SourceOptions, pause: Pause | None, seconds: float) -> None:
    """Log and report that more time has passed without a verdict."""
    code, reason = ("undecided", "no verdict yet") if pause is None else ("paused", pause.reason)
    _log.warning("waiting", action="verdict-wait", table=options.table, batch=batch.sequence, reason=reason)
    if options.reports_to is not None:
        report = CommitReport(batch.query_id, options.table, WAITING, code, None, 0, seconds)
        await asyncio.to_thread(report.send, options.reports_to)


def _settled(verdict: Verdict, options: SourceOptions) -> Verdict:
    if verdict.kind is VerdictKind.REJECTED:
        code, message = verdict.code or "intent-malformed", verdict.message or "rejected"
        if options.on_rejected is OnRejected.FAIL:
            raise Invalid(code, f"{options.table}: the batch was rejected: {message}")
        _log.warning("batch rejected", action="batch-dead-letter", table=options.table, code=code, reason=message)
    return verdict
