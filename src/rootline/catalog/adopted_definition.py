"""The definition of an Iceberg table of V1 to V3, converted to a table definition of Rootline.

Owns: schemas, specs, sort orders and properties of a table metadata JSON → `TableDefinition`. Does not own: snapshots
and manifests (`adoption_plan`), the source of the JSON, the rules for every definition
(`rootline.tree.proof.definition_rules`).
Invariants: pure. Ids and names of columns, specs and partition fields do not change. An expression's id is above every
id that a column ever had. Parts of the metadata that a definition cannot represent are refused by name.

Source: the Iceberg specification, "Table Metadata" and "Partition Evolution", docs/decisions/0038.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pydantic import ValidationError
from pyiceberg.schema import Schema
from pyiceberg.transforms import UnknownTransform

from rootline.catalog.export_keys import HANDED_ON, METADATA_PATH
from rootline.schemas.default_values import unreadable_default
from rootline.schemas.errors import Invalid
from rootline.schemas.table_definition import (
    NAME_MAPPING_PROPERTY,
    Expression,
    PartitionSpec,
    SortField,
    SortOrder,
    TableDefinition,
    first_expression_id,
)
from rootline.schemas.table_properties import ADOPTED_FROM, check_adopted, property_fault
from rootline.tree.proof.definition_rules import check_definition

__all__ = ["ADOPTED_FROM", "AdoptedDefinition", "adopted_definition", "unsupported"]

DEFINITION_BYTES_MAX: Final = 800_000
"""The maximum size of a definition in an intent, which can contain little more than this."""
_VERSION: Final = "rootline.version"
_EXPORTED: Final = "rootline.export-digest"
_OWN_PROPERTIES: Final = frozenset({_VERSION, "rootline.table", "rootline.definition-digest", ADOPTED_FROM, _EXPORTED})
"""Properties in which a Rootline export describes itself. A table adopted from an export does not keep them."""
_UUIDS: Final = uuid.UUID("0c7de9a1-6a55-5a52-8f0c-0d5a6f1f9b3e")
_FIRST_PARTITION_FIELD: Final = 1000
_IDENTITY: Final = "identity"
_VOID: Final = "void"


@dataclass(frozen=True, slots=True)
class AdoptedDefinition:
    """The definition, and `warnings`: sentences about the parts of the metadata that it omits."""

    definition: TableDefinition
    warnings: tuple[str, ...]


def adopted_definition(metadata: Mapping[str, Any], location: str, table: str = "") -> AdoptedDefinition:
    """The definition of the table of `metadata`, which is stored at `location`.

    `table`: its future name, used only if the metadata is a Rootline export.

    Raises:
        Invalid: `adoption-unsupported`, a definition cannot represent a part of it; `metadata-unreadable`, it is not
            table metadata.
    """
    format_version = metadata.get("format-version")
    if format_version not in (1, 2, 3):
        raise unsupported(location, f"its format version is {format_version!r:.20}, and only 1, 2 and 3 are supported")
    if metadata.get("encryption-keys"):
        raise unsupported(location, "its files are encrypted, and this version does not read encrypted files")
    try:
        made = _Reading(metadata, location, table).definition()
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Invalid("metadata-unreadable", f"{location}: this is not table metadata: {error!r:.200}") from error
    try:
        check_definition(made.definition)
        check_adopted(made.definition.properties)
    except Invalid as error:
        raise unsupported(location, error.message.removeprefix("definition: ")) from error
    return made


def unsupported(location: str, reason: str) -> Invalid:
    """The error for a table that cannot be adopted in its current state."""
    return Invalid("adoption-unsupported", f"{location}: the table cannot be adopted: {reason}")


@dataclass
class _Reading:
    metadata: Mapping[str, Any]
    location: str
    table: str
    warnings: list[str] = field(default_factory=list)
    expressions: dict[tuple[int, str, int], Expression] = field(default_factory=dict)
    next_id: int = 0

    def definition(self) -> AdoptedDefinition:
        metadata = self.metadata
        schemas = tuple(self._schemas())
        columns = {column for schema in schemas for column in schema.field_ids}
        last_id = max([metadata["last-column-id"], *columns])
        self.next_id = first_expression_id(columns, last_id)
        specs = tuple(self._spec(body) for body in self._spec_bodies())
        orders = tuple(self._orders(columns))
        default_order = metadata.get("default-sort-order-id", 0)
        known_orders = {order.order_id for order in orders}
        definition = TableDefinition(
            table_uuid=self._uuid(),
            schemas=schemas,
            current_schema_id=metadata.get("current-schema-id", schemas[-1].schema_id),
            expressions=tuple(self.expressions.values()),
            partition_specs=specs,
            default_spec_id=metadata.get("default-spec-id", specs[-1].spec_id),
            sort_orders=orders,
            default_sort_order_id=default_order if default_order in known_orders else 0,
            last_column_id=max(last_id, self.next_id - 1),
            properties=self._properties(),
        )
        return AdoptedDefinition(self._fitting(definition), tuple(self.warnings))

    def _fitting(self, definition: TableDefinition) -> TableDefinition:
        """The definition, without its oldest schemas if it is too long for an intent. Columns in use stay known."""
        size, kept = len(definition.to_json()), list(definition.schemas)
        needed = {member for spec in definition.partition_specs for member in spec.expr_ids}
        needed |= {item.source_id for order in definition.sort_orders for item in order.fields}
        needed -= definition.expressions_by_id.keys()
        needed |= {source for one in definition.expressions for source in one.source_ids}
        for schema in definition.schemas:
            if size <= DEFINITION_BYTES_MAX:
                break
            rest = [one for one in kept if one is not schema]
            known = {column for one in rest for column in one.field_ids}
            if schema.schema_id != definition.current_schema_id and needed <= known:
                kept, size = rest, size - len(schema.model_dump_json())
        left_out = len(definition.schemas) - len(kept)
        if left_out:
            self.warnings.append(
                f"{left_out} older schemas are omitted: with all of them the definition is too long for one intent"
            )
        return replace(definition, schemas=tuple(kept))

    def _uuid(self) -> uuid.UUID:
        """The table's own UUID, so that engines see the same table. In V1 the UUID is optional.

        Snapshot ids are computed from UUID and version, and versions start again at 0. A table that was exported by
        Rootline has such ids in its history already, so it gets another UUID.
        """
        text = self.metadata.get("table-uuid")
        if text is None:
            return uuid.uuid5(_UUIDS, self.location)
        if not self._is_rootline_export():
            return uuid.UUID(text)
        self.warnings.append(
            "it was exported from a Rootline table, so it gets a new uuid: no snapshot id is used twice"
        )
        inputs = json.dumps([text, self.table, self.location, self.metadata], sort_keys=True)
        return uuid.uuid5(_UUIDS, hashlib.sha256(inputs.encode()).hexdigest())

    def _is_rootline_export(self) -> bool:
        """Whether the metadata is an export of a Rootline table, even if other engines have committed to it since."""
        summaries = [snapshot.get("summary") or {} for snapshot in self.metadata.get("snapshots") or ()]
        return _EXPORTED in (self.metadata.get("properties") or {}) or any(_VERSION in summary for summary in summaries)

    def _schemas(self) -> Iterator[Schema]:
        bodies = self.metadata.get("schemas") or [{"schema-id": 0, **self.metadata["schema"]}]
        for body in bodies:
            fault = unreadable_default(body)
            if fault is not None:
                raise unsupported(self.location, f"schema {body.get('schema-id')}: {fault}")
            try:
                yield Schema.model_validate(body)
            except ValidationError as error:
                first = error.errors(include_url=False, include_context=False)[0]
                where = _named(body, first["loc"])
                raise unsupported(self.location, f"schema {body.get('schema-id')}: {where}: {first['msg']}") from error

    def _spec_bodies(self) -> list[dict[str, Any]]:
        bodies = self.metadata.get("partition-specs")
        return bodies or [{"spec-id": 0, "fields": self.metadata.get("partition-spec", [])}]

    def _spec(self, body: Mapping[str, Any]) -> PartitionSpec:
        members, field_ids, names = [], [], []
        for index, item in enumerate(body["fields"]):
            field_id = item.get("field-id", _FIRST_PARTITION_FIELD + index)
            members.append(self._member(body["spec-id"], item, field_id))
            field_ids.append(field_id)
            names.append(item["name"])
        if len(set(members)) != len(members):
            raise unsupported(
                self.location, f"partition spec {body['spec-id']} has the same column and transform twice"
            )
        return PartitionSpec(body["spec-id"], tuple(members), tuple(field_ids), tuple(names))

    def _member(self, spec_id: int, item: Mapping[str, Any], field_id: int) -> int:
        """The id of one partition field's values: the column's id for identity, otherwise the id of an expression."""
        sources, transform = item.get("source-ids") or [item["source-id"]], item["transform"]
        if len(sources) != 1:
            where = f"partition spec {spec_id}: field {item['name']!r}"
            raise unsupported(
                self.location, f"{where} has {len(sources)} columns, and no transform of Iceberg has more than one"
            )
        if transform == _IDENTITY:
            return int(sources[0])
        # In V1 a dropped field stays in its spec as void, so a spec may have several void fields of one column.
        key = (int(sources[0]), transform, field_id if transform == _VOID else 0)
        if key not in self.expressions:
            self.expressions[key] = Expression(self.next_id, (key[0],), transform, item["name"], field_id)
            self.next_id += 1
        return self.expressions[key].expr_id

    def _orders(self, columns: set[int]) -> Iterator[SortOrder]:
        for body in self.metadata.get("sort-orders") or [{"order-id": 0, "fields": []}]:
            fields = []
            for item in body["fields"]:
                sources = item.get("source-ids") or [item["source-id"]]
                fields.append(SortField(sources[0], item["transform"], item["direction"], item["null-order"]))
                if len(sources) != 1 or sources[0] not in columns:
                    self.warnings.append(
                        f"sort order {body['order-id']} is omitted: {sources} is not one column of the table"
                    )
                    break
                if isinstance(fields[-1].parsed, UnknownTransform):
                    self.warnings.append(
                        f"sort order {body['order-id']} is omitted: transform {item['transform']} is unknown"
                    )
                    break
            else:
                yield SortOrder(body["order-id"], tuple(fields))

    def _properties(self) -> dict[str, str]:
        stated = self.metadata.get("properties") or {}
        kept = {key: value for key, value in stated.items() if key not in _OWN_PROPERTIES}
        if _EXPORTED in stated:
            kept.pop(METADATA_PATH, None)
            kept = {key: value for key, value in kept.items() if HANDED_ON.get(key) != value}
        ours = [(key, value) for key, value in kept.items() if key != NAME_MAPPING_PROPERTY]
        unusable = {key: fault for key, value in ours if (fault := property_fault(key, value)) is not None}
        self.warnings += [f"{fault}: it is omitted" for fault in unusable.values()]
        return {key: value for key, value in kept.items() if key not in unusable} | {ADOPTED_FROM: self.location}


def _named(body: Any, path: tuple[int | str, ...]) -> str:
    """The field at `path` in the metadata JSON, as text for a message: the names on the path instead of positions."""
    names: list[str] = []
    for part in path:
        try:
            body = body[part]
        except (KeyError, IndexError, TypeError):
            break
        if isinstance(body, dict) and "name" in body:
            names.append(body["name"])
    return f"column {'.'.join(names)!r}" if names else "it"
