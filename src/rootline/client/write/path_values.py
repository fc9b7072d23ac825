"""Values that a Hive folder states for columns that its files lack: `day=2024-01-01/part.parquet`.

Owns: which columns a path has values of, their text and type, and whether a table can keep them. Does not own: reading
the file (`data_file`), the values when rows are read (`rootline.storage.rows.metadata_columns`).
Invariants: a column that the file has is never taken from its path; a value is used only where the file's partition
states it for readers too, as the identity of the column, and any other is refused: its rows would read null.

Source: the Iceberg specification, "Column Projection"; docs/decisions/0110.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Final
from urllib.parse import unquote

import pyarrow as pa
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import NestedField, PrimitiveType

from rootline.schemas.errors import Invalid
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.rows.arrow_types import arrow_type_of, as_type
from rootline.storage.rows.row_projection import finder_for

_NULL: Final = "__HIVE_DEFAULT_PARTITION__"


def path_values(
    location: str, columns: pa.Schema, definition: TableDefinition, source: str | None = None
) -> dict[int, pa.Array]:
    """Field id → its one value, for each column of the table that a file at `location`, with `columns`, lacks.

    `source`: the path that the file is read from, where that is another one. Its folders count too, the location's
    before them.

    Raises:
        Invalid: `rows-invalid`, the table is not partitioned by such a column, or the value is not of its type.

    """
    stated = {**dict(_stated(source or "")), **dict(_stated(location))}
    if not stated:
        return {}
    find_column = finder_for(columns, definition.properties)(list(columns))
    names = pa.schema([pa.field(name, pa.string()) for name in stated])
    find_name = finder_for(names, definition.properties)(list(names))
    folded = {name.lower(): name for name in stated}
    found: dict[int, pa.Array] = {}
    for field in definition.schema.fields:
        at = find_name(field)
        name = folded.get(field.name.lower()) if at is None else names.names[at]
        if name is not None and find_column(field) is None:
            found[field.field_id] = _value(location, name, stated[name], field, definition)
    return found


def _stated(place: str) -> Iterator[tuple[str, str | None]]:
    """Yield names and texts, from the outermost folder inwards. `None` is null."""
    for part in PurePosixPath(place).parts[:-1]:
        name, equals, text = part.partition("=")
        if name and equals:
            yield unquote(name), None if text == _NULL else unquote(text)


def _value(location: str, name: str, text: str | None, field: NestedField, definition: TableDefinition) -> pa.Array:
    shown = f"{location:.300}: its path states {name}={text!r:.80}, and the file has no column {field.name}"
    kind = field.field_type
    if not isinstance(kind, PrimitiveType) or field.field_id not in _identities(definition):
        raise Invalid(
            "rows-invalid",
            f"{shown}. A table keeps such a value only where it is partitioned by {field.name} itself: partition it so "
            "before you add the file, or read the folder with the engine that wrote it and append its rows",
        )
    wanted = arrow_type_of(kind)
    try:
        return pa.nulls(1, wanted) if text is None else as_type(pa.array([text]), wanted)
    except (pa.ArrowException, ValueError) as error:
        raise Invalid(
            "rows-invalid",
            f"{shown}. The text is no {kind}: read the folder with the engine that wrote it and append its rows",
        ) from error


def _identities(definition: TableDefinition) -> set[int]:
    """Columns whose values are the partition's."""
    members = definition.spec_by_id(definition.default_spec_id).expr_ids
    sources = map(definition.transform_of, members)
    return {source for source, transform in sources if isinstance(transform, IdentityTransform)}
