"""Changes of a table definition, as an intent says them.

Owns: the value types, and their JSON. Does not own: what they make of a definition (`evolve`), whether that is legal
(`evolution_rules`).
Invariants: a change names what comes, never the whole definition; the words are those of Iceberg's REST catalog
("UpdateTableRequest", `updates`), so that whoever writes those can write these.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyiceberg.schema import Schema

from rootline.schemas.errors import Invalid
from rootline.schemas.table_definition import schema_of_json
from rootline.tree.proof.definition_rules import check_nesting

LAST_ADDED: Final = -1
"""In place of an id: what the same list of changes added last."""
CHANGES_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class AddSchema:
    """A schema beside those that the table has; an equal one is found again. Its own id is not used."""

    schema: Schema


@dataclass(frozen=True, slots=True)
class SetCurrentSchema:
    """The schema that is current from now on; `LAST_ADDED`: the one that was just added."""

    schema_id: int


@dataclass(frozen=True, slots=True)
class SetProperties:
    """Properties to set, text to text."""

    updates: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class RemoveProperties:
    """Properties to remove; those that are not there are no error."""

    removals: tuple[str, ...]


DefinitionChange = AddSchema | SetCurrentSchema | SetProperties | RemoveProperties


@dataclass(frozen=True, slots=True)
class DefinitionChanges:
    """`replaces`: the SHA-256 of the definition that the changes were made for; `None`: they fit any."""

    replaces: bytes | None
    changes: tuple[DefinitionChange, ...]

    def to_json(self) -> str:
        """As an intent carries them."""
        body: dict[str, Any] = {"changes": [_json_of(change) for change in self.changes]}
        if self.replaces is not None:
            body["replaces-definition"] = self.replaces.hex()
        return json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    @staticmethod
    def from_json(text: str) -> DefinitionChanges:
        """Raises `Invalid` (`definition-invalid`), naming what cannot be read."""
        check_nesting(text)
        try:
            body = json.loads(text)
            if not isinstance(body, dict):
                raise ValueError("it must be an object with `changes`, a list, and `replaces-definition`")
            replaces = body.get("replaces-definition")
            changes = body["changes"]
            if set(body) - {"replaces-definition", "changes"} or not isinstance(changes, list):
                raise ValueError("it must be an object with `changes`, a list, and `replaces-definition`")
            if not 0 < len(changes) <= CHANGES_MAX:
                raise ValueError(f"it has {len(changes)} changes; 1 to {CHANGES_MAX} can be made at once")
            digest = None if replaces is None else _digest(replaces)
            return DefinitionChanges(digest, tuple(_change(number, item) for number, item in enumerate(changes)))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise Invalid("definition-invalid", f"definition changes: {_reason(error)}"[:400]) from error


def _reason(error: Exception) -> str:
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)


def _digest(text: object) -> bytes:
    found = bytes.fromhex(text) if isinstance(text, str) else b""
    if len(found) != 32:
        raise ValueError("replaces-definition is no SHA-256 in 64 hexadecimal digits")
    return found


def _change(number: int, item: Any) -> DefinitionChange:
    if not isinstance(item, dict):
        raise ValueError(f"change {number} is no object")
    action = item.get("action")
    read = _READ.get(action) if isinstance(action, str) else None
    if read is None:
        raise ValueError(f"change {number}: action {action!r:.60} is none of {', '.join(_READ)}")
    try:
        return read(item)
    except KeyError as error:
        raise ValueError(f"change {number}, {action}: {error} is missing") from error
    except (ValueError, TypeError) as error:
        raise ValueError(f"change {number}, {action}: {error}") from error


def _id(value: object) -> int:
    if type(value) is not int or not LAST_ADDED <= value < 2**31:
        raise ValueError(f"{value!r:.40} is no id")
    return value


def _texts(values: object) -> tuple[str, ...]:
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ValueError("removals must be a list of names")
    return tuple(values)


def _properties(values: object) -> Mapping[str, str]:
    if not isinstance(values, dict) or not all(isinstance(value, str) for value in values.values()):
        raise ValueError("updates must map names to texts")
    return values


_READ: Final[Mapping[str, Callable[[Mapping[str, Any]], DefinitionChange]]] = {
    "add-schema": lambda item: AddSchema(schema_of_json(item["schema"])),
    "set-current-schema": lambda item: SetCurrentSchema(_id(item["schema-id"])),
    "set-properties": lambda item: SetProperties(_properties(item["updates"])),
    "remove-properties": lambda item: RemoveProperties(_texts(item["removals"])),
}


def _json_of(change: DefinitionChange) -> dict[str, Any]:
    match change:
        case AddSchema(schema):
            return {"action": "add-schema", "schema": json.loads(schema.model_dump_json())}
        case SetCurrentSchema(schema_id):
            return {"action": "set-current-schema", "schema-id": schema_id}
        case SetProperties(updates):
            return {"action": "set-properties", "updates": dict(updates)}
        case RemoveProperties(removals):
            return {"action": "remove-properties", "removals": list(removals)}


def schema_changes(schema: Schema) -> Sequence[DefinitionChange]:
    """Let `schema` be the current one."""
    return AddSchema(schema), SetCurrentSchema(LAST_ADDED)
