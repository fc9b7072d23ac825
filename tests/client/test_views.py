"""Views as a program uses them: made, read, changed, dropped, and never taken for a table."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from rootline.client.lake import Lake
from rootline.client.table_handle import TableHandle
from rootline.client.view_handle import ViewHandle
from rootline.connect import connect
from rootline.schemas.errors import Invalid

SCHEMA = pa.schema([("id", pa.int64())])
SQL = "SELECT carrier, count(*) AS n FROM flights GROUP BY carrier"


def refused(attempt: Callable[[], object]) -> str:
    with pytest.raises(Invalid) as caught:
        attempt()
    return caught.value.code


def add_column(table: TableHandle) -> None:
    with table.alter() as change:
        change.add_column("x", "long")


@pytest.fixture
def by_carrier(lake: Lake) -> ViewHandle:
    return lake.create_view(
        "demo.by_carrier", SQL, schema={"carrier": "string", "n": "long"}, properties={"comment": "how many"}
    )


def test_a_view_is_read_back_as_it_was_given(lake: Lake, by_carrier: ViewHandle, folder: Path) -> None:
    view = lake.view("demo.by_carrier").metadata()
    [text] = view.current_version.sql_texts
    assert (text.sql, text.dialect, text.default_namespace, text.default_catalog) == (SQL, "spark", ("demo",), None)
    assert view.properties == {"comment": "how many"}
    assert view.location == f"{folder.absolute().as_uri()}/demo/by_carrier"
    schema = view.schema_by_id(view.current_schema_id or 0)
    assert schema is not None
    assert [str(field.field_type) for field in schema.fields] == ["string", "long"]
    assert by_carrier.sql() == by_carrier.sql("Spark") == SQL
    assert refused(lambda: by_carrier.sql("trino")) == "view-invalid"


def test_a_view_is_replaced_rolled_back_and_shows_it_in_its_history(by_carrier: ViewHandle) -> None:
    by_carrier.replace({"spark": "SELECT 2", "trino": "SELECT two"}, default_namespace="a.b", default_catalog="lake")
    assert (by_carrier.sql(), by_carrier.sql("trino")) == ("SELECT 2", "SELECT two")
    assert by_carrier.metadata().current_version.sql_texts[1].default_namespace == ("a", "b")
    by_carrier.rollback(1)
    assert by_carrier.sql() == SQL
    assert [entry.version_id for entry in by_carrier.history()] == [1, 2, 1]
    by_carrier.set_properties({"owner": "me"})
    by_carrier.remove_properties(["comment", "absent"])
    assert by_carrier.metadata().properties == {"owner": "me"}
    assert refused(lambda: by_carrier.rollback(9)) == "view-version-unknown"
    assert refused(lambda: by_carrier.replace("SELECT 3", replaces_version=2)) == "view-changed"


def test_readers_keep_the_version_that_they_loaded(by_carrier: ViewHandle) -> None:
    before = by_carrier.metadata()
    by_carrier.replace("SELECT 2")
    assert before.current_version.sql_texts[0].sql == SQL
    assert by_carrier.metadata().current_version_id == 2


def test_a_table_reader_is_told_that_the_name_is_a_view(lake: Lake, by_carrier: ViewHandle) -> None:
    table = TableHandle(lake, by_carrier.name)
    for attempt in (
        lambda: lake.table("demo.by_carrier"),
        lambda: table.scan().to_arrow(),
        lambda: table.append({"id": [1]}),
        lambda: add_column(table),
        table.tree,
        table.tags,
        table.head,
        lambda: table.changes(from_version=0),
        lambda: table.delete_where("true"),
        table.definition,
        table.history,
        table.export,
        lambda: table.tag("t"),
        lambda: table.restore(version=0),
        lambda: lake.drop_table("demo.by_carrier"),
        lambda: lake.drop_table("demo.by_carrier", purge=True),
        lambda: lake.restore_table("demo.by_carrier"),
        lambda: lake.create_table("demo.by_carrier", SCHEMA, if_not_exists=True),
    ):
        assert refused(attempt) in ("name-is-view", "view-exists")
    with pytest.raises(
        Invalid, match=r"demo\.by_carrier is a view, not a table: `rootline view show demo\.by_carrier`"
    ):
        lake.table("demo.by_carrier")
    assert by_carrier.sql() == SQL
    assert list(table.check()) == []  # its chain of versions is checked as any other


def test_a_view_reader_is_told_that_the_name_is_a_table_or_nothing(lake: Lake, flights: TableHandle) -> None:
    assert refused(lambda: lake.view("demo.flights")) == "name-is-table"
    assert refused(lambda: lake.create_view("demo.flights", "SELECT 1")) == "table-exists"
    assert refused(lambda: lake.view("demo.absent")) == "view-unknown"
    flights.append({"id": [1], "carrier": ["UA"], "delay": [0.0]})
    assert flights.scan().count() == 1


def test_a_lake_drops_a_view_by_its_name_and_no_table(lake: Lake, by_carrier: ViewHandle, flights: TableHandle) -> None:
    lake.drop_view(by_carrier.name)
    assert lake.views() == []
    for name, code in ((by_carrier.name, "view-unknown"), (flights.name, "name-is-table")):
        with pytest.raises(Invalid) as caught:
            lake.drop_view(name)
        assert caught.value.code == code


def test_tables_and_views_are_listed_each_for_themselves(
    lake: Lake, flights: TableHandle, by_carrier: ViewHandle
) -> None:
    lake.create_view("a.b.v", "SELECT 1")
    assert (lake.list_tables(), lake.views()) == (["demo.flights"], ["a.b.v", "demo.by_carrier"])
    assert (lake.views("demo"), lake.views("a.b"), lake.views("a")) == (["demo.by_carrier"], ["a.b.v"], [])
    assert lake.namespaces() == ["a.b", "demo"]
    assert refused(lambda: lake.drop_namespace("a.b")) == "namespace-not-empty"
    lake.view("a.b.v").drop()
    assert lake.namespaces() == ["demo"]


def test_a_name_is_a_table_then_a_view_then_a_table(lake: Lake, flights: TableHandle) -> None:
    lake.drop_table("demo.flights")
    view = lake.create_view("demo.flights", "SELECT 1")
    assert refused(lambda: lake.table("demo.flights")) == "name-is-view"
    assert refused(lambda: lake.create_table("demo.flights", SCHEMA)) == "view-exists"
    view.drop()
    for attempt in (view.metadata, view.sql, view.drop, lambda: view.replace("SELECT 2"), lambda: view.rollback(1)):
        assert refused(attempt) == "view-unknown"
    table = lake.create_table("demo.flights", SCHEMA)
    table.append({"id": [7]})
    assert table.scan().to_arrow().to_pydict() == {"id": [7]}
    assert list(table.check()) == []
    assert refused(view.metadata) == "name-is-table"


def test_of_32_who_make_a_table_or_a_view_of_one_name_one_does(lake: Lake) -> None:
    def make(at: int) -> str:
        try:
            if at % 2:
                lake.create_table("demo.contested", SCHEMA)
            else:
                lake.create_view("demo.contested", f"SELECT {at}")
        except Invalid as error:
            return error.code
        return "table" if at % 2 else "view"

    with ThreadPoolExecutor(32) as threads:
        ended = list(threads.map(make, range(32)))
    [winner] = [word for word in ended if word in ("table", "view")]
    assert set(ended) - {winner} == {f"{winner}-exists"}
    assert (lake.list_tables() != [], lake.views() != []) == (winner == "table", winner == "view")


def test_a_view_is_there_when_the_lake_is_opened_again(lake: Lake, by_carrier: ViewHandle, folder: Path) -> None:
    by_carrier.replace("SELECT 2")
    lake.close()
    with connect(folder) as again:
        view = again.view("demo.by_carrier")
        assert view.sql() == "SELECT 2"
        view.rollback(1)
        assert pickle.loads(pickle.dumps(view)).sql() == SQL


@pytest.mark.parametrize("sql", ["", {}, {"spark": ""}, {"": "SELECT 1"}])
def test_a_view_without_a_text_is_refused(lake: Lake, sql: str | dict[str, str]) -> None:
    assert refused(lambda: lake.create_view("demo.v", sql)) == "setting-invalid"
    assert lake.views() == []


def test_a_view_that_cannot_be_is_refused_and_is_not_there(lake: Lake) -> None:
    assert refused(lambda: lake.create_view("demo.v", {"spark": "x", "Spark": "y"})) == "view-dialect-twice"
    assert refused(lambda: lake.create_view("demo.v", "x" * 10_000_000)) in ("intent-too-large", "view-too-large")
    wrong = {"version.history.num-entries": "many"}
    assert refused(lambda: lake.create_view("demo.v", "x", properties=wrong)) == "view-invalid"
    assert (lake.views(), lake.list_tables()) == ([], [])


def test_every_version_of_a_view_is_one_object_beside_its_definition(
    lake: Lake, by_carrier: ViewHandle, folder: Path
) -> None:
    for number in range(3):
        by_carrier.replace(f"SELECT {number}")
    roots = sorted(path.name for path in (folder / "demo/by_carrier/metadata/roots").glob("*.avro"))
    assert [int(name.split("-")[1].removesuffix(".avro")) for name in roots] == [3, 2, 1, 0]
    others = [path for path in (folder / "demo/by_carrier").rglob("*") if path.is_file() and "roots" not in path.parts]
    assert len(others) == 1
    assert json.loads(others[0].read_bytes())["table-uuid"] == str(by_carrier.metadata().view_uuid)


def test_sql_that_is_too_long_hears_to_be_shortened(lake: Lake) -> None:
    with pytest.raises(Invalid, match="shorten its SQL") as raised:
        lake.create_view("demo.v", "x" * 2_000_000)
    assert raised.value.code == "intent-too-large"
