"""The console's data: who may ask, what is answered, and how much of it at most."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from rootline.catalog.rest.http_settings import HttpSettings
from rootline.catalog.rest.serving import serve_app
from rootline.coordinator.http.server import LEAVES_MAX, PAGE, ROWS_MAX, http_app, open_paths
from rootline.coordinator.runtime.table.table_states import LakeTables, TableState, TableStatus
from rootline.schemas.errors import Unavailable
from rootline.schemas.identifiers import TableName
from rootline.tree.view import TreeOutline, outline_of
from tests.coordinator.running_service import TABLE, Running, append_intent, running

LOCAL = "http://127.0.0.1"
HOSTILE = "<script>alert(1)</script>"


class KnownLake:
    """A lake of so many tables, one of which has a tree."""

    def __init__(self, tables: int = 0, tree: TreeOutline | None = None) -> None:
        found = tuple(TableStatus(TableName(f"n.t{number:05}"), TableState.IDLE, 1, 0) for number in range(tables))
        self.known = LakeTables(found, (), 1)
        self.tree = tree
        self.asked: list[str] = []
        self.fails = False

    def tables(self) -> LakeTables:
        return self.known

    async def outline(self, table: TableName) -> TreeOutline | None:
        self.asked.append(table)
        if self.fails:
            raise Unavailable("store-unavailable", "no answer")
        return self.tree


def client_of(service: Running, lake: KnownLake | None = None, base_url: str = LOCAL) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(http_app(service.service, lake=lake))
    return httpx.AsyncClient(transport=transport, base_url=base_url)


async def said(client: httpx.AsyncClient, path: str, **values: Any) -> Any:
    answer = await client.get(f"/console/data/{path}", params=values)
    assert answer.status_code == 200, answer.text
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"
    return answer.json()


async def test_the_overview_has_what_happened_and_then_only_what_is_new() -> None:
    async with running() as service, client_of(service) as client:
        await service.create()
        await service.commit(append_intent("one"), append_intent("bad", location="../x"))
        first = await said(client, "overview")
        assert [event["kind"] for event in first["events"]].count("commit") == 2
        [rejection] = [event for event in first["events"] if event["kind"] == "rejection"]
        assert (rejection["table"], rejection["code"], rejection["intent_id"]) == (TABLE, "location-invalid", "bad")
        assert first["codes"] == [{"code": "location-invalid", "count": 1, "last_ms": rejection["at_ms"]}]
        assert [item["code"] for item in first["findings"]] == ["location-invalid"]
        second = await said(client, "overview", after=first["number"])
        assert second["events"] == []
        assert second["ready"] is True
        assert second["started_ms"] == first["started_ms"]


async def test_lag_is_sampled_and_only_later_samples_are_answered() -> None:
    async with running() as service, client_of(service) as client:
        await service.create()
        await service.service.sample()
        [sample] = (await said(client, "overview"))["samples"]
        assert (sample["lag"], sample["commits"]) == (0, 1)
        assert (await said(client, "overview", since_ms=sample["at_ms"]))["samples"] == []


async def test_a_thousand_tables_come_in_pages_and_can_be_searched() -> None:
    async with running() as service, client_of(service, KnownLake(1_000)) as client:
        await service.create()
        page = await said(client, "tables", offset=990)
        assert (page["matching"], len(page["tables"])) == (1_001, 11)
        found = await said(client, "tables", search="T00042")
        assert [row["name"] for row in found["tables"]] == ["n.t00042"]
        assert (await said(client, "tables", state="quarantined"))["matching"] == 0
        assert len((await said(client, "tables", limit=ROWS_MAX))["tables"]) == ROWS_MAX
        for wrong, reason in (
            ({"limit": ROWS_MAX + 1}, "limit is too large: the most is 200"),
            ({"offset": -1}, "offset is too small: the least is 0"),
            ({"search": "x" * 301}, "search has 301 characters: the most is 300"),
            ({"limit": "many"}, "limit='many' is not a whole number"),
        ):
            refused = await client.get("/console/data/tables", params=wrong)
            assert (refused.status_code, refused.json()) == (422, {"error": reason})


async def test_a_tables_tree_is_read_once_for_each_version_and_says_why_it_is_missing() -> None:
    lake = KnownLake()
    async with running() as service, client_of(service, lake) as client:
        await service.create()
        await service.commit(append_intent("one"))
        head = service.service.assignment
        assert head is not None
        state = head.tables[TABLE].machine.head
        assert state is not None
        lake.tree = outline_of(state)
        told = await said(client, "table", name=TABLE)
        assert (told["tree"]["version"], told["tree"]["groups"][0]["files"]) == (1, 1)
        assert told["row"]["state"] == "idle"
        assert (await said(client, "table", name=TABLE, known=1))["tree"] is None
        assert lake.asked == [TABLE], "a version that the page has is not read again"
        lake.fails = True
        assert "no answer" in (await said(client, "table", name=TABLE))["tree_missing"]
        nothing = await said(client, "table", name="no.such")
        assert (nothing["row"], nothing["tree"]) == (None, None)
        assert LEAVES_MAX < 1_000


async def test_a_code_is_explained_as_the_command_does_it_and_has_a_page() -> None:
    async with running() as service, client_of(service) as client:
        told = await said(client, "code", name="root-corrupt")
        assert {"cause", "do", "do_not", "says"} <= told.keys()
        page = await client.get("/console/codes/root-corrupt.md")
        assert page.text.startswith("# `root-corrupt`")
        assert page.headers["content-type"].startswith("text/plain")
        assert (await client.get("/console/data/code", params={"name": HOSTILE})).status_code == 404
        assert (await client.get("/console/codes/nothing.md")).status_code == 404


async def test_hostile_names_are_answered_as_json_that_no_browser_takes_for_a_page() -> None:
    async with running() as service, client_of(service) as client:
        await service.decide(b"junk", key=HOSTILE.encode())
        answer = await client.get("/console/data/overview")
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["content-security-policy"].startswith("default-src 'none'")
        assert HOSTILE in [event["table"] for event in answer.json()["events"]]


async def test_the_pages_files_run_nothing_that_is_not_ours_and_need_nothing_from_elsewhere() -> None:
    async with running() as service, client_of(service) as client:
        for path in PAGE:
            answer = await client.get(path)
            assert answer.status_code == 200
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert re.findall(r"https?://(?!www\.w3\.org/2000/svg)[^\s\"')]+", answer.text) == []
            assert not re.search(
                r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|\son\w+=|style=", answer.text
            )
        assert not re.search(r"<script(?![^>]*\ssrc=)", (await client.get("/")).text), "no script in the page itself"


def test_every_file_of_the_page_is_served() -> None:
    folder = Path(__file__).parents[2] / "coordinator" / "http" / "page"
    assert {path.name for path in folder.iterdir()} == {name for name, _ in PAGE.values()}


@pytest.mark.parametrize("host", ["http://lake.example", "http://127.0.0.1.example", "http://[bad", "http://10.0.0.1"])
async def test_without_a_token_only_this_machine_under_its_own_name_is_answered(host: str) -> None:
    async with running() as service, client_of(service) as client:
        named = host.removeprefix("http://")
        answer = await client.get("/console/data/overview", headers={"Host": named})
        assert answer.status_code == 403
        assert "ROOTLINE_HTTP__TOKEN" in answer.json()["error"]
        assert (await client.get("/", headers={"Host": named})).status_code == 200


async def test_another_machine_is_not_answered_without_a_token() -> None:
    async with running() as service:
        transport = httpx.ASGITransport(http_app(service.service), client=("10.0.0.7", 4711))
        async with httpx.AsyncClient(transport=transport, base_url=LOCAL) as client:
            for path in ("overview", "tables", "table?name=a.b", "code?name=root-corrupt"):
                assert (await client.get(f"/console/data/{path}")).status_code == 403


async def test_with_a_token_data_needs_it_and_the_page_does_not() -> None:
    async with running() as service:
        settings = HttpSettings(token="secret")  # type: ignore[arg-type]
        served = serve_app(http_app(service.service), "127.0.0.1", 0, settings, open_paths())
        async with served as url, httpx.AsyncClient(base_url=url) as client:
            assert (await client.get("/")).status_code == 200
            assert (await client.get("/console/console.js")).status_code == 200
            for path in ("overview", "tables", "table?name=a.b", "code?name=root-corrupt"):
                assert (await client.get(f"/console/data/{path}")).status_code == 401
                answer = await client.get(
                    f"/console/data/{path}", headers={"Authorization": "Bearer secret", "Host": "lake.example"}
                )
                assert answer.status_code == 200, "with a token, by whatever name"


async def test_nothing_can_be_changed_and_the_console_can_be_left_out() -> None:
    async with running() as service, client_of(service) as client:
        for path in ("/", "/console/data/overview", "/console/data/tables"):
            assert (await client.post(path)).status_code == 405
        transport = httpx.ASGITransport(http_app(service.service, console=False))
        async with httpx.AsyncClient(transport=transport, base_url=LOCAL) as without:
            assert (await without.get("/")).status_code == 404
            assert (await without.get("/console/data/overview")).status_code == 404
