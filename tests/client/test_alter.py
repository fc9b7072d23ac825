"""`table.alter()`: columns and properties change, and every file of the table stays readable."""

from __future__ import annotations

import datetime as dt
import threading
from pathlib import Path

import pyarrow as pa
import pytest

from rootline import Invalid, connect
from rootline.client.lake import Lake
from rootline.client.table_handle import TableHandle
from rootline.schemas.table_properties import check_set


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    with connect(tmp_path / "lake") as found:
        yield found


@pytest.fixture
def table(lake: Lake) -> TableHandle:
    table = lake.create_table(
        "demo.t",
        {"id": "int not null", "price": "float", "at": {"x": "int"}, "name": "string"},
        partition_by=["bucket(4, id)"],
    )
    table.append([{"id": 1, "price": 1.5, "at": {"x": 1}, "name": "a"}])
    return table


def rows(table: TableHandle, **options: object) -> list[dict[str, object]]:
    return sorted(table.scan(**options).to_arrow().to_pylist(), key=lambda row: row["id"])


def test_columns_come_and_go_widen_move_and_change_their_names(table: TableHandle) -> None:
    with table.alter() as change:
        change.add_column("gate", "string", "of the terminal")
        change.add_column("at.y", "double")
        change.add_column("day", "date", required=True, default=dt.date(2024, 1, 2))
        change.update_column("id", "long").update_column("price", "double")
        change.rename_column("name", "called")
        change.move_column("gate", first=True)
    assert change.commit is not None
    assert change.commit.version == 2
    assert rows(table) == [
        {"gate": None, "id": 1, "price": 1.5, "at": {"x": 1, "y": None}, "called": "a", "day": dt.date(2024, 1, 2)}
    ]
    table.append(
        [{"id": 2**40, "gate": "A4", "price": 0.1, "at": {"x": 2, "y": 0.5}, "called": "b", "day": dt.date(2025, 1, 1)}]
    )
    assert [row["gate"] for row in rows(table)] == [None, "A4"]
    assert rows(table, where="id > 5000000000") == rows(table)[1:]
    assert rows(table, where="gate is null and price > 1") == rows(table)[:1]
    with table.alter() as change:
        change.drop_column("price").drop_column("at.x")
    assert [sorted(row) for row in rows(table)] == [["at", "called", "day", "gate", "id"]] * 2
    assert rows(table, version=1) == [{"id": 1, "price": 1.5, "at": {"x": 1}, "name": "a"}]


def test_a_block_that_raises_or_changes_nothing_publishes_nothing(table: TableHandle) -> None:
    with table.alter() as change:
        change.set_properties()
    assert change.commit is None
    with pytest.raises(ZeroDivisionError), table.alter() as change:
        change.drop_column("price").rename_column("name", str(1 // 0))
    assert change.commit is None
    assert len(list(table.history())) == 2


def test_what_is_illegal_says_why_before_anything_is_published(table: TableHandle) -> None:
    for said, step in {
        "required": lambda change: change.add_column("b", "int", required=True),
        "name already exists": lambda change: change.add_column("id", "int"),
        "partitioned by it": lambda change: change.drop_column("id"),
        "cannot change from": lambda change: change.update_column("name", "binary"),
        "Could not find field": lambda change: change.rename_column("nowhere", "x"),
        "one of first=True": lambda change: change.move_column("id"),
        "there is no type": lambda change: change.add_column("b", "intt"),
        "is not text": lambda change: change.set_properties(retention=7),
    }.items():
        with pytest.raises(Invalid, match=said), table.alter() as change:
            step(change)
    assert len(list(table.history())) == 2


def test_the_last_column_stays(lake: Lake) -> None:
    table = lake.create_table("demo.one", {"id": "int"})
    with pytest.raises(Invalid, match="needs at least one column"), table.alter() as change:
        change.drop_column("id")
    with table.alter() as change:
        change.drop_column("id").add_column("other", "int")
    assert [field.name for field in lake.table("demo.one").definition().schema.fields] == ["other"]


def test_the_last_field_of_a_struct_stays_unless_the_struct_goes(lake: Lake) -> None:
    table = lake.create_table("demo.pairs", {"id": "long", "pair": {"x": "long", "y": "long"}})
    with pytest.raises(Invalid, match=r"pair.*without members"), table.alter() as change:
        change.drop_column("pair.x").drop_column("pair.y")
    with table.alter() as change:
        change.drop_column("pair.x").drop_column("pair.y").add_column("pair.z", "int")
    with table.alter() as change:
        change.drop_column("pair")
    assert table.scan().to_arrow().column_names == ["id"]


def test_properties_are_set_and_removed(lake: Lake, table: TableHandle) -> None:
    with table.alter() as change:
        change.set_properties({"rootline.append.leaf-files": "5"}, owner="ops")
    with table.alter() as change:
        change.remove_properties("owner")
    expected = {"rootline.expire": "true", "rootline.sweep": "true", "rootline.append.leaf-files": "5"}
    assert lake.table("demo.t").definition().properties == expected


def test_thirty_two_who_each_add_a_column_at_once_all_get_theirs(lake: Lake, table: TableHandle) -> None:
    failed: list[BaseException] = []

    def add(number: int) -> None:
        try:
            with lake.table("demo.t").alter(timeout_s=120) as change:
                change.add_column(f"c{number}", "long")
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=add, args=(number,)) for number in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    fields = lake.table("demo.t").scan().to_arrow().schema.names
    assert set(fields) >= {f"c{number}" for number in range(32)}


def test_a_handle_that_has_not_heard_of_the_change_goes_on_writing(lake: Lake, table: TableHandle) -> None:
    other = lake.table("demo.t")
    other.append([{"id": 2, "name": "b"}])
    with table.alter() as change:
        change.add_column("gate", "string").update_column("id", "long")
    other.append([{"id": 3, "name": "c"}])
    other.append([{"id": 4, "name": "d", "gate": "B1"}])
    assert [(row["id"], row["gate"]) for row in rows(table)] == [(1, None), (2, None), (3, None), (4, "B1")]


def test_values_are_stored_in_the_columns_that_have_their_names_now(lake: Lake, table: TableHandle) -> None:
    other = lake.table("demo.t")
    other.append([{"id": 2, "price": 2.0}])
    with table.alter() as change:
        change.drop_column("price")
    with table.alter() as change:
        change.add_column("price", "double").add_column("tax", "double")
    other.append([{"id": 3, "price": 3.0, "tax": 0.3}])
    with table.alter() as change:
        change.rename_column("price", "net").rename_column("tax", "price").rename_column("net", "tax")
    other.append([{"id": 4, "price": 4.0, "tax": 0.4}])
    found = {row["id"]: (row["price"], row["tax"]) for row in rows(table)}
    assert found == {1: (None, None), 2: (None, None), 3: (0.3, 3.0), 4: (4.0, 0.4)}


def test_a_writers_leaf_made_before_a_change_is_taken_after_it(lake: Lake, table: TableHandle) -> None:
    with table.alter() as change:
        change.set_properties({"rootline.append.leaf-files": "2"})
    other = lake.table("demo.t")
    other.append(pa.table({"id": pa.array(range(40), pa.int32())}), target_file_size_bytes=1)
    with table.alter() as change:
        change.update_column("id", "long").update_column("price", "double").add_column("gate", "string")
    other.append(pa.table({"id": pa.array(range(40, 80), pa.int32())}), target_file_size_bytes=1)
    assert len(rows(table)) == 81
    assert [row["id"] for row in rows(table, where="id >= 78")] == [78, 79]
    assert rows(table, where="id = 3000000000") == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rootline.flush.data-files", "many"),
        ("rootline.flush.hard-entries", "0"),
        ("rootline.compact.leaves", "-1"),
        ("rootline.compact.adopted", "yes"),
        ("rootline.expire.all-seconds", "soon"),
        ("rootline.expire.root-retention-seconds", "1"),
        ("rootline.sweep", "on"),
        ("rootline.sweep.interval-s", "1.5"),
        ("rootline.sweep.orphan-age-s", "0"),
        ("rootline.sweep.scan-retention-s", "never"),
        ("rootline.drop.retention-seconds", "a week"),
        ("rootline.convert.equality-deletes", "1"),
        ("rootline.compact.data", "True"),
        ("rootline.export.format", "4"),
        ("rootline.export.snapshots", "0"),
        ("rootline.append.leaf-files", "nine"),
    ],
)
def test_a_property_that_rootline_reads_is_checked_when_it_is_set(
    lake: Lake, table: TableHandle, name: str, value: str
) -> None:
    with pytest.raises(Invalid, match=name) as raised, table.alter() as change:
        change.set_properties({name: value})
    assert raised.value.code == "property-invalid"
    with pytest.raises(Invalid, match=name):
        lake.create_table("demo.other", {"id": "int"}, properties={name: value})


def test_a_property_that_was_wrong_before_hinders_no_other_change() -> None:
    before = {"rootline.compact.leaves": "nonsense"}
    check_set(before, {**before, "rootline.export.format": "2"})
    check_set(before, {})
    with pytest.raises(Invalid, match="leaves"):
        check_set(before, {"rootline.compact.leaves": "other"})


def test_wrong_types_and_columns_in_use_are_named_in_words_of_ours(table: TableHandle) -> None:
    for code, said, step in (
        ("setting-invalid", "paths: each is", lambda change: change.set_identifier_fields(["id"])),
        ("setting-invalid", "required is 'no'", lambda change: change.add_column("q", "int", required="no", default=1)),
        ("setting-invalid", "required is 'no'", lambda change: change.update_column("id", required="no")),
        (
            "evolution-illegal",
            "column 'id' cannot be dropped: the table is part",
            lambda change: change.drop_column("id"),
        ),
    ):
        with pytest.raises(Invalid) as raised, table.alter() as change:
            step(change)
        assert (raised.value.code, said in raised.value.message) == (code, True), raised.value


def test_a_property_that_asks_for_a_format_that_rootline_does_not_write_is_stored_with_a_warning(
    lake: Lake, table: TableHandle, caplog: pytest.LogCaptureFixture
) -> None:
    reason = "write.format.default is 'orc', but Rootline writes Parquet"
    with table.alter() as change:
        change.set_properties({"write.format.default": "orc"})
    assert reason in caplog.text
    caplog.clear()
    lake.create_table("demo.by_spark", {"id": "int"}, properties={"write.format.default": "orc"})
    assert reason in caplog.text
    assert table.definition().properties["write.format.default"] == "orc"
    caplog.clear()
    lake.create_table("demo.usual", {"id": "int"}, properties={"write.format.default": "PARQUET"})
    assert "file-format" not in caplog.text
