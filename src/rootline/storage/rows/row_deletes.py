"""The deletes of one scan: vectors, position deletes and equality deletes, each read once.

Owns: fetching vectors and delete files, sharing them between data files, reading delete files and their agreement with
their entries, the set of equality keys and the lookup in it. Does not own: which deletes apply to a data file
(`rootline.tree.scan.delete_index`), proving vectors (`object_reader`).
Invariants: each delete file is fetched and decoded once a scan. Memory grows with the deleted rows, never with the
data. A file is never read without all its deletes. Columns of a delete file are found by field id alone. A delete file
that lacks its key columns, or has another number of rows than its entry states, is refused and never taken for an
empty one. Null equals null, NaN equals NaN, -0.0 equals 0.0. A row is in the set exactly if one deleted row equals it
in every column.

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

    `values[0]` are the distinct values of the first column. `values[n]` those of column n, and `pairs[n - 1]` the
    distinct combinations that the columns up to n have, each the number of the combination before times the number of
    values, plus the value's.
    """

    ids: tuple[int, ...]
    values: tuple[pa.Array, ...]
    pairs: tuple[pa.Array, ...]

    @staticmethod
    def of(ids: tuple[int, ...], columns: Sequence[pa.Array]) -> EqualityKeys:
        """The rows that `columns` hold, one column for each of `ids`."""
        plain = [_comparable(column) for column in columns]
        values = tuple(pc.unique(column) for column in plain)
        codes, pairs = _code(plain[0], values[0]), []
        for column, known in zip(plain[1:], values[1:], strict=True):
            combined = _combined(codes, column, known)
            pairs.append(pc.unique(combined))
            codes = _code(combined, pairs[-1])
        return EqualityKeys(ids, values, tuple(pairs))

    def __len__(self) -> int:
        """How many distinct rows, about: what a lookup costs besides the rows that are looked up."""
        return max(map(len, (*self.values, *self.pairs)))

    def holds(self, columns: Sequence[pa.Array]) -> Mask:
        """Which rows of `columns`, in the order of `ids`, are in the set; as many at once as the set is large, or more,
        so that going through the set does not cost more than going through the rows.
        """
        plain = [_comparable(column) for column in columns]
        codes = _code(plain[0], self.values[0])
        for column, known, pairs in zip(plain[1:], self.values[1:], self.pairs, strict=True):
            codes = _code(_combined(codes, column, known), pairs)
        found: Mask = codes.is_valid().to_numpy(zero_copy_only=False)
        return found


def _comparable(column: pa.Array) -> pa.Array:
    """The same values, so that equal ones are the same bits."""
    array = storage_of(column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column)
    if pa.types.is_floating(array.type):
        zero, nan = pa.scalar(0.0, array.type), pa.scalar(float("nan"), array.type)
        array = pc.if_else(pc.equal(array, zero), zero, array)
        array = pc.if_else(pc.is_nan(array), nan, array)
    return array


def _code(column: pa.Array, known: pa.Array) -> pa.Array:
    """The place of each value in `known`; null for values that are not there. A null is a value like any other."""
    return pc.index_in(column, value_set=known, skip_nulls=False)


def _combined(codes: pa.Array, column: pa.Array, known: pa.Array) -> pa.Array:
    """One number for a combination and the value beside it; null where either is not known."""
    count = pa.scalar(max(len(known), 1), pa.int64())
    return pc.add(pc.multiply(codes.cast(pa.int64()), count), _code(column, known).cast(pa.int64()))


def key_field(definition: TableDefinition, field_id: int) -> NestedField:
    """The column `field_id` with the structs around it and nothing else; its newest form if the table has dropped it.

    Nothing of it is required: a delete file, or a data file that is older than the column, may lack it.

    Raises:
        Invalid: `file-unreadable`, no schema of the table ever had a primitive column of this id.

    """
    for schema in (definition.schema, *reversed(definition.schemas)):
        found = _path_to(schema.as_struct(), field_id)
        if found is not None:
            return found
    raise Invalid("file-unreadable", f"equality id {field_id} is no primitive column of any schema of the table")


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
    """The primitive column at the end of a `key_field`, null where a struct around it is."""
    while pa.types.is_struct(array.type):
        array = pc.struct_field(array, 0)
    return array


_FILE_PATH: Final = NestedField(field_ids.DELETE_FILE_PATH, "file_path", StringType(), required=True)
_POS: Final = NestedField(field_ids.DELETE_FILE_POS, "pos", LongType(), required=True)


def read_equality_columns(
    body: bytes, entry: ContentEntry, definition: TableDefinition, ids: Sequence[int]
) -> list[pa.Array]:
    """The columns `ids` of an equality delete file, in the newest types that the table has had for them.

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
        raise Corrupt("data-file-corrupt", f"{entry.location}: an equality delete file without rows")
    return [pa.concat_arrays(pieces) for pieces in found]


def read_positions(body: bytes, entry: ContentEntry) -> dict[str, BitMap64]:
    """Data file as the delete file names it → the row numbers that it deletes there; the rows themselves are not read.

    Raises:
        Corrupt: `data-file-corrupt`.
        Invalid: `file-unreadable`.

    """
    found: dict[str, BitMap64] = {}
    for batch in _rows(body, entry, [_FILE_PATH, _POS], {}):
        paths = batch.column(0).dictionary_encode()
        positions = batch.column(1).to_numpy(zero_copy_only=False)
        if len(positions) and positions.min() < 0:
            raise Corrupt("data-file-corrupt", f"{entry.location}: deletes row {positions.min()}")
        codes = paths.indices.to_numpy(zero_copy_only=False)
        for code, path in enumerate(paths.dictionary.to_pylist()):
            chosen = positions[codes == code].astype(np.uint64)
            found.setdefault(path, BitMap64()).update(chosen.tolist())
    return found


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
    """A column that a delete file lacks would read as null, and delete other rows than were meant."""
    place_of = find(stored)
    for key in fields:
        at = place_of(key)
        if at is None:
            raise Invalid("file-unreadable", f"{name}: a delete file without column {key.name} (id {key.field_id})")
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
    """Readings in progress or done, by name; the oldest go first when more than `kept_max` are held."""

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
    """All that deletes rows of one scan's files. Close it when the scan ends."""

    def __init__(self, store: ObjectStore, table: TableName, definition: TableDefinition) -> None:
        self._store = store
        self._table = table
        self._definition = definition
        self._puffins = _Shared(_PUFFIN_FILES_KEPT)
        self._equality = _Shared(None)
        self._positions = _Shared(None)
        self._joined = _Shared(_JOINED_SETS_KEPT)

    async def of_task(self, task: FileTask) -> RowDeletes:
        """What deletes rows of the task's file.

        Raises:
            Corrupt: an object is missing, or not what was written.
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
        """Stop what is being read."""
        for shared in (self._joined, self._equality, self._positions, self._puffins):
            await shared.close()

    def _names(self, path: str, location: str) -> bool:
        """Whether `path`, a full URI as position deletes have it, is the data file `location` of this table."""
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
        """The set of all of them, made once for data files to which the same ones apply."""

        async def join() -> EqualityKeys:
            columns = [
                await self._equality.get(entry.location, partial(self._read_equality, entry, ids)) for entry in entries
            ]
            joined = [pa.concat_arrays(list(pieces)) for pieces in zip(*columns, strict=True)]
            return await asyncio.to_thread(EqualityKeys.of, ids, joined)

        return await self._joined.get((ids, tuple(entry.location for entry in entries)), join)
