"""The deletes of one scan: vectors, position deletes and equality deletes, each read once.

Owns: fetching vectors and delete files, sharing them between data files, reading delete files and their agreement with
their entries, the set of equality keys and the lookup in it. Does not own: the choice of deletes that apply to a data
file (`rootline.tree.scan.delete_index`), verifying vectors (`object_reader`).
Invariants: each delete file is fetched and decoded once per scan. Memory grows with the deleted rows, never with the
data. A file is never read without all its deletes. Columns of a delete file are found by field id alone. A delete file
that lacks its key columns, or has another number of rows than its entry states, is refused, and never treated as empty.
Null equals null, NaN equals NaN, -0.0 equals 0.0. A row is in the set exactly if one deleted row equals it in every
column.

Source: the Iceberg specification, "Position Delete Files" and "Equality Delete Files".
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import LongType, NestedField, StringType, StructType
from pyroaring import BitMap64

from rootline.ports.object_store import ObjectStore
from rootline.schemas import field_ids
from rootline.schemas.arrow_values import numpy_from, scalar_from
from rootline.schemas.content_entry import ContentEntry
from rootline.schemas.errors import Corrupt, Invalid
from rootline.schemas.identifiers import TableName
from rootline.schemas.object_keys import is_absolute, key_of
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.metadata.object_reader import vector_in
from rootline.storage.rows.arrow_types import storage_of
from rootline.storage.rows.data_file_formats import all_rows, open_data_file, refuse_unreadable
from rootline.storage.rows.row_projection import RowProjection, finder_for
from rootline.storage.stored_objects import read_file
from rootline.tree.scan.file_task import FileTask

Mask = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True)
class EqualityKeys:
    """Distinct deleted rows: `ids` are the equality columns, ascending.

    `values[n]` are the distinct values of column n. `pairs[n - 1]` are the distinct combinations of the columns up to
    n. Each is a number: the index of the combination up to n - 1, times the number of values of column n, plus the
    value's index.
    """

    ids: tuple[int, ...]
    values: tuple[pa.Array, ...]
    pairs: tuple[pa.Array, ...]

    @staticmethod
    def of(ids: tuple[int, ...], columns: Sequence[pa.Array]) -> EqualityKeys:
        """The set of rows in `columns`, one column for each of `ids`."""
        plain = [_comparable(column) for column in columns]
        values = tuple(pc.unique(column) for column in plain)
        codes, pairs = _code(plain[0], values[0]), []
        for column, known in zip(plain[1:], values[1:], strict=True):
            combined = _combined(codes, column, known)
            pairs.append(pc.unique(combined))
            codes = _code(combined, pairs[-1])
        return EqualityKeys(ids, values, tuple(pairs))

    def __len__(self) -> int:
        """The approximate number of distinct rows. A lookup costs at least one pass over them."""
        return max(map(len, (*self.values, *self.pairs)))

    def contains(self, columns: Sequence[pa.Array]) -> Mask:
        """For each row of `columns`, whether it is in the set. The columns are in the order of `ids`.

        A call costs at least one pass over the set, so look up many rows at once.
        """
        found: Mask = numpy_from(self.places(columns).is_valid())
        return found

    def places(self, columns: Sequence[pa.Array]) -> pa.Array:
        """The number of each row of `columns` in the set, from 0, or null if it is not in the set.

        Equal rows have equal numbers, below the number of distinct rows. The cost is as in `contains`.
        """
        plain = [_comparable(column) for column in columns]
        codes = _code(plain[0], self.values[0])
        for column, known, pairs in zip(plain[1:], self.values[1:], self.pairs, strict=True):
            codes = _code(_combined(codes, column, known), pairs)
        return codes


def _comparable(column: pa.Array) -> pa.Array:
    """The same values, normalized so that equal values have equal bits."""
    array = storage_of(column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column)
    if pa.types.is_floating(array.type):
        zero, nan = (scalar_from(value, array.type) for value in (0.0, float("nan")))
        array = pc.if_else(pc.equal(array, zero), zero, array)
        array = pc.if_else(pc.is_nan(array), nan, array)
    return array


def _code(column: pa.Array, known: pa.Array) -> pa.Array:
    """The index of each value in `known`, or null if it is absent. A null is looked up like any other value."""
    return pc.index_in(column, value_set=known, skip_nulls=False)


def _combined(codes: pa.Array, column: pa.Array, known: pa.Array) -> pa.Array:
    """One number for each combination of `codes` and the value of `column` beside it, or null if either is absent."""
    count = scalar_from(max(len(known), 1), pa.int64())
    return pc.add(pc.multiply(codes.cast(pa.int64()), count), _code(column, known).cast(pa.int64()))


def key_field(definition: TableDefinition, field_id: int) -> NestedField:
    """The column `field_id` with the structs around it, but without their other members. A dropped column as it last
    was.

    No part of it is required, because a delete file, or a data file older than the column, may lack it.

    Raises:
        Invalid: `file-unreadable`, no schema of the table ever had a primitive column of this id.
    """
    for schema in (definition.schema, *reversed(definition.schemas)):
        found = _path_to(schema.as_struct(), field_id)
        if found is not None:
            return found
    raise Invalid("file-unreadable", f"equality id {field_id} is not a primitive column of any schema of the table")


def _path_to(struct: StructType, field_id: int) -> NestedField | None:
    for member in struct.fields:
        kind = member.field_type
        if member.field_id == field_id and kind.is_primitive:
            return member.model_copy(update={"required": False})
        if isinstance(kind, StructType) and (inner := _path_to(kind, field_id)) is not None:
            default = member.initial_default
            return NestedField(member.field_id, member.name, StructType(inner), required=False, initial_default=default)
    return None


def innermost(array: pa.Array) -> pa.Array:
    """The primitive column inside a `key_field`, null if a struct around it is null."""
    while pa.types.is_struct(array.type):
        array = pc.struct_field(array, 0)
    return array


_FILE_PATH: Final = NestedField(field_ids.DELETE_FILE_PATH, "file_path", StringType(), required=True)
_POS: Final = NestedField(field_ids.DELETE_FILE_POS, "pos", LongType(), required=True)


def read_equality_columns(
    body: bytes, entry: ContentEntry, definition: TableDefinition, ids: Sequence[int]
) -> list[pa.Array]:
    """The columns `ids` of an equality delete file, in their newest types in the table.

    Raises:
        Corrupt: `data-file-corrupt`.
        Invalid: `file-unreadable`.
    """
    fields = [key_field(definition, field_id) for field_id in ids]
    found: list[list[pa.Array]] = [[] for _ in fields]
    for batch in _rows(body, entry, fields, definition.properties):
        for at, pieces in enumerate(found):
            pieces.append(pc.unique(innermost(batch.column(at))) if len(fields) == 1 else innermost(batch.column(at)))
    if not found[0]:
        raise Corrupt("data-file-corrupt", f"{entry.location}: the equality delete file has no rows")
    return [pa.concat_arrays(pieces) for pieces in found]


def read_positions(body: bytes, entry: ContentEntry) -> dict[str, BitMap64]:
    """Path of a data file, as the delete file has it → the numbers of its deleted rows.

    Copies of deleted rows in the file are not read.

    Raises:
        Corrupt: `data-file-corrupt`.
        Invalid: `file-unreadable`.
    """
    found: dict[str, BitMap64] = {}
    for batch in _rows(body, entry, [_FILE_PATH, _POS], {}):
        positions = numpy_from(batch.column(1))
        if len(positions) and positions.min() < 0:
            raise Corrupt("data-file-corrupt", f"{entry.location}: it deletes row {positions.min()}, a negative number")
        for path, chosen in places_by_file(batch.column(0), batch.column(1)):
            found.setdefault(path, BitMap64()).update(chosen.tolist())
    return found


def places_by_file(files: pa.Array, places: pa.Array) -> Iterator[tuple[str, np.ndarray[Any, np.dtype[np.uint64]]]]:
    """Yield each file in `files` with its row numbers in `places`, repeated ones too."""
    paths, numbers = files.dictionary_encode(), numpy_from(places)
    codes = numpy_from(paths.indices)
    for code, path in enumerate(paths.dictionary.to_pylist()):
        yield path, numbers[codes == code].astype(np.uint64)


def _rows(
    body: bytes, entry: ContentEntry, fields: Sequence[NestedField], properties: Mapping[str, str]
) -> Iterator[pa.RecordBatch]:
    file = open_data_file(body, entry)
    find = finder_for(file.schema, properties)
    _refuse_absent(list(file.schema), fields, find, entry.location)
    projection = RowProjection(find, _no_default, "file-unreadable", entry.location)
    for batch in all_rows(file, entry, fields, find(list(file.schema))):
        yield projection.columns(batch, fields)


def _no_default(field: NestedField) -> Any:
    return None


def _refuse_absent(stored: Sequence[pa.Field], fields: Sequence[NestedField], find: Any, name: str) -> None:
    """Refuse a delete file that lacks a key column: it would read as null, and delete the wrong rows."""
    place_of = find(stored)
    for key in fields:
        at = place_of(key)
        if at is None:
            raise Invalid("file-unreadable", f"delete file {name} lacks its key column {key.name} (id {key.field_id})")
        if isinstance(key.field_type, StructType) and pa.types.is_struct(stored[at].type):
            _refuse_absent(list(stored[at].type), key.field_type.fields, find, name)


T = TypeVar("T")
_PUFFIN_FILES_KEPT: Final = 8
_JOINED_SETS_KEPT: Final = 8


@dataclass(frozen=True, slots=True)
class RowDeletes:
    """The deleted rows of one data file: by number, and by the values of columns."""

    positions: BitMap64 | None = None
    keys: tuple[EqualityKeys, ...] = ()


@dataclass
class _Shared:
    """Running and finished reads, by the name of what is read. At most `kept_max` are kept, the last used ones."""

    kept_max: int | None
    _found: OrderedDict[Any, asyncio.Task[Any]] = field(default_factory=OrderedDict)

    async def get(self, name: Any, read: Callable[[], Awaitable[T]]) -> T:
        reading = self._found.get(name)
        if reading is None:
            reading = self._found[name] = asyncio.ensure_future(read())
            while self.kept_max is not None and len(self._found) > self.kept_max:
                self._found.popitem(last=False)
        else:
            self._found.move_to_end(name)
        found: T = await asyncio.shield(reading)
        return found

    async def close(self) -> None:
        running = list(self._found.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


class DeletesOfScan:
    """All deletes of one scan's files. Close it when the scan ends."""

    def __init__(self, store: ObjectStore, table: TableName, definition: TableDefinition) -> None:
        self._store = store
        self._table = table
        self._definition = definition
        self._puffins = _Shared(_PUFFIN_FILES_KEPT)
        self._equality = _Shared(None)
        self._positions = _Shared(None)
        self._joined = _Shared(_JOINED_SETS_KEPT)

    async def of_task(self, task: FileTask) -> RowDeletes:
        """The deletes of the task's file.

        Raises:
            Corrupt: an object is missing or damaged.
            Invalid: `file-unreadable`, `equality-delete-unread`.
        """
        positions: BitMap64 | None = None
        for vector in task.vectors:
            found = vector_in(await self._puffin(vector), vector)
            positions = found if positions is None else positions | found
        deletes = task.deletes
        for entry in deletes.positions:
            by_path = await self._positions.get(entry.location, partial(self._read_positions, entry))
            for path, found in by_path.items():
                if self._names(path, task.location):
                    positions = found if positions is None else positions | found
        groups: dict[tuple[int, ...], list[ContentEntry]] = {}
        for entry in deletes.equality:
            groups.setdefault(tuple(sorted(entry.equality_ids or ())), []).append(entry)
        keys = [await self._keys(ids, entries) for ids, entries in groups.items()]
        return RowDeletes(positions, tuple(keys))

    async def close(self) -> None:
        """Cancel running reads."""
        for shared in (self._joined, self._equality, self._positions, self._puffins):
            await shared.close()

    def _names(self, path: str, location: str) -> bool:
        """Whether `path`, a full URI in a position delete, names the data file `location` of this table."""
        return path == location or (not is_absolute(location) and path.endswith("/" + key_of(self._table, location)))

    async def _puffin(self, vector: ContentEntry) -> bytes:
        async def read() -> bytes:
            return await read_file(self._store, self._table, vector, code="vector-corrupt")

        return await self._puffins.get(vector.location, read)

    async def _body(self, entry: ContentEntry) -> bytes:
        refuse_unreadable(entry)
        return await read_file(self._store, self._table, entry, code="data-file-corrupt")

    async def _read_positions(self, entry: ContentEntry) -> dict[str, BitMap64]:
        return await asyncio.to_thread(read_positions, await self._body(entry), entry)

    async def _read_equality(self, entry: ContentEntry, ids: tuple[int, ...]) -> list[pa.Array]:
        return await asyncio.to_thread(read_equality_columns, await self._body(entry), entry, self._definition, ids)

    async def _keys(self, ids: tuple[int, ...], entries: list[ContentEntry]) -> EqualityKeys:
        """The set of rows that all of `entries` delete. Data files to which the same deletes apply share it."""

        async def join() -> EqualityKeys:
            columns = [
                await self._equality.get(entry.location, partial(self._read_equality, entry, ids)) for entry in entries
            ]
            joined = [pa.concat_arrays(list(pieces)) for pieces in zip(*columns, strict=True)]
            return await asyncio.to_thread(EqualityKeys.of, ids, joined)

        return await self._joined.get((ids, tuple(entry.location for entry in entries)), join)
