"""What changes make of a definition.

Owns: ids of what comes, and what a definition remembers of its past. Does not own: which steps are legal
(`evolution_rules`), where the definition is stored.
Invariants: pure; schemas are added and never changed or removed; last ids never fall; a definition that comes out has
passed every rule, of a definition by itself and of the step.

Source: docs/format.md, "Table definition"; the table specification, "Schema Evolution".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pyiceberg.schema import Schema

from rootline.schemas.errors import Invalid
from rootline.schemas.table_definition import PastLayout, TableDefinition
from rootline.tree.evolution.changes import (
    LAST_ADDED,
    AddSchema,
    DefinitionChange,
    DefinitionChanges,
    RemoveProperties,
    SetCurrentSchema,
    SetProperties,
)
from rootline.tree.evolution.evolution_rules import check_evolution
from rootline.tree.proof.definition_rules import check_definition


def evolved(before: TableDefinition, changes: DefinitionChanges) -> TableDefinition:
    """The definition after all of `changes`; `before` itself when they change nothing.

    Raises:
        Invalid: `definition-invalid`, `column-untracked` or `evolution-illegal`, naming what is wrong.

    """
    after, added = before, None
    for change in changes.changes:
        after, added = _after(after, change, added)
    if after == before:
        return before
    layout = PastLayout(len(before.schemas), before.current_schema_id, len(before.expressions))
    if after.tracked_fields != before.tracked_fields and layout not in before.past_layouts:
        after = replace(after, past_layouts=(*before.past_layouts, layout))
    check_definition(after)
    check_evolution(before, after)
    return after


def _after(
    definition: TableDefinition, change: DefinitionChange, added: int | None
) -> tuple[TableDefinition, int | None]:
    """The definition after one change, and the id of the schema that was added last."""
    match change:
        case AddSchema(schema):
            known = _found_again(definition, schema)
            if known is not None:
                return definition, known
            schema_id = max(found.schema_id for found in definition.schemas) + 1
            numbered = Schema(*schema.fields, schema_id=schema_id, identifier_field_ids=schema.identifier_field_ids)
            highest = max(definition.last_column_id, numbered.highest_field_id)
            more = replace(definition, schemas=(*definition.schemas, numbered), last_column_id=highest)
            return more, schema_id
        case SetCurrentSchema(schema_id):
            if schema_id == LAST_ADDED:
                if added is None:
                    raise Invalid(
                        "definition-invalid", "definition changes: set-current-schema -1, but no schema was added"
                    )
                return replace(definition, current_schema_id=added), added
            return replace(definition, current_schema_id=schema_id), added
        case SetProperties(updates):
            return _with_properties(definition, {**definition.properties, **updates}), added
        case RemoveProperties(removals):
            gone = frozenset(removals)
            rest = {name: value for name, value in definition.properties.items() if name not in gone}
            return _with_properties(definition, rest), added


def _found_again(definition: TableDefinition, schema: Schema) -> int | None:
    """The id of an equal schema that the table has."""
    wanted = schema.fields, frozenset(schema.identifier_field_ids)
    for known in definition.schemas:
        if (known.fields, frozenset(known.identifier_field_ids)) == wanted:
            return known.schema_id
    return None


def _with_properties(definition: TableDefinition, properties: Mapping[str, str]) -> TableDefinition:
    return definition if properties == definition.properties else replace(definition, properties=properties)
