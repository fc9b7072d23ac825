"""Tables are created, changed, registered and dropped through the REST catalog."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from pyiceberg.exceptions import NoSuchTableError, TableAlreadyExistsError
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform
from pyiceberg.types import IntegerType, ListType, LongType, NestedField, StringType, StructType, TimestampType

from rootline.rest.bodies import Body, Updates, ViewUpdates
from tests.catalog.pyiceberg_catalog import catalog_at
from tests.rest.writing_catalog import COLUMNS, SCHEMA, WritingCatalog, problem

BY_DAY = {"spec-id": 9, "fields": [{"source-id": 3, "field-id": 1009, "transform": "day", "name": "day_of"}]}
BY_ID = {
    "order-id": 4,
    "fields": [{"source-id": 7, "transform": "identity", "direction": "desc", "null-order": "nulls-last"}],
}


def test_a_created_table_has_fresh_ids_and_is_answered_as_a_load_answers(catalog: WritingCatalog) -> None:
    answer = catalog.create(
        "demo",
        name="fresh",
        schema=SCHEMA,
        **{"partition-spec": BY_DAY, "write-order": BY_ID},
        location="s3://elsewhere/x",
    )
    assert answer.status_code == 200
    assert answer.json() == catalog.client.get("/namespaces/demo/tables/fresh").json()
    metadata = answer.json()["metadata"]
    assert [(each["id"], each["name"], each["required"]) for each in metadata["schemas"][0]["fields"]] == [
        (1, "id", True),
        (2, "ts", False),
    ]
    assert metadata["current-schema-id"] == 0
    assert metadata["default-spec-id"] == 0
    [field] = metadata["partition-specs"][0]["fields"]
    assert field == {"source-id": 2, "field-id": 1000, "transform": "day", "name": "day_of"}
    assert metadata["default-sort-order-id"] == 1
    assert metadata["sort-orders"][1]["fields"][0]["source-id"] == 1
    assert metadata["location"].endswith("/demo/fresh")
    assert catalog.lake.table("demo.fresh").scan().to_arrow().num_rows == 0


def test_fields_of_one_struct_get_their_ids_before_the_fields_inside_them(catalog: WritingCatalog) -> None:
    inner = {"type": "struct", "fields": [{"id": 30, "name": "x", "type": "int", "required": False}]}
    given = {"type": "list", "element-id": 20, "element": inner, "element-required": False}
    of_map = {"type": "map", "key-id": 41, "key": "string", "value-id": 42, "value": "int", "value-required": False}
    fields = [
        {"id": 10, "name": "a", "type": given, "required": False},
        {"id": 11, "name": "b", "type": of_map, "required": False},
        {"id": 12, "name": "c", "type": "int", "required": True, "doc": "kept", "write-default": 3},
    ]
    schema = {"type": "struct", "fields": fields, "identifier-field-ids": [12]}
    [stored] = catalog.create("demo", name="nested", schema=schema).json()["metadata"]["schemas"]
    a, b, c = stored["fields"]
    assert [a["id"], b["id"], c["id"]] == [1, 2, 3]
    assert (a["type"]["element-id"], a["type"]["element"]["fields"][0]["id"]) == (4, 5)
    assert (b["type"]["key-id"], b["type"]["value-id"]) == (6, 7)
    assert (c["doc"], c["write-default"], stored["identifier-field-ids"]) == ("kept", 3, [3])


def test_a_table_of_format_2_is_shown_in_it(catalog: WritingCatalog) -> None:
    answer = catalog.create("demo", name="two", schema=SCHEMA, properties={"format-version": "2"})
    metadata = answer.json()["metadata"]
    assert metadata["format-version"] == 2
    assert "format-version" not in metadata["properties"]
    assert metadata["properties"]["rootline.export.format"] == "2"
    upgraded = catalog.commit("demo.two", [{"action": "upgrade-format-version", "format-version": 3}])
    assert upgraded.json()["metadata"]["format-version"] == 3
    lowered = catalog.commit("demo.two", [{"action": "upgrade-format-version", "format-version": 2}])
    assert problem(lowered) == (
        400,
        "demo.two: cannot downgrade v3 table to v2; set the table property rootline.export.format to choose how it is "
        "shown",
    )


@pytest.mark.parametrize(
    ("change", "status", "words"),
    [
        ({"namespace": "absent"}, 404, "Namespace does not exist: absent"),
        ({"name": "a.b"}, 400, "dot"),
        ({"name": "a b"}, 400, "not a table name"),
        ({"properties": {"format-version": "1"}}, 400, "format version 1 is not supported: use 2 or 3"),
        ({"properties": {"format-version": "three"}}, 400, "format version 'three' is not supported: use 2 or 3"),
        ({"properties": {"current-schema": "x"}}, 400, "current-schema is a fact of the table"),
        ({"properties": {"gc.enabled": "true"}}, 400, "gc.enabled is always false"),
        ({"properties": {"rootline.flush.data_files": "7"}}, 400, "did you mean rootline.flush.data-files?"),
        ({"schema": {"type": "struct", "fields": []}}, 400, "column"),
        ({"schema": {"type": "struct", "fields": [*COLUMNS, {**COLUMNS[0], "name": "b"}]}}, 400, "have id 7"),
        ({"schema": {"type": "struct", "fields": [{"id": "x"}]}}, 400, "schema"),
        ({"partition-spec": {"fields": [{"source-id": 99, "transform": "day", "name": "d"}]}}, 400, "are not columns"),
        ({"partition-spec": {"fields": 7}}, 400, "partition-spec: fields are not a list"),
        ({"write-order": {"fields": [{"source-id": 7}]}}, 400, "'transform' is missing"),
    ],
)
def test_a_table_that_cannot_be_created_is_refused(
    catalog: WritingCatalog, change: dict[str, Any], status: int, words: str
) -> None:
    asked: dict[str, Any] = {"namespace": "demo", "name": "refused", "schema": SCHEMA, **change}
    found, message = problem(catalog.create(asked.pop("namespace"), **asked))
    assert found == status
    assert words in message
    assert "demo.refused" not in catalog.lake.list_tables()


def test_a_taken_name_is_refused_in_icebergs_words(catalog: WritingCatalog, table: str) -> None:
    catalog.lake.create_view("demo.seen", "SELECT 1")
    name = table.partition(".")[2]
    assert problem(catalog.create("demo", name=name, schema=SCHEMA)) == (
        409,
        f"Table already exists: {table}; choose another name, or load it",
    )
    status, message = problem(catalog.create("demo", name="seen", schema=SCHEMA))
    assert (status, message.partition(";")[0]) == (409, "View with same name already exists: demo.seen")


def test_names_that_differ_in_case_are_different_names(catalog: WritingCatalog) -> None:
    assert catalog.create("demo", name="Case", schema=SCHEMA).status_code == 200
    answer = catalog.create("demo", name="case", schema=SCHEMA)
    if answer.status_code == 200:
        assert catalog.load("demo.case")["table-uuid"] != catalog.load("demo.Case")["table-uuid"]
    else:  # a file system that ignores case
        assert "case" in problem(answer)[1]


def test_a_body_beyond_the_limit_is_refused(catalog: WritingCatalog) -> None:
    status, message = problem(catalog.create("demo", name="large", schema=SCHEMA, properties={"x": "y" * 17_000_000}))
    assert status == 400
    assert "2,097,152 bytes" in message


@pytest.mark.parametrize("kind", [Updates, ViewUpdates])
def test_a_request_has_a_limited_number_of_updates_and_its_first_fault_is_reported(kind: type[Body]) -> None:
    one: dict[str, Any] = {"action": "remove-properties", "removals": ["a"]}
    assert kind.model_validate({"updates": [one] * 1_000})
    for wrong in ([one] * 1_001, [0] * 500):
        with pytest.raises(ValidationError) as caught:
            kind.model_validate({"updates": wrong})
        assert caught.value.error_count() == 1


def test_a_staged_table_is_created_by_its_commit(catalog: WritingCatalog) -> None:
    staged = catalog.create("demo", name="staged", schema=SCHEMA, **{"partition-spec": BY_DAY, "stage-create": True})
    metadata = staged.json()["metadata"]
    assert "demo.staged" not in catalog.lake.list_tables()
    assert (metadata["format-version"], metadata["snapshots"]) == (3, [])
    updates = [
        {"action": "assign-uuid", "uuid": metadata["table-uuid"]},
        {"action": "upgrade-format-version", "format-version": metadata["format-version"]},
        {"action": "add-schema", "schema": metadata["schemas"][0], "last-column-id": metadata["last-column-id"]},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": metadata["partition-specs"][0]},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": metadata["sort-orders"][0]},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "set-location", "location": metadata["location"]},
        {"action": "set-properties", "updates": {**metadata["properties"], "owner": "me"}},
    ]
    created = catalog.commit("demo.staged", updates, [{"type": "assert-create"}])
    assert created.status_code == 200
    found = created.json()["metadata"]
    for member in ("table-uuid", "location", "schemas", "partition-specs", "sort-orders", "last-column-id"):
        assert found[member] == metadata[member]
    assert found["properties"]["owner"] == "me"


@pytest.mark.parametrize(
    ("requirement", "words"),
    [
        ({"type": "assert-create"}, "table already exists"),
        (
            {"type": "assert-table-uuid", "uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1"},
            "UUID does not match: expected",
        ),
        ({"type": "assert-current-schema-id", "current-schema-id": 9}, "current schema changed: expected id 9 != 0"),
        (
            {"type": "assert-last-assigned-field-id", "last-assigned-field-id": 9},
            "last assigned field id changed: expected id 9 != 2",
        ),
        (
            {"type": "assert-last-assigned-partition-id", "last-assigned-partition-id": 9},
            "last assigned partition id changed: expected id 9 != 999",
        ),
        (
            {"type": "assert-default-spec-id", "default-spec-id": 9},
            "default partition spec changed: expected id 9 != 0",
        ),
        (
            {"type": "assert-default-sort-order-id", "default-sort-order-id": 9},
            "default sort order changed: expected id 9 != 0",
        ),
        (
            {"type": "assert-ref-snapshot-id", "ref": "old", "snapshot-id": 9},
            "branch or tag old is missing, expected 9",
        ),
    ],
    ids=lambda value: value["type"] if isinstance(value, dict) else "",
)
def test_a_requirement_that_does_not_hold_is_a_failed_commit(
    catalog: WritingCatalog, table: str, requirement: dict[str, Any], words: str
) -> None:
    answer = catalog.commit(table, [{"action": "set-properties", "updates": {"a": "b"}}], [requirement])
    status, message = problem(answer)
    assert (status, answer.json()["error"]["type"]) == (409, "CommitFailedException")
    assert message.startswith(f"Requirement failed: {words}")
    assert "a" not in catalog.load(table)["properties"]


_MAIN = {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": 5}
_ROWS = {"action": "add-snapshot", "snapshot": {"snapshot-id": 5, "manifest-list": "x", "summary": {}}}
_EMPTIED = {"action": "remove-snapshot-ref", "ref-name": "main"}


@pytest.mark.parametrize("updates", [[_MAIN], [_ROWS, _MAIN], [_EMPTIED, _ROWS, _MAIN]])
def test_a_conflict_is_reported_before_rows_are_refused(
    catalog: WritingCatalog, table: str, updates: list[Any]
) -> None:
    for name, required in (
        (table, "assert-create"),
        (table, "assert-table-uuid"),
        ("demo.absent", "assert-table-uuid"),
    ):
        wrong = {"type": required, "uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1"}
        answer = catalog.commit(name, updates, [wrong])
        assert answer.status_code == (409 if name == table else 404)


def test_requirements_that_hold_let_a_commit_pass(catalog: WritingCatalog, table: str) -> None:
    before = catalog.load(table)
    requirements = [
        {"type": "assert-table-uuid", "uuid": before["table-uuid"].upper()},
        {"type": "assert-current-schema-id", "current-schema-id": 0},
        {"type": "assert-last-assigned-field-id", "last-assigned-field-id": 2},
        {"type": "assert-last-assigned-partition-id", "last-assigned-partition-id": 999},
        {"type": "assert-default-spec-id", "default-spec-id": 0},
        {"type": "assert-default-sort-order-id", "default-sort-order-id": 0},
        {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": None},
    ]
    answer = catalog.commit(table, [{"action": "set-properties", "updates": {"a": "b"}}], requirements)
    assert answer.json()["metadata"]["properties"]["a"] == "b"


@pytest.mark.parametrize(
    ("update", "words"),
    [
        ({"action": "make-it-fast"}, "update 'make-it-fast' is unknown"),
        ({}, "update None is unknown"),
        ({"action": "add-snapshot", "snapshot": {}}, "add-snapshot: snapshot-id is missing"),
        ({"action": "add-snapshot"}, "add-snapshot: "),
        ({"action": "set-snapshot-ref", "ref-name": "audit", "type": "branch", "snapshot-id": 1}, "no branch or tag"),
        ({"action": "set-snapshot-ref", "ref-name": "main", "type": "tag", "snapshot-id": 1}, "no branch or tag"),
        ({"action": "set-snapshot-ref", "ref-name": "main", "snapshot-id": "1"}, "write a whole number"),
        ({"action": "set-snapshot-ref", "ref-name": "main", "snapshot-id": 1}, "does not move main"),
        ({"action": "remove-snapshot-ref", "ref-name": "old"}, "changes no tag"),
        ({"action": "remove-snapshots", "snapshot-ids": [1]}, "expires old versions automatically"),
        ({"action": "remove-schemas", "schema-ids": [0]}, "kept versions may need every schema"),
        ({"action": "remove-partition-specs", "spec-ids": [0]}, "kept versions may need every partition spec"),
        ({"action": "set-statistics", "statistics": {}}, "no statistics files"),
        ({"action": "add-encryption-key"}, "not encrypted"),
        ({"action": "set-location", "location": "s3://elsewhere/t"}, "is always in the catalog's own folder"),
        ({"action": "set-location"}, "location is None"),
        ({"action": "upgrade-format-version", "format-version": 1}, "format version 1 is not supported"),
        ({"action": "upgrade-format-version", "format-version": 4}, "format version 4 is not supported"),
        ({"action": "upgrade-format-version"}, "format version None is not supported"),
        ({"action": "assign-uuid", "uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1"}, "uuid cannot change"),
        ({"action": "assign-uuid", "uuid": "x"}, "is not the UUID of a table"),
        ({"action": "set-properties", "updates": {"uuid": "x"}}, "uuid is a fact of the table"),
        ({"action": "set-properties", "updates": {"a": 1}}, "updates must map names to strings"),
        ({"action": "set-properties", "updates": {"rootline.export.format": "9"}}, "it must be 2 or 3"),
        ({"action": "set-current-schema", "schema-id": 7}, "schema id 7 does not exist"),
        ({"action": "set-default-spec", "spec-id": -1}, "no partition spec was added"),
        ({"action": "add-schema", "schema": {"type": "struct", "fields": [{"id": 1}]}}, "add-schema"),
        ({"action": "add-schema"}, "'schema' is missing"),
    ],
    ids=lambda value: str(value.get("action")) if isinstance(value, dict) else "",
)
def test_an_update_that_no_table_accepts_is_refused_with_the_reason(
    catalog: WritingCatalog, table: str, update: dict[str, Any], words: str
) -> None:
    before = catalog.load(table)
    status, message = problem(catalog.commit(table, [update]))
    assert status == 400
    assert words in message
    assert catalog.load(table) == before


@pytest.mark.parametrize(
    "requirement", [{"type": "assert-luck"}, {}, {"type": "assert-table-uuid"}, {"type": "assert-default-spec-id"}]
)
def test_a_malformed_requirement_is_refused(catalog: WritingCatalog, table: str, requirement: dict[str, Any]) -> None:
    assert problem(catalog.commit(table, [], [requirement]))[0] == 400


def test_updates_that_change_nothing_publish_nothing(catalog: WritingCatalog, table: str) -> None:
    before = catalog.load(table)
    version = catalog.lake.table(table).head().version
    updates = [
        {"action": "assign-uuid", "uuid": before["table-uuid"]},
        {"action": "upgrade-format-version", "format-version": before["format-version"]},
        {"action": "set-location", "location": before["location"] + "/"},
        {"action": "set-properties", "updates": before["properties"]},
        {"action": "remove-properties", "removals": ["never-set"]},
    ]
    for some in ([], updates):
        answer = catalog.commit(table, some, [{"type": "assert-table-uuid", "uuid": before["table-uuid"]}])
        assert answer.json()["metadata"] == before
    assert catalog.lake.table(table).head().version == version


def test_properties_that_exports_add_are_not_stored(catalog: WritingCatalog, table: str) -> None:
    sent = {**catalog.load(table)["properties"], "owner": "you"}
    catalog.commit(table, [{"action": "set-properties", "updates": sent}])
    stored = catalog.lake.table(table).definition().properties
    assert stored["owner"] == "you"
    added = {"gc.enabled", "write.metadata.path", "commit.retry.num-retries", "commit.manifest-merge.enabled"}
    assert not [name for name in stored if name in added or name in ("rootline.table", "rootline.definition-digest")]


def test_a_property_that_exports_add_can_be_set_and_then_keeps_its_value(catalog: WritingCatalog, table: str) -> None:
    name, added = "commit.retry.num-retries", catalog.load(table)["properties"]
    assert added[name] == "10"
    for number in ("3", "10"):
        catalog.commit(table, [{"action": "set-properties", "updates": {name: number}}])
        assert catalog.load(table)["properties"][name] == number
    catalog.commit(table, [{"action": "set-properties", "updates": added}])
    assert catalog.lake.table(table).definition().properties[name] == "10", "the table has it, so it is its own"
    catalog.commit(table, [{"action": "remove-properties", "removals": [name]}])
    assert name not in catalog.lake.table(table).definition().properties


def test_a_new_table_shows_a_hundred_versions_and_the_folder_for_metadata_of_clients(catalog: WritingCatalog) -> None:
    for staged in (True, False):
        made = catalog.create("demo", name="new", schema=SCHEMA, **{"stage-create": staged}).json()["metadata"]
        assert made["properties"]["rootline.export.snapshots"] == "100"
        assert made["properties"]["write.metadata.path"] == f"{made['location']}/rest/metadata"
        assert made["properties"]["commit.retry.max-wait-ms"] == "1000"
    few = catalog.create("demo", name="few", schema=SCHEMA, properties={"rootline.export.snapshots": "7"})
    assert few.json()["metadata"]["properties"]["rootline.export.snapshots"] == "7"
    assert not catalog.lake.table("demo.few").definition().properties.keys() & {"commit.retry.max-wait-ms"}


def test_a_table_that_was_dropped_between_load_and_commit_is_missing(catalog: WritingCatalog, table: str) -> None:
    loaded = catalog.load(table)
    catalog.lake.drop_table(table)
    require = [{"type": "assert-table-uuid", "uuid": loaded["table-uuid"]}]
    status, message = problem(catalog.commit(table, [{"action": "set-properties", "updates": {"a": "b"}}], require))
    assert status == 404
    assert message.startswith(f"Table does not exist: {table}")


def test_a_table_of_another_uuid_under_the_name_is_not_changed(catalog: WritingCatalog, table: str) -> None:
    loaded = catalog.load(table)
    catalog.lake.drop_table(table)
    catalog.create("demo", name=table.partition(".")[2], schema=SCHEMA)
    require = [{"type": "assert-table-uuid", "uuid": loaded["table-uuid"]}]
    status, message = problem(catalog.commit(table, [{"action": "set-properties", "updates": {"a": "b"}}], require))
    assert (status, message.partition(":")[0]) == (409, "Requirement failed")


def test_a_replace_without_rows_removes_the_rows(catalog: WritingCatalog, table: str) -> None:
    catalog.lake.table(table).append({"id": [1, 2]})
    schema = {"type": "struct", "fields": [{"id": 3, "name": "other", "type": "string", "required": True}]}
    updates = [
        {"action": "add-schema", "schema": schema},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "remove-snapshot-ref", "ref-name": "main"},
        {"action": "set-location", "location": "s3://elsewhere/t"},
    ]
    answer = catalog.commit(table, updates)
    assert answer.status_code == 200
    rows = catalog.lake.table(table).scan().to_arrow()
    assert (rows.num_rows, rows.column_names) == (0, ["other"])
    assert answer.json()["metadata"]["location"].endswith(table.replace(".", "/"))


def test_a_replace_of_a_table_without_snapshots_names_none_to_remove(catalog: WritingCatalog, table: str) -> None:
    schema = {"type": "struct", "fields": [{"id": 3, "name": "other", "type": "string", "required": True}]}
    updates = [{"action": "add-schema", "schema": schema}, {"action": "set-current-schema", "schema-id": -1}]
    as_change = [{"type": "assert-current-schema-id", "current-schema-id": 0}]
    assert catalog.commit(table, updates, as_change).status_code == 400, "a required column cannot be added"
    assert catalog.commit(table, updates).status_code == 200
    assert catalog.lake.table(table).definition().schema.column_names == ["other"]
    catalog.lake.table(table).append({"other": ["x"]})
    schema["fields"][0]["name"] = "another"
    assert catalog.commit(table, updates).status_code == 200, "with a snapshot it is a change: the column is renamed"
    assert catalog.lake.table(table).scan().to_arrow().to_pylist() == [{"another": "x"}]


def test_a_write_default_survives_a_client_of_format_2(catalog: WritingCatalog, table: str) -> None:
    with catalog.lake.table(table).alter() as change:
        change.set_properties({"rootline.export.format": "2"})
        change.update_column("ts", doc="before")
    catalog.lake.table(table).append({"id": [1]})
    column = {"id": 3, "name": "n", "type": "int", "required": False, "write-default": 4}
    fields = [{**each, "id": number} for number, each in enumerate(COLUMNS, 1)]
    updates = [
        {"action": "set-properties", "updates": {"rootline.export.format": "3"}},
        {"action": "add-schema", "schema": {"type": "struct", "fields": [*fields, column]}},
        {"action": "set-current-schema", "schema-id": -1},
    ]
    assert catalog.commit(table, updates).status_code == 200
    assert catalog.commit(table, [{"action": "set-properties", "updates": {"rootline.export.format": "2"}}])
    shown = catalog.load(table)
    schema = next(each for each in shown["schemas"] if each["schema-id"] == shown["current-schema-id"])
    assert "write-default" not in schema["fields"][2]
    schema["fields"][2]["doc"] = "after"
    answer = catalog.commit(
        table, [{"action": "add-schema", "schema": schema}, {"action": "set-current-schema", "schema-id": -1}]
    )
    assert answer.status_code == 200
    found = catalog.lake.table(table).definition().schema.find_field("n")
    assert (found.doc, found.write_default) == ("after", 4)


def test_a_column_that_the_format_lacks_is_refused_before_it_is_published(catalog: WritingCatalog) -> None:
    catalog.create("demo", name="lacks", schema=SCHEMA, properties={"format-version": "2"})
    before = catalog.load("demo.lacks")
    fields = [*before["schemas"][0]["fields"], {"id": 3, "name": "ns", "type": "timestamp_ns", "required": False}]
    updates = [
        {"action": "add-schema", "schema": {"type": "struct", "fields": fields}},
        {"action": "set-current-schema", "schema-id": -1},
    ]
    status, message = problem(catalog.commit("demo.lacks", updates))
    assert status == 400
    assert "format version 2 lacks" in message
    assert catalog.load("demo.lacks") == before


def test_a_dropped_table_is_missing_and_a_purged_one_is_not_restored(catalog: WritingCatalog, table: str) -> None:
    name = table.partition(".")[2]
    path = f"/namespaces/demo/tables/{name}"
    assert catalog.client.delete(path).status_code == 204
    status, message = problem(catalog.client.delete(path))
    assert (status, message.partition(";")[0]) == (404, f"Table does not exist: {table}")
    catalog.create("demo", name=name, schema=SCHEMA)
    assert catalog.client.delete(path, params={"purgeRequested": "true"}).status_code == 204
    assert problem(catalog.client.delete(path, params={"purgeRequested": "true"}))[0] == 404


def test_an_export_of_the_table_that_was_dropped_last_is_restored_by_registering_it(
    catalog: WritingCatalog, table: str
) -> None:
    name = table.partition(".")[2]
    catalog.lake.table(table).append({"id": [1, 2, 3]})
    loaded = catalog.client.get(f"/namespaces/demo/tables/{name}").json()
    asked = {"name": name, "metadata-location": loaded["metadata-location"]}
    assert problem(catalog.client.post("/namespaces/demo/register", json=asked))[0] == 409
    catalog.lake.drop_table(table)
    answer = catalog.client.post("/namespaces/demo/register", json=asked)
    assert answer.status_code == 200
    assert answer.json()["metadata"]["table-uuid"] == loaded["metadata"]["table-uuid"]
    assert catalog.lake.table(table).scan().to_arrow().num_rows == 3


def test_registering_does_not_show_whether_the_server_has_a_file(catalog: WritingCatalog, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("no metadata")
    listing = {
        "format-version": 2, "table-uuid": str(uuid.uuid4()), "location": str(tmp_path), "last-sequence-number": 1,
        "last-updated-ms": 1, "last-column-id": 1, "current-schema-id": 0,
        "schemas": [{"type": "struct", "schema-id": 0, "fields": [COLUMNS[0]]}], "default-spec-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": []}], "last-partition-id": 999, "default-sort-order-id": 0,
        "sort-orders": [{"order-id": 0, "fields": []}], "current-snapshot-id": 1,
    }  # fmt: skip
    answers = set()
    for named in ("absent", "secret"):
        snapshot = {"snapshot-id": 1, "sequence-number": 1, "timestamp-ms": 1, "manifest-list": f"{tmp_path}/{named}"}
        (tmp_path / "metadata.json").write_text(json.dumps({**listing, "snapshots": [snapshot]}))
        for location in (named, "metadata.json"):
            asked = {"name": "near", "metadata-location": f"file://{tmp_path}/{location}"}
            answer = problem(catalog.client.post("/namespaces/demo/register", json=asked))
            answers.add((answer[0], answer[1].replace(location, "it")))
    assert answers == {(400, next(iter(answers))[1])}
    assert "the server's log has the reason" in next(iter(answers))[1]


def test_an_export_of_an_earlier_version_is_not_restored(catalog: WritingCatalog, table: str) -> None:
    name = table.partition(".")[2]
    location = catalog.client.get(f"/namespaces/demo/tables/{name}").json()["metadata-location"]
    catalog.lake.table(table).append({"id": [1]})
    catalog.lake.drop_table(table)
    asked = {"name": name, "metadata-location": location}
    status, message = problem(catalog.client.post("/namespaces/demo/register", json=asked))
    assert status == 400
    assert "is an export of version 0" in message


def test_a_rename_is_refused_with_the_reason(catalog: WritingCatalog, table: str) -> None:
    def asked(source: str, *destination: str) -> tuple[int, str]:
        names = {
            "source": {"namespace": ["demo"], "name": source},
            "destination": {"namespace": [destination[0]], "name": destination[1]},
        }
        return problem(catalog.client.post("/tables/rename", json=names))

    name = table.partition(".")[2]
    catalog.create("demo", name="renamed", schema=SCHEMA)
    assert asked("absent", "demo", "b")[1].startswith("Table does not exist: demo.absent")
    assert asked(name, "demo", "renamed")[1] == f"Cannot rename {table} to demo.renamed. Table already exists"
    assert asked(name, "absent", "b")[1].startswith("Namespace does not exist: absent")
    status, message = asked(name, "demo", "b")
    assert status == 406
    assert "its name is the folder of its files" in message


@pytest.mark.parametrize("warehouse", ["own", "v2", "v3"])
def test_pyiceberg_creates_alters_and_drops_tables(catalog: WritingCatalog, warehouse: str) -> None:
    schema = Schema(
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "at", TimestampType(), required=False),
        NestedField(3, "tags", ListType(4, StringType(), element_required=False), required=False),
        NestedField(5, "who", StructType(NestedField(6, "name", StringType(), required=False)), required=False),
    )
    spec = PartitionSpec(PartitionField(2, 1000, DayTransform(), "day"))
    order = SortOrder(SortField(1, IdentityTransform()))
    name = f"demo.py_{warehouse}"
    with catalog_at(catalog.url, warehouse) as client:
        table = client.create_table(name, schema, partition_spec=spec, sort_order=order, properties={"owner": "me"})
        with pytest.raises(TableAlreadyExistsError):
            client.create_table(name, schema)
        assert [field.name for field in table.spec().fields] == ["day"]
        with table.update_schema() as change:
            change.add_column("amount", IntegerType(), doc="cents")
            change.rename_column("at", "seen_at")
        with table.update_spec() as spec_change:
            spec_change.add_field("id", BucketTransform(4), "id_bucket")
        with table.transaction() as transaction:
            transaction.set_properties({"owner": "you", "more": "1"})
            transaction.update_schema().update_column("amount", LongType()).commit()
        loaded = client.load_table(name)
        assert loaded.metadata == table.metadata
        assert loaded.schema().find_field("amount").field_type == LongType()
        assert loaded.schema().find_field("seen_at").field_id == 2
        assert [field.name for field in loaded.spec().fields] == ["day", "id_bucket"]
        assert loaded.properties["owner"] == "you"
        client.drop_table(name)
        with pytest.raises(NoSuchTableError):
            client.load_table(name)


def test_pyiceberg_creates_a_table_in_a_transaction(catalog: WritingCatalog) -> None:
    schema = Schema(NestedField(1, "id", LongType(), required=True))
    with catalog_at(catalog.url, "v2") as client:
        with client.create_table_transaction("demo.by_step", schema, properties={"owner": "me"}) as transaction:
            transaction.update_schema().add_column("more", StringType()).commit()
        found = client.load_table("demo.by_step")
        assert [field.name for field in found.schema().fields] == ["id", "more"]
        assert found.properties["owner"] == "me"
    assert "rootline.export.format" not in catalog.lake.table("demo.by_step").definition().properties
