"""Rows of delete files: equality deletes, and position deletes of older formats.

Owns: what is read of them, and their agreement with their entries. Does not own: fetching them (`row_deletes`), which
of them apply to a data file (`rootline.tree.scan.delete_index`).
Invariants: columns are found by field id alone, whatever the file calls them; a delete file that lacks what it deletes
by, or holds another number of rows than its entry says, is refused and never taken for an empty one.

Source: the Iceberg specification, "Position Delete Files" and "Equality Delete Files".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import LongType, NestedField, StringType, StructType
from pyroaring import BitMap64

from rootline.schemas import field_ids
from rootline.schemas.content_entry import ContentEntry
from rootline.schemas.errors import Corrupt, Invalid
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.rows.data_file_formats import all_rows, open_data_file
from rootline.storage.rows.equality_keys import innermost, key_field
from rootline.storage.rows.field_matching import finder_for
from rootline.storage.rows.row_projection import RowProjection

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
