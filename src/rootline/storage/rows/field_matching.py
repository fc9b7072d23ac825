"""Which column of a stored file is which column of the table.

Owns: matching by field id, and the name mapping for files without ids. Does not own: casts (`row_projection`).
Invariants: a file that carries ids is matched by ids alone, so a rename never changes what a column holds and a
dropped and re-added name is another column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

import pyarrow as pa
from pydantic import ValidationError
from pyiceberg.types import NestedField

from rootline.schemas.errors import Invalid
from rootline.schemas.table_definition import NAME_MAPPING_PROPERTY
from rootline.storage.rows.arrow_types import FIELD_ID_KEY
from rootline.storage.rows.row_projection import FindField

if TYPE_CHECKING:
    from pyiceberg.table.name_mapping import MappedField, NameMapping

K = TypeVar("K")
_ORC_ID_KEY: Final = b"iceberg.id"


def has_field_ids(schema: pa.Schema) -> bool:
    """Whether any column of a file carries a field id."""
    return any(_carries_id(schema.field(at)) for at in range(len(schema.names)))


def _carries_id(field: pa.Field) -> bool:
    if field_id_of(field) is not None:
        return True
    arrow = field.type
    return pa.types.is_nested(arrow) and any(_carries_id(arrow.field(at)) for at in range(arrow.num_fields))


def field_id_of(field: pa.Field) -> int | None:
    """The field id in an Arrow field's metadata, as Parquet or ORC keeps it."""
    metadata = field.metadata or {}
    text = metadata.get(FIELD_ID_KEY, metadata.get(_ORC_ID_KEY))
    return int(text) if text is not None and int(text) >= 0 else None


def finder_for(schema: pa.Schema, properties: Mapping[str, str]) -> FindField:
    """How columns of a file with `schema` are found, in a table with `properties`.

    Raises:
        Invalid: `definition-invalid`, the table's name mapping cannot be read.

    """
    if has_field_ids(schema):
        return find_by_id
    text = properties.get(NAME_MAPPING_PROPERTY)
    if text is None:
        return find_by_name
    from pyiceberg.table.name_mapping import parse_mapping_from_json  # slow, and few tables have one

    try:
        mapping = parse_mapping_from_json(text)
    except (ValidationError, ValueError) as error:
        raise Invalid("definition-invalid", f"property {NAME_MAPPING_PROPERTY} cannot be read: {error}") from error
    names = _names_by_id(mapping)

    def find_by_mapping(fields: Sequence[pa.Field]) -> Callable[[NestedField], int | None]:
        places = _first_places(field.name for field in fields)

        def find(wanted: NestedField) -> int | None:
            known = names.get(wanted.field_id, ())
            return min((places[name] for name in known if name in places), default=None)

        return find

    return find_by_mapping


def find_by_id(fields: Sequence[pa.Field]) -> Callable[[NestedField], int | None]:
    """The field with the wanted one's id."""
    places = _first_places(map(field_id_of, fields))
    return lambda wanted: places.get(wanted.field_id)


def find_by_name(fields: Sequence[pa.Field]) -> Callable[[NestedField], int | None]:
    """The field with the wanted one's name."""
    places = _first_places(field.name for field in fields)
    return lambda wanted: places.get(wanted.name)


def _first_places(keys: Iterable[K]) -> dict[K, int]:
    found: dict[K, int] = {}
    for at, key in enumerate(keys):
        found.setdefault(key, at)
    return found


def _names_by_id(mapping: NameMapping) -> dict[int, frozenset[str]]:
    found: dict[int, frozenset[str]] = {}

    def take(fields: Sequence[MappedField]) -> None:
        for field in fields:
            if field.field_id is not None:
                found[field.field_id] = frozenset(field.names)
            take(field.fields)

    take(mapping.root)
    return found
