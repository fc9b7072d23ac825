"""Changes of tables that clients send at the same time, and changes whose outcome no one knows in time."""

from __future__ import annotations

import asyncio
import threading
import uuid
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.types import LongType

from rootline.adapters.system_environment import SystemEnvironment
from rootline.client import new_files, planned_change
from rootline.client.producer import await_verdict
from rootline.client.session import Session, WriterStamp
from rootline.connect import connect
from rootline.rest import appends, client_files, writing
from rootline.schemas.errors import Unavailable
from rootline.schemas.intent import Intent
from rootline.schemas.verdict import Verdict, VerdictKind
from rootline.tree.parts.ledger import CLIENT_RETENTION_S
from tests.catalog.pyiceberg_catalog import catalog_at
from tests.catalog.served_catalog import served
from tests.rest.hand_made import ADDED, HandMade, fresh_id
from tests.rest.writing_catalog import SCHEMA, WritingCatalog, problem, writing_catalog


def test_a_change_without_a_verdict_in_time_has_an_unknown_outcome(tmp_path: Path) -> None:
    with writing_catalog(tmp_path / "lake") as found:
        assert found.create("demo", name="kept", schema=SCHEMA).status_code == 200
    asked = {"updates": [{"action": "set-properties", "updates": {"a": "b"}}]}
    with served(tmp_path / "lake", log="", commit_timeout_s=1.5) as url, httpx.Client(base_url=f"{url}/v1") as client:
        answer = client.post("/namespaces/demo/tables/kept", json=asked)  # no coordinator runs
    assert problem(answer)[0] == 504
    assert answer.json()["error"]["type"] == "CommitStateUnknownException"
    with connect(tmp_path / "lake") as lake:
        lake.table("demo.kept").append({"id": [1]})
        assert lake.table("demo.kept").definition().properties["a"] == "b"


def test_two_clients_that_alter_at_once_both_succeed(catalog: WritingCatalog, table: str) -> None:
    failed: list[BaseException] = []

    def alter(column: str) -> None:
        with catalog_at(catalog.url, "own") as client:
            for number in range(3):
                for _ in range(20):
                    try:
                        with client.load_table(table).update_schema() as change:
                            change.add_column(f"{column}{number}", LongType())
                        break
                    except CommitFailedException:
                        continue
                    except BaseException as error:
                        failed.append(error)
                        return
                else:
                    failed.append(AssertionError(f"{column}{number} was never added"))

    threads = [threading.Thread(target=alter, args=(column,)) for column in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    fields = catalog.lake.table(table).definition().schema.fields
    assert {field.name for field in fields} == {"id", "ts", *(f"{one}{number}" for one in "ab" for number in range(3))}
    assert len({field.field_id for field in fields}) == 8


def test_changes_whose_requirements_still_hold_are_planned_again_by_the_catalog(
    catalog: WritingCatalog, table: str
) -> None:
    require = [{"type": "assert-current-schema-id", "current-schema-id": 0}]
    answers: list[int] = []

    def order(column: int, *widths: int) -> None:
        for width in widths:
            field = {"source-id": column, "direction": "asc", "null-order": "nulls-first"}
            fields = [{**field, "transform": f"bucket[{width}]"}]
            update = {"action": "add-sort-order", "sort-order": {"order-id": 1, "fields": fields}}
            answers.append(catalog.commit(table, [update], require).status_code)

    threads = [threading.Thread(target=order, args=(column, 2, 3, 4, 5)) for column in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [200] * 8
    assert len(catalog.lake.table(table).definition().sort_orders) == 9


def test_two_clients_that_set_different_properties_need_no_retry(catalog: WritingCatalog, table: str) -> None:
    with catalog_at(catalog.url, "own") as first, catalog_at(catalog.url, "own") as second:
        tables = [client.load_table(table) for client in (first, second)]
        for number, each in enumerate(tables):
            with each.transaction() as transaction:
                transaction.set_properties({f"p{number}": "1"})
    assert {"p0", "p1"} <= catalog.load(table)["properties"].keys()


def test_a_change_whose_verdict_cannot_be_read_is_unknown_because_it_may_be_committed(
    catalog: WritingCatalog, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object, **__: object) -> None:
        raise Unavailable("log-unavailable", "the log is away")

    with monkeypatch.context() as changed:
        changed.setattr(new_files, "await_verdict", away)
        answer = catalog.commit(table, [{"action": "set-properties", "updates": {"late": "1"}}])
    status, message = problem(answer)
    assert (status, answer.json()["error"]["type"]) == (504, "CommitStateUnknownException")
    assert "the log is away" in message


def test_a_change_that_was_committed_before_and_forgotten_is_no_4xx(
    catalog: WritingCatalog, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def forgotten(*given: Any, **named: Any) -> Verdict:
        verdict = await await_verdict(*given, **named)
        return verdict.model_copy(update={"version": None, "snapshot_id": None})

    with monkeypatch.context() as changed:
        changed.setattr(new_files, "await_verdict", forgotten)
        answer = catalog.commit(table, [{"action": "set-properties", "updates": {"again": "1"}}])
    assert problem(answer)[0] == 500
    assert answer.json()["error"]["type"] == "CommitStateUnknownException"
    assert catalog.load(table)["properties"]["again"] == "1"


@pytest.mark.parametrize("location", ["", "../x.metadata.json", "\0", "x/\0"])
def test_a_table_is_not_registered_from_a_place_relative_to_the_server(catalog: WritingCatalog, location: str) -> None:
    answer = catalog.client.post("/namespaces/demo/register", json={"name": "near", "metadata-location": location})
    status, message = problem(answer)
    assert status == 400
    assert "is relative" in message


@pytest.mark.parametrize(
    ("change", "rows_after"),
    [
        ([{"action": "remove-snapshot-ref", "ref-name": "main"}], 0),
        ([{"action": "set-properties", "updates": {"seen": "1"}}], 2),
    ],
    ids=["replace", "alter"],
)
def test_no_row_arrives_between_the_check_of_a_required_snapshot_and_the_commit(
    catalog: WritingCatalog, table: str, monkeypatch: pytest.MonkeyPatch, change: list[Any], rows_after: int
) -> None:
    rows = catalog.lake.table(table)
    one = pa.Table.from_pylist([{"id": 1, "ts": None}], schema=rows.scan().to_arrow().schema)
    rows.append(one)
    seen = catalog.load(table)["current-snapshot-id"]
    publish = planned_change.verdict_on
    late: list[int] = []

    async def after_another(*given: Any, **named: Any) -> Verdict:
        if not late:
            late.append(1)
            await asyncio.to_thread(rows.append, one)
        return await publish(*given, **named)

    require = [{"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": seen}]
    with monkeypatch.context() as changed:
        changed.setattr(planned_change, "verdict_on", after_another)
        answer = catalog.commit(table, change, require)
    assert (answer.status_code, answer.json()["error"]["type"]) == (409, "CommitFailedException")
    assert rows.scan().to_arrow().num_rows == 2
    require[0]["snapshot-id"] = catalog.load(table)["current-snapshot-id"]
    assert catalog.commit(table, change, require).status_code == 200
    assert rows.scan().to_arrow().num_rows == rows_after


@pytest.mark.parametrize(
    ("required", "change", "refused"),
    [
        ([{"type": "assert-current-schema-id", "current-schema-id": 0}], "column", 409),
        ([{"type": "assert-last-assigned-field-id", "last-assigned-field-id": 2}], "column", 409),
        ([{"type": "assert-default-spec-id", "default-spec-id": 0}], "spec", 409),
        ([{"action": "upgrade-format-version", "format-version": 2}], "format", 400),
        ([], "sweep", 400),
        ([], "sweep and back", 400),
        ([], "drop and restore", 404),
    ],
    ids=["schema", "field", "spec", "format", "metadata-folder", "to-and-fro", "restored"],
)
def test_rows_that_one_catalog_refused_are_not_committed_by_a_slower_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, required: list[Any], change: str, refused: int
) -> None:
    reached, may_go_on = threading.Event(), threading.Event()
    difference = appends.difference

    async def slow_at_first(*given: Any) -> Any:
        if not reached.is_set():
            reached.set()
            await asyncio.to_thread(may_go_on.wait)
        return await difference(*given)

    with writing_catalog(tmp_path) as catalog, served(tmp_path, log="") as url:
        properties = {"rootline.export.format": "2", "rootline.sweep.client-files": "true"}
        assert catalog.create("demo", name="kept", schema=SCHEMA, properties=properties).status_code == 200
        earlier = HandMade(catalog, "demo.kept")
        assert catalog.commit("demo.kept", *earlier.append(earlier.file(9))).status_code == 200
        client = HandMade(catalog, "demo.kept")
        updates, requirements = _append_in_metadata(client)
        body = {
            "requirements": [*requirements, *(each for each in required if "type" in each)],
            "updates": [*(each for each in required if "action" in each), *updates],
        }
        monkeypatch.setattr(appends, "difference", slow_at_first)
        slow: list[httpx.Response] = []
        thread = threading.Thread(
            target=lambda: slow.append(httpx.post(f"{url}/v1/own/namespaces/demo/tables/kept", json=body, timeout=60))
        )
        thread.start()
        assert reached.wait(30), "the slower catalog has checked what the client requires"
        there, _, back = change.partition(" and ")
        try:
            _change(catalog, there)
            status, message = problem(catalog.client.post("/namespaces/demo/tables/kept", json=body))
            if back:
                _change(catalog, back)
        finally:
            may_go_on.set()
            thread.join()
        assert (status, 400 <= slow[0].status_code < 500) == (refused, True), (message, slow[0].text)
        assert client.ids() == [9]


@pytest.mark.parametrize("what", ["table", "view"])
def test_a_create_that_one_catalog_refused_is_not_committed_when_its_name_is_free_again(
    tmp_path: Path, what: str
) -> None:
    with writing_catalog(tmp_path) as catalog:
        staged = catalog.create("demo", name="kept", schema=SCHEMA, **{"stage-create": True}).json()["metadata"]
        client = HandMade(catalog, "demo.kept", metadata=staged)
        updates, _ = client.append(client.file(1))
        made = [
            {"action": "assign-uuid", "uuid": staged["table-uuid"]},
            {"action": "add-schema", "schema": staged["schemas"][-1]},
            {"action": "set-current-schema", "schema-id": -1},
        ]
        request = ("demo.kept", [*made, *updates], [{"type": "assert-create"}])
        if what == "table":
            assert catalog.create("demo", name="kept", schema=SCHEMA).status_code == 200
        else:
            catalog.lake.create_view("demo.kept", "SELECT 1 AS id")
        assert catalog.commit(*request).status_code == 409
        catalog.lake.drop_table("demo.kept") if what == "table" else catalog.lake.drop_view("demo.kept")
        status, message = problem(catalog.commit(*request))
        assert (status, "request-refused" in message) == (409, True), message
        assert catalog.create("demo", name="kept", schema=SCHEMA).status_code == 200


def test_a_request_whose_refusal_cannot_be_recorded_is_an_unknown_outcome(
    client: HandMade, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unreachable(*_: Any, **__: Any) -> Verdict:
        raise Unavailable("log-unavailable", "the log does not respond: check it")

    request = client.append(client.file(1))
    removing = (request[0], [*request[1], {"type": "assert-current-schema-id", "current-schema-id": 99}])
    with monkeypatch.context() as changed:
        changed.setattr(appends, "verdict_on", unreachable)
        status, message = problem(client.catalog.commit(client.table, *removing))
    assert (status, "the log does not respond" in message) == (500, True), message
    assert problem(client.catalog.commit(client.table, *removing))[0] == 409


def test_a_catalog_that_was_stopped_longer_than_the_ledger_remembers_publishes_no_old_plan(
    client: HandMade, monkeypatch: pytest.MonkeyPatch
) -> None:
    difference, now_ms, stopped_ms = appends.difference, SystemEnvironment.now_ms, [0]

    async def stopped(*given: Any) -> Any:
        found = await difference(*given)
        stopped_ms[0] = 1_000 * CLIENT_RETENTION_S
        return found

    request = client.append(client.file(1))
    with monkeypatch.context() as changed:
        changed.setattr(SystemEnvironment, "now_ms", lambda self: now_ms(self) + stopped_ms[0])
        changed.setattr(appends, "difference", stopped)
        status, message = problem(client.catalog.commit(client.table, *request))
    assert (status, "was stopped" in message) == (500, True), message
    assert client.ids() == []
    assert client.catalog.commit(client.table, *request).status_code == 200


@pytest.mark.parametrize("code", ["not-permitted", "table-parked", "lake-mismatch", "intent-malformed"])
def test_a_request_whose_refusal_is_rejected_without_a_record_is_an_unknown_outcome(
    client: HandMade, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    async def unrecorded(_: Session, __: WriterStamp, intent: Intent, **___: Any) -> Verdict:
        return Verdict(
            intent_id=intent.intent_id,
            table=intent.table,
            kind=VerdictKind.REJECTED,
            log="log",
            partition=0,
            offset=7,
            code=code,
            message="the ledger does not know it",
        )

    updates, required = client.append(client.file(1))
    refused = (client.table, updates, [*required, {"type": "assert-current-schema-id", "current-schema-id": 99}])
    with monkeypatch.context() as changed:
        changed.setattr(appends, "verdict_on", unrecorded)
        status, message = problem(client.catalog.commit(*refused))
    assert (status, f"the ledger does not know it [{code}]" in message) == (500, True), message
    assert problem(client.catalog.commit(*refused))[0] == 409


def test_rows_are_committed_although_a_property_changes_to_and_fro_between_their_plans(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish, left = appends.verdict_on, ["2", "1"]
    with writing_catalog(tmp_path) as catalog:

        async def after_a_change(*given: Any, **named: Any) -> Verdict:
            if left:
                updates = [{"action": "set-properties", "updates": {"x": left.pop(0)}}]
                assert (await asyncio.to_thread(catalog.commit, "demo.kept", updates)).status_code == 200
            return await publish(*given, **named)

        assert catalog.create("demo", name="kept", schema=SCHEMA, properties={"x": "1"}).status_code == 200
        client = HandMade(catalog, "demo.kept")
        updates, requirements = client.append(client.file(1))
        named = {"type": "assert-current-schema-id", "current-schema-id": 0}
        monkeypatch.setattr(appends, "verdict_on", after_a_change)
        assert catalog.commit("demo.kept", updates, [*requirements, named]).status_code == 200
        assert (left, client.ids()) == ([], [1])


def test_a_hanging_read_of_a_refused_commit_delays_no_other_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_files, "SMALL_BYTES", 1)  # every list is large
    monkeypatch.setattr(writing, "LARGE_LISTS_AT_ONCE", 1)
    read = client_files.ClientReads._read

    async def hanging(self: client_files.ClientReads, location: str, *limits: Any) -> bytes:
        if "/export/" in location and self.folder.table == "demo.kept":
            await asyncio.Event().wait()
        return await read(self, location, *limits)

    with writing_catalog(tmp_path) as catalog:
        for name in ("kept", "far"):
            assert catalog.create("demo", name=name, schema=SCHEMA).status_code == 200
            first = HandMade(catalog, f"demo.{name}")
            assert catalog.commit(f"demo.{name}", *first.append(first.file(9))).status_code == 200
        client, far = HandMade(catalog, "demo.kept"), HandMade(catalog, "demo.far")
        updates, requirements = client.append(client.file(1))
        Path(updates[0]["snapshot"]["manifest-list"].removeprefix("file://")).unlink()
        monkeypatch.setattr(client_files.ClientReads, "_read", hanging)
        assert catalog.commit("demo.kept", updates, requirements).status_code == 400
        assert catalog.commit("demo.far", *far.append(far.file(1))).status_code == 200
        assert far.ids() == [1, 9]


def _append_in_metadata(client: HandMade) -> tuple[list[Any], list[Any]]:
    """A request whose list and manifest are in `metadata/`, as some clients write them."""
    snapshot_id, folder = fresh_id(), f"{client.location}/metadata"
    manifest = client.manifest(snapshot_id, [(ADDED, client.file(1))], path=f"{folder}/{uuid.uuid4()}-m0.avro")
    where = f"{folder}/snap-{snapshot_id}-0-{uuid.uuid4()}.avro"
    listed = client.manifest_list(snapshot_id, [*client.inherited(), manifest], path=where)
    return client.request(client.snapshot(snapshot_id, listed, added_data_files="1"))


def _change(catalog: WritingCatalog, change: str) -> None:
    match change:
        case "drop":
            catalog.lake.drop_table("demo.kept")
            return
        case "restore":
            catalog.lake.restore_table("demo.kept")
            return
        case "sweep" | "back":
            is_on = str(change == "back").lower()
            updates: list[Any] = [{"action": "set-properties", "updates": {"rootline.sweep.client-files": is_on}}]
        case "column":
            column = {"id": 3, "name": "more", "type": "long", "required": False}
            schema = {**catalog.load("demo.kept")["schemas"][0]}
            schema["fields"] = [*schema["fields"], column]
            updates = [
                {"action": "add-schema", "schema": schema},
                {"action": "set-current-schema", "schema-id": -1},
            ]
        case "spec":
            field = {"source-id": 1, "transform": "bucket[4]", "name": "id_bucket"}
            updates = [
                {"action": "add-spec", "spec": {"fields": [field]}},
                {"action": "set-default-spec", "spec-id": -1},
            ]
        case _:
            updates = [{"action": "set-properties", "updates": {"rootline.export.format": "3"}}]
    no_replace = [{"type": "assert-current-schema-id", "current-schema-id": 0}]
    assert catalog.commit("demo.kept", updates, no_replace).status_code == 200


def test_rows_with_a_requirement_that_no_intent_can_have_are_refused(catalog: WritingCatalog, table: str) -> None:
    client = HandMade(catalog, table)
    updates, requirements = client.append(client.file(1))
    tag = {"type": "assert-ref-snapshot-id", "ref": "old", "snapshot-id": None}
    status, message = problem(catalog.commit(table, updates, [*requirements, tag]))
    assert (status, client.ids()) == (400, [])
    assert "'old' is required" in message
