"""Changes that an engine planned on an export, as changes of the table itself.

Owns: the parts of a definition that an export omits or numbers differently, restated in the planned changes. Does not
own: the export (`exported_definition`), applying changes (`rootline.tree.evolution`).
Invariants: an engine changes nothing that it cannot see. Changes of a definition that is exported whole do not change.

Theory. An engine sends whole schemas and specs. It made them from an export, which omits what engines cannot read:
defaults in V2, and partition fields with transforms or types that only Rootline has. Applied unchanged, they would drop
these parts. An engine also reuses schemas and specs by their exported ids. A spec without one of its fields has another
id there, and a schema from before a replace cannot become the current one. So reused ones are added by their content,
and the table finds an equal one if it has one (decision 0131).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from rootline.catalog.exported_definition import DEFAULTS, ExportedDefinition
from rootline.schemas.table_definition import schema_of_json
from rootline.tree.evolution.changes import (
    LAST_ADDED,
    AddSchema,
    AddSpec,
    DefinitionChange,
    DefinitionChanges,
    PartitionField,
    SetCurrentSchema,
    SetDefaultSpec,
    schema_changes,
    spec_changes,
)
from rootline.tree.evolution.specs_and_orders import derivation_of, partition_field_names

_Defaults = Mapping[int, Mapping[str, Any]]


def own_changes(planned: DefinitionChanges, exported: ExportedDefinition) -> DefinitionChanges:
    """The changes of a table that an engine means by `planned`, which it made from the export `exported`.

    Raises:
        Invalid: `schema-unknown`, `spec-unknown`: it names a schema or a spec that no export of the table has.
    """
    plan = _Plan(exported)
    return replace(planned, changes=tuple(own for change in planned.changes for own in plan.own(change)))


@dataclass(frozen=True)
class _Plan:
    """An engine's view of a table."""

    exported: ExportedDefinition

    def own(self, change: DefinitionChange) -> Iterator[DefinitionChange]:
        """Restate one change."""
        match change:
            case AddSchema(schema) if self._omitted_defaults:
                yield self._with_defaults(json.loads(schema.model_dump_json()))
            case SetCurrentSchema(schema_id) if schema_id != LAST_ADDED:
                yield from self._reused_schema(schema_id)
            case AddSpec(fields):
                yield AddSpec(self._with_hidden(fields))
            case SetDefaultSpec(spec_id) if spec_id != LAST_ADDED:
                yield from self._reused_spec(spec_id)
            case _:
                yield change

    def _reused_schema(self, schema_id: int) -> Iterator[DefinitionChange]:
        definition = self.exported.definition
        schema = definition.schema_by_id(schema_id)
        if self._omitted_defaults:
            yield self._with_defaults(self.exported.stated_schema(schema))
            yield SetCurrentSchema(LAST_ADDED)
        elif schema_id < definition.oldest_schema_id:
            yield from schema_changes(schema)
        else:
            yield SetCurrentSchema(schema_id)

    def _reused_spec(self, spec_id: int) -> Iterator[DefinitionChange]:
        fields = self.exported.stated_fields(spec_id)
        own = {spec.spec_id: len(spec.expr_ids) for spec in self.exported.definition.partition_specs}
        if own.get(spec_id) == len(fields) and not self._hidden:
            yield SetDefaultSpec(spec_id)
        else:
            planned = [PartitionField((field.source_id,), field.transform, field.name) for field in fields]
            yield from spec_changes(self._with_hidden(tuple(planned)))

    @cached_property
    def _omitted_defaults(self) -> _Defaults:
        """Column id → its defaults that the export omits."""
        schema = self.exported.definition.schema
        own, stated = (
            _defaults_in(json.loads(schema.model_dump_json())),
            _defaults_in(self.exported.stated_schema(schema)),
        )
        return {field_id: found for field_id, found in own.items() if found and not stated[field_id]}

    def _with_defaults(self, body: dict[str, Any]) -> AddSchema:
        return AddSchema(schema_of_json(_restored(body, self._omitted_defaults)))

    @cached_property
    def _hidden(self) -> Mapping[int, PartitionField]:
        """Place → partition field, of the members of the default spec that the export omits."""
        definition = self.exported.definition
        spec = definition.spec_by_id(definition.default_spec_id)
        shown = {field.tracked_id for field in self.exported.fields(spec.spec_id)}
        names = partition_field_names(definition, spec)
        found = {
            place: PartitionField(*derivation_of(definition, member), names[place])
            for place, member in enumerate(spec.expr_ids)
            if member not in shown
        }
        there = definition.schema.field_ids
        return {place: field for place, field in found.items() if there.issuperset(field.source_ids)}

    def _with_hidden(self, fields: tuple[PartitionField, ...]) -> tuple[PartitionField, ...]:
        """The fields of a planned spec and the hidden ones, which keep their places."""
        found, planned = list(fields), {(field.source_ids, field.transform) for field in fields}
        for place, field in self._hidden.items():
            if (field.source_ids, field.transform) not in planned:
                found.insert(place, field)
        return tuple(found)


def _defaults_in(body: Any) -> _Defaults:
    """Column id → its defaults in the JSON of a schema."""
    found: dict[int, Mapping[str, Any]] = {}
    if isinstance(body, dict):
        if "id" in body:
            found[body["id"]] = {key: body[key] for key in DEFAULTS if body.get(key) is not None}
        parts = list(body.values())
    else:
        parts = body if isinstance(body, list) else []
    for part in parts:
        found |= _defaults_in(part)
    return found


def _restored(body: Any, omitted: _Defaults) -> Any:
    """The JSON of a schema with the omitted defaults of its columns, unless it states others."""
    if isinstance(body, list):
        return [_restored(item, omitted) for item in body]
    if not isinstance(body, dict):
        return body
    stated = {key: _restored(value, omitted) for key, value in body.items() if value is not None}
    return {**omitted.get(body.get("id", 0), {}), **stated}
