"""What the REST catalog answers over HTTP, and how it refuses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pyarrow as pa
import pytest

from rootline.catalog.export_keys import FormatVersion
from rootline.connect import connect
from rootline.schemas.intent import Intent
from tests.catalog.served_catalog import asked, metric

SCHEMA = pa.schema([("id", pa.int64()), ("carrier", pa.string())])
TABLE = "/v1/v3/namespaces/demo/tables/flights"
NAMES = ["alpha", "beta", "delta", "flights", "gamma"]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five tables in `demo`, one in each of two other namespaces, and folders that are no tables."""
    folder = tmp_path_factory.mktemp("lake")
    with connect(folder) as opened:
        for name in NAMES:
            table = opened.create_table(f"demo.{name}", SCHEMA, partition_by=["carrier"])
        for name in ("east.t", "west.t"):
            opened.create_table(name, SCHEMA)
        table = opened.table("demo.flights")
        for number in range(3):
            table.append({"id": [number], "carrier": ["UA"]})
        table.tag("first", version=1)
    (folder / "demo" / "no_table").mkdir()
    (folder / "nothing").mkdir()
    (folder / "two words").mkdir()
    return folder


@pytest.fixture(scope="module")
def catalog(lake: Path) -> Iterator[httpx.Client]:
    with asked(lake) as client:
        yield client


def error_of(answer: httpx.Response) -> dict[str, Any]:
    """The error model in an answer; it has this form and no other."""
    body = answer.json()
    assert list(body) == ["error"]
    assert set(body["error"]) == {"message", "type", "code"}
    assert body["error"]["code"] == answer.status_code
    return dict(body["error"])


def snapshots(answer: httpx.Response) -> list[int]:
    return [snapshot["snapshot-id"] for snapshot in answer.json()["metadata"]["snapshots"]]


def test_config_names_exactly_the_endpoints_that_are_served(catalog: httpx.Client) -> None:
    body = catalog.get("/v1/config").json()
    assert (body["defaults"], body["overrides"]) == ({}, {})
    for endpoint in body["endpoints"]:
        method, path = endpoint.split(" ")
        filled = path.format(prefix="v2", namespace="demo", table="flights", view="absent")
        answer = catalog.request(method, filled)
        assert answer.status_code in (200, 204) or "views/absent" in filled, endpoint
    assert not [endpoint for endpoint in body["endpoints"] if endpoint.split(" ")[0] not in ("GET", "HEAD")]


@pytest.mark.parametrize("warehouse", ["v2", "v3"])
def test_the_warehouse_picks_the_format_by_a_prefix(catalog: httpx.Client, warehouse: str) -> None:
    body = catalog.get("/v1/config", params={"warehouse": warehouse}).json()
    assert body["overrides"] == {"prefix": warehouse}
    found = catalog.get(f"/v1/{warehouse}/namespaces/demo/tables/flights").json()
    assert found["metadata"]["format-version"] == int(warehouse[1])


def test_an_unknown_warehouse_is_refused_and_told_which_exist(catalog: httpx.Client) -> None:
    error = error_of(catalog.get("/v1/config", params={"warehouse": "s3://bucket/lake"}))
    assert (error["code"], error["type"]) == (404, "NoSuchWarehouseException")
    assert "use v2 or v3" in error["message"]
    assert error_of(catalog.get("/v1/v4/namespaces"))["type"] == "NoSuchWarehouseException"


def test_without_a_prefix_the_table_says_its_format_and_the_server_may_say_another(lake: Path) -> None:
    with connect(lake) as opened:
        opened.create_table("plain.two", SCHEMA, properties={"rootline.export.format": "2"})
        opened.create_table("plain.any", SCHEMA)
    with asked(lake) as client:
        formats = [
            client.get(f"/v1/namespaces/plain/tables/{name}").json()["metadata"]["format-version"]
            for name in ("two", "any")
        ]
    assert formats == [2, 3]
    with asked(lake, default_format=FormatVersion.V2) as client:
        assert client.get("/v1/namespaces/plain/tables/any").json()["metadata"]["format-version"] == 2


def test_namespaces_are_those_with_tables(catalog: httpx.Client) -> None:
    found = [name for [name] in catalog.get("/v1/v3/namespaces").json()["namespaces"]]
    assert {"demo", "east", "west"} <= set(found)
    assert found == sorted(found)
    assert not {"nothing", "two words", ".rootline"} & set(found)
    assert catalog.get("/v1/v3/namespaces", params={"parent": "demo"}).json()["namespaces"] == []
    assert catalog.get("/v1/v3/namespaces", params={"parent": ""}).json()["namespaces"] == [[name] for name in found]


def test_a_namespace_is_there_or_not(catalog: httpx.Client) -> None:
    assert catalog.get("/v1/v3/namespaces/demo").json() == {"namespace": ["demo"], "properties": {}}
    assert catalog.head("/v1/v3/namespaces/demo").status_code == 204
    assert catalog.head("/v1/v3/namespaces/nothing").status_code == 404


@pytest.mark.parametrize("name", ["nothing", "absent", "demo%1Fflights", "two%20words", "..", "a%2Fb", "%00", "ü"])
@pytest.mark.parametrize("path", ["", "/tables", "/views"])
def test_an_unknown_namespace_is_named_in_a_404(catalog: httpx.Client, name: str, path: str) -> None:
    error = error_of(catalog.get(f"/v1/v3/namespaces/{name}{path}"))
    assert error["code"] == 404
    assert error["type"] in ("NoSuchNamespaceException", "NotFoundException")
    if name in ("nothing", "absent", "demo%1Fflights"):
        assert error["type"] == "NoSuchNamespaceException"
        assert error_of(catalog.get("/v1/v3/namespaces", params={"parent": "absent"}))["code"] == 404


def test_the_tables_of_a_namespace_are_listed(catalog: httpx.Client) -> None:
    found = catalog.get("/v1/v3/namespaces/demo/tables").json()
    assert found["identifiers"] == [{"namespace": ["demo"], "name": name} for name in NAMES]
    assert found["next-page-token"] is None


def pages(catalog: httpx.Client, path: str, field: str, size: int) -> list[list[Any]]:
    """The pages of a list, as a client that follows tokens gets them."""
    token, found = "", []
    while token is not None:
        body = catalog.get(path, params={"pageToken": token, "pageSize": size}).json()
        found.append(body[field])
        token = body["next-page-token"]
    return found


def test_lists_come_in_pages_when_a_token_is_sent(catalog: httpx.Client) -> None:
    found = pages(catalog, "/v1/v3/namespaces/demo/tables", "identifiers", 2)
    assert [[table["name"] for table in page] for page in found] == [NAMES[:2], NAMES[2:4], NAMES[4:]]
    assert len(pages(catalog, "/v1/v3/namespaces/demo/tables", "identifiers", 5)) == 1
    names = [name for page in pages(catalog, "/v1/v3/namespaces", "namespaces", 1) for [name] in page]
    assert names == [name for [name] in catalog.get("/v1/v3/namespaces").json()["namespaces"]]


@pytest.mark.parametrize("query", ["pageToken=&pageSize=0", "pageToken=&pageSize=-1", "pageToken=&pageSize=x"])
def test_a_page_size_that_is_no_number_is_refused(catalog: httpx.Client, query: str) -> None:
    error = error_of(catalog.get(f"/v1/v3/namespaces/demo/tables?{query}"))
    assert (error["code"], error["type"]) == (400, "BadRequestException")


def test_a_token_that_nobody_gave_is_refused(catalog: httpx.Client) -> None:
    assert "restart with an empty one" in error_of(catalog.get("/v1/v3/namespaces?pageToken=%25%25%25"))["message"]


def test_a_table_comes_with_its_location_and_metadata_as_stored(catalog: httpx.Client, lake: Path) -> None:
    answer = catalog.get(TABLE)
    body = answer.json()
    assert answer.headers["content-type"] == "application/json"
    location = body["metadata-location"]
    assert location.startswith(f"file://{lake}/demo/flights/export/v3/")
    assert json.loads(Path(location.removeprefix("file://")).read_bytes()) == body["metadata"]
    assert body["metadata"]["location"] == f"file://{lake}/demo/flights"
    assert body["config"] == {}, "local files need no settings"


def test_a_table_that_is_there_is_confirmed_without_a_body(catalog: httpx.Client) -> None:
    answer = catalog.head(TABLE)
    assert (answer.status_code, answer.content) == (204, b"")
    missing = catalog.head("/v1/v3/namespaces/demo/tables/absent")
    assert (missing.status_code, missing.content) == (404, b"")


@pytest.mark.parametrize(
    "path", ["demo/tables/absent", "absent/tables/t", "demo%1Fflights/tables/files", "a.b/tables/c"]
)
def test_what_is_no_table_is_always_said_in_the_type_that_engines_probe_for(catalog: httpx.Client, path: str) -> None:
    error = error_of(catalog.get(f"/v1/v3/namespaces/{path}"))
    assert (error["code"], error["type"]) == (404, "NoSuchTableException")
    assert "\x1f" not in error["message"]
    assert catalog.head(f"/v1/v3/namespaces/{path}").status_code == 404


def test_only_snapshots_with_a_name_are_left_when_asked_for_refs(catalog: httpx.Client) -> None:
    whole, few = catalog.get(TABLE, params={"snapshots": "all"}), catalog.get(TABLE, params={"snapshots": "refs"})
    metadata = few.json()["metadata"]
    named = {ref["snapshot-id"] for ref in metadata["refs"].values()}
    assert set(metadata["refs"]) == {"main", "first"}
    assert set(snapshots(few)) == named
    assert len(snapshots(whole)) > len(named)
    assert {**metadata, "snapshots": None} == {**whole.json()["metadata"], "snapshots": None}, "the log stays whole"
    error = error_of(catalog.get(TABLE, params={"snapshots": "some"}))
    assert (error["code"], error["type"]) == (400, "BadRequestException")


def test_an_entity_tag_saves_the_body_until_the_next_commit(lake: Path) -> None:
    with connect(lake) as opened, asked(lake) as client:
        table = opened.create_table("tagged.t", SCHEMA)
        path = "/v1/v3/namespaces/tagged/tables/t"
        first = client.get(path)
        tag = first.headers["etag"]
        again = client.get(path, headers={"If-None-Match": tag})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
        assert client.get(path, headers={"If-None-Match": f'"other", W/{tag}'}).status_code == 304
        assert client.get(path, headers={"If-None-Match": '"other"'}).content == first.content
        refs = client.get(path, params={"snapshots": "refs"}, headers={"If-None-Match": tag})
        assert (refs.status_code, refs.headers["etag"] != tag) == (200, True), "another body has another tag"
        assert client.get(path.replace("v3", "v2"), headers={"If-None-Match": tag}).status_code == 200
        table.append({"id": [1], "carrier": ["UA"]})
        after = client.get(path, headers={"If-None-Match": tag})
        assert after.status_code == 200
        assert after.headers["etag"] != tag


def test_a_view_that_is_not_there_is_named_in_a_404(catalog: httpx.Client) -> None:
    assert catalog.get("/v1/v3/namespaces/demo/views").json() == {"identifiers": [], "next-page-token": None}
    error = error_of(catalog.get("/v1/v3/namespaces/demo/views/any"))
    assert (error["code"], error["type"]) == (404, "NoSuchViewException")
    assert catalog.head("/v1/v3/namespaces/demo/views/any").status_code == 404


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/v3/namespaces"),
        ("DELETE", "/v1/v3/namespaces/demo"),
        ("POST", "/v1/v3/namespaces/demo/properties"),
        ("POST", "/v1/v3/namespaces/demo/tables"),
        ("POST", TABLE),
        ("DELETE", TABLE),
        ("POST", "/v1/namespaces/demo/register"),
        ("POST", f"{TABLE}/metrics"),
        ("POST", "/v1/v3/tables/rename"),
        ("POST", "/v1/v3/transactions/commit"),
        ("POST", "/v1/config"),
    ],
)
def test_what_would_change_something_is_refused_and_told_the_way(catalog: httpx.Client, method: str, path: str) -> None:
    error = error_of(catalog.request(method, path, content=b"{}" if method == "POST" else None))
    assert (error["code"], error["type"]) == (406, "UnsupportedOperationException")
    assert "changed by intents" in error["message"]


def test_credentials_are_not_exchanged_for_tokens(catalog: httpx.Client) -> None:
    assert "the token itself" in error_of(catalog.post("/v1/oauth/tokens", content=b"grant_type=x"))["message"]


@pytest.mark.parametrize("path", ["/v1", "/v1/", "/v1/other", "/v1/v3/namespaces/demo/tables/flights/credentials"])
def test_what_is_no_route_is_told_so(catalog: httpx.Client, path: str) -> None:
    answer = catalog.get(path, follow_redirects=True)
    assert answer.status_code == 404
    assert error_of(answer)["type"] == "NotFoundException"


@pytest.mark.parametrize("method", ["OPTIONS", "TRACE", "PROPFIND"])
def test_a_method_that_is_not_there_is_refused_in_the_same_shape(catalog: httpx.Client, method: str) -> None:
    assert error_of(catalog.request(method, TABLE))["code"] == 405


def test_a_token_is_asked_for_on_every_route_but_health_and_metrics(lake: Path) -> None:
    with asked(lake, token="a word") as client:
        for path in ("/v1/config", "/v1/v3/namespaces", TABLE, "/v1/other", "/v1/v3/namespaces/demo/tables/absent"):
            for given in ({}, {"Authorization": "Bearer a worm"}, {"Authorization": "Basic a word"}):
                answer = client.get(path, headers=given)
                error = error_of(answer)
                assert (error["code"], error["type"]) == (401, "NotAuthorizedException")
                assert answer.headers["www-authenticate"] == "Bearer"
        for method in ("POST", "DELETE", "OPTIONS"):
            assert error_of(client.request(method, TABLE))["code"] == 401
        assert client.get(TABLE, headers={"Authorization": "bearer a word"}).status_code == 200
        for path in ("/healthz", "/readyz", "/metrics"):
            assert client.get(path).status_code == 200


def test_a_token_may_be_of_any_letters(lake: Path) -> None:
    with asked(lake, token="wörtlich") as client:
        assert client.get("/v1/config", headers={"Authorization": "Bearer wörtlich".encode()}).status_code == 200
        assert client.get("/v1/config", headers={"Authorization": "Bearer wortlich"}).status_code == 401


def test_a_damaged_table_is_a_500_that_names_what_is_damaged(lake: Path) -> None:
    with connect(lake) as opened:
        opened.create_table("damaged.t", SCHEMA)
    [root] = (lake / "damaged" / "t" / "metadata" / "roots").glob("*.avro")
    root.chmod(0o644)
    root.write_bytes(b"damaged")
    with asked(lake) as client:
        error = error_of(client.get("/v1/v3/namespaces/damaged/tables/t"))
        assert (error["code"], error["type"]) == (500, "InternalServerError")
        assert "root-corrupt" in error["message"]
        assert "rootline check" in error["message"]
        assert metric(client, 'rootline_export_failures_total{code="root-corrupt"}') == 1


def test_an_export_that_takes_too_long_is_a_503_and_done_for_the_next(lake: Path) -> None:
    with connect(lake) as opened:
        opened.create_table("late.t", SCHEMA)
    with asked(lake, request_timeout_s=1e-9) as client:
        answer = client.get("/v1/v3/namespaces/late/tables/t")
        error = error_of(answer)
        assert (error["code"], error["type"]) == (503, "ServiceUnavailableException")
        assert int(answer.headers["retry-after"]) > 0
        assert "export-unfinished" in error["message"]


def test_answers_and_exports_are_counted(lake: Path) -> None:
    with connect(lake) as opened, asked(lake) as client:
        opened.create_table("counted.t", SCHEMA)
        path = "/v1/v3/namespaces/counted/tables/t"
        client.get(path)
        puts = metric(client, 'rootline_export_requests_total{kind="put"}')
        lists = metric(client, 'rootline_export_requests_total{kind="list"}')
        client.get(path)
        assert metric(client, 'rootline_export_requests_total{kind="put"}') == puts, "a second reader costs no PUT"
        assert metric(client, 'rootline_export_requests_total{kind="list"}') == (lists or 0) + 1, "only the head's LIST"
        assert metric(client, "rootline_export_seconds_count") == 1
        client.get("/v1/v3/namespaces/counted/tables/absent")
        client.post(path)
        assert metric(client, 'rootline_catalog_requests_total{code="200",route="table"}') == 2
        assert metric(client, 'rootline_catalog_requests_total{code="404",route="table"}') == 1
        assert metric(client, 'rootline_catalog_requests_total{code="406",route="write"}') == 1
        assert metric(client, 'rootline_export_lag_seconds{table="counted.t"}') == 0


def test_namespaces_of_several_levels_are_shown_level_by_level_with_their_properties(tmp_path: Path) -> None:
    with connect(tmp_path) as opened:
        opened.create_table("eu.north.sea.t", SCHEMA)
        opened.create_namespace("us", {"owner": "me"})
        opened.create_namespace("us.west")
    with asked(tmp_path) as client:

        def below(parent: str) -> list[list[str]]:
            return list(client.get("/v1/namespaces", params={"parent": parent}).json()["namespaces"])

        assert below("") == [["eu"], ["us"]]
        assert below("eu") == [["eu", "north"]]
        assert below("eu\x1fnorth") == [["eu", "north", "sea"]]
        assert below("eu\x1fnorth\x1fsea") == []
        assert client.get("/v1/namespaces/us").json() == {"namespace": ["us"], "properties": {"owner": "me"}}
        assert client.get("/v1/namespaces/eu%1Fnorth").json() == {"namespace": ["eu", "north"], "properties": {}}
        assert client.get("/v1/namespaces/eu/tables").json()["identifiers"] == []
        sea = "/v1/namespaces/eu%1Fnorth%1Fsea"
        assert client.get(f"{sea}/tables").json()["identifiers"] == [{"namespace": ["eu", "north", "sea"], "name": "t"}]
        assert "/eu.north.sea/t/" in client.get(f"{sea}/tables/t").json()["metadata-location"]
        for path in ("eu/tables/north.sea.t", "eu%1Fnorth/tables/sea.t", "eu%1Fsouth", "us%1Fwest%1Fx"):
            assert client.get(f"/v1/namespaces/{path}").status_code == 404


def test_views_are_listed_and_loaded_as_engines_read_them(tmp_path: Path) -> None:
    with connect(tmp_path) as opened:
        opened.create_table("demo.t", SCHEMA)
        bare = opened.create_view("a.b.bare", "SELECT 1")
        view = opened.create_view("demo.v", {"spark": "SELECT 1 AS n", "trino": "SELECT one"}, schema={"n": "long"})
        view.replace("SELECT 2 AS n", schema={"n": "long"}, default_catalog="lake", default_namespace="a.b")
        stored = json.loads(view.metadata().to_json())
        uuid = str(bare.metadata().view_uuid)
    with asked(tmp_path) as client:
        assert client.get("/v1/namespaces/demo/views").json()["identifiers"] == [{"namespace": ["demo"], "name": "v"}]
        assert client.get("/v1/namespaces/demo/tables").json()["identifiers"] == [{"namespace": ["demo"], "name": "t"}]
        assert client.get("/v1/namespaces").json()["namespaces"] == [["a"], ["demo"]]
        assert client.head("/v1/namespaces/demo/views/v").status_code == 204
        for path in ("demo/views/t", "demo/views/absent", "a/views/b.bare"):
            assert error_of(client.get(f"/v1/namespaces/{path}"))["type"] == "NoSuchViewException"
            assert client.head(f"/v1/namespaces/{path}").status_code == 404
        assert error_of(client.get("/v1/namespaces/demo/tables/v"))["type"] == "NoSuchTableException"
        assert client.head("/v1/namespaces/demo/tables/v").status_code == 404
        loaded = client.get("/v1/namespaces/demo/views/v").json()["metadata"]
        assert client.get("/v1/namespaces/a%1Fb/views/bare").json()["metadata"]["view-uuid"] == uuid
    assert {key: loaded[key] for key in stored if key != "versions"} == {
        key: stored[key] for key in stored if key != "versions"
    }
    current = loaded["versions"][1]
    assert (current["schema-id"], current["default-namespace"], current["default-catalog"]) == (1, ["a", "b"], "lake")


def test_a_view_is_where_its_metadata_location_says_wherever_it_says_that_it_lives(tmp_path: Path) -> None:
    with connect(tmp_path) as opened:
        uuid = str(uuid4())
        version = {"representations": [{"type": "sql", "sql": "SELECT 1", "dialect": "spark"}]}
        body = {"view-uuid": uuid, "location": "file:///elsewhere/v", "version": version}
        said = {"intent_id": "v", "table": "demo.v", "kind": "create_view", "table_uuid": uuid}
        made = Intent.model_validate(said | {"definition": json.dumps(body)})
        assert opened.producer().publish(made).verdict(30).code is None
        opened.view("demo.v").replace("SELECT 2 AS n", schema={"n": "long"})
        opened.view("demo.v").replace("SELECT 3")
    with asked(tmp_path) as client:
        loaded = client.get("/v1/namespaces/demo/views/v").json()
    assert Path(loaded["metadata-location"].removeprefix("file://")).is_file()
    assert loaded["metadata"]["location"] == "file:///elsewhere/v"
    current = [each for each in loaded["metadata"]["versions"] if each["version-id"] == 3]
    assert [each["schema-id"] for each in current] == [loaded["metadata"]["current-schema-id"]] == [0]


def test_pyiceberg_reads_views(tmp_path: Path) -> None:
    from pyiceberg.view.metadata import ViewMetadata

    with connect(tmp_path) as opened:
        opened.create_view("demo.v", "SELECT 1 AS n", schema={"n": "long"})
        opened.create_view("demo.bare", "SELECT 1")
    with asked(tmp_path) as client:
        for name, columns in (("v", ["n"]), ("bare", [])):
            body = client.get(f"/v1/namespaces/demo/views/{name}").json()["metadata"]
            view = ViewMetadata.model_validate(body)
            schema = next(each for each in view.schemas if each.schema_id == view.versions[0].schema_id)
            assert [field.name for field in schema.fields] == columns
            assert view.versions[0].representations[0].root.sql.startswith("SELECT 1")
