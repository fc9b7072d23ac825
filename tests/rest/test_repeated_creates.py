"""A create that a client stages and sends more than once is one table, and every copy of the request is done."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from rootline.rest import appends, tables, writing
from tests.catalog.served_catalog import served
from tests.rest.hand_made import HandMade, fresh_id
from tests.rest.writing_catalog import SCHEMA, WritingCatalog, problem, writing_catalog

Body = dict[str, Any]
_DEADLINE_S = 30


def _together(count: int) -> Callable[[], Awaitable[None]]:
    """A place where callers wait until `count` of them are there."""
    arrived, are_there = itertools.count(1), threading.Event()

    async def meet() -> None:
        if next(arrived) >= count:
            are_there.set()
        assert await asyncio.to_thread(are_there.wait, _DEADLINE_S)

    return meet


def _body(catalog: WritingCatalog, name: str, *, rows: bool, uuid_too: bool, owner: str = "me") -> Body:
    """The commit of a staged table, with one file if it has `rows`."""
    staged = catalog.create("demo", name=name, schema=SCHEMA, **{"stage-create": True}).json()["metadata"]
    client = HandMade(catalog, f"demo.{name}", metadata=staged)
    added = client.append(client.file(1, 2), snapshot_id=fresh_id())[0] if rows else []
    assigned = [{"action": "assign-uuid", "uuid": staged["table-uuid"]}] if uuid_too else []
    made = [
        {"action": "add-schema", "schema": staged["schemas"][-1]},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "set-properties", "updates": {"owner": owner}},
    ]
    return {"requirements": [{"type": "assert-create"}], "updates": [*assigned, *made, *added]}


def _at_once(name: str, body: Body, *clients: httpx.Client) -> list[httpx.Response]:
    """The responses for the body, which each client sends at the same time."""
    found: list[httpx.Response] = []

    def send(client: httpx.Client) -> None:
        found.append(client.post(f"/namespaces/demo/tables/{name}", json=body))

    threads = [threading.Thread(target=send, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


@pytest.fixture
def two(tmp_path: Path) -> Iterator[tuple[WritingCatalog, httpx.Client]]:
    """A catalog of a lake, and a client of another catalog of it."""
    with (
        writing_catalog(tmp_path / "lake") as catalog,
        served(tmp_path / "lake", log="") as url,
        httpx.Client(base_url=f"{url}/v1/own", timeout=60) as other,
    ):
        yield catalog, other


@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("uuid_too", [False, True])
def test_a_create_that_arrives_twice_at_once_is_done_for_both(
    catalog: WritingCatalog, monkeypatch: pytest.MonkeyPatch, rows: bool, uuid_too: bool
) -> None:
    name = f"twice_{int(rows)}{int(uuid_too)}"
    body, both_arrived = _body(catalog, name, rows=rows, uuid_too=uuid_too), threading.Barrier(2)
    digest_of = writing._digest_of

    def met(*given: Any) -> str:
        found = digest_of(*given)
        both_arrived.wait(_DEADLINE_S)
        return found

    with monkeypatch.context() as changed:
        changed.setattr(writing, "_digest_of", met)
        answers = _at_once(name, body, catalog.client, catalog.client)
    assert [each.status_code for each in answers] == [200, 200], [each.text for each in answers]
    assert len({each.json()["metadata"]["table-uuid"] for each in answers}) == 1
    assert len(catalog.lake.table(f"demo.{name}").history(limit=10, everything=True)) == 1
    assert catalog.lake.table(f"demo.{name}").scan().to_arrow().num_rows == (2 if rows else 0)


@pytest.mark.parametrize(
    ("rows", "uuid_too"),
    [(True, False), (True, True), (False, True)],
    ids=["rows", "rows and a uuid", "a uuid"],
)
def test_a_create_that_arrives_at_two_catalogs_at_once_is_done_at_both(
    two: tuple[WritingCatalog, httpx.Client], monkeypatch: pytest.MonkeyPatch, rows: bool, uuid_too: bool
) -> None:
    catalog, other = two
    body, meet = _body(catalog, "both", rows=rows, uuid_too=uuid_too), _together(2)
    place, name = (appends, "verdict_on") if rows else (tables, "create_table")
    publish = getattr(place, name)

    async def after_the_other(*given: Any, **named: Any) -> Any:
        await meet()
        return await publish(*given, **named)

    with monkeypatch.context() as changed:
        changed.setattr(place, name, after_the_other)
        answers = _at_once("both", body, catalog.client, other)
    assert [each.status_code for each in answers] == [200, 200], [each.text for each in answers]
    assert catalog.lake.table("demo.both").scan().to_arrow().num_rows == (2 if rows else 0)


def test_a_create_without_rows_whose_answer_was_lost_is_done_when_it_is_sent_again(catalog: WritingCatalog) -> None:
    body = _body(catalog, "lost", rows=False, uuid_too=True)
    first, again = (catalog.client.post("/namespaces/demo/tables/lost", json=body) for _ in range(2))
    assert [first.status_code, again.status_code] == [200, 200]
    assert again.json()["metadata"] == first.json()["metadata"]


@pytest.mark.parametrize("uuid_too", [False, True])
def test_another_create_of_the_name_fails(catalog: WritingCatalog, uuid_too: bool) -> None:
    name = f"taken_{int(uuid_too)}"
    body = _body(catalog, name, rows=False, uuid_too=uuid_too)
    theirs = _body(catalog, name, rows=False, uuid_too=uuid_too)
    assert catalog.commit(f"demo.{name}", body["updates"], body["requirements"]).status_code == 200
    changed = [*body["updates"], {"action": "set-properties", "updates": {"owner": "you"}}]
    for updates in (theirs["updates"], changed):
        assert problem(catalog.commit(f"demo.{name}", updates, body["requirements"])) == (
            409,
            "Requirement failed: table already exists",
        )


def test_a_create_with_rows_whose_manifests_were_deleted_is_done_when_it_is_sent_again(
    catalog: WritingCatalog,
) -> None:
    body = _body(catalog, "gone", rows=True, uuid_too=False)
    assert catalog.commit("demo.gone", body["updates"], body["requirements"]).status_code == 200
    folder = Path(catalog.load("demo.gone")["location"].removeprefix("file://"))
    for each in (folder / "rest/metadata").iterdir():
        each.unlink()
    assert catalog.commit("demo.gone", body["updates"], body["requirements"]).status_code == 200
    assert catalog.lake.table("demo.gone").scan().to_arrow().num_rows == 2
