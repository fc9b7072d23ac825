"""Changes that write new rows for old ones: an update by a filter, a merge with a source, an upsert.

Owns: finding the rows of the table that match, their new values, the number of changed rows. Does not own: the keys of
the source (`source_keys`), values that a caller assigns (`assigned_values`), vectors and the kind of the intent
(`marked_files`), replanning (`rootline.storage.replanning`).
Invariants: a change is one intent. A row that is updated keeps its `_row_id`. A row of the table is changed at most
once. The table is streamed: only the source, and a portion of the rows that match, are in memory. Each plan converts
the source under its own definition.

Theory. A row that a merge changes is deleted by position, and a coordinator refuses to delete a row twice. So of two
changes of one row, one is replanned, whatever else changes in the same file. Keys that a merge inserts have no such
row, and neither have keys whose rows are skipped because they would not change. The intent's filter therefore matches
these keys, and no others: of two merges that insert a key, one is replanned, and finds the other's row. A row that
another writer appends under a key that the merge has found may stay beside the updated row, as if it had been appended
afterwards.

Source: protocol page, section 2, `row_delta`, and docs/reading.md, "Changing rows".
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from rootline.client.assigned_values import PROJECTION, assigned_columns, check_assigned, given_assignments
from rootline.client.data_file_writer import check_names, write_changed_files
from rootline.client.given_rows import GivenRows
from rootline.client.marked_files import Marks, are_removable, change_intent, stored_marks, touched_files
from rootline.client.new_files import NewFiles, for_intent, nothing_appended, store_written
from rootline.client.planned_change import ChangeOptions, commit_planned
from rootline.client.planned_files import FilePlan, plan_files
from rootline.client.session import Commit, Session, WriterStamp
from rootline.client.source_keys import ABSENT, NO_ROW, Numbers, SourceKeys, key_fields
from rootline.schemas.arrow_values import numpy_from
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import TableName
from rootline.schemas.intent import DataFile, Intent
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.rows.arrow_types import arrow_field_of, arrow_schema_of, storage_of
from rootline.storage.rows.data_file_reader import RowsWanted
from rootline.storage.rows.metadata_columns import FILE, POS, ROW_ID, may_state_lineage, metadata_field
from rootline.storage.rows.row_deletes import places_by_file
from rootline.storage.rows.scan_executor import scan_batches
from rootline.tree.scan.scan_plan import DeletesFor

_PORTION_BYTES: Final = 64 * 1024 * 1024
Assigned: TypeAlias = Mapping[str, Any]
Flags: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(slots=True)
class _Changes:
    """The changes of one plan: positions of old rows by file, and new rows, which are written in portions."""

    session: Session
    plan: FilePlan
    target_bytes: int
    deleted: int = 0
    updated: int = 0
    inserted: int = 0
    conflicts: str | None = None
    """The filter of the isolation check, if it is narrower than the plan's."""
    gone: dict[str, BitMap64] = field(default_factory=dict)
    files: list[DataFile] = field(default_factory=list)
    _pending: list[pa.RecordBatch] = field(default_factory=list)

    def mark(self, old: _OldRows) -> None:
        """Delete the positions of `old`."""
        for location, places in places_by_file(old.files, old.places):
            self.gone[location] = self.gone.get(location, BitMap64()) | BitMap64(places)

    async def add(self, rows: pa.RecordBatch) -> None:
        """Add new rows, as `_new_rows` makes them."""
        self._pending.append(rows)
        if sum(batch.nbytes for batch in self._pending) >= min(_PORTION_BYTES, 2 * self.target_bytes):
            await self._store()

    async def intent(self, options: ChangeOptions) -> Intent | None:
        """The intent of all changes, or `None` if there are none. Its files are in the store."""
        await self._store()
        plan, new, marks = self.plan, NewFiles(), Marks()
        if self.files:
            new = await for_intent(self.session, plan.table, plan.definition, self.files)
        touched = await touched_files(self.session, plan, self.gone)
        removed = [file.task for file in touched] if are_removable(touched) else []
        if touched and not removed:
            marks = await stored_marks(self.session, plan, touched)
        return change_intent(
            self.session, plan, options.isolation, new, marks, removed, options.summary, self.conflicts
        )

    async def _store(self) -> None:
        if not self._pending:
            return
        rows, self._pending = pa.Table.from_batches(self._pending), []
        definition, size = self.plan.definition, self.target_bytes
        self.files += await store_written(
            self.session,
            self.plan.table,
            lambda ids: write_changed_files(rows, definition, ids, target_file_size_bytes=size),
        )


@dataclass(frozen=True, slots=True)
class _OldRows:
    """Rows of the table: their columns `own`, their places, and their ids, or `None` if files cannot state them."""

    own: pa.RecordBatch
    files: pa.Array
    places: pa.Array
    row_ids: pa.Array | None

    def __len__(self) -> int:
        return len(self.places)

    def take(self, rows: Numbers) -> _OldRows:
        """Some of the rows."""
        chosen = pa.array(rows)
        ids = None if self.row_ids is None else self.row_ids.take(chosen)
        return _OldRows(self.own.take(chosen), self.files.take(chosen), self.places.take(chosen), ids)


async def _old_rows(
    session: Session, plan: FilePlan, names: Sequence[str], rows_min: int = 0
) -> AsyncGenerator[_OldRows]:
    """Yield the rows that match the plan's filter, `rows_min` at a time if they do not take too much memory."""
    definition = plan.definition
    own = [column for column in definition.schema.fields if column.name in names]
    meta = (FILE, POS, ROW_ID) if may_state_lineage(definition) else (FILE, POS)
    added = [column for name in meta if (column := metadata_field(name, definition)) is not None]
    wanted = RowsWanted(definition, (*own, *added))  # by field, because the table may have columns with these names

    def joined(batches: list[pa.RecordBatch]) -> _OldRows:
        columns = (batches[0] if len(batches) == 1 else pa.concat_batches(batches)).columns
        files, places, *ids = columns[len(own) :]
        schema = pa.schema([arrow_field_of(column) for column in own])
        rows = pa.RecordBatch.from_arrays(columns[: len(own)], schema=schema)
        return _OldRows(rows, files, places, ids[0] if ids else None)

    pending: list[pa.RecordBatch] = []
    rows = size = 0
    async with contextlib.aclosing(scan_batches(session.store, plan.table, plan.scan.tasks(), wanted)) as batches:
        async for batch in batches:
            pending.append(batch)
            rows, size = rows + len(batch), size + batch.nbytes
            if rows >= rows_min or size >= _PORTION_BYTES:
                yield await asyncio.to_thread(joined, pending)
                pending, rows, size = [], 0, 0
    if pending:
        yield await asyncio.to_thread(joined, pending)


def _new_rows(columns: Mapping[str, pa.Array], definition: TableDefinition, ids: pa.Array | None) -> pa.RecordBatch:
    """Rows to write: the table's columns, with their defaults where `columns` lack them, and their ids.

    Raises:
        Invalid: `rows-invalid`, a required column has no value.
    """
    given = pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
    rows = PROJECTION.columns(given, definition.schema.fields)
    if not may_state_lineage(definition):
        return rows
    found = pa.nulls(len(rows), pa.int64()) if ids is None else ids
    return rows.append_column(pa.field(ROW_ID, pa.int64()), found)


def _by_name(rows: pa.RecordBatch) -> dict[str, pa.Array]:
    return dict(zip(rows.schema.names, rows.columns, strict=True))


async def _committed(
    session: Session,
    stamp: WriterStamp,
    table: TableName,
    options: ChangeOptions,
    plan_changes: Callable[[], Awaitable[_Changes]],
) -> Commit:
    """Commit what `plan_changes` finds, with the numbers of rows. Without changes, it is the newest version."""
    last: _Changes | None = None

    async def plan_intent() -> Intent | None:
        nonlocal last
        last = await plan_changes()
        return await last.intent(options)

    commit = await commit_planned(session, stamp, plan_intent, timeout_s=options.timeout_s)
    if commit is None or last is None:
        return await nothing_appended(session, table)
    return replace(commit, added_rows=last.inserted, deleted_rows=last.deleted, updated_rows=last.updated)


async def update_rows(
    session: Session, stamp: WriterStamp, table: TableName, where: str, assigned: Assigned, options: ChangeOptions
) -> Commit:
    """Update the rows that match `where`. Returns the commit, or the newest version if no row matched.

    Raises:
        Invalid: `filter-invalid`, `column-unknown`, `rows-invalid`; or a rejection that a new plan cannot fix, or could
            not fix in time.
        OutcomeUnknown: `verdict-timeout`.
    """

    async def plan_changes() -> _Changes:
        plan = await plan_files(session, table, where, deletes_for=DeletesFor.EVERY_ROW)
        definition, changes = plan.definition, _Changes(session, plan, options.target_bytes)
        check_assigned(table, assigned, definition.schema, arrow_schema_of(definition.schema))

        def updated(old: _OldRows) -> pa.RecordBatch:
            new = assigned_columns(assigned, old.own, definition.schema)
            return _new_rows({**_by_name(old.own), **new}, definition, old.row_ids)

        names = [column.name for column in definition.schema.fields]
        async with contextlib.aclosing(_old_rows(session, plan, names)) as portions:
            async for old in portions:
                changes.mark(old)
                changes.updated += len(old)
                await changes.add(await asyncio.to_thread(updated, old))
        return changes

    return await _committed(session, stamp, table, options, plan_changes)


WhenMatched: TypeAlias = "Literal['update', 'delete'] | Assigned | None"
WhenNotMatched: TypeAlias = "Literal['insert'] | Assigned | None"


@dataclass(frozen=True, slots=True)
class MergeRules:
    """The columns of the key, `None` for the identifier fields, and what happens to rows of both sides.

    `refuses_repeated`: whether two source rows with one key are refused even if no row of the table matches them.
    `skips_same`: whether `"update"` does not write rows that have all the values already.
    """

    on: tuple[str, ...] | None
    matched: WhenMatched
    not_matched: WhenNotMatched
    refuses_repeated: bool = False
    skips_same: bool = False

    @staticmethod
    def of(on: tuple[str, ...] | None, matched: WhenMatched, not_matched: WhenNotMatched) -> MergeRules:
        """A caller's rules, checked. Raises `Invalid` (`setting-invalid`)."""
        if matched is None and not_matched is None:
            raise Invalid("setting-invalid", "a merge with when_matched=None and when_not_matched=None changes nothing")
        if not isinstance(matched, str | None):
            matched = given_assignments(matched, "when_matched")
        if not isinstance(not_matched, str | None):
            not_matched = given_assignments(not_matched, "when_not_matched")
        for clause, words in ((matched, ("update", "delete")), (not_matched, ("insert",))):
            if isinstance(clause, str) and clause not in words:
                raise Invalid(
                    "setting-invalid", f"{clause!r:.80} is not a clause of a merge: write {' or '.join(words)}"
                )
        return MergeRules(on, matched, not_matched)


UPSERT: Final = MergeRules(None, "update", "insert", refuses_repeated=True)


@dataclass(slots=True)
class _Merge:
    """A source under the definition of one plan.

    `rows`: the source as given. `typed`: its columns that the table has, in the table's types. `lacking`: flags of the
    rows that lack a column which other rows have.
    """

    table: TableName
    rules: MergeRules
    definition: TableDefinition
    rows: pa.RecordBatch
    typed: dict[str, pa.Array]
    lacking: Mapping[str, Flags]
    keys: SourceKeys
    is_matched: Flags
    """Flags of the keys, by number, that a row of the table has."""
    is_same: Flags
    """Flags of the keys, by number, that a skipped row of the table has."""

    @staticmethod
    def of(table: TableName, given: GivenRows, rules: MergeRules, definition: TableDefinition) -> _Merge:
        """Raises `Invalid`: `rows-invalid`, `column-unknown`, `setting-invalid`."""
        schema, is_whole = definition.schema, rules.matched == "update" or rules.not_matched == "insert"
        if is_whole:
            check_names(given.names, definition)
        keys = key_fields(table, schema, rules.on)
        outer = dict.fromkeys(key.path[0] for key in keys)
        missing = [name for name in outer if name not in given.names]
        if missing:
            raise Invalid(
                "rows-invalid", f"{table}: the rows lack column {missing[0]!r} of the key: give it in each row"
            )
        rows = _one_batch(given.for_schema(schema))
        source = pa.field("source", pa.struct(rows.schema))
        if isinstance(rules.matched, Mapping):
            target = pa.field("target", pa.struct(arrow_schema_of(schema)))
            check_assigned(table, rules.matched, schema, pa.schema([source, target]))
        if isinstance(rules.not_matched, Mapping):
            check_assigned(table, rules.not_matched, schema, pa.schema([source]))
        used = [column for column in schema.fields if column.name in (given.names if is_whole else outer)]
        typed = _by_name(PROJECTION.columns(rows, used))
        found = SourceKeys.of(keys, typed)
        if rules.refuses_repeated and (twice := np.flatnonzero(found.counts > 1)).size:
            raise Invalid(
                "rows-invalid",
                f"{table}: {twice.size} keys are in several of the rows, such as {found.shown(twice[0])}, and nothing "
                "states which row is newer: keep one row for each key",
            )
        is_matched, is_same = np.zeros((2, len(found)), dtype=np.bool_)
        return _Merge(table, rules, definition, rows, typed, given.lacking, found, is_matched, is_same)

    def columns_to_read(self) -> list[str]:
        """The columns of the table that matching rows are found by, or keep."""
        keys = [key.path[0] for key in self.keys.fields]
        names = [column.name for column in self.definition.schema.fields]
        if isinstance(self.rules.matched, Mapping) or self.rules.skips_same:
            return names
        if self.rules.matched == "update":
            return [*keys, *(name for name in names if name not in self.typed or name in self.lacking)]
        return keys

    def matching(self, old: _OldRows) -> tuple[_OldRows, Numbers]:
        """The rows of `old` that have a key of the source and are not skipped, and the number of each one's key.

        Raises:
            Invalid: `merge-ambiguous`, several source rows have the key of a row that the merge changes.
        """
        numbers = self.keys.numbers_of(old.own)
        rows = np.flatnonzero(numbers != ABSENT)
        found = numbers[rows]
        self.is_matched[found] = True
        twice = found[self.keys.counts[found] > 1]
        if twice.size and self.rules.matched is not None:
            raise Invalid(
                "merge-ambiguous",
                f"{self.table}: several rows of the source have the key {self.keys.shown(twice[0])}, which is in the "
                "table: keep one row for each key",
            )
        if self.rules.skips_same:
            matched, kept = old.own.take(pa.array(rows)), np.ones(len(rows), dtype=np.bool_)
            for name, values in self._given(matched, found).items():
                kept &= same_values(matched.column(name), values)
            self.is_same[found[kept]] = True
            rows, found = rows[~kept], found[~kept]
        return old.take(rows), found

    def _given(self, own: pa.RecordBatch, numbers: Numbers) -> dict[str, pa.Array]:
        """The source's values for matching rows, whose columns are `own`."""
        rows, kept = self.keys.first_rows[numbers], _by_name(own)
        new = {name: column.take(pa.array(rows)) for name, column in self.typed.items()}
        for name in self.lacking.keys() & new.keys() & kept.keys():
            places = np.arange(len(rows)) + np.where(self.lacking[name][rows], len(rows), 0)
            new[name] = pa.concat_arrays([new[name], kept[name]]).take(pa.array(places))
        return new

    def updated(self, old: _OldRows, numbers: Numbers) -> pa.RecordBatch:
        """The new rows for matching rows. Raises `Invalid` (`rows-invalid`)."""
        if isinstance(self.rules.matched, Mapping):
            source = self.rows.take(pa.array(self.keys.first_rows[numbers]))
            sides = {"source": source.to_struct_array(), "target": old.own.to_struct_array()}
            new = assigned_columns(self.rules.matched, _batch(sides), self.definition.schema)
        else:
            new = self._given(old.own, numbers)
        return _new_rows({**_by_name(old.own), **new}, self.definition, old.row_ids)

    def inserted(self) -> pa.RecordBatch:
        """The new rows for source rows without a match. Raises `Invalid` (`rows-invalid`)."""
        is_new = np.append(~self.is_matched, True)  # the last flag is of rows without a key, whose number is -1
        chosen = pa.array(np.flatnonzero(is_new[self.keys.numbers]))
        if isinstance(self.rules.not_matched, Mapping):
            sides = {"source": self.rows.take(chosen).to_struct_array()}
            new = assigned_columns(self.rules.not_matched, _batch(sides), self.definition.schema)
        else:
            new = {name: column.take(chosen) for name, column in self.typed.items()}
        return _new_rows(new, self.definition, None)


async def merge_rows(
    session: Session, stamp: WriterStamp, table: TableName, given: GivenRows, rules: MergeRules, options: ChangeOptions
) -> Commit:
    """Merge the rows `given` into the table. Returns the commit, or the newest version if nothing has to change.

    Raises:
        Invalid: `merge-ambiguous`, `rows-invalid`, `column-unknown`, `setting-invalid`; or a rejection that a new plan
            cannot fix, or could not fix in time.
        OutcomeUnknown: `verdict-timeout`.
    """

    async def plan_changes() -> _Changes:
        found: list[_Merge] = []

        def filter_of(definition: TableDefinition) -> str:
            found.append(_Merge.of(table, given, rules, definition))
            return found[-1].keys.filter()

        plan = await plan_files(session, table, filter_of, deletes_for=DeletesFor.EVERY_ROW)
        merge, changes = found[-1], _Changes(session, plan, options.target_bytes)
        async with contextlib.aclosing(_old_rows(session, plan, merge.columns_to_read(), len(merge.keys))) as portions:
            async for portion in portions:
                old, numbers = await asyncio.to_thread(merge.matching, portion)
                if not len(old) or rules.matched is None:
                    continue
                changes.mark(old)
                if rules.matched == "delete":
                    changes.deleted += len(old)
                else:
                    changes.updated += len(old)
                    await changes.add(await asyncio.to_thread(merge.updated, old, numbers))
        changes.conflicts = NO_ROW
        if rules.not_matched is not None:
            changes.conflicts = merge.keys.filter(~merge.is_matched | merge.is_same)
            new = await asyncio.to_thread(merge.inserted)
            if len(new):
                changes.inserted += len(new)
                await changes.add(new)
        return changes

    if not given.num_rows:
        return await nothing_appended(session, table)
    return await _committed(session, stamp, table, options, plan_changes)


def same_values(one: pa.Array, other: pa.Array) -> Flags:
    """Flags of the rows in which two columns of one type have equal values. Two nulls are equal. Floats are compared by
    their bits.
    """
    one, other = storage_of(one), storage_of(other)
    kind, is_valid, is_other_valid = one.type, numpy_from(one.is_valid()), numpy_from(other.is_valid())
    same: Flags = np.ones(len(one), dtype=np.bool_)
    if pa.types.is_struct(kind):
        for member, other_member in zip(one.flatten(), other.flatten(), strict=True):
            same &= same_values(member, other_member)
    elif pa.types.is_list(kind) or pa.types.is_map(kind):
        lengths, other_lengths = (np.diff(numpy_from(each.offsets)) for each in (one, other))
        same &= lengths == other_lengths
        rows = np.flatnonzero(same & is_valid & is_other_valid)
        items, other_items = (_items(each.take(pa.array(rows))) for each in (one, other))
        same[np.repeat(rows, lengths[rows])[~same_values(items, other_items)]] = False
    else:
        if pa.types.is_floating(kind):
            bits = pa.int32() if kind.bit_width == 32 else pa.int64()
            one, other = one.view(bits), other.view(bits)
        same = numpy_from(pc.fill_null(pc.equal(one, other), False))
    same &= is_valid & is_other_valid
    same |= ~(is_valid | is_other_valid)
    return same


def _items(lists: pa.Array) -> pa.Array:
    if isinstance(lists, pa.MapArray):
        return pa.StructArray.from_arrays([lists.keys, lists.items], ["key", "value"])
    return lists.flatten()


def _one_batch(rows: pa.Table) -> pa.RecordBatch:
    return pa.concat_batches(rows.to_batches()) if rows.num_rows else pa.RecordBatch.from_pylist([], rows.schema)


def _batch(columns: Mapping[str, pa.Array]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
