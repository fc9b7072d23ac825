"""The rows that one version added and removed: planned file by file on the driver, read on executors.

Owns: finding the files with changed rows from a version's root, separating changed rows from unchanged ones, the kind
of each change. Does not own: reading the changes of roots (`table_loader`), reading files (`scan_executor`), offsets
(`change_stream`).
Invariants: a row that is live after the version and not before was added. One that was live before and is not after was
removed. No other row is shown, so maintenance shows nothing. A row that was removed and added with equal values is not
shown, for instance when a file was copied without some rows. Of n equal removed rows and m equal added rows, the
smaller number is dropped from both. Null equals null, and NaN equals NaN. If removed and added rows have equal
identifiers, the removed ones are the images before an update, and the added ones those after it. A version that cannot
be read in full is an error.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyiceberg.types import NestedField

from rootline.client.planned_files import FilePlan, plan_files
from rootline.client.session import Session
from rootline.client.time_travel import PointInTime, read_head, read_older_root
from rootline.schemas.bytes.root.root_codec import Root
from rootline.schemas.content_entry import ContentEntry
from rootline.schemas.errors import Corrupt, Invalid
from rootline.schemas.identifiers import TableName
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.metadata.root_reader import read_definition
from rootline.storage.metadata.table_loader import changes_of
from rootline.storage.rows.arrow_types import storage_of
from rootline.storage.rows.data_file_reader import RowsWanted
from rootline.storage.rows.metadata_columns import metadata_field
from rootline.storage.rows.row_deletes import EqualityKeys
from rootline.storage.rows.scan_executor import scan_batches
from rootline.tree.check.net_changes import NetChange, NetChanges
from rootline.tree.filter.pruning import PruningFilter
from rootline.tree.scan.delete_index import NO_DELETES, FileDeletes
from rootline.tree.scan.file_task import FileTask

_Numbers = np.ndarray[Any, np.dtype[np.int64]]


def without_equal_rows(left: pa.Table, right: pa.Table, compared: Sequence[int]) -> tuple[pa.Table, pa.Table]:
    """Both tables without the rows that occur in both. Rows are equal if their columns at `compared` are."""
    if not len(left) or not len(right):
        return left, right
    codes = _codes(pa.concat_tables([left, right]), compared)
    ours, theirs = codes[: len(left)], codes[len(left) :]
    kinds = int(codes.max(initial=-1)) + 1
    pairs = np.minimum(np.bincount(ours, minlength=kinds), np.bincount(theirs, minlength=kinds))
    if not pairs.any():
        return left, right
    return (
        left.filter(pa.array(_occurrences(ours) >= pairs[ours])),
        right.filter(pa.array(_occurrences(theirs) >= pairs[theirs])),
    )


def _codes(rows: pa.Table, compared: Sequence[int]) -> _Numbers:
    """A number for each row, equal for equal rows and less than the number of rows."""
    codes: _Numbers = np.zeros(len(rows), np.int64)
    for place in compared:
        more = _codes_of(rows.column(place))
        codes = codes * (int(more.max(initial=0)) + 1) + more  # less than the square of the number of rows
        codes = np.unique(codes, return_inverse=True)[1].reshape(-1).astype(np.int64, copy=False)
    return codes


def _codes_of(column: pa.ChunkedArray) -> _Numbers:
    if pa.types.is_nested(column.type):
        column = pa.chunked_array([pa.array(list(map(repr, column.to_pylist())), pa.large_string())])
    plain = pa.chunked_array([storage_of(chunk) for chunk in column.chunks])
    chunks = plain.dictionary_encode().unify_dictionaries().chunks
    places = (chunk.indices.cast(pa.int64()).fill_null(-1) for chunk in chunks)
    return np.concatenate([array.to_numpy(zero_copy_only=False) + 1 for array in places])


def _occurrences(codes: _Numbers) -> _Numbers:
    """For each row the number of equal rows before it."""
    order = np.argsort(codes, kind="stable")
    ascending = codes[order]
    found = np.empty(len(codes), np.int64)
    found[order] = np.arange(len(codes)) - np.searchsorted(ascending, ascending, "left")
    return found


EXPIRED: Final = "stream-version-expired"


@dataclass(frozen=True, slots=True)
class DeadRows:
    """The deletes of one file at one version."""

    vectors: tuple[ContentEntry, ...] = ()
    deletes: FileDeletes = NO_DELETES


@dataclass(frozen=True, slots=True)
class ChangedFile:
    """A data file with its deletes before and after a version. `None`: it was not in the table before, or after."""

    data: ContentEntry
    before: DeadRows | None
    after: DeadRows | None

    def task(self, dead: DeadRows) -> FileTask:
        """The task that reads the rows that `dead` does not delete."""
        return FileTask(self.data, dead.vectors, None, dead.deletes)

    @property
    def size(self) -> int:
        """The number of bytes to read."""
        return self.data.file_size_in_bytes or 0

    @property
    def is_new(self) -> bool:
        """Whether the version added the file."""
        return self.before is None


@dataclass(frozen=True, slots=True)
class VersionChange:
    """The changed files of one version, with its commit timestamp and the ids of its columns."""

    version: int
    timestamp_ms: int
    column_ids: frozenset[int]
    files: tuple[ChangedFile, ...]

    @property
    def takes_rows_away(self) -> bool:
        """Whether rows may have been deleted."""
        return not all(file.is_new for file in self.files)


def check_unread(head: Root, first: int, last: int) -> None:
    """Check that each of the versions `first` to `last` can be read.

    Raises:
        Invalid: `stream-version-expired`.
    """
    oldest = head.header.versions.oldest
    if first < oldest and first <= last:
        raise Invalid(
            EXPIRED,
            f"{head.header.table}: version {first} expired before the stream read it. The oldest version is now "
            f"{oldest}, and the changes between them are lost: start a new query with a new checkpoint, and keep "
            "versions for longer than the stream may stop (`rootline.expire.all-seconds`, "
            "`rootline.expire.all-versions`)",
        )


async def version_change(session: Session, table: TableName, version: int) -> VersionChange:
    """The changes of `version`.

    Raises:
        Invalid: `stream-version-expired`; `equality-delete-unread`.
        Corrupt: an object is missing, or has other bytes than were written.
    """
    try:
        root = await read_older_root(session.store, table, version)
        changes = NetChanges()
        async for part in changes_of(session.store, root):
            changes.take(part)
        definition = await read_definition(session.store, root.header)
        files = await _changed_files(session, root, definition, changes.net())
    except (Invalid, Corrupt) as error:
        if error.code in ("version-unknown", "object-missing"):
            check_unread(await read_head(session.store, table), version, version)
        raise
    return VersionChange(version, root.header.snapshot.timestamp_ms, _columns(definition), tuple(files))


async def content_of(session: Session, table: TableName, version: int) -> VersionChange:
    """All rows of `version`, as if it had added them. Raises the errors of `version_change`."""
    try:
        plan = await plan_files(session, table, None, PointInTime(version=version))
    except Invalid as error:
        if error.code == "version-unknown":
            check_unread(await read_head(session.store, table), version, version)
        raise
    trim = _Trim(plan.pruning)
    files = (ChangedFile(trim.data(task.data), None, trim.dead(task)) for task in plan.scan.tasks())
    return VersionChange(version, plan.root.header.snapshot.timestamp_ms, _columns(plan.definition), tuple(files))


def _columns(definition: TableDefinition) -> frozenset[int]:
    return frozenset(field.field_id for field in definition.schema.fields)


async def _changed_files(
    session: Session, root: Root, definition: TableDefinition, net: NetChange
) -> list[ChangedFile]:
    trim = _Trim(PruningFilter.of(None, definition))
    if not (net.removed_files or net.vectors or net.added_deletes or net.removed_deletes):
        return [
            ChangedFile(trim.data(file.entry), None, DeadRows(trim.plain(file.vectors))) for file in net.added_files
        ]
    version, table = int(root.header.version), root.header.table
    now = _by_location(await plan_files(session, table, None, PointInTime(version=version)))
    before = _by_location(await plan_files(session, table, None, PointInTime(version=version - 1)))
    came, gone = ([file.location for file in files] for files in (net.added_files, net.removed_files))
    found = [ChangedFile(trim.data(now[name].data), None, trim.dead(now[name])) for name in came]
    found += [ChangedFile(trim.data(before[name].data), trim.dead(before[name]), None) for name in gone]
    vectors = {change.data_location: change.before for change in net.vectors}
    turned = {entry.location for entry in (*net.added_deletes, *net.removed_deletes)}
    new, added = {entry.location for entry in net.added_deletes}, set(came)
    for name, task in now.items():
        was = before.get(name)
        old = _without(task.deletes, new) if was is None else was.deletes
        is_reached = bool(turned & _locations(task.deletes, old))
        if name in added or not (name in vectors or is_reached):
            continue
        marked = vectors.get(name, task.vectors)
        found.append(
            ChangedFile(trim.data(task.data), DeadRows(trim.plain(marked), trim.deletes(old)), trim.dead(task))
        )
    return found


def _by_location(plan: FilePlan) -> dict[str, FileTask]:
    return {task.location: task for task in plan.scan.tasks()}


def _without(deletes: FileDeletes, new: set[str]) -> FileDeletes:
    return FileDeletes(
        tuple(entry for entry in deletes.equality if entry.location not in new),
        tuple(entry for entry in deletes.positions if entry.location not in new),
    )


def _locations(*deletes: FileDeletes) -> set[str]:
    return {entry.location for some in deletes for entry in (*some.equality, *some.positions)}


@dataclass(frozen=True, slots=True)
class _Trim:
    """Removes the statistics that executors do not need from entries."""

    pruning: PruningFilter

    def data(self, entry: ContentEntry) -> ContentEntry:
        known: Mapping[int, object] = entry.content_stats
        members = [member for member in self.pruning.members_of(entry.partition_spec_id) if member in known]
        return replace(entry, content_stats={member: entry.content_stats[member] for member in members})

    def plain(self, entries: Sequence[ContentEntry]) -> tuple[ContentEntry, ...]:
        return tuple(replace(entry, content_stats={}) for entry in entries)

    def deletes(self, deletes: FileDeletes) -> FileDeletes:
        return FileDeletes(self.plain(deletes.equality), self.plain(deletes.positions)) if deletes else NO_DELETES

    def dead(self, task: FileTask) -> DeadRows:
        return DeadRows(self.plain(task.vectors), self.deletes(task.deletes))


CHANGE_TYPE: Final = "_change_type"
COMMIT_VERSION: Final = "_commit_version"
COMMIT_TIMESTAMP: Final = "_commit_timestamp"


class Kind(StrEnum):
    """The kind of a row's change."""

    INSERT = "insert"
    DELETE = "delete"
    BEFORE = "update_preimage"
    AFTER = "update_postimage"


@dataclass(frozen=True, slots=True)
class Changed:
    """Rows, and the kind of change of each."""

    rows: pa.RecordBatch
    kinds: pa.Array


@dataclass(frozen=True)
class ChangeReading:
    """Reads the rows that a version inserted, deleted or updated.

    * `fields`: the columns of the result.
    * `more`: columns that are compared too, but are not in the result.
    * `keys`: the columns that identify a row.
    """

    table: TableName
    definition: TableDefinition
    fields: tuple[NestedField, ...]
    more: tuple[NestedField, ...]
    keys: tuple[NestedField, ...]
    shows_deleted: bool

    async def rows(self, session: Session, change: VersionChange) -> AsyncIterator[Changed]:
        """The changed rows of `change`. If it added and removed rows, all of them are in memory."""
        if not change.takes_rows_away:
            async for batch in self._came(session, change.files, self.fields):
                yield _all(batch, Kind.INSERT)
            return
        every = (*self.fields, *self.more)
        brought = [batch async for batch in self._came(session, change.files, every)]
        if not brought:
            if self.shows_deleted:
                async for batch in self._went(session, change.files, self.fields):
                    yield _all(batch, Kind.DELETE)
            return
        schema = brought[0].schema
        taken = [batch async for batch in self._went(session, change.files, every)]
        compared = [place for place, field in enumerate(every) if field.field_id in change.column_ids]
        came, went = without_equal_rows(pa.Table.from_batches(brought), pa.Table.from_batches(taken, schema), compared)
        if not self.shows_deleted:
            for batch in came.to_batches():
                yield _all(self._shown(batch), Kind.INSERT)
            return
        for rows, others, alone, paired in (
            (went, came, Kind.DELETE, Kind.BEFORE),
            (came, went, Kind.INSERT, Kind.AFTER),
        ):
            known = self._keys_of(others)
            for batch in rows.to_batches():
                yield Changed(self._shown(batch), self._kinds(batch, known, alone, paired))

    def _shown(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.select(range(len(self.fields)))

    def _kinds(self, batch: pa.RecordBatch, known: EqualityKeys | None, alone: Kind, paired: Kind) -> pa.Array:
        if known is None:
            return pa.repeat(pa.scalar(alone.value), len(batch))
        columns = [batch.column(place) for place in self._key_places]
        return pa.array(np.where(known.contains(columns), paired.value, alone.value).tolist(), pa.string())

    def _keys_of(self, rows: pa.Table) -> EqualityKeys | None:
        """The identifiers of `rows`, or `None` if there are none."""
        if not self.keys or not len(rows):
            return None
        columns = [rows.column(place).combine_chunks() for place in self._key_places]
        return EqualityKeys.of(tuple(key.field_id for key in self.keys), columns)

    @property
    def _key_places(self) -> list[int]:
        ids = [field.field_id for field in (*self.fields, *self.more)]
        return [ids.index(key.field_id) for key in self.keys]

    async def _came(
        self, session: Session, files: Sequence[ChangedFile], fields: tuple[NestedField, ...]
    ) -> AsyncIterator[pa.RecordBatch]:
        new = [file.task(file.after) for file in files if file.before is None and file.after is not None]
        async for batch in scan_batches(session.store, self.table, new, self._wanted(fields)):
            yield batch
        for file in files:
            if file.before is not None and file.after is not None:
                async for batch in self._between(session, file, file.before, file.after, fields):
                    yield batch

    def _went(
        self, session: Session, files: Sequence[ChangedFile], fields: tuple[NestedField, ...]
    ) -> AsyncIterator[pa.RecordBatch]:
        undone = [ChangedFile(file.data, before=file.after, after=file.before) for file in files]
        return self._came(session, undone, fields)

    async def _between(
        self, session: Session, file: ChangedFile, dead: DeadRows, alive: DeadRows, fields: tuple[NestedField, ...]
    ) -> AsyncIterator[pa.RecordBatch]:
        """The rows of a file that are deleted by `dead` and live under `alive`."""
        mark = metadata_field("_deleted", self.definition)
        assert mark is not None
        flags: list[pa.Array] = []
        async for batch in scan_batches(session.store, self.table, [file.task(dead)], self._wanted((mark,))):
            flags.append(batch.column(0))
        is_dead = (
            np.concatenate([flag.to_numpy(zero_copy_only=False) for flag in flags]) if flags else np.zeros(0, bool)
        )
        start, wanted = 0, self._wanted((*fields, mark))
        async for batch in scan_batches(session.store, self.table, [file.task(alive)], wanted):
            lives = ~batch.column(len(fields)).to_numpy(zero_copy_only=False)
            chosen = lives & is_dead[start : start + len(batch)]
            start += len(batch)
            if chosen.any():
                yield batch.select(range(len(fields))).filter(pa.array(chosen))

    def _wanted(self, fields: tuple[NestedField, ...]) -> RowsWanted:
        return RowsWanted(self.definition, fields)


def _all(batch: pa.RecordBatch, kind: Kind) -> Changed:
    return Changed(batch, pa.repeat(pa.scalar(kind.value), len(batch)))
