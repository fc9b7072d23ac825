"""Views as engines make, change and drop them through the catalog."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest

from rootline.client.lake import Lake
from tests.catalog.pyiceberg_catalog import catalog_at
from tests.catalog.served_catalog import asked, metric, served

VIEWS = "/v1/own/namespaces/demo/views"
VIEW = f"{VIEWS}/v"
MADE_CURRENT = {"action": "set-current-view-version", "view-version-id": -1}


@pytest.fixture
def client(lake: Lake, folder: Path) -> Iterator[httpx.Client]:
    """A client of a catalog that writes to a lake with the table `demo.t`."""
    lake.create_table("demo.t", {"id": "long"})
    with asked(folder, log="") as opened:
        yield opened


def schema(*columns: str, schema_id: int = 5) -> dict[str, Any]:
    fields = [{"id": at + 3, "name": name, "required": False, "type": "int"} for at, name in enumerate(columns)]
    return {"type": "struct", "schema-id": schema_id, "fields": fields}


def version(schema_id: int = -1, version_id: int = 1, **texts: str) -> dict[str, Any]:
    return {
        "version-id": version_id,
        "schema-id": schema_id,
        "timestamp-ms": 1,
        "summary": {"engine-name": "spark", "operation": "create"},
        "default-namespace": ["demo"],
        "default-catalog": "lake",
        "representations": [{"type": "sql", "sql": sql, "dialect": dialect} for dialect, sql in texts.items()],
    }


def create(client: httpx.Client, name: str = "v", **properties: str) -> dict[str, Any]:
    body = {"name": name, "schema": schema("a"), "view-version": version(5, spark="SELECT 1"), "properties": properties}
    answer = client.post(VIEWS, json=body)
    assert answer.status_code == 200, answer.text
    return dict(answer.json()["metadata"])


def add(schema_id: int = 0, version_id: int = 2, **texts: str) -> list[dict[str, Any]]:
    return [{"action": "add-view-version", "view-version": version(schema_id, version_id, **texts)}, MADE_CURRENT]


def commit(client: httpx.Client, *updates: dict[str, Any], uuid: object = None) -> httpx.Response:
    required = [] if uuid is None else [{"type": "assert-view-uuid", "uuid": str(uuid)}]
    return client.post(VIEW, json={"requirements": required, "updates": updates})


def refused(answer: httpx.Response) -> tuple[int, str]:
    error = answer.json()["error"]
    assert error["code"] == answer.status_code
    return answer.status_code, error["type"]


def roots(folder: Path) -> int:
    return len([*(folder / "demo" / "v" / "metadata" / "roots").glob("*.avro")])


def test_a_view_that_an_engine_creates_is_answered_as_it_is_stored(
    client: httpx.Client, lake: Lake, folder: Path
) -> None:
    made = create(client, comment="one")
    assert made == client.get(VIEW).json()["metadata"]
    assert UUID(made["view-uuid"]) == lake.view("demo.v").metadata().view_uuid
    assert (made["format-version"], made["location"]) == (1, f"{folder.absolute().as_uri()}/demo/v")
    assert (made["properties"], made["current-version-id"]) == ({"comment": "one"}, 1)
    assert made["schemas"] == [schema("a", schema_id=0)]
    [only] = made["versions"]
    assert only["timestamp-ms"] > 1, "the time is the log's"
    assert made["version-log"] == [{"timestamp-ms": only["timestamp-ms"], "version-id": 1}]
    named = {key: only[key] for key in ("schema-id", "default-namespace", "default-catalog", "summary")}
    assert named == {
        "schema-id": 0,
        "default-namespace": ["demo"],
        "default-catalog": "lake",
        "summary": {"engine-name": "spark", "operation": "create"},
    }
    assert lake.view("demo.v").sql("spark") == "SELECT 1"


def test_a_requested_location_is_ignored(client: httpx.Client, folder: Path) -> None:
    body = {
        "name": "v",
        "location": "s3://elsewhere",
        "schema": schema("a"),
        "view-version": version(5, spark="SELECT 1"),
    }
    answer = client.post(VIEWS, json=body).json()
    assert answer["metadata"]["location"] == f"{folder.absolute().as_uri()}/demo/v"
    changed = commit(client, {"action": "set-location", "location": "s3://elsewhere"})
    assert changed.json() == answer
    assert roots(folder) == 1


def test_a_name_that_is_taken_is_refused_in_icebergs_words(client: httpx.Client) -> None:
    create(client)
    body = {"schema": schema("a"), "view-version": version(5, spark="SELECT 1")}
    for name, words in (("v", "View already exists: demo.v"), ("t", "Table with same name already exists: demo.t")):
        answer = client.post(VIEWS, json=body | {"name": name})
        assert refused(answer) == (409, "AlreadyExistsException")
        assert answer.json()["error"]["message"].startswith(words)
    absent = client.post("/v1/namespaces/absent/views", json=body | {"name": "v"})
    assert refused(absent) == (404, "NoSuchNamespaceException")
    assert refused(client.post(VIEWS, json=body | {"name": "a.b"})) == (400, "BadRequestException")


def test_schema_version_and_properties_of_one_request_are_one_version_of_the_name(
    client: httpx.Client, folder: Path
) -> None:
    made = create(client, comment="one", old="x")
    answer = commit(
        client,
        {"action": "set-properties", "updates": {"comment": "two"}},
        {"action": "remove-properties", "removals": ["old"]},
        {"action": "add-schema", "schema": schema("b", schema_id=9)},
        *add(-1, spark="SELECT 2", trino="SELECT two"),
        uuid=made["view-uuid"],
    )
    assert answer.status_code == 200
    changed = answer.json()["metadata"]
    assert (changed["properties"], changed["current-version-id"]) == ({"comment": "two"}, 2)
    assert changed["schemas"] == [schema("a", schema_id=0), schema("b", schema_id=1)]
    assert changed["versions"][0] == made["versions"][0]
    new = changed["versions"][1]
    assert (new["schema-id"], new["parent-version-id"], new["summary"]["operation"]) == (1, 1, "replace")
    assert [text["dialect"] for text in new["representations"]] == ["spark", "trino"]
    assert [entry["version-id"] for entry in changed["version-log"]] == [1, 2]
    assert roots(folder) == 2


def test_of_two_changes_made_for_one_version_the_last_one_wins_under_its_own_id(client: httpx.Client) -> None:
    create(client)
    for sql in ("SELECT 2", "SELECT 3"):
        assert commit(client, *add(spark=sql)).status_code == 200
    found = client.get(VIEW).json()["metadata"]
    assert [each["version-id"] for each in found["versions"]] == [1, 2, 3]
    assert [each["schema-id"] for each in found["versions"]] == [0, 0, 0]
    assert found["current-version-id"] == 3


@pytest.mark.parametrize("may_drop_dialects", ["true", "false"])
def test_changes_at_once_all_become_versions(client: httpx.Client, may_drop_dialects: str) -> None:
    kept = {"version.history.num-entries": "50", "replace.drop-dialect.allowed": may_drop_dialects}
    create(client, **kept)

    def change(number: int) -> int:
        return commit(client, *add(spark=f"SELECT {number}")).status_code

    with ThreadPoolExecutor(4) as pool:
        assert [*pool.map(change, range(100, 112))] == [200] * 12
    found = client.get(VIEW).json()["metadata"]
    assert [each["version-id"] for each in found["versions"]] == [*range(1, 14)]
    assert len({each["representations"][0]["sql"] for each in found["versions"]}) == 13


def test_an_earlier_version_becomes_current_with_other_properties(client: httpx.Client, folder: Path) -> None:
    create(client)
    commit(client, *add(spark="SELECT 2"))
    back: list[dict[str, Any]] = [
        {"action": "set-current-view-version", "view-version-id": 1},
        {"action": "set-properties", "updates": {"a": "b"}},
    ]
    changed = commit(client, *back).json()["metadata"]
    assert (changed["current-version-id"], changed["properties"]) == (1, {"a": "b"})
    assert roots(folder) == 3
    assert refused(commit(client, {**back[0], "view-version-id": 7})) == (400, "BadRequestException")
    assert commit(client, back[0]).status_code == 200
    assert roots(folder) == 3, "nothing was to do"


def test_what_the_view_has_already_is_no_change(client: httpx.Client, folder: Path) -> None:
    made = create(client)
    updates = [
        {"action": "assign-uuid", "uuid": made["view-uuid"]},
        {"action": "set-location", "location": made["location"]},
        {"action": "upgrade-format-version", "format-version": 1},
    ]
    assert commit(client, *updates).json()["metadata"] == made
    assert commit(client).json()["metadata"] == made
    assert roots(folder) == 1


def test_a_dialect_is_lost_only_where_the_view_allows_it(client: httpx.Client) -> None:
    create(client)
    lost = commit(client, *add(trino="SELECT 2"))
    assert refused(lost) == (400, "BadRequestException")
    assert "loss of view dialects (replace.drop-dialect.allowed=false)" in lost.json()["error"]["message"]
    allowed = {"action": "set-properties", "updates": {"replace.drop-dialect.allowed": "TRUE"}}
    assert commit(client, allowed, *add(trino="SELECT 2")).status_code == 200
    no_longer = {"action": "remove-properties", "removals": ["replace.drop-dialect.allowed"]}
    back = {"action": "set-current-view-version", "view-version-id": 1}
    assert refused(commit(client, no_longer, back)) == (400, "BadRequestException")
    assert commit(client, back).status_code == 200


@pytest.mark.parametrize(
    ("updates", "reason"),
    [
        (add(spark="SELECT 2")[:1], "a new version becomes the current one"),
        ([*add(spark="SELECT 2")[:1], {**MADE_CURRENT, "view-version-id": 1}], "a new version becomes the current one"),
        ([MADE_CURRENT], "adds no version"),
        ([{"action": "add-schema", "schema": schema("b")}], "adds no version"),
        ([*add(spark="SELECT 2"), *add(spark="SELECT 3")], "several updates of one kind (AddViewVersion)"),
        (add(8, spark="SELECT 2"), "neither the view nor the request has a schema 8"),
        (add(-1, spark="SELECT 2"), "neither the view nor the request has a schema -1"),
        (add(), "view-version.representations must have 1 items or more"),
        ([{"action": "upgrade-format-version", "format-version": 2}], "format-version 2 is not one of views"),
        ([{"action": "assign-uuid", "uuid": str(uuid4())}], "its uuid is"),
        ([{"action": "set-statistics"}], "must be one of 'add-schema'"),
        ([{}], "must have the field 'action'"),
        (
            [
                {"action": "set-properties", "updates": {"k": "x"}},
                {"action": "remove-properties", "removals": ["k"]},
            ],
            "sets and removes 'k'",
        ),
        ([{"action": "set-properties", "updates": {"version.history.num-entries": "none"}}], "view-invalid"),
    ],
)
def test_a_change_that_cannot_be_made_is_a_400_and_publishes_nothing(
    client: httpx.Client, folder: Path, updates: list[dict[str, Any]], reason: str
) -> None:
    made = create(client)
    answer = commit(client, *updates)
    assert refused(answer) == (400, "BadRequestException")
    assert reason in answer.json()["error"]["message"]
    assert client.get(VIEW).json()["metadata"] == made


def test_a_change_that_was_made_for_another_view_is_a_conflict(client: httpx.Client) -> None:
    create(client)
    answer = commit(client, *add(spark="SELECT 2"), uuid=uuid4())
    assert refused(answer) == (409, "CommitFailedException")
    assert answer.json()["error"]["message"].startswith("Requirement failed: view UUID does not match")
    unknown = {"requirements": [{"type": "assert-view-id"}], "updates": []}
    assert refused(client.post(VIEW, json=unknown)) == (400, "BadRequestException")


def test_what_is_no_view_can_neither_be_changed_nor_dropped(client: httpx.Client, lake: Lake) -> None:
    create(client)
    assert client.delete(VIEW).status_code == 204
    for path in (VIEW, f"{VIEWS}/absent", f"{VIEWS}/t", f"{VIEWS}/a.b", f"{VIEWS}/%20", "/v1/namespaces/no/views/v"):
        for answer in (client.post(path, json={"updates": add(spark="SELECT 2")}), client.delete(path)):
            assert refused(answer) == (404, "NoSuchViewException"), path
            assert answer.json()["error"]["message"].startswith("View does not exist: ")
    assert lake.list_tables() == ["demo.t"]
    create(client)
    assert lake.views() == ["demo.v"]


def test_a_rename_is_refused_with_the_reason_that_an_engine_expects(client: httpx.Client) -> None:
    create(client)
    create(client, "other")

    def rename(source: str, namespace: str, name: str) -> tuple[int, str, str]:
        body = {
            "source": {"namespace": ["demo"], "name": source},
            "destination": {"namespace": [namespace], "name": name},
        }
        answer = client.post("/v1/own/views/rename", json=body)
        return *refused(answer), answer.json()["error"]["message"]

    assert rename("absent", "demo", "w")[:2] == (404, "NoSuchViewException")
    assert rename("v", "absent", "w") == (404, "NoSuchNamespaceException", "Namespace does not exist: absent")
    for name, words in (("other", "View already exists"), ("t", "Table already exists")):
        status, kind, message = rename("v", "demo", name)
        assert (status, kind) == (409, "AlreadyExistsException")
        assert message.startswith(f"Cannot rename demo.v to demo.{name}. {words}")
    assert rename("v", "demo", "w")[:2] == (406, "UnsupportedOperationException")


def test_no_file_is_registered_as_a_view(client: httpx.Client) -> None:
    create(client)

    def register(namespace: str, name: str) -> tuple[int, str, str]:
        body = {"name": name, "metadata-location": "file:///v.json"}
        answer = client.post(f"/v1/own/namespaces/{namespace}/register-view", json=body)
        return *refused(answer), answer.json()["error"]["message"]

    for name, words in (("v", "View already exists: demo.v"), ("t", "Table with same name already exists: demo.t")):
        status, kind, message = register("demo", name)
        assert (status, kind) == (409, "AlreadyExistsException")
        assert message.startswith(words)
    assert register("absent", "w")[:2] == (404, "NoSuchNamespaceException")
    assert register("demo", "w")[:2] == (406, "UnsupportedOperationException")


def test_two_texts_in_one_dialect_are_refused_in_icebergs_words(client: httpx.Client) -> None:
    twice = version(5, spark="SELECT 1", Spark="SELECT 2")
    answer = client.post(VIEWS, json={"name": "v", "schema": schema("a"), "view-version": twice})
    assert refused(answer) == (400, "IllegalArgumentException")
    words = "Invalid view version: Cannot add multiple queries for dialect spark"
    assert answer.json()["error"]["message"].startswith(words)


def test_a_change_without_a_verdict_in_time_is_an_unknown_outcome(client: httpx.Client, folder: Path) -> None:
    create(client)
    with asked(folder, log="", commit_timeout_s=1e-9) as hurried:
        answer = commit(hurried, {"action": "set-properties", "updates": {"a": "b"}})
    assert refused(answer) == (504, "CommitStateUnknownException")


def test_a_version_without_columns_shows_an_empty_schema_beside_those_of_the_others(
    client: httpx.Client, lake: Lake
) -> None:
    create(client)
    lake.view("demo.v").replace("SELECT 2")
    found = client.get(VIEW).json()["metadata"]
    assert [each["schema-id"] for each in found["versions"]] == [0, 1]
    assert found["schemas"] == [schema("a", schema_id=0), {"type": "struct", "schema-id": 1, "fields": []}]
    assert found["current-schema-id"] == 1
    assert commit(client, *add(1, 3, spark="SELECT 3")).status_code == 200, "the empty schema may be named"
    assert lake.view("demo.v").metadata().current_version.named_schema_id is None
    answer = commit(client, {"action": "add-schema", "schema": schema("b")}, *add(-1, 4, spark="SELECT 4"))
    found = answer.json()["metadata"]
    assert [each["schema-id"] for each in found["versions"]] == [0, 2, 2, 1]


def test_each_response_is_counted_under_the_name_of_its_route(client: httpx.Client) -> None:
    create(client)
    commit(client, MADE_CURRENT)
    client.delete(VIEW)
    for route, code in (("create-view", 200), ("commit-view", 400), ("drop-view", 204)):
        assert metric(client, f'rootline_catalog_requests_total{{code="{code}",route="{route}"}}') == 1


def test_pyiceberg_creates_lists_loads_and_drops_views(client: httpx.Client, folder: Path, lake: Lake) -> None:
    from pyiceberg.exceptions import NoSuchViewError, ViewAlreadyExistsError
    from pyiceberg.schema import Schema
    from pyiceberg.types import LongType, NestedField
    from pyiceberg.view.metadata import ViewVersion

    described = ViewVersion.model_validate_json(json.dumps(version(0, spark="SELECT 1 AS n")))
    columns = Schema(NestedField(1, "n", LongType(), required=False))
    with served(folder, log="") as url, catalog_at(url, "own") as catalog:
        view = catalog.create_view("demo.v", columns, described, properties={"comment": "one"})
        assert str(view.metadata.view_uuid) == str(lake.view("demo.v").metadata().view_uuid)
        with pytest.raises(ViewAlreadyExistsError):
            catalog.create_view("demo.v", columns, described)
        assert catalog.list_views("demo") == [("demo", "v")]
        assert catalog.view_exists("demo.v")
        loaded = catalog.load_view("demo.v")
        assert loaded.metadata.versions[0].representations[0].root.sql == "SELECT 1 AS n"
        catalog.drop_view("demo.v")
        assert not catalog.view_exists("demo.v")
        with pytest.raises(NoSuchViewError):
            catalog.drop_view("demo.v")
