"""Requirements and updates of a table: the ones that are met, and the changes of a definition that they describe.

Owns: the specification's words for both, the ids of a new table, the updates that are refused and why. Does not own:
reading and publishing (`tables`), the effect of a change (`rootline.tree.evolution`).
Invariants: pure. Every requirement and update is known and well-formed before one of them is used. Ids in a request are
those that clients see, so requirements are checked against the table's exported form. Properties that exports add are
never stored.

Source: the Iceberg REST specification, `TableRequirement` and `TableUpdate`, docs/decisions/0064.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from types import MappingProxyType
from typing import Any, Final

from rootline.catalog.export_keys import FORMAT, HANDED_ON, METADATA_PATH, SNAPSHOTS, FormatVersion
from rootline.catalog.exported_definition import ExportedDefinition
from rootline.catalog.planned_changes import own_changes
from rootline.catalog.rest.responses import bad_request
from rootline.catalog.table_metadata import DEFINITION, DIGEST, GC, TABLE, VERSION
from rootline.maintenance.limits import CLIENT_FILES_PROPERTY, EXPIRE, SWEEP_PROPERTY
from rootline.rest.bodies import AddedSnapshot, TableToCreate, Updates, added_snapshot, check_line
from rootline.rest.refusals import requirement_failed
from rootline.schemas.identifiers import TableName
from rootline.schemas.schema_rules import given_schema_of_json, schema_fault
from rootline.schemas.table_definition import TableDefinition
from rootline.tree.evolution.changes import LAST_ADDED, DefinitionChanges, SetCurrentSchema
from rootline.tree.evolution.next_definition import first_definition
from rootline.tree.proof.definition_rules import check_nesting

Update = Mapping[str, Any]
"""A requirement or an update, as JSON."""
MAIN: Final = "main"
_FORMAT_VERSION: Final = "format-version"
_ADDED: Final = frozenset({GC, METADATA_PATH, TABLE, VERSION, DEFINITION, DIGEST})
"""Properties that every export adds. Clients send them back with a definition that they copied from an export, and with
it those in `HANDED_ON`."""
_SNAPSHOTS: Final = "100"
"""The number of snapshots in exports of a new table. A client's check fails if its query began before the oldest."""
_RESERVED: Final = frozenset(
    {
        "uuid",
        "snapshot-count",
        "current-snapshot-id",
        "current-snapshot-summary",
        "current-snapshot-timestamp-ms",
        "current-schema",
        "default-partition-spec",
        "default-sort-order",
    }
)
"""Iceberg's names for facts about a table. No table has a property of such a name."""
_NUMBERED: Final[Mapping[str, tuple[str, str, str]]] = MappingProxyType(
    {
        "assert-last-assigned-field-id": ("last-assigned-field-id", "last-column-id", "last assigned field id"),
        "assert-current-schema-id": ("current-schema-id", "current-schema-id", "current schema"),
        "assert-last-assigned-partition-id": (
            "last-assigned-partition-id",
            "last-partition-id",
            "last assigned partition id",
        ),
        "assert-default-spec-id": ("default-spec-id", "default-spec-id", "default partition spec"),
        "assert-default-sort-order-id": ("default-sort-order-id", "default-sort-order-id", "default sort order"),
    }
)
"""Requirement → its member, the member of the metadata that must be equal, and Iceberg's words for it."""
_CREATE: Final = "assert-create"
_UUID: Final = "assert-table-uuid"
_REF: Final = "assert-ref-snapshot-id"
_DEFINING: Final = frozenset(
    {
        "add-schema",
        "set-current-schema",
        "add-spec",
        "set-default-spec",
        "add-sort-order",
        "set-default-sort-order",
        "set-properties",
        "remove-properties",
    }
)
_SELECTING: Final[Mapping[str, tuple[str, str, str, str, str]]] = MappingProxyType(
    {
        "set-current-schema": ("schema-id", "add-schema", "schema", "schema-id", "schemas"),
        "set-default-spec": ("spec-id", "add-spec", "spec", "spec-id", "partition-specs"),
        "set-default-sort-order": ("sort-order-id", "add-sort-order", "sort-order", "order-id", "sort-orders"),
    }
)
"""Update that selects a part → its member, the update that adds such a part, the part's member there, the part's id,
and the member of the metadata that lists all of them."""
_PROPERTIES: Final = ("set-properties", "remove-properties")
_NO_STATISTICS: Final = "Rootline keeps statistics with its files, so it stores no statistics files: omit it"
_NO_KEYS: Final = "files of Rootline's tables are not encrypted: omit it"
_REFUSED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "remove-snapshots": "Rootline expires old versions automatically: set rootline.expire.* instead",
        "remove-schemas": "kept versions may need every schema that the table had: omit it",
        "remove-partition-specs": "kept versions may need every partition spec that the table had: omit it",
        "set-statistics": _NO_STATISTICS,
        "remove-statistics": _NO_STATISTICS,
        "set-partition-statistics": _NO_STATISTICS,
        "remove-partition-statistics": _NO_STATISTICS,
        "add-encryption-key": _NO_KEYS,
        "remove-encryption-key": _NO_KEYS,
        "enable-row-lineage": "every table of format 3 has row lineage: omit it",
    }
)
"""Updates of the specification that no table accepts, each with the reason."""


@dataclass(frozen=True, slots=True)
class ShownTable:
    """A table in the form that clients see. `location` is its absolute folder."""

    table: TableName
    definition: TableDefinition
    format_version: FormatVersion
    location: str

    @property
    def exported(self) -> ExportedDefinition:
        """Its definition in the form for clients. Raises `Invalid` (`export-unsupported`)."""
        return ExportedDefinition.of(self.definition, self.format_version)


@dataclass(frozen=True, slots=True)
class TableCommit:
    """A checked request to commit. `definitions` are its updates of the definition, in their order.

    `is_create`: the table must not exist. `is_replace`: the table's rows are removed. `snapshots`: what the client
    made, in order, each on the one before. `main`: the snapshot that the branch is set to, the last of them. `refused`:
    why an update about rows is refused, once the requirements are met.
    """

    requirements: tuple[Update, ...]
    definitions: tuple[Update, ...]
    is_create: bool
    is_replace: bool
    table_uuid: uuid.UUID | None
    locations: tuple[str, ...]
    format_version: int | None
    snapshots: tuple[AddedSnapshot, ...] = ()
    main: int | None = None
    refused: str | None = None

    @property
    def needs_refs(self) -> bool:
        """Whether a requirement names a branch or tag that must not have moved."""
        return not self.snapshots and any(each["type"] == _REF for each in self.requirements)

    @property
    def base(self) -> int | None:
        """The snapshot on which the client made its own, or `None` if it saw none.

        The client requires that `main` is there. If it requires nothing, it is the parent of its first snapshot.
        """
        named = [each.get("snapshot-id") for each in self.requirements if each["type"] == _REF and each["ref"] == MAIN]
        found: int | None = named[-1] if named else self.snapshots[0].parent_snapshot_id
        return found

    @property
    def _needs_definition(self) -> bool:
        """Whether it is only right for the definition that it was checked against."""
        named = {each["type"] for each in self.requirements} | {each["action"] for each in self.definitions}
        return self.format_version is not None or not named <= {_CREATE, _UUID, _REF, *_PROPERTIES}

    @property
    def may_replace(self) -> bool:
        """Whether the request replaces a table without snapshots.

        Iceberg then has no snapshot to remove. Unlike a change of the columns, a replace does not require the schema
        that was current.
        """
        kinds, actions = {each["type"] for each in self.requirements}, {each["action"] for each in self.definitions}
        return {"add-schema", "set-current-schema"} <= actions and "assert-current-schema-id" not in kinds

    def check_requirements(self, shown: ShownTable, refs: Mapping[str, int]) -> None:
        """Check the requirements against the table's newest version. `refs`: branch or tag → snapshot id.

        Raises:
            Refusal: one is not met.
        """
        stated = shown.exported.metadata()
        for each in self.requirements:
            kind = each["type"]
            if kind == _UUID and each["uuid"].lower() != str(shown.definition.table_uuid):
                raise requirement_failed(
                    f"UUID does not match: expected {shown.definition.table_uuid} != {each['uuid']}"
                )
            if kind == _REF and not self.snapshots:
                _check_ref(each, refs)
            if kind in _NUMBERED:
                member, of_metadata, words = _NUMBERED[kind]
                if each[member] != stated[of_metadata]:
                    raise requirement_failed(f"{words} changed: expected id {each[member]} != {stated[of_metadata]}")

    def check_served(self) -> None:
        """Raise `Refusal` if an update is about rows that the catalog does not take."""
        if self.refused is not None:
            raise bad_request(self.refused)

    def changes_of(self, shown: ShownTable, digest: bytes, *, is_replace: bool) -> DefinitionChanges | None:
        """The changes of the table's definition, whose SHA-256 is `digest`. `None` if the request names no change.

        Rows that require a definition have a change without effect, because it names the definition. `is_replace`:
        whether all rows are removed with the changes.

        Raises:
            Refusal: the uuid, the location or the format is not the table's.
            Invalid: `definition-invalid`, naming the part that cannot be read.
        """
        table = shown.table
        if self.table_uuid not in (None, shown.definition.table_uuid):
            raise bad_request(f"{table}: assign-uuid {self.table_uuid}: a table's uuid cannot change; omit it")
        if not is_replace:  # like a create, it may name a location, and stays in the catalog's
            self.check_location(table, shown.location)
        made = _naming_added(self.definitions, shown)
        wanted = self.format_version or shown.format_version
        if wanted < shown.format_version:
            raise bad_request(
                f"{table}: cannot downgrade v{int(shown.format_version)} table to v{wanted}; "
                f"set the table property {FORMAT} to choose how it is shown"
            )
        if wanted > shown.format_version:
            made.append({"action": "set-properties", "updates": {FORMAT: str(int(wanted))}})
        changes = parsed_changes(_without_handed_on(made, shown.definition.properties))
        if changes is None:
            kept = SetCurrentSchema(shown.definition.current_schema_id)
            return DefinitionChanges(digest, (kept,)) if self.snapshots and self._needs_definition else None
        planned = DefinitionChanges(digest if self._needs_definition else None, changes.changes)
        return planned if is_replace else own_changes(planned, shown.exported)

    def check_location(self, table: TableName, location: str) -> None:
        """Check that no update moves the table away from `location`. Raises `Refusal`."""
        for each in self.locations:
            if each.rstrip("/") != location:
                raise bad_request(
                    f"{table}: set-location {each[:200]!r}: a table is always in the catalog's own folder for it, "
                    f"{location}; omit the location"
                )

    def check_uuid(self, table: TableName) -> None:
        """Raise `Refusal` unless the assigned uuid, if there is one, was given to this table when it was staged."""
        if self.table_uuid is not None and self.table_uuid != bound_uuid(self.table_uuid, table):
            raise bad_request(
                f"{table}: assign-uuid {self.table_uuid}: no catalog of this lake gave it to {table}, so another table "
                "may have it; stage the create first, or omit the uuid"
            )

    def first_definition(self, fresh: uuid.UUID, shown_by_default: FormatVersion) -> TableDefinition:
        """The definition of the table that is created. `fresh` is its uuid unless the request assigns one.

        `shown_by_default`: the format that the client was shown if no property names one.

        Raises:
            Refusal: there is no schema.
            Invalid: the definition is invalid.
        """
        made = list(self.definitions)
        updates = [each["updates"] for each in made if isinstance(each.get("updates"), dict)]
        named = [each[FORMAT] for each in updates if FORMAT in each] or [str(int(shown_by_default))]
        if self.format_version is not None and str(self.format_version) != named[-1]:
            made.append({"action": "set-properties", "updates": {FORMAT: str(self.format_version)}})
        return new_definition(self.table_uuid or fresh, made)


def parsed_commit(table: TableName, asked: Updates) -> TableCommit:
    """A request to commit, checked as far as possible without the table. Raises `Refusal`, which names the fault."""
    for each in asked.requirements:
        _check_requirement(table, each)
    kinds = [each["type"] for each in asked.requirements]
    if _CREATE in kinds and len(kinds) > 1:
        raise bad_request(f"{table}: assert-create needs that there is no table, so no other requirement can be met")
    definitions: list[Update] = []
    locations: list[str] = []
    snapshots: list[AddedSnapshot] = []
    table_uuid, format_version, is_replace, main = None, None, False, None
    for each in asked.updates:
        action = each.get("action")
        match action:
            case "assign-uuid":
                table_uuid = _uuid_of(table, action, each)
            case "set-location":
                locations.append(_text_of(table, action, each, "location"))
            case "upgrade-format-version":
                format_version = _format_of(table, each.get("format-version"))
            case "remove-snapshot-ref":
                if each.get("ref-name") != MAIN:
                    raise bad_request(
                        f"{table}: remove-snapshot-ref: this catalog changes no tag; use rootline.connect"
                    )
                is_replace = True
            case "add-snapshot":
                snapshots.append(added_snapshot(table, each))
            case "set-snapshot-ref":
                main = _main_of(table, each)
            case str() if action in _DEFINING:
                definitions.append(_cleaned(table, action, each))
            case str() if action in _REFUSED:
                raise bad_request(f"{table}: update {action} is refused: {_REFUSED[action]}")
            case _:
                raise bad_request(f"{table}: update {action!r:.60} is unknown: correct it, or omit it")
    check_line(table, snapshots, main)
    tag = next((each["ref"] for each in asked.requirements if each["type"] == _REF and each["ref"] != MAIN), None)
    if snapshots and tag is not None:  # no intent could require it, so another catalog could still commit the rows
        raise bad_request(f"{table}: rows are added to {MAIN}, and {tag!r:.60} is required: omit the requirement")
    return TableCommit(
        requirements=asked.requirements,
        definitions=tuple(definitions),
        is_create=_CREATE in kinds,
        is_replace=is_replace,
        table_uuid=table_uuid,
        locations=tuple(locations),
        format_version=format_version,
        snapshots=tuple(snapshots),
        main=main,
        refused=replacing_with_rows(table) if is_replace and snapshots else None,
    )


def replacing_with_rows(table: TableName) -> str:
    """The words that refuse a request that replaces a table and adds rows."""
    return (
        f"{table}: replacing a table together with its rows is not taken yet: replace it first, and append the rows in "
        "a second commit"
    )


def _main_of(table: TableName, update: Update) -> int:
    """The snapshot that `main` is set to."""
    if update.get("ref-name") != MAIN or update.get("type", "branch") != "branch":
        raise bad_request(
            f"{table}: set-snapshot-ref {update.get('ref-name')!r:.60}: this catalog sets no branch or tag but {MAIN}: "
            "use rootline.connect to tag a version"
        )
    wanted = update.get("snapshot-id")
    if type(wanted) is not int:
        raise bad_request(f"{table}: set-snapshot-ref: snapshot-id is {wanted!r:.40}: write a whole number")
    return wanted


def parsed_changes(updates: Sequence[Update]) -> DefinitionChanges | None:
    """The changes in the updates of a definition, or `None` without any. Raises `Invalid` (`definition-invalid`)."""
    return DefinitionChanges.from_json(json.dumps({"changes": updates})) if updates else None


def updates_of(table: TableName, asked: TableToCreate) -> list[Update]:
    """The updates that create a table, with fresh ids. Columns keep their order, and ids begin at 1.

    Raises:
        Refusal: the schema, spec or order cannot be read.
        Invalid: `definition-invalid`, the schema is nested too deeply.
    """
    schema, became = _with_fresh_ids(table, asked.schema_)
    made: list[Update] = [
        {"action": "add-schema", "schema": schema},
        {"action": "set-current-schema", "schema-id": LAST_ADDED},
    ]
    if asked.partition_spec is not None:
        fields = [
            _renumbered(table, field, became) for field in _fields_of(table, "partition-spec", asked.partition_spec)
        ]
        made += (
            {"action": "add-spec", "spec": {"fields": fields}},
            {"action": "set-default-spec", "spec-id": LAST_ADDED},
        )
    if asked.write_order is not None:
        fields = [_renumbered(table, field, became) for field in _fields_of(table, "write-order", asked.write_order)]
        made += (
            {"action": "add-sort-order", "sort-order": {"fields": fields}},
            {"action": "set-default-sort-order", "sort-order-id": LAST_ADDED},
        )
    return [*made, _cleaned(table, "set-properties", {"updates": dict(asked.properties)})]


def new_definition(table_uuid: uuid.UUID, updates: Sequence[Update]) -> TableDefinition:
    """The definition of a new table. Its old versions expire and unused objects are deleted, clients' files too,
    unless its properties state otherwise.

    Raises:
        Refusal: there is no schema.
        Invalid: the definition is invalid.
    """
    if all(each["action"] != "add-schema" for each in updates):
        raise bad_request("a new table needs a schema: send add-schema and set-current-schema with assert-create")
    switches = dict.fromkeys((EXPIRE, SWEEP_PROPERTY, CLIENT_FILES_PROPERTY), "true")
    first = {"action": "set-properties", "updates": {**switches, SNAPSHOTS: _SNAPSHOTS}}
    changes = parsed_changes([first, *_without_handed_on(updates, {})])
    assert changes is not None, "there is a schema"
    return first_definition(table_uuid, changes)


def bound_uuid(drawn: uuid.UUID, table: TableName) -> uuid.UUID:
    """The UUID for a staged table: the first half of `drawn`, and a digest of that half and the table's name.

    It is its own result, so a commit under another name cannot assign it (docs/decisions/0139).
    """
    first = uuid.UUID(bytes=drawn.bytes, version=4).bytes[:8]
    return uuid.UUID(bytes=first + sha256(first + table.encode()).digest()[:8], version=4)


def _without_handed_on(updates: Iterable[Update], properties: Mapping[str, str]) -> list[Update]:
    """The updates without properties that a client copied from an export, and that the table itself does not have."""

    def is_copied(name: str, text: object) -> bool:
        return name not in properties and HANDED_ON.get(name) == text

    found: list[Update] = []
    for each in updates:
        if isinstance(stated := each.get("updates"), dict):
            each = {**each, "updates": {name: text for name, text in stated.items() if not is_copied(name, text)}}
        found.append(each)
    return found


def _naming_added(updates: Iterable[Update], shown: ShownTable) -> list[Update]:
    """The updates, where `LAST_ADDED` replaces the id that a client gave to what it added last.

    DuckDB selects an added schema or spec by this id. An id that the table has already means what the table has.
    """
    found: list[Update] = []
    given: dict[str, object] = {}
    stated = shown.exported.metadata()
    for each in updates:
        action = each["action"]
        if action in _SELECTING:
            member, add, _, part_id, listed = _SELECTING[action]
            chosen = each.get(member)
            known = [part[part_id] for part in stated[listed]]
            if add in given and chosen == given[add] and chosen not in known:
                each = {**each, member: LAST_ADDED}
        for _, add, part, part_id, _ in _SELECTING.values():
            if action == add and isinstance(each.get(part), dict):
                given[add] = each[part].get(part_id)
        found.append(each)
    return found


def _check_requirement(table: TableName, each: Update) -> None:
    kind = str(each.get("type"))
    if kind in _NUMBERED:
        member = _NUMBERED[kind][0]
        if type(each.get(member)) is not int:
            raise bad_request(
                f"{table}: requirement {kind}: {member} is {each.get(member)!r:.40}: write a whole number"
            )
    elif kind == _UUID:
        _uuid_of(table, kind, each)
    elif kind == _REF:
        _text_of(table, kind, each, "ref")
        if each.get("snapshot-id") is not None and type(each["snapshot-id"]) is not int:
            raise bad_request(f"{table}: requirement {kind}: snapshot-id is not a whole number or null: write one")
    elif kind != _CREATE:
        raise bad_request(f"{table}: requirement {kind!r:.60} is unknown: correct it, or omit it")


def _check_ref(requirement: Update, refs: Mapping[str, int]) -> None:
    name, wanted, found = requirement["ref"], requirement.get("snapshot-id"), refs.get(requirement["ref"])
    if found == wanted:
        return
    kind = "branch" if name == MAIN else "tag"
    if found is None:
        raise requirement_failed(f"branch or tag {name} is missing, expected {wanted}")
    if wanted is None:
        raise requirement_failed(f"{kind} {name} was created concurrently")
    raise requirement_failed(f"{kind} {name} has changed: expected id {wanted} != {found}")


def _text_of(table: TableName, what: str, body: Update, member: str) -> str:
    text = body.get(member)
    if not isinstance(text, str):
        raise bad_request(f"{table}: {what}: {member} is {text!r:.40}, not a text: write one")
    return text


def _uuid_of(table: TableName, what: str, body: Update) -> uuid.UUID:
    text = _text_of(table, what, body, "uuid")
    try:
        found = uuid.UUID(text)
    except ValueError:
        found = uuid.UUID(int=0)
    if not found.int:
        raise bad_request(f"{table}: {what}: {text[:60]!r} is not the UUID of a table: write one")
    return found


def _format_of(table: TableName, wanted: object) -> int:
    if type(wanted) is not int or wanted not in tuple(FormatVersion):
        raise bad_request(f"{table}: format version {wanted!r:.20} is not supported: use 2 or 3")
    return int(wanted)


def _cleaned(table: TableName, action: str, body: Update) -> Update:
    """An update of a definition, without the properties that exports add, and with the format under its own name."""
    if action == "set-properties" and isinstance(updates := body.get("updates", body.get("updated")), dict):
        reserved = sorted(_RESERVED & updates.keys())
        if reserved:
            raise bad_request(f"{table}: {reserved[0]} is a fact of the table, not a property: omit it")
        if updates.get(GC, "false") != "false":
            raise bad_request(f"{table}: {GC} is always false, because Rootline deletes unused files itself: omit it")
        kept = {name: text for name, text in updates.items() if name not in (*_ADDED, _FORMAT_VERSION)}
        if (wanted := updates.get(_FORMAT_VERSION)) is not None:
            kept[FORMAT] = str(_format_of(table, int(wanted) if wanted in ("1", "2", "3", "4") else wanted))
        return {"action": action, "updates": kept}
    if action == "remove-properties" and isinstance(names := body.get("removals", body.get("removed")), list):
        return {"action": action, "removals": names}
    return {**body, "action": action}


def _with_fresh_ids(table: TableName, body: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[int, int]]:
    """A new table's schema with the ids that Iceberg gives to it, and the new id of each given one.

    The fields of one struct get their ids before the fields inside them.
    """
    check_nesting(json.dumps(body))
    try:
        schema = given_schema_of_json(body)
        fault = schema_fault(schema, least_id=0)
    except ValueError as error:
        fault = str(error)
    if fault is not None:
        raise bad_request(f"{table}: schema: {fault}"[:600])
    became: dict[int, int] = {}
    fresh = _fresh(json.loads(schema.model_dump_json()), became)
    identifiers = [became[each] for each in schema.identifier_field_ids if each in became]
    return {**fresh, "schema-id": 0, "identifier-field-ids": identifiers}, became


def _fresh(of_type: Any, became: dict[int, int]) -> Any:
    def numbered(given: int) -> int:
        became[given] = len(became) + 1
        return became[given]

    match of_type:
        case {"type": "struct", "fields": fields}:
            own = [numbered(each["id"]) for each in fields]
            made = [
                {**each, "id": field_id, "type": _fresh(each["type"], became)}
                for field_id, each in zip(own, fields, strict=True)
            ]
            return {**of_type, "fields": made}
        case {"type": "list", "element": element}:
            return {**of_type, "element-id": numbered(of_type["element-id"]), "element": _fresh(element, became)}
        case {"type": "map", "key": key, "value": value}:
            ids = {"key-id": numbered(of_type["key-id"]), "value-id": numbered(of_type["value-id"])}
            return {**of_type, **ids, "key": _fresh(key, became), "value": _fresh(value, became)}
    return of_type


def _fields_of(table: TableName, what: str, body: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    fields = body.get("fields", [])
    if not isinstance(fields, list) or not all(isinstance(each, dict) for each in fields):
        raise bad_request(f"{table}: {what}: fields are not a list of objects: write one")
    return fields


def _renumbered(table: TableName, field: Mapping[str, Any], became: Mapping[int, int]) -> Mapping[str, Any]:
    """A field of a spec or order over the fresh ids of its columns. Its field id is assigned later."""
    sources = field.get("source-ids") or [field.get("source-id")]
    if not isinstance(sources, list) or not all(type(each) is int and each in became for each in sources):
        raise bad_request(f"{table}: field {field.get('name')!r:.60}: {sources!r:.60} are not columns of the schema")
    rest = {name: value for name, value in field.items() if name not in ("source-id", "field-id")}
    return {**rest, "source-ids": [became[each] for each in sources]}
