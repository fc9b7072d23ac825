"""Executes a change of rows: reads a version, runs the job, publishes one intent, and retries after a conflict.

Owns: the order of these steps and their number, joining the tasks' messages, the translation of Spark's conditions to
filters of Rootline, the refusal of reads of the table that are older than the change, Spark's check of recomputed rows
during a change. Does not own: the change itself (`statements`), the tasks (`row_change_tasks`), vectors and the intent
(`rootline.client.marked_files`), publishing (`batch_commit`).
Invariants: the version that a job reads is the one that its intent names, and each attempt reads the head again. No
attempt uses a DataFrame or a view that has read the table for an earlier one. A named change (writer and sequence) that
is sent again commits once. A vector contains the positions of the one that it replaces. A row that two source rows
change refuses the whole change. If every touched file loses all its rows, the files are removed instead of getting
vectors. A condition is translated only if both sides agree on every row. The settings of a session are restored, also
with concurrent changes.

Theory. An executor that dies loses rows that it had computed for others. Spark recomputes them, while rows of tasks
that ended stay unchanged. If the source does not return the same rows twice, some rows would be duplicated and others
lost.

Spark's conditions differ from Rootline's filters. In Spark, NaN is greater than every number. Timestamps are in the
session's time zone. Texts may be in double quotes, and contain backslashes and doubled quotes. A number with an
exponent is floating. A comparison of a text with a number converts one of them. If the two may differ, only Spark
evaluates the condition: no file is pruned, and every concurrent change is a conflict.
"""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from pyiceberg.expressions.literals import StringLiteral
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
)
from pyroaring import BitMap64

from rootline.client.lake import Lake
from rootline.client.marked_files import (
    Marks,
    Touched,
    are_removable,
    change_intent,
    removal_bytes,
    stored_marks,
    touched_files,
)
from rootline.client.new_files import NewFiles
from rootline.client.planned_files import FilePlan, plan_files
from rootline.client.session import Session
from rootline.client.time_travel import PointInTime, read_head
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import TableName
from rootline.schemas.intent import Intent
from rootline.schemas.object_keys import key_of
from rootline.schemas.table_definition import TableDefinition
from rootline.schemas.verdict import Verdict, VerdictKind
from rootline.spark.batch_commit import WrittenBatch, carried_files, decided
from rootline.spark.connection import committing_lake, guest_lake
from rootline.spark.data_source import ensure_registered, session_defaults
from rootline.spark.file_sink import FilesWritten
from rootline.spark.options import SourceOptions, Use, parse_options
from rootline.spark.row_change_tasks import (
    MESSAGE_SCHEMA,
    TaskChanges,
    change_rows,
    messages,
    rewrite_order,
    rewrite_without,
)
from rootline.spark.spark_types import check_types, resolved, spark_schema_of
from rootline.storage.metadata.root_reader import read_definition
from rootline.storage.replanning import Patience, drive, no_jitter
from rootline.storage.rows.data_file_reader import RowsWanted
from rootline.storage.rows.metadata_columns import FILE, POS, ROW_ID, may_state_lineage
from rootline.tree.filter.filter_syntax import Joined, Name, NamePair, Negation, Test, Tree, read_filter
from rootline.tree.filter.filters import BoundFilter, bind_filter
from rootline.tree.rules.isolation_rules import FILTER_CHARS_MAX
from rootline.tree.scan.scan_plan import DeletesFor

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_NUMBERS: Final = (DecimalType, IntegerType, LongType)
_WRITTEN_AS_TEXT: Final = (DateType, StringType)
_SAME: Final = (BooleanType, *_NUMBERS, *_WRITTEN_AS_TEXT)
_REPLANS_MAX: Final = 8  # each plan is a Spark job over the files of the change
REMOVED_BYTES_MAX: Final = 950_000  # of the 1,000,000 bytes of an intent
_LITERALS: Final = ("null", "true", "false")
_TOKENS: Final = re.compile(r"'[^']*'|[()]|\b(?:and|or|between|case)\b", re.IGNORECASE)
_OTHER_MEANING: Final = re.compile(r"""["\\`]|--|/\*|''|[0-9.][eE]""")


def read_condition(condition: object, schema: Schema) -> BoundFilter | None:
    """The Spark condition as a Rootline filter, or `None` if no Rootline filter has the same meaning."""
    if not isinstance(condition, str) or len(condition) > FILTER_CHARS_MAX or _OTHER_MEANING.search(condition):
        return None
    try:
        bound, tests = bind_filter(condition, schema), list(_tests(read_filter(condition)))
    except Invalid:
        return None
    types = {field.name: field.field_type for field in schema.fields}
    return bound if all(_is_alike(test, types) for test in tests) else None


def own_part(condition: object, side: str) -> str | None:
    """The part of a condition over two sides that names only columns of `side`, without its name. It is true for every
    row of `side` for which the condition is. `None`: there is no such part, or none that is found.
    """
    if not isinstance(condition, str) or _OTHER_MEANING.search(condition):
        return None
    parts, begin, depth = list[str](), 0, 0
    for token in _TOKENS.finditer(condition):
        word = token[0].lower()
        depth += (word == "(") - (word == ")")
        if depth == 0 and word in ("or", "between", "case"):
            parts, begin = [], 0
            break
        if depth == 0 and word == "and":
            parts.append(condition[begin : token.start()])
            begin = token.end()
    own = [text for part in (*parts, condition[begin:]) if (text := _without_side(part.strip(), side)) is not None]
    return " and ".join(f"({text})" for text in own) or None


def _without_side(part: str, side: str) -> str | None:
    try:
        tests = list(_tests(read_filter(part)))
    except Invalid:
        return None
    names = [name for test in tests for name in _names(test)]
    if not names or any(len(name.parts) == 1 or name.parts[0].lower() != side for name in names):
        return None
    if any(name.parts[1].lower() in _LITERALS for name in names):  # without its side, Spark takes it for the literal
        return None
    for at in sorted({name.at for name in names}, reverse=True):
        part = part[:at] + part[part.index(".", at) + 1 :]
    return part


def _names(test: Test | NamePair) -> list[Name]:
    return [test.left, test.right] if isinstance(test, NamePair) else [test.column]


def _tests(tree: Tree) -> Iterator[Test | NamePair]:
    match tree:
        case Joined(parts=parts):
            for part in parts:
                yield from _tests(part)
        case Negation(inner=inner):
            yield from _tests(inner)
        case _:
            yield tree


def _is_alike(test: Test | NamePair, types: Mapping[str, IcebergType]) -> bool:
    """Whether Spark compares the two sides without a conversion."""
    if isinstance(test, NamePair):
        left, right = (_type_of(name, types) for name in (test.left, test.right))
        are_numbers = isinstance(left, _NUMBERS) and isinstance(right, _NUMBERS)
        return are_numbers or (isinstance(left, _SAME) and left == right)
    has_texts = any(isinstance(value.literal, StringLiteral) for value in test.values)
    return isinstance(_type_of(test.column, types), _WRITTEN_AS_TEXT if has_texts else _SAME)


def _type_of(name: Name, types: Mapping[str, IcebergType]) -> IcebergType | None:
    """The type of a top-level column, or `None` for a name inside one."""
    return types.get(name.parts[0]) if len(name.parts) == 1 else None


SETTINGS: Final = (
    "spark.sql.shuffle.orderIndependentChecksum.enabled",
    "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch",
)
_lock: Final = threading.Lock()
_running: Final[WeakKeyDictionary[SparkSession, int]] = WeakKeyDictionary()
_before: Final[WeakKeyDictionary[SparkSession, dict[str, str]]] = WeakKeyDictionary()


@contextlib.contextmanager
def checked_shuffles(spark: SparkSession) -> Iterator[None]:
    """Let Spark fail a job if rows that it recomputed differ from the first ones."""
    with _lock:
        running = _running.get(spark, 0)
        if not running:
            given = {name: spark.conf.get(name) or "" for name in SETTINGS}
            _before[spark] = {name: value for name, value in given.items() if value != "true"}
            for name in _before[spark]:
                spark.conf.set(name, "true")
        _running[spark] = running + 1
    try:
        yield
    finally:
        with _lock:
            _running[spark] -= 1
            if not _running[spark]:
                for name, value in _before.pop(spark).items():
                    spark.conf.set(name, value)


@dataclass(frozen=True, slots=True)
class JobResult:
    """The result of a job: its new files, and the deleted positions by file."""

    written: tuple[FilesWritten, ...]
    gone: Mapping[str, BitMap64]
    counts: tuple[int, int, int]

    @staticmethod
    def of(table: TableName, said: Sequence[TaskChanges], *, may_repeat: bool = False) -> JobResult:
        """The tasks' messages joined. With `may_repeat`, several source rows may delete one row of the table.

        Raises:
            Invalid: `merge-ambiguous`, a row of the table was to be changed more than once.
        """
        gone: dict[str, BitMap64] = {}
        twice = sum(changes.ambiguous for changes in said)
        for changes in said:
            for location, body in changes.positions.items():
                more = BitMap64.deserialize(body)
                known = gone.get(location, BitMap64())
                twice += len(known) + len(more) - len(known | more)
                gone[location] = known | more
        if twice and not may_repeat:
            raise Invalid(
                "merge-ambiguous",
                f"{table}: more than one row of the source matches a row of the table, {twice} time(s): leave one "
                "source row for each (group or deduplicate the source by the columns of the condition)",
            )
        deleted, updated, inserted = (sum(changes.counts[at] for changes in said) for at in range(3))
        return JobResult(tuple(changes.written for changes in said), gone, (deleted - twice, updated, inserted))


_OWN: Final = (FILE, POS)


class Mode(StrEnum):
    """The way in which old rows are removed."""

    MERGE_ON_READ = "merge-on-read"
    COPY_ON_WRITE = "copy-on-write"

    @staticmethod
    def of(given: str) -> Mode:
        """The mode of this name. Raises `Invalid` (`setting-invalid`)."""
        try:
            return Mode(given)
        except ValueError as error:
            raise Invalid("setting-invalid", f"mode {given!r:.80}: write {' or '.join(Mode)}") from error


@dataclass(frozen=True, slots=True)
class RowsChanged:
    """The numbers of deleted, updated and inserted rows. `version`: of the commit, `None` if there was nothing to
    change.

    If the change had already been committed under its writer and sequence, the numbers are those of the repeated run.
    """

    version: int | None
    deleted: int = 0
    updated: int = 0
    inserted: int = 0


@dataclass(frozen=True)
class JobBegin:
    """The input of one attempt: the files of a version that may have rows to change."""

    options: SourceOptions
    plan: FilePlan

    @property
    def definition(self) -> TableDefinition:
        """The table's definition in that version."""
        return self.plan.definition

    @property
    def own_columns(self) -> list[str]:
        """The table's columns."""
        return [field.name for field in self.definition.schema.fields]

    @property
    def lineage(self) -> list[str]:
        """The column of row ids, which rows keep. Empty if the table itself has a column of that name."""
        return [ROW_ID] if may_state_lineage(self.definition) else []

    def columns_of(self, condition: object) -> list[str]:
        """The columns that a condition reads, or all of them if unknown."""
        bound = read_condition(condition, self.definition.schema)
        if bound is None:
            return self.own_columns
        fields = self.definition.schema.fields
        return [field.name for field in fields if set(Schema(field).field_ids) & bound.field_ids]

    def named(self, given: Sequence[str]) -> list[str]:
        """The names of the columns `given`, in the table's upper and lower case.

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
        """`values`, keyed by the table's spelling of their columns. Raises the errors of `named`."""
        return dict(zip(self.named(list(values)), values.values(), strict=True))

    def read(self, spark: SparkSession, columns: Sequence[str], condition: str | Column | None) -> DataFrame:
        """These columns of the rows that match, at this version."""
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
    """The options of a change. The session's warehouse and log are the defaults."""
    texts = {name: str(value) for name, value in given.items() if value is not None}
    return parse_options({**session_defaults(spark), **texts, "path": table}).checked_for(Use.ROW_CHANGE)


def carried_out(
    spark: SparkSession,
    options: SourceOptions,
    mode: Mode,
    frame_of: Callable[[JobBegin], DataFrame],
    condition: object,
    *,
    may_repeat: bool = False,
) -> RowsChanged:
    """Execute the changes of the DataFrame. Retry a few times after a conflict with another commit.

    `may_repeat`: whether the frame may delete one row several times.

    Raises:
        Invalid: `merge-ambiguous`; `intent-too-large`; `isolation-conflict`, a read of the table in the frame is of an
            older version; or a rejection that is final.
        OutcomeUnknown: `verdict-timeout`.
    """
    ensure_registered(spark)
    patience = Patience(time.monotonic, no_jitter, replans_max=_REPLANS_MAX)
    earlier = set[int]()

    def plan() -> _Change:
        begin = begun(options, condition)
        frame = frame_of(begin)
        reads = reads_of(frame, options)
        if reads & earlier:
            raise Invalid(
                "isolation-conflict",
                f"{options.table}: another commit changed the table while the change ran, and a DataFrame or a view "
                "that it uses has read an older version: pass a function that returns the source (source=lambda: …), "
                "in which the table is loaded, or load it anew and repeat the change",
            )
        earlier.update(reads)
        return _planned(spark, begin, _run(frame, options, begin, may_repeat=may_repeat), mode)

    def publish(change: _Change) -> _Outcome:
        with committing_lake(options) as lake:
            intent = _intent(lake, change)
            wait_s = options.verdict_timeout_ms / 1000
            return _Outcome(change, None if intent is None else decided(lake, intent, change.batch, wait_s, options))

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
    """A plan for `condition`, made from the newest version.

    Raises `Invalid` (`setting-invalid`): the table has a column `_file` or `_pos`.
    """

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
            f"{options.table} has a column {hidden[0]!r} of its own, which hides the metadata column: rename it",
        )
    return begin


_PINNED: Final = ("versionAsOf", "snapshotId", "timestampAsOf", "tag")


def reads_of(frame: DataFrame, options: SourceOptions) -> frozenset[int]:
    """Numbers of the reads of the table in the plan of a DataFrame, except of versions that their options name.

    A read that is used twice has one number. Rows that Spark has copied, as by `checkpoint`, do not count. Without a
    JVM (Spark Connect) no read is found.
    """
    java, machine = getattr(frame, "_jdf", None), getattr(frame.sparkSession, "_jvm", None)
    if java is None or machine is None:
        return frozenset()
    analyzed = java.queryExecution().analyzed()
    plans = [analyzed, *_elements(analyzed.subqueriesAll())]
    found = (_read_of(leaf, options) for plan in plans for leaf in _elements(plan.collectLeaves()))
    return frozenset(machine.java.lang.System.identityHashCode(read) for read in found if read is not None)


def _read_of(leaf: Any, options: SourceOptions) -> Any:
    match leaf.getClass().getSimpleName():
        case "DataSourceV2Relation" if leaf.table().name() == "rootline":
            given = leaf.options()
            is_pinned = any(given.containsKey(name) for name in _PINNED) and not given.containsKey("filesOfPlan")
            return leaf.table() if not is_pinned and given.get("path") == options.table else None
        case "LogicalRelation" if leaf.relation().getClass().getSimpleName() == "HadoopFsRelation":
            folder = options.warehouse.rpartition("://")[2].rstrip("/")
            files: str = leaf.relation().location().rootPaths().mkString("\n")
            return leaf.relation() if f"{folder}/{key_of(options.table, 'data/')}" in files else None
    return None


def _elements(sequence: Any) -> list[Any]:
    return [sequence.apply(at) for at in range(sequence.size())]


def _run(frame: DataFrame, options: SourceOptions, begin: JobBegin, *, may_repeat: bool) -> JobResult:
    check_types(frame.schema, options.table)
    task = change_rows(begin.definition.to_json(), options, frame.columns)
    plain = frame.toDF(*(f"c{at}" for at in range(len(frame.columns))))  # mapInArrow treats a name with a dot as a path
    with checked_shuffles(frame.sparkSession):
        said = plain.mapInArrow(task, MESSAGE_SCHEMA).collect()
    return JobResult.of(options.table, messages(row[0] for row in said), may_repeat=may_repeat)


@dataclass(frozen=True, slots=True)
class _Change:
    """New files to publish on the base of `begin`, and either files that get a vector or files to remove."""

    begin: JobBegin
    batch: WrittenBatch
    counts: tuple[int, int, int]
    marked: tuple[Touched, ...] = ()
    removed: tuple[Touched, ...] = ()


@dataclass(frozen=True, slots=True)
class _Outcome:
    """The verdict on a change, or `None` if it changed nothing, and nothing was published."""

    change: _Change
    verdict: Verdict | None


def _planned(spark: SparkSession, begin: JobBegin, job: JobResult, mode: Mode) -> _Change:
    options, definition = begin.options, begin.definition
    touched = guest_lake(options).holder.run(lambda session: touched_files(session, begin.plan, job.gone))
    is_removal = mode is Mode.COPY_ON_WRITE or are_removable(touched)
    if is_removal:
        _check_names(options.table, touched)
    written = [FilesWritten((), definition.table_uuid, definition.current_schema_id), *job.written]
    if is_removal:
        written += _rewritten(spark, begin, [file for file in touched if not file.is_whole])
    batch = WrittenBatch.of(written, options.writer_id, options.writer_sequence)
    files = tuple(touched)
    return _Change(begin, batch, job.counts, () if is_removal else files, files if is_removal else ())


def _check_names(table: TableName, removed: Sequence[Touched]) -> None:
    """Refuse to rewrite more files than one intent can name, before any of them is rewritten."""
    if removal_bytes(removed) > REMOVED_BYTES_MAX:
        raise Invalid(
            "intent-too-large",
            f"{table}: {len(removed):,} files lose rows, and copy-on-write removes each of them by name, for which one "
            "commit has no room: use the mode merge-on-read, or change the table partition by partition",
        )


def _intent(lake: Lake, change: _Change) -> Intent | None:
    options, plan = change.begin.options, change.begin.plan
    new = carried_files(lake, change.batch, plan.definition, options) if change.batch.files else NewFiles()

    async def operation(session: Session) -> Intent | None:
        marks = await stored_marks(session, plan, change.marked) if change.marked else Marks()
        removed = [file.task for file in change.removed]
        return change_intent(session, plan, options.isolation, new, marks, removed)

    return lake.holder.run(operation)


def _rewritten(spark: SparkSession, begin: JobBegin, files: Sequence[Touched]) -> list[FilesWritten]:
    """Rewrite the remaining rows of the files on the cluster."""
    if not files:
        return []
    orders = [(rewrite_order(file.task, file.gone),) for file in files]
    frame = spark.createDataFrame(orders, "rewrite binary").repartition(len(orders))
    task = rewrite_without(begin.definition.to_json(), begin.options)
    return [said.written for said in messages(row[0] for row in frame.mapInArrow(task, MESSAGE_SCHEMA).collect())]
