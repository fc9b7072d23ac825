"""The rows that a version brought and took away, read on an executor.

Owns: telling them from the rows that stayed, and what kind of change each is. Does not own: which files to look at
(`change_plan`), reading files (`rootline.storage.rows.scan_executor`), which rows are equal (`equal_rows`).
Invariants: a row of a file that stayed is shown only if it is deleted on one side and not on the other; a row that went
and came again with all its values, as when a file is copied without some rows, is not shown; of a version's other rows
with equal identifiers, those that went are the images before an update, and those that came the images after it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np
import pyarrow as pa
from pyiceberg.types import NestedField

from rootline.client.session import Session
from rootline.schemas.identifiers import TableName
from rootline.schemas.table_definition import TableDefinition
from rootline.spark.change_plan import ChangedFile, DeadRows, VersionChange
from rootline.spark.equal_rows import without_equal_rows
from rootline.storage.rows.data_file_reader import RowsWanted
from rootline.storage.rows.metadata_columns import metadata_field
from rootline.storage.rows.row_deletes import EqualityKeys
from rootline.storage.rows.scan_executor import scan_batches

CHANGE_TYPE: Final = "_change_type"
COMMIT_VERSION: Final = "_commit_version"
COMMIT_TIMESTAMP: Final = "_commit_timestamp"


class Kind(StrEnum):
    """What happened to a row."""

    INSERT = "insert"
    DELETE = "delete"
    BEFORE = "update_preimage"
    AFTER = "update_postimage"


@dataclass(frozen=True, slots=True)
class Changed:
    """Rows, and what happened to each."""

    rows: pa.RecordBatch
    kinds: pa.Array


@dataclass(frozen=True)
class ChangeReading:
    """How changes are read: `fields` are the columns to show, `more` the others by which rows are compared.

    `keys`: those of both that identify a row.
    """

    table: TableName
    definition: TableDefinition
    fields: tuple[NestedField, ...]
    more: tuple[NestedField, ...]
    keys: tuple[NestedField, ...]
    shows_deleted: bool

    async def rows(self, session: Session, change: VersionChange) -> AsyncIterator[Changed]:
        """The changed rows of `change`; if it brought rows and took some away, all of them are in memory."""
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
        return pa.array(np.where(known.holds(columns), paired.value, alone.value).tolist(), pa.string())

    def _keys_of(self, rows: pa.Table) -> EqualityKeys | None:
        """The identifiers of `rows`; `None` where there are none."""
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

    async def _went(
        self, session: Session, files: Sequence[ChangedFile], fields: tuple[NestedField, ...]
    ) -> AsyncIterator[pa.RecordBatch]:
        gone = [file.task(file.before) for file in files if file.before is not None and file.after is None]
        async for batch in scan_batches(session.store, self.table, gone, self._wanted(fields)):
            yield batch
        for file in files:
            if file.before is not None and file.after is not None:
                async for batch in self._between(session, file, file.after, file.before, fields):
                    yield batch

    async def _between(
        self, session: Session, file: ChangedFile, dead: DeadRows, alive: DeadRows, fields: tuple[NestedField, ...]
    ) -> AsyncIterator[pa.RecordBatch]:
        """The rows of a file that are deleted by `dead` and live by `alive`."""
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
