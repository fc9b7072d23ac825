"""Changes of a table definition, as carried by an intent.

Owns: the value types of changes, and their JSON.
Does not own: applying changes (`next_definition`), the rules for a step (`evolution_rules`).
Invariants: A change contains only what it adds, never the whole definition. The JSON has the names of Iceberg's REST
catalog (`updates` of "UpdateTableRequest").
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyiceberg.schema import Schema

from rootline.schemas.errors import Invalid
from rootline.schemas.schema_rules import given_schema_of_json
from rootline.schemas.table_definition import SortField, sort_field_json
from rootline.tree.proof.definition_rules import check_nesting

LAST_ADDED: Final = -1
"""The id that refers to the object that the same list of changes added last."""
CHANGES_MAX: Final = 1_000
"""The most changes in one list, and the most fields of specs and sort orders that they add together."""


@dataclass(frozen=True, slots=True)
class AddSchema:
    """Add a schema. An equal one of the table is reused. The id in `schema` is ignored."""

    schema: Schema


@dataclass(frozen=True, slots=True)
class SetCurrentSchema:
    """Make a schema the current one. `LAST_ADDED` is the schema added last."""

    schema_id: int


@dataclass(frozen=True, slots=True)
class PartitionField:
    """A field of a spec to add.

    `field_id` is only checked against the table. The id is assigned when the change is applied.
    """

    source_ids: tuple[int, ...]
    transform: str
    name: str
    field_id: int | None = None


@dataclass(frozen=True, slots=True)
class AddSpec:
    """Add a partition spec. An equal one of the table is reused."""

    fields: tuple[PartitionField, ...]


@dataclass(frozen=True, slots=True)
class SetDefaultSpec:
    """Make a spec the default for new files. `LAST_ADDED` is the spec added last."""

    spec_id: int


@dataclass(frozen=True, slots=True)
class AddSortOrder:
    """Add a sort order. An equal one of the table is reused."""

    fields: tuple[SortField, ...]


@dataclass(frozen=True, slots=True)
class SetDefaultSortOrder:
    """Make a sort order the default for new files. 0 is unsorted, and `LAST_ADDED` is the order added last."""

    order_id: int


@dataclass(frozen=True, slots=True)
class RemoveSchemas:
    """Remove schemas. The change is parsed so that it can be refused with a reason."""

    schema_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RemoveSpecs:
    """Remove partition specs. The change is parsed so that it can be refused with a reason."""

    spec_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SetProperties:
    """Set properties."""

    updates: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class RemoveProperties:
    """Remove properties. Names that the table does not have are ignored."""

    removals: tuple[str, ...]


DefinitionChange = (
    AddSchema
    | SetCurrentSchema
    | AddSpec
    | SetDefaultSpec
    | AddSortOrder
    | SetDefaultSortOrder
    | RemoveSchemas
    | RemoveSpecs
    | SetProperties
    | RemoveProperties
)


@dataclass(frozen=True, slots=True)
class DefinitionChanges:
    """A list of changes. `replaces` is the SHA-256 of the definition that they were made for, or `None` if they may be
    applied to any definition.
    """

    replaces: bytes | None
    changes: tuple[DefinitionChange, ...]

    def to_json(self) -> str:
        """The JSON in an intent."""
        body: dict[str, Any] = {"changes": [_json_of(change) for change in self.changes]}
        if self.replaces is not None:
            body["replaces-definition"] = self.replaces.hex()
        return json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    @staticmethod
    def from_json(text: str) -> DefinitionChanges:
        """Parse the JSON in an intent.

        Raises:
            Invalid: `definition-invalid`, naming the part that cannot be parsed.
        """
        check_nesting(text)
        try:
            body = json.loads(text)
            if not isinstance(body, dict):
                raise ValueError("it must be an object with `changes`, a list, and `replaces-definition`: write one")
            replaces = body.get("replaces-definition")
            changes = body["changes"]
            if set(body) - {"replaces-definition", "changes"} or not isinstance(changes, list):
                raise ValueError("it must be an object with `changes`, a list, and `replaces-definition`: write one")
            if not 0 < len(changes) <= CHANGES_MAX:
                raise ValueError(f"it has {len(changes)} changes: make 1 to {CHANGES_MAX} at once")
            digest = None if replaces is None else _digest(replaces)
            made = tuple(_change(number, item) for number, item in enumerate(changes))
            fields = sum(len(change.fields) for change in made if isinstance(change, AddSpec | AddSortOrder))
            if fields > CHANGES_MAX:
                raise ValueError(
                    f"its specs and sort orders have {fields} fields; {CHANGES_MAX} can be added at once: split them"
                )
            return DefinitionChanges(digest, made)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise Invalid("definition-invalid", f"definition changes: {_reason(error)}"[:400]) from error


def _reason(error: Exception) -> str:
    return f"{error} is missing: add it" if isinstance(error, KeyError) else str(error)


def _digest(text: object) -> bytes:
    try:
        found = bytes.fromhex(text) if isinstance(text, str) else b""
    except ValueError:
        found = b""
    if len(found) != 32:
        raise ValueError("replaces-definition is not a SHA-256: write its 64 hexadecimal digits")
    return found


def _change(number: int, item: Any) -> DefinitionChange:
    if not isinstance(item, dict):
        raise ValueError(f"change {number} is not an object: write one with an action")
    action = item.get("action")
    read = _READ.get(action) if isinstance(action, str) else None
    if read is None:
        raise ValueError(f"change {number}: action {action!r:.60} is unknown: write one of {', '.join(_READ)}")
    try:
        return read(item)
    except KeyError as error:
        raise ValueError(f"change {number}, {action}: {error} is missing: add it") from error
    except (ValueError, TypeError) as error:
        raise ValueError(f"change {number}, {action}: {error}") from error


def _id(value: object) -> int:
    if type(value) is not int or not LAST_ADDED <= value < 2**31:
        raise ValueError(f"{value!r:.40} is not an id: write a whole number")
    return value


def _texts(values: object) -> tuple[str, ...]:
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ValueError("removals is not a list of names: write one")
    return tuple(values)


def _properties(values: object) -> Mapping[str, str]:
    if not isinstance(values, dict) or not all(isinstance(value, str) for value in values.values()):
        raise ValueError("updates must map names to strings: write each value as a string")
    return values


def _ids(values: object) -> tuple[int, ...]:
    if not isinstance(values, list):
        raise ValueError("it has no list of ids: add one")
    return tuple(_id(value) for value in values)


def _fields(body: Mapping[str, Any], what: str) -> list[Mapping[str, Any]]:
    if not isinstance(body, dict):
        raise ValueError(f"{what} must be an object with `fields`: write one")
    fields = body["fields"]
    if not isinstance(fields, list) or not all(isinstance(field, dict) for field in fields):
        raise ValueError(f"the fields of {what} are not a list of objects: write one")
    return fields


def _sources(field: Mapping[str, Any]) -> tuple[int, ...]:
    sources = field.get("source-ids") or [field["source-id"]]
    if not isinstance(sources, list):
        raise ValueError(f"source-ids {sources!r:.40} are not a list: write one")
    return tuple(_id(source) for source in sources)


def _text(field: Mapping[str, Any], name: str) -> str:
    value = field[name]
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name} {value!r:.60} is not a string, or is empty: write one")
    return value


def _partition_field(field: Mapping[str, Any]) -> PartitionField:
    field_id = field.get("field-id")
    return PartitionField(
        _sources(field),
        _text(field, "transform"),
        _text(field, "name"),
        None if field_id is None else _id(field_id),
    )


def _sort_field(field: Mapping[str, Any]) -> SortField:
    sources = _sources(field)
    if len(sources) != 1:
        raise ValueError(f"source-ids {list(sources)}: a sort field has one column: name one")
    return SortField(sources[0], *(_text(field, name) for name in ("transform", "direction", "null-order")))


_READ: Final[Mapping[str, Callable[[Mapping[str, Any]], DefinitionChange]]] = {
    "add-schema": lambda item: AddSchema(given_schema_of_json(item["schema"])),
    "set-current-schema": lambda item: SetCurrentSchema(_id(item["schema-id"])),
    "add-spec": lambda item: AddSpec(tuple(map(_partition_field, _fields(item["spec"], "spec")))),
    "set-default-spec": lambda item: SetDefaultSpec(_id(item["spec-id"])),
    "add-sort-order": lambda item: AddSortOrder(tuple(map(_sort_field, _fields(item["sort-order"], "sort-order")))),
    "set-default-sort-order": lambda item: SetDefaultSortOrder(_id(item["sort-order-id"])),
    "remove-schemas": lambda item: RemoveSchemas(_ids(item["schema-ids"])),
    "remove-partition-specs": lambda item: RemoveSpecs(_ids(item["spec-ids"])),
    "set-properties": lambda item: SetProperties(_properties(item["updates"])),
    "remove-properties": lambda item: RemoveProperties(_texts(item["removals"])),
}


def _json_of(change: DefinitionChange) -> dict[str, Any]:
    match change:
        case AddSchema(schema):
            return {"action": "add-schema", "schema": json.loads(schema.model_dump_json())}
        case SetCurrentSchema(schema_id):
            return {"action": "set-current-schema", "schema-id": schema_id}
        case AddSpec(fields):
            return {"action": "add-spec", "spec": {"fields": [_json_of_field(field) for field in fields]}}
        case SetDefaultSpec(spec_id):
            return {"action": "set-default-spec", "spec-id": spec_id}
        case AddSortOrder(fields):
            return {"action": "add-sort-order", "sort-order": {"fields": [sort_field_json(each) for each in fields]}}
        case SetDefaultSortOrder(order_id):
            return {"action": "set-default-sort-order", "sort-order-id": order_id}
        case RemoveSchemas(schema_ids):
            return {"action": "remove-schemas", "schema-ids": list(schema_ids)}
        case RemoveSpecs(spec_ids):
            return {"action": "remove-partition-specs", "spec-ids": list(spec_ids)}
        case SetProperties(updates):
            return {"action": "set-properties", "updates": dict(updates)}
        case RemoveProperties(removals):
            return {"action": "remove-properties", "removals": list(removals)}


def _json_of_field(field: PartitionField) -> dict[str, Any]:
    sources = {"source-id": field.source_ids[0]} if len(field.source_ids) == 1 else {"source-ids": [*field.source_ids]}
    own = {} if field.field_id is None else {"field-id": field.field_id}
    return {**sources, **own, "transform": field.transform, "name": field.name}


def schema_changes(schema: Schema) -> Sequence[DefinitionChange]:
    """The changes that make `schema` the current one."""
    return AddSchema(schema), SetCurrentSchema(LAST_ADDED)


def spec_changes(fields: Sequence[PartitionField]) -> Sequence[DefinitionChange]:
    """The changes that make a spec of `fields` the default."""
    return AddSpec(tuple(fields)), SetDefaultSpec(LAST_ADDED)


def order_changes(fields: Sequence[SortField]) -> Sequence[DefinitionChange]:
    """The changes that make a sort order of `fields` the default, or unsorted without fields."""
    return AddSortOrder(tuple(fields)), SetDefaultSortOrder(LAST_ADDED)
