"""Merges that run on the cluster: `rootline.spark.merge` with its clauses in order, and `merge_into`.

Owns: the clauses and their order, the join of both sides, the clause of each row, the DataFrame of changes, sources
that read the table themselves. Does not own: executing the changes (`row_change_job`), the casts and defaults of values
(`statements`).
Invariants: the first clause of its kind whose condition is true changes the row. A condition that is null does not
apply. A clause that can never apply is refused when it is added. Conditions and values of a clause name only the sides
that its rows have. A column of the source that the table lacks is refused, unless an expression mentions it. A merge
never takes values from a version that is older than the one it changes, if it was planned after a conflict.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import reduce
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from pyiceberg.types import UUIDType
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql
from pyspark.sql import types as spark_types

from rootline.schemas.errors import Invalid
from rootline.spark.options import SourceOptions
from rootline.spark.row_change_job import JobBegin, Mode, RowsChanged, carried_out, change_options, own_part
from rootline.spark.row_change_tasks import ACTION_COLUMN, FILE_COLUMN, POS_COLUMN, Action
from rootline.spark.spark_types import quoted, renamed, resolved
from rootline.spark.statements import ModeName, Values, cast_values, default_value, holds, types_of
from rootline.storage.rows.metadata_columns import FILE, POS

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

Source: TypeAlias = "DataFrame | Callable[[], DataFrame]"
_SOURCE: Final = "source"
_TARGET: Final = "target"
_EVERY_COLUMN: Final = re.compile(r"[.(,]\s*\*|``")


class Kind(StrEnum):
    """The rows of a clause, under the name of the method that adds it."""

    MATCHED = "when_matched"
    NOT_MATCHED = "when_not_matched"
    BY_SOURCE = "when_not_matched_by_source"


_JOINS: Final[Mapping[frozenset[Kind], str]] = {
    frozenset((Kind.MATCHED,)): "inner",
    frozenset((Kind.NOT_MATCHED,)): "right_anti",
    frozenset((Kind.BY_SOURCE,)): "left_anti",
    frozenset((Kind.MATCHED, Kind.NOT_MATCHED)): "right",
    frozenset((Kind.MATCHED, Kind.BY_SOURCE)): "left",
}
"""The join of the table with the source that has the rows of these clauses, and no others. For more: `full`."""


@dataclass(frozen=True, slots=True)
class Clause:
    """A clause of a merge. `values`: column → value, or `None` for every column of the source."""

    kind: Kind
    action: Action
    condition: str | Column | None = None
    values: Values | None = None

    @property
    def expressions(self) -> list[str | Column]:
        """The condition and the values."""
        return [*([] if self.condition is None else [self.condition]), *(self.values or {}).values()]


@dataclass(frozen=True, slots=True)
class Merge:
    """A merge with the clauses so far. Each clause makes a new one, and `execute` runs it."""

    spark: SparkSession
    options: SourceOptions
    mode: Mode
    source: Source
    on: tuple[str, ...]
    condition: str | Column | None
    clauses: tuple[Clause, ...] = ()

    def when_matched(self, condition: str | Column | None = None) -> WhenMatched:
        """Rows of the table that match a row of the source, and for which `condition` is true."""
        return WhenMatched(self, Kind.MATCHED, condition)

    def when_not_matched(self, condition: str | Column | None = None) -> WhenNotMatched:
        """Rows of the source that match no row of the table, and for which `condition` over `source` is true."""
        return WhenNotMatched(self, Kind.NOT_MATCHED, condition)

    def when_not_matched_by_source(self, condition: str | Column | None = None) -> WhenNotMatchedBySource:
        """Rows of the table that match no row of the source, and for which `condition` over `target` is true."""
        return WhenNotMatchedBySource(self, Kind.BY_SOURCE, condition)

    def execute(self) -> RowsChanged:
        """Run the merge as one commit.

        Returns:
            The numbers of updated, deleted and inserted rows, and the version.

        Raises:
            Invalid: `merge-ambiguous`, two rows of the source change one row of the table; `column-unknown`;
                `setting-invalid`, a clause is not right; `rows-invalid`, Spark would convert the values of two clauses
                to a third type that may change them; `isolation-conflict`, the source reads the table at an older
                version; and as `delete_where`.
            OutcomeUnknown: `verdict-timeout`.
        """
        if not self.clauses:
            raise Invalid(
                "setting-invalid",
                f"{self.options.table}: a merge without clauses changes nothing: add when_matched, when_not_matched "
                "or when_not_matched_by_source",
            )

        def frame(begin: JobBegin) -> DataFrame:
            source = self.source if isinstance(self.source, DataFrame) else _made_by(self.source, self.options)
            return _Joined.of(self, begin, source).changes()

        matched = [clause for clause in self.clauses if clause.kind is Kind.MATCHED]
        may_repeat = len(matched) == 1 and matched[0].action is Action.DELETE and matched[0].condition is None
        return carried_out(self.spark, self.options, self.mode, frame, self.restriction, may_repeat=may_repeat)

    @property
    def restriction(self) -> str | None:
        """Spark SQL that is true for every row of the table that may match, or that a clause may change. `None`: it may
        be every row.
        """
        by_source = [clause.condition for clause in self.clauses if clause.kind is Kind.BY_SOURCE]
        has_matches = len(by_source) < len(self.clauses)
        parts = [own_part(each, _TARGET) for each in (*([self.condition] if has_matches else []), *by_source)]
        known = [part for part in parts if part is not None]
        return " or ".join(f"({part})" for part in known) if len(known) == len(parts) else None

    def name_of(self, at: int) -> str:
        """The name of a clause in errors."""
        return f"{self.options.table}: clause {at + 1}, {self.clauses[at].kind}"

    def with_clause(self, clause: Clause) -> Merge:
        """The merge with one more clause. Raises `Invalid` (`setting-invalid`): it never applies, or sets nothing."""
        merge = replace(self, clauses=(*self.clauses, clause))
        name = merge.name_of(len(self.clauses))
        for at, earlier in enumerate(self.clauses):
            if earlier.kind is clause.kind and earlier.condition is None:
                raise Invalid(
                    "setting-invalid",
                    f"{name}, never applies, because clause {at + 1} has no condition: give that one a condition, or "
                    "put it last",
                )
        takes_all = clause.values is None and clause.kind is not Kind.BY_SOURCE
        if clause.action is not Action.DELETE and not takes_all and not clause.values:
            raise Invalid("setting-invalid", f"{name}, sets no column: name at least one")
        return merge


@dataclass(frozen=True, slots=True)
class _When:
    merge: Merge
    kind: Kind
    condition: str | Column | None

    def _then(self, action: Action, values: Values | None = None) -> Merge:
        return self.merge.with_clause(Clause(self.kind, action, self.condition, values))


class WhenMatched(_When):
    """Rows of both sides that match. A method adds the clause that changes them."""

    __slots__ = ()

    def update(self, set: Values | None = None) -> Merge:  # noqa: A002 -- SQL's word
        """Set these columns (column → Spark SQL over `source` and `target`), by default each that the source has."""
        return self._then(Action.UPDATE, set)

    def delete(self) -> Merge:
        """Delete the row of the table."""
        return self._then(Action.DELETE)


class WhenNotMatched(_When):
    """Rows of the source without a match. A method adds the clause that inserts them."""

    __slots__ = ()

    def insert(self, values: Values | None = None) -> Merge:
        """Add a row with these values (column → Spark SQL over `source`), by default with the source's columns."""
        return self._then(Action.INSERT, values)


class WhenNotMatchedBySource(_When):
    """Rows of the table without a match. A method adds the clause that changes them."""

    __slots__ = ()

    def update(self, set: Values) -> Merge:  # noqa: A002 -- SQL's word
        """Set these columns (column → Spark SQL over `target`)."""
        return self._then(Action.UPDATE, set)

    def delete(self) -> Merge:
        """Delete the row of the table."""
        return self._then(Action.DELETE)


def merge(
    spark: SparkSession,
    table: str,
    source: Source,
    *,
    on: Sequence[str] | None = None,
    condition: str | Column | None = None,
    mode: ModeName = "merge-on-read",
    **options: Any,
) -> Merge:
    """Begin a merge of `source` into the table. Add clauses in order, then call `execute`.

    In conditions and values the two sides are called `source` and `target`. Of the clauses of one kind, the first one
    whose condition is true changes a row.

    Args:
        spark: as in `delete_where`.
        table: `namespace.table`.
        source: the rows to merge. At most one of them may change a row of the table. A source that reads the table
            itself must be a function that returns the DataFrame. It is called in each attempt, so that it reads the
            newest version.
        on: columns of both sides that are equal in matching rows (null matches nothing), or
        condition: Spark SQL, or a column, that is true for matching rows.
        mode: as in `delete_where`.
        options: as in `delete_where`.

    Raises:
        Invalid: `setting-invalid`.

    """
    given = change_options(spark, table, options)
    if (on is None) == (condition is None):
        raise Invalid("setting-invalid", f"{table}: a merge takes either `on` or `condition`")
    if on is not None and not on:
        raise Invalid(
            "setting-invalid", f"{table}: `on` names no column: name the columns that are equal in matching rows"
        )
    if not isinstance(source, DataFrame) and not callable(source):
        raise Invalid(
            "setting-invalid",
            f"{table}: the source of a merge is {type(source).__name__}: give a DataFrame, or a function that returns "
            "one",
        )
    return Merge(spark, given, Mode.of(mode), source, tuple(on or ()), condition)


def merge_into(
    spark: SparkSession,
    table: str,
    source: Source,
    *,
    on: Sequence[str] | None = None,
    condition: str | Column | None = None,
    when_matched: Values | Literal["update", "delete"] | None = "update",
    when_not_matched: Values | Literal["insert"] | None = "insert",
    mode: ModeName = "merge-on-read",
    **options: Any,
) -> RowsChanged:
    """Merge rows of `source` into the table, in one commit. `merge` takes more clauses, and clauses with conditions.

    Args:
        spark: as in `delete_where`.
        table: `namespace.table`.
        source: as in `merge`.
        on: as in `merge`.
        condition: as in `merge`.
        when_matched: `update` sets every column that the source has; `delete`; column → Spark SQL; `None` keeps the
            row unchanged.
        when_not_matched: `insert` adds the source's row; column → Spark SQL; `None` adds none.
        mode: as in `delete_where`.
        options: as in `delete_where`.

    Returns:
        The numbers of updated, deleted and inserted rows, and the version.

    Raises:
        Invalid: as `merge` and `Merge.execute`.
        OutcomeUnknown: `verdict-timeout`.

    """
    begun = merge(spark, table, source, on=on, condition=condition, mode=mode, **options)
    if when_matched is None and when_not_matched is None:
        raise Invalid("setting-invalid", f"{table}: merge_into does nothing with both clauses None")
    for clause, words in ((when_matched, ("update", "delete")), (when_not_matched, ("insert",))):
        if isinstance(clause, str) and clause not in words:
            raise Invalid("setting-invalid", f"{table}: {clause!r:.80} is no clause: write {' or '.join(words)}")
    if when_matched == "delete":
        begun = begun.when_matched().delete()
    elif when_matched is not None:
        begun = begun.when_matched().update(None if isinstance(when_matched, str) else when_matched)
    if when_not_matched is not None:
        begun = begun.when_not_matched().insert(None if isinstance(when_not_matched, str) else when_not_matched)
    return begun.execute()


@dataclass(frozen=True, slots=True)
class _Joined:
    """Both sides of a merge in one attempt. `presence`: a column that only rows of the source have."""

    merge: Merge
    begin: JobBegin
    source: DataFrame
    target: DataFrame
    clauses: tuple[Clause, ...]
    keys: tuple[str, ...]
    presence: str

    @staticmethod
    def of(merge: Merge, begin: JobBegin, source: DataFrame) -> _Joined:
        """Raises `Invalid`: `column-unknown`, `rows-invalid`."""
        clauses = tuple(_named(merge, begin, at) for at in range(len(merge.clauses)))
        expressions = [each for clause in clauses for each in clause.expressions]
        expressions += [] if merge.condition is None else [merge.condition]
        if any(clause.values is None and clause.action is not Action.DELETE for clause in clauses):
            columns = source.columns
            names = resolved(columns, begin.own_columns, is_case_sensitive=merge.options.case_sensitive)
            begin.named([name for name in names if not any(_names(each, name) for each in expressions)])
            source = renamed(source, names)
        keys = tuple(begin.named(merge.on))
        needed = _needed(merge, begin, clauses, keys, source.columns)
        lineage = begin.lineage if any(clause.action is Action.UPDATE for clause in clauses) else []
        with _naming(f"{merge.options.table}: the condition of matching rows, or of {Kind.BY_SOURCE}"):
            target = begin.read(merge.spark, [*needed, FILE, POS, *lineage], merge.restriction)
        presence = _unused("__rootline_source", source.columns)
        return _Joined(
            merge,
            begin,
            source.select("*", sql.lit(True).alias(presence)).alias(_SOURCE),
            target.alias(_TARGET),
            clauses,
            keys,
            presence,
        )

    def changes(self) -> DataFrame:
        """The DataFrame of changes."""
        rows, number = self._numbered()
        actions = [clause.action for clause in self.clauses]
        action = _first((number == at, sql.lit(int(action))) for at, action in enumerate(actions))
        has_target = any(action is not Action.INSERT for action in actions)
        values = self._values(rows, number) if set(actions) != {Action.DELETE} else {}
        lineage = self.begin.lineage if Action.UPDATE in actions else []
        return rows.select(
            (_of(_TARGET, FILE) if has_target else sql.lit(None).cast("string")).alias(FILE_COLUMN),
            (_of(_TARGET, POS) if has_target else sql.lit(None).cast("long")).alias(POS_COLUMN),
            action.alias(ACTION_COLUMN),
            *(value.alias(name) for name, value in values.items()),
            *(_of(_TARGET, name).alias(name) for name in lineage),
        )

    def _numbered(self) -> tuple[DataFrame, Column]:
        """The rows that a clause changes, and the column with the number of that clause."""
        join = _JOINS.get(frozenset(clause.kind for clause in self.clauses), "full")
        with _naming(f"{self.merge.options.table}: the condition of matching rows"):
            tests = [_of(_TARGET, name) == key for name, key in self._source_keys().items()]
            tests += [] if self.merge.condition is None else [_column(self.merge.condition)]
            if join == "right_anti":
                rows = self.source.join(self.target, _all(tests), "left_anti")
            else:
                rows = self.target.join(self.source, _all(tests), join)
        name = _unused("__rootline_clause", rows.columns)
        flags = [(self._applies(rows, at, join), sql.lit(at)) for at in range(len(self.clauses))]
        return rows.select("*", _first(flags).alias(name)).where(sql.col(name).isNotNull()), sql.col(name)

    def _source_keys(self) -> dict[str, Column]:
        """The keys of the source's rows, as the table would store them. Otherwise each merge would insert a key whose
        stored value differs from the given one: a UUID in upper case, a decimal in a column of floats.
        """
        keys = cast_values(self.source, {name: _of(_SOURCE, name) for name in self.keys}, types_of(self.begin))
        kinds = {field.name: field.field_type for field in self.begin.definition.schema.fields}
        return {name: sql.lower(key) if kinds[name] == UUIDType() else key for name, key in keys.items()}

    def _applies(self, rows: DataFrame, at: int, join: str) -> Column:
        """A column that is true for rows of the clause's kind whose condition is true."""
        clause = self.clauses[at]
        flags: list[Column] = []
        if join in ("right", "full"):
            has_target = _of(_TARGET, FILE).isNotNull()
            flags.append(~has_target if clause.kind is Kind.NOT_MATCHED else has_target)
        if join in ("left", "full"):
            has_source = _of(_SOURCE, self.presence).isNotNull()
            flags.append(~has_source if clause.kind is Kind.BY_SOURCE else has_source)
        if clause.condition is not None:
            with _naming(f"{self.merge.name_of(at)}, condition"):
                condition = _column(clause.condition)
                kind = self._side(rows, clause.kind).select(condition).schema[0].dataType
                rows.select(condition)
            if not isinstance(kind, spark_types.BooleanType):
                raise Invalid(
                    "setting-invalid",
                    f"{self.merge.name_of(at)}: its condition is of type {kind.simpleString()}: write one that is true "
                    "or false",
                )
            flags.append(condition)
        return _all(flags)

    def _side(self, rows: DataFrame, kind: Kind) -> DataFrame:
        """The side that rows of this kind have."""
        return {Kind.MATCHED: rows, Kind.NOT_MATCHED: self.source, Kind.BY_SOURCE: self.target}[kind]

    def _values(self, rows: DataFrame, number: Column) -> dict[str, Column]:
        """The new value of each column.

        Raises:
            Invalid: `rows-invalid`, Spark would convert values to a third type that may change them.
        """
        kinds = types_of(self.begin)
        found: list[tuple[Column, dict[str, Column]]] = []
        given: dict[str, list[spark_types.StructField]] = {}
        for at, clause in enumerate(self.clauses):
            if clause.action is Action.DELETE:
                continue
            with _naming(f"{self.merge.name_of(at)}, values"):
                side = self._side(rows, clause.kind)
                values = cast_values(side, self._assigned(clause, kinds), kinds)
                given[f"clause {at + 1}, {clause.kind},"] = rows.select(*values.values()).schema.fields
            found.append((number == at, values))
        if len(self.clauses) == 1:
            return found[0][1]
        chosen = {name: _first((flag, values[name]) for flag, values in found) for name in kinds}
        with _naming(f"{self.merge.options.table}: the values of its clauses"):
            common = rows.select(*chosen.values()).schema.fields
        for at, name in enumerate(kinds):
            if not all(holds(fields[at].dataType, common[at].dataType) for fields in given.values()):
                shown = " ".join(
                    f"{clause} gives {fields[at].dataType.simpleString()};" for clause, fields in given.items()
                )
                raise Invalid(
                    "rows-invalid",
                    f"column {name!r}: {shown} all would become {common[at].dataType.simpleString()}, which may "
                    "change them: cast the value to the type of the column",
                )
        return chosen

    def _assigned(self, clause: Clause, kinds: Mapping[str, spark_types.DataType]) -> dict[str, str | Column]:
        """The value of each column by one clause: assigned, of the source, kept, or the default."""
        found: dict[str, str | Column] = {}
        of_source = set(self.source.columns) if clause.values is None else set[str]()
        for name, kind in kinds.items():
            if clause.values is not None and name in clause.values:
                found[name] = clause.values[name]
            elif name in of_source:
                found[name] = _of(_SOURCE, name)
            elif clause.action is Action.UPDATE:
                found[name] = _of(_TARGET, name)
            else:
                found[name] = default_value(self.begin.definition, name, kind)
        return found


def _named(merge: Merge, begin: JobBegin, at: int) -> Clause:
    """The clause, with the table's spelling of the columns that it sets."""
    clause = merge.clauses[at]
    if clause.values is None:
        return clause
    try:
        return replace(clause, values=begin.named_values(clause.values))
    except Invalid as error:
        raise Invalid(error.code, f"{merge.name_of(at)}: {error.message}") from error


def _needed(
    merge: Merge, begin: JobBegin, clauses: Sequence[Clause], keys: Sequence[str], given: Sequence[str]
) -> list[str]:
    """The columns of the table that the merge reads: of the key, of an expression, or kept by an update."""
    used = [each for clause in clauses if clause.kind is not Kind.NOT_MATCHED for each in clause.expressions]
    used += [] if merge.condition is None else [merge.condition]
    found = set(keys)
    for clause in clauses:
        if clause.action is Action.UPDATE:
            found |= set(begin.own_columns) - set(given if clause.values is None else clause.values)
    if any(not isinstance(each, str) or _EVERY_COLUMN.search(each) for each in used):
        return begin.own_columns
    return [name for name in begin.own_columns if name in found or any(_mentions(each, name) for each in used)]


def _mentions(expression: str | Column, name: str) -> bool:
    """Whether an expression may name a column. It may only seem so."""
    return name.lower() in str(expression).lower()


def _names(expression: str | Column, name: str) -> bool:
    """Whether an expression has the name of a column as a whole word."""
    word = rf"(?<!\w){re.escape(name.replace('`', '``'))}(?!\w)"
    return re.search(word, str(expression), re.IGNORECASE) is not None


def _unused(name: str, columns: Sequence[str]) -> str:
    taken = {column.lower() for column in columns}
    return next(each for each in (f"{name}{'_' * at}" for at in itertools.count()) if each not in taken)


def _first(cases: Iterator[tuple[Column, Column]] | Sequence[tuple[Column, Column]]) -> Column:
    """The value of the first case that is true, or null."""
    found: Any = sql
    for flag, value in cases:
        found = found.when(flag, value)
    chosen: Column = found
    return chosen


def _all(flags: Sequence[Column]) -> Column:
    return reduce(lambda left, right: left & right, flags) if flags else sql.lit(True)


def _column(expression: str | Column) -> Column:
    return sql.expr(expression) if isinstance(expression, str) else expression


def _of(side: str, name: str) -> Column:
    return sql.col(f"{side}.{quoted(name)}")


@contextlib.contextmanager
def _naming(what: str) -> Iterator[None]:
    """Name the part of a merge that Spark cannot analyze. Raises `Invalid`: `column-unknown`, `setting-invalid`."""
    try:
        yield
    except AnalysisException as error:
        is_unknown = (error.getCondition() or "").startswith("UNRESOLVED_COLUMN")
        reason = str(error).partition(";")[0].partition("\n")[0]
        raise Invalid("column-unknown" if is_unknown else "setting-invalid", f"{what}: {reason}") from error


def _made_by(source: Callable[[], DataFrame], options: SourceOptions) -> DataFrame:
    rows = source()
    if not isinstance(rows, DataFrame):
        raise Invalid(
            "setting-invalid",
            f"{options.table}: the source of a merge returned {type(rows).__name__}: return a DataFrame",
        )
    return rows
