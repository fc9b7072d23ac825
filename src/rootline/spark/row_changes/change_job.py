"""Carries a change of rows out: reads a version, runs the job, publishes, and does it again when a change came between.

Owns: the order of these steps, and how often. Does not own: what changes (`statements`), the tasks
(`change_tasks`), the intent (`change_intent`), publishing (`batch_commit`).
Invariants: the version that a job reads is the one its intent names; each attempt reads the head again; a named change
(writer and sequence) that is sent again lands once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from pyiceberg.schema import Schema

from rootline.client.lake import Lake
from rootline.client.new_files import NewFiles
from rootline.client.planned_files import FilePlan, plan_files
from rootline.client.session import Session
from rootline.client.time_travel import PointInTime, read_head
from rootline.schemas.errors import Invalid
from rootline.schemas.intent import Intent
from rootline.schemas.table_definition import TableDefinition
from rootline.schemas.verdict import Verdict, VerdictKind
from rootline.spark.batch_commit import WrittenBatch, carried_files, decided
from rootline.spark.connection import committing_lake, guest_lake
from rootline.spark.data_source import ensure_registered, session_defaults
from rootline.spark.file_sink import FilesWritten
from rootline.spark.given_columns import check_types, resolved
from rootline.spark.options import SourceOptions, Use, parse_options
from rootline.spark.row_changes.change_intent import JobResult, Touched, change_intent, stored_vectors, touched_files
from rootline.spark.row_changes.change_tasks import (
    MESSAGE_SCHEMA,
    change_rows,
    messages,
    rewrite_order,
    rewrite_without,
)
from rootline.spark.row_changes.checked_shuffles import checked_shuffles
from rootline.spark.row_changes.condition_reading import read_condition
from rootline.spark.spark_types import spark_schema_of
from rootline.storage.metadata.root_reader import read_definition
from rootline.storage.replanning import Patience, drive, no_jitter
from rootline.storage.rows.data_file_reader import RowsWanted
from rootline.storage.rows.metadata_columns import FILE, POS, ROW_ID, may_state_lineage
from rootline.tree.scan.scan_plan import DeletesFor

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_OWN: Final = (FILE, POS)


class Mode(StrEnum):
    """How old rows go."""

    MERGE_ON_READ = "merge-on-read"
    COPY_ON_WRITE = "copy-on-write"

    @staticmethod
    def of(given: str) -> Mode:
        """Raises `Invalid` (`setting-invalid`)."""
        try:
            return Mode(given)
        except ValueError as error:
            raise Invalid("setting-invalid", f"mode {given!r:.80}: write {' or '.join(Mode)}") from error


@dataclass(frozen=True, slots=True)
class RowsChanged:
    """How many rows a change deleted, updated and inserted. `version`: that it made; `None`: there was nothing to do.

    Of a change that had landed before under its writer and sequence, the numbers are those of the new run.
    """

    version: int | None
    deleted: int = 0
    updated: int = 0
    inserted: int = 0


@dataclass(frozen=True)
class JobBegin:
    """What one attempt reads: the files of a version, those that may have a row to change."""

    options: SourceOptions
    plan: FilePlan

    @property
    def definition(self) -> TableDefinition:
        """The table's, in that version."""
        return self.plan.definition

    @property
    def own_columns(self) -> list[str]:
        """The table's columns."""
        return [field.name for field in self.definition.schema.fields]

    @property
    def lineage(self) -> list[str]:
        """The row's id, which it keeps, unless the table has a column of its own of that name."""
        return [ROW_ID] if may_state_lineage(self.definition) else []

    def columns_of(self, condition: object) -> list[str]:
        """The columns that a condition reads, as far as that is known; else all of them."""
        bound = read_condition(condition, self.definition.schema)
        if bound is None:
            return self.own_columns
        fields = self.definition.schema.fields
        return [field.name for field in fields if set(Schema(field).field_ids) & bound.field_ids]

    def named(self, given: Sequence[str]) -> list[str]:
        """The table's spelling of the columns `given`.

        Raises:
            Invalid: `column-unknown`; `rows-invalid`, two of them are one column.

        """
        names = resolved(given, self.own_columns, is_case_sensitive=self.options.case_sensitive)
        unknown = [name for name in names if name not in self.own_columns]
        if unknown:
            known = ", ".join(self.own_columns[:40])
            raise Invalid(
                "column-unknown", f"{self.options.table}: there is no column {unknown[0]!r}; there is {known}"
            )
        return names

    def named_values(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """`values` by the table's spelling of their columns. Raises as `named`."""
        return dict(zip(self.named(list(values)), values.values(), strict=True))

    def read(self, spark: SparkSession, columns: Sequence[str], condition: str | Column | None) -> DataFrame:
        """Those columns of the rows that match, at this version."""
        reader = spark.read.format("rootline").option("warehouse", self.options.warehouse)
        if self.options.log is not None:
            reader = reader.option("log", self.options.log)
        where = read_condition(condition, self.definition.schema)
        if where is not None:
            reader = reader.option("where", where.text)
        schema = spark_schema_of(Schema(*RowsWanted.of(self.definition, columns).fields))
        frame = reader.schema(schema).options(versionAsOf=self.plan.root.header.version).load(self.options.table)
        return frame if condition is None else frame.where(condition)


def change_options(spark: SparkSession, table: str, given: Mapping[str, Any]) -> SourceOptions:
    """The options of a change; where the session has a warehouse and a log, those are the defaults."""
    texts = {name: str(value) for name, value in given.items() if value is not None}
    return parse_options({**session_defaults(spark), **texts, "path": table}).checked_for(Use.ROW_CHANGE)


def carried_out(
    spark: SparkSession,
    options: SourceOptions,
    mode: Mode,
    frame_of: Callable[[JobBegin], DataFrame],
    condition: object,
) -> RowsChanged:
    """Do what the frame says, again when another change was first, a few times.

    Raises:
        Invalid: `merge-ambiguous`; or a rejection that is final.
        OutcomeUnknown: `verdict-timeout`.

    """
    ensure_registered(spark)
    patience = Patience(time.monotonic, no_jitter)

    def plan() -> _Change:
        begin = begun(options, condition)
        return _planned(spark, begin, _run(frame_of(begin), options, begin), mode)

    def publish(change: _Change) -> _Outcome:
        with committing_lake(options) as lake:
            intent = _intent(lake, change)
            wait_s = options.verdict_timeout_ms / 1000
            return _Outcome(change, None if intent is None else decided(lake, intent, change.batch, wait_s))

    def delay_of(outcome: _Outcome, replans: int) -> float | None:
        return None if outcome.verdict is None else patience.delay_of(outcome.verdict, replans)

    outcome = drive(plan, publish, delay_of)
    if outcome is None or outcome.verdict is None:
        return RowsChanged(None)
    verdict = outcome.verdict
    if verdict.kind is VerdictKind.REJECTED:
        raise Invalid(verdict.code or "intent-malformed", verdict.message or f"{options.table}: rejected")
    return RowsChanged(verdict.version, *outcome.change.counts)


def begun(options: SourceOptions, condition: object) -> JobBegin:
    """The plan of the head, for `condition`. Raises `Invalid` (`setting-invalid`): its own columns hide `_file`."""

    async def operation(session: Session) -> JobBegin:
        root = await read_head(session.store, options.table)
        where = read_condition(condition, (await read_definition(session.store, root.header)).schema)
        point = PointInTime(version=root.header.version)
        plan = await plan_files(session, options.table, where, point, DeletesFor.EVERY_ROW)
        return JobBegin(options, plan)

    begin = guest_lake(options).holder.run(operation)
    hidden = [name for name in _OWN if name in begin.own_columns]
    if hidden:
        raise Invalid(
            "setting-invalid",
            f"{options.table} has a column {hidden[0]!r} of its own, which hides where its rows are: rename it",
        )
    return begin


def _run(frame: DataFrame, options: SourceOptions, begin: JobBegin) -> JobResult:
    check_types(frame.schema, options.table)
    task = change_rows(begin.definition.to_json(), options, frame.columns)
    plain = frame.toDF(*(f"c{at}" for at in range(len(frame.columns))))  # mapInArrow takes a dot in a name for a path
    with checked_shuffles(frame.sparkSession):
        said = plain.mapInArrow(task, MESSAGE_SCHEMA).collect()
    return JobResult.of(options.table, messages(row[0] for row in said))


@dataclass(frozen=True, slots=True)
class _Change:
    """New files to publish for what `begin` read, and either files that get a vector or files to remove."""

    begin: JobBegin
    batch: WrittenBatch
    counts: tuple[int, int, int]
    marked: tuple[Touched, ...] = ()
    removed: tuple[Touched, ...] = ()


@dataclass(frozen=True, slots=True)
class _Outcome:
    """The verdict on a change; `None`: it changed nothing, and nothing was published."""

    change: _Change
    verdict: Verdict | None


def _planned(spark: SparkSession, begin: JobBegin, job: JobResult, mode: Mode) -> _Change:
    options, definition = begin.options, begin.definition
    touched = guest_lake(options).holder.run(lambda session: touched_files(session, begin.plan, job.gone))
    is_removal = mode is Mode.COPY_ON_WRITE or all(file.is_whole for file in touched)
    written = [FilesWritten((), definition.table_uuid, definition.current_schema_id), *job.written]
    if is_removal:
        written += _rewritten(spark, begin, [file for file in touched if not file.is_whole])
    batch = WrittenBatch.of(written, options.writer_id, options.writer_sequence)
    files = tuple(touched)
    return _Change(begin, batch, job.counts, () if is_removal else files, files if is_removal else ())


def _intent(lake: Lake, change: _Change) -> Intent | None:
    options, plan = change.begin.options, change.begin.plan
    new = carried_files(lake, change.batch, plan.definition, options) if change.batch.files else NewFiles()

    async def operation(session: Session) -> Intent | None:
        vectors = await stored_vectors(session, options.table, change.marked) if change.marked else ()
        removed = [file.task for file in change.removed]
        return change_intent(session, plan, options.isolation, new, vectors, removed)

    return lake.holder.run(operation)


def _rewritten(spark: SparkSession, begin: JobBegin, files: Sequence[Touched]) -> list[FilesWritten]:
    """What is left of the files, written again on the cluster."""
    if not files:
        return []
    orders = [(rewrite_order(file.task, file.gone),) for file in files]
    frame = spark.createDataFrame(orders, "rewrite binary").repartition(len(orders))
    task = rewrite_without(begin.definition.to_json(), begin.options)
    return [said.written for said in messages(row[0] for row in frame.mapInArrow(task, MESSAGE_SCHEMA).collect())]
