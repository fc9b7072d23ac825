"""Upserts on an embedded lake: which rows change, what is refused, and what stays of a change that failed."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from rootline import Invalid
from rootline.client import row_updates, source_keys
from rootline.client.lake import Lake
from rootline.client.session import RowCounts
from rootline.client.table_handle import TableHandle

NAMED = {"id": "long not null", "name": "string", "price": "double"}


@pytest.fixture
def goods(lake: Lake) -> TableHandle:
    """Rows 1 to 3, identified by `id`."""
    table = lake.create_table("demo.goods", NAMED, identifier_fields=["id"])
    table.append([{"id": id_, "name": f"old {id_}", "price": float(id_)} for id_ in (1, 2, 3)])
    return table


def rows_of(table: TableHandle) -> list[tuple[object, ...]]:
    return sorted((tuple(row.values()) for row in table.scan().to_arrow().to_pylist()), key=repr)


def test_rows_with_a_known_key_are_updated_and_the_others_inserted_in_one_commit(goods: TableHandle) -> None:
    before = goods.head().version
    commit = goods.upsert([{"id": 2, "name": "new", "price": 9.5}, {"id": 4, "name": "four", "price": None}])
    assert commit.rows == RowCounts(inserted=1, updated=1, deleted=0)
    assert (commit.version, commit.is_new) == (before + 1, True)
    assert rows_of(goods) == [(1, "old 1", 1.0), (2, "new", 9.5), (3, "old 3", 3.0), (4, "four", None)]
    assert list(goods.check(data_files="all")) == []


def test_columns_that_the_rows_lack_keep_their_values(goods: TableHandle) -> None:
    goods.upsert({"id": [1, 5], "price": [0.5, 0.25]})
    assert rows_of(goods) == [(1, "old 1", 0.5), (2, "old 2", 2.0), (3, "old 3", 3.0), (5, None, 0.25)]


def test_a_row_keeps_the_values_of_columns_that_only_other_rows_have(lake: Lake) -> None:
    columns = {"id": "long", "u": "uuid", "at": {"x": "double"}, "tags": "map<string, long>", "n": "int"}
    table = lake.create_table("demo.sparse", columns)
    with table.alter() as change:
        change.update_column("n", default=7)
    old = {"id": 1, "u": uuid.UUID(int=1), "at": {"x": 1.0}, "tags": {"a": 1}, "n": 1}
    table.append([old, {**old, "id": 2}])
    table.upsert(
        [{"id": 1, "n": None}, {"id": 2, "u": uuid.UUID(int=2), "at": None, "tags": {"b": 2}}, {"id": 3}], on=["id"]
    )
    first, second, third = sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["id"])
    assert first == {**old, "tags": [("a", 1)], "n": None}
    assert second == {"id": 2, "u": uuid.UUID(int=2), "at": None, "tags": [("b", 2)], "n": 1}
    assert third == {"id": 3, "u": None, "at": None, "tags": None, "n": 7}


def test_the_key_may_be_any_columns_that_on_names(goods: TableHandle) -> None:
    commit = goods.upsert([{"id": 7, "name": "old 3"}], on=["name"])
    assert commit.rows.updated == 1
    assert rows_of(goods)[-1] == (7, "old 3", 3.0)
    pair = goods.upsert([{"id": 7, "name": "old 3", "price": 1.0}, {"id": 7, "name": "x"}], on=["name", "id"])
    assert (pair.rows.updated, pair.rows.inserted) == (1, 1)


def test_rows_that_are_updated_keep_their_ids_and_new_ones_get_others(goods: TableHandle) -> None:
    columns = ["id", "_row_id"]
    ids = {row["id"]: row["_row_id"] for row in goods.scan(columns=columns).to_arrow().to_pylist()}
    goods.upsert({"id": [3, 4], "name": ["c", "d"]})
    found = {row["id"]: row["_row_id"] for row in goods.scan(columns=columns).to_arrow().to_pylist()}
    assert {id_: row_id for id_, row_id in found.items() if id_ != 4} == ids
    assert found[4] not in ids.values()


def test_nothing_is_published_for_an_empty_source(goods: TableHandle) -> None:
    newest = goods.head().version
    no_rows: list[object] = []
    for empty in (no_rows, pa.schema([("id", pa.int64())]).empty_table()):
        commit = goods.upsert(empty)
        assert (commit.version, commit.is_new, commit.rows) == (newest, False, RowCounts(0, 0, 0))
    assert goods.head().version == newest


def test_a_source_without_a_match_only_appends(goods: TableHandle) -> None:
    goods.upsert({"id": [10, 11], "name": ["a", "b"]})
    assert goods.head().snapshot.summary["total-delete-files"] == "0"
    assert goods.scan().count() == 5


def test_files_whose_rows_are_all_replaced_are_removed(goods: TableHandle) -> None:
    goods.upsert({"id": [1, 2, 3], "name": ["a", "b", "c"]})
    tasks = goods.scan().plan()
    assert [len(task.vectors) for task in tasks] == [0]
    assert sum(task.record_count for task in tasks) == 3


def test_a_key_that_is_in_the_rows_twice_is_refused_before_anything_changes(goods: TableHandle) -> None:
    newest = goods.head().version
    with pytest.raises(Invalid, match=r"demo\.goods: 1 keys? .* such as id=8.*keep one row") as refused:
        goods.upsert({"id": [1, 8, 8], "name": ["a", "b", "c"]})
    assert refused.value.code == "rows-invalid"
    assert goods.head().version == newest


def test_a_null_key_equals_nothing_and_is_inserted(lake: Lake) -> None:
    table = lake.create_table("demo.loose", {"id": "long", "name": "string"})
    table.append([{"id": None, "name": "first"}])
    commit = table.upsert({"id": [None, None], "name": ["second", "third"]}, on=["id"])
    assert commit.rows == RowCounts(inserted=2, updated=0, deleted=0)
    assert table.scan().count() == 3


def test_a_null_in_an_identifier_field_is_refused(goods: TableHandle) -> None:
    with pytest.raises(Invalid, match="column id is required"):
        goods.upsert([{"id": None, "name": "x"}])


def test_a_table_without_identifier_fields_needs_the_columns_of_the_key(lake: Lake) -> None:
    table = lake.create_table("demo.plain", NAMED)
    with pytest.raises(Invalid, match=r"demo\.plain: .*no identifier fields.*on=\['id'\]") as refused:
        table.upsert([{"id": 1}])
    assert refused.value.code == "setting-invalid"
    with pytest.raises(Invalid, match="no column 'x'") as refused:
        table.upsert([{"id": 1}], on=["x"])
    assert refused.value.code == "column-unknown"
    with pytest.raises(Invalid, match=r"lack column 'name'"):
        table.upsert([{"id": 1}], on=["name"])


def test_columns_and_values_that_the_table_cannot_store_are_refused(goods: TableHandle) -> None:
    for rows, message in (
        ([{"id": 1, "colour": "red"}], "no column 'colour'"),
        ([{"id": 1, "price": "dear"}], "price"),
        ([{"id": 1.5}], "id"),
    ):
        with pytest.raises(Invalid, match=message) as refused:
            goods.upsert(rows)
        assert refused.value.code == "rows-invalid"
    assert goods.scan().count() == 3


def test_nested_columns_are_updated_and_kept(lake: Lake) -> None:
    table = lake.create_table(
        "demo.nested",
        {"id": "long", "tags": "map<string, long>", "at": {"x": "double", "y": "double"}, "l": "list<long>"},
    )
    table.append([{"id": 1, "tags": {"a": 1}, "at": {"x": 1.0, "y": 2.0}, "l": [1, 2]}, {"id": 2, "l": []}])
    table.upsert([{"id": 1, "tags": {"b": 2}}, {"id": 3, "tags": {"c": 3}}], on=["id"])
    table.upsert([{"id": 2, "at": {"x": 5.0}}], on=["id"])
    found = {row["id"]: row for row in table.scan().to_arrow().to_pylist()}
    assert found[1] == {"id": 1, "tags": [("b", 2)], "at": {"x": 1.0, "y": 2.0}, "l": [1, 2]}
    assert found[2]["at"] == {"x": 5.0, "y": None}
    assert found[3] == {"id": 3, "tags": [("c", 3)], "at": None, "l": None}


def test_rows_that_would_not_change_are_not_written_again(goods: TableHandle) -> None:
    columns = ["id", "_row_id", "_last_updated_sequence_number"]
    before = {row["id"]: row for row in goods.scan(columns=columns).to_arrow().to_pylist()}
    commit = goods.upsert({"id": [1, 2, 3, 4], "name": ["old 1", "new", "old 3", "four"]})
    assert commit.rows == RowCounts(inserted=1, updated=1, deleted=0)
    after = {row["id"]: row for row in goods.scan(columns=columns).to_arrow().to_pylist()}
    assert (after[1], after[3]) == (before[1], before[3])
    assert after[2]["_last_updated_sequence_number"] == after[4]["_last_updated_sequence_number"]
    newest = goods.head().version
    unchanged = goods.upsert([{"id": 1}, {"id": 2, "name": "new", "price": 2.0}])
    assert (unchanged.version, unchanged.is_new, unchanged.rows) == (newest, False, RowCounts(0, 0, 0))
    assert goods.upsert({"id": [1], "name": ["old 1"]}, skip_unchanged=False).rows.updated == 1


def test_a_nested_value_or_a_null_that_differs_is_a_change(lake: Lake) -> None:
    at = {"x": "double", "l": ["float"]}
    columns = {"id": "long", "tags": "map<string, long>", "at": at, "u": "uuid", "n": "int"}
    table = lake.create_table("demo.nested", columns)
    old = {"tags": {"a": 1}, "at": {"x": float("nan"), "l": [1.0, None]}, "u": uuid.UUID(int=1), "n": None}
    table.append([{"id": id_, **old} for id_ in range(6)])
    changed = [
        {"tags": {"a": 2}},
        {"at": {"x": float("nan"), "l": [1.0]}},
        {"at": None},
        {"n": 0},
        {"tags": {"b": 1}, "u": uuid.UUID(int=1)},
    ]
    assert table.upsert([{"id": 9, **old}, {"id": 0, **old}, {"id": 1}], on=["id"]).rows == RowCounts(1, 0, 0)
    commit = table.upsert([{"id": id_, **new} for id_, new in enumerate(changed)] + [{"id": 5, **old}], on=["id"])
    assert commit.rows == RowCounts(inserted=0, updated=5, deleted=0)
    assert not table.upsert([{"id": id_, **new} for id_, new in enumerate(changed)], on=["id"]).is_new
    assert list(table.check(data_files="all")) == []


def test_a_key_may_be_in_a_struct(lake: Lake) -> None:
    route = 'struct<"a.b": struct<no: int not null> not null, stops: int>'
    columns = {"route": f"{route} not null", "day": "date not null", "n": "long"}
    table = lake.create_table("demo.routes", columns, identifier_fields=["route.a.b.no", "day"])
    first, second = ({"route": {"a.b": {"no": no}, "stops": 0}, "day": "2024-01-01", "n": 1} for no in (1, 2))
    for number in (3, 400):
        table.append([{**first, "route": {"a.b": {"no": number}}}])
    assert table.upsert([first, second]).rows == RowCounts(inserted=2, updated=0, deleted=0)
    assert table.upsert([{**first, "n": 2}, second]).rows == RowCounts(inserted=0, updated=1, deleted=0)
    many = [{**first, "route": {"a.b": {"no": no}}, "n": 5} for no in range(2, 302)]  # a range in the filter
    assert table.upsert(many).rows == RowCounts(inserted=298, updated=2, deleted=0)
    assert table.scan("n = 5").count() == 300
    with pytest.raises(Invalid, match=r"key route\.a\.b\.no=1, day=2024"):
        table.merge([first, first], on=["route.a.b.no", "day"])
    with pytest.raises(Invalid, match=r"lack column 'route'"):
        table.upsert([{"day": "2024-01-01"}])
    with pytest.raises(Invalid, match=r"column 'route\.a\.b' is a struct"):
        table.upsert([first], on=["route.a.b"])


def test_a_row_without_the_struct_of_its_key_is_inserted(lake: Lake) -> None:
    table = lake.create_table("demo.loose", {"at": {"x": "int"}, "n": "long"})
    table.append([{"at": {"x": 1}, "n": 1}, {"at": None, "n": 2}])
    commit = table.upsert([{"at": {"x": 1}, "n": 5}, {"at": None, "n": 6}, {"at": {"x": None}, "n": 7}], on=["at.x"])
    assert commit.rows == RowCounts(inserted=2, updated=1, deleted=0)
    assert sorted(table.scan().to_arrow().column("n").to_pylist()) == [2, 5, 6, 7]


def test_rows_move_between_partitions(lake: Lake) -> None:
    table = lake.create_table("demo.parts", NAMED, partition_by=["name", "bucket(4, id)"])
    table.append([{"id": id_, "name": "ab"[id_ % 2]} for id_ in range(20)])
    commit = table.upsert([{"id": id_, "name": "c", "price": 1.0} for id_ in range(0, 25, 5)], on=["id"])
    assert (commit.rows.updated, commit.rows.inserted) == (4, 1)
    assert table.scan("name = 'c'").count() == 5
    assert table.scan().count() == 21
    assert list(table.check(data_files="all")) == []


def test_only_files_that_may_have_a_key_are_read(lake: Lake, folder: Path) -> None:
    table = lake.create_table("demo.pruned", NAMED)
    for start in (0, 100, 200):
        table.append({"id": list(range(start, start + 100)), "name": ["x"] * 100})
    for task in table.scan("id < 200").plan():
        (folder / "demo" / "pruned" / task.location).unlink()
    commit = table.upsert({"id": [205, 299], "name": ["y", "y"]}, on=["id"])
    assert commit.rows.updated == 2


def test_keys_of_every_type_are_found(lake: Lake) -> None:
    values = {
        "boolean": (True, False),
        "int": (1, -2),
        "decimal(9, 2)": (Decimal("1.50"), Decimal("-2.25")),
        "string": ("it's", "Ünï\ncode"),
        "binary": (b"\x00\xff", b""),
        "fixed[2]": (b"ab", b"\x00\x00"),
        "uuid": (uuid.UUID(int=5), uuid.UUID(int=2**127)),
        "date": (dt.date(2024, 2, 29), dt.date(1, 1, 1)),
        "time": (dt.time(1, 2, 3, 4), dt.time(0)),
        "timestamp": (dt.datetime(2024, 1, 2, 3, 4, 5, 6), dt.datetime(1969, 12, 31, 23)),
        "timestamptz": (dt.datetime(2024, 1, 2, tzinfo=dt.UTC), dt.datetime(1900, 1, 1, tzinfo=dt.UTC)),
        "timestamp_ns": (dt.datetime(2024, 1, 2), dt.datetime(1980, 1, 1)),
        "double": (float("nan"), -0.0),
        "float": (float("inf"), 0.5),
    }
    for at, (kind, (known, new)) in enumerate(values.items()):
        table = lake.create_table(f"demo.keys_{at}", {"k": kind, "v": "long"})
        for many in (1, 300):  # so many keys are in the filter as a range
            arrow = table.schema().field("k").type
            table.overwrite(pa.table({"k": pa.array([known], arrow), "v": [1]}))
            more = [] if many == 1 or kind not in ("int", "string", "date") else _more(kind)
            rows = pa.table({"k": pa.array([known, new, *more], arrow), "v": [2] * (2 + len(more))})
            commit = table.upsert(rows, on=["k"])
            assert (commit.rows.updated, commit.rows.inserted) == (1, 1 + len(more)), kind
            again = table.upsert(rows, on=["k"], skip_unchanged=False)
            assert (again.rows.updated, again.rows.inserted) == (2 + len(more), 0), kind
            assert not table.upsert(rows, on=["k"]).is_new, kind


def _more(kind: str) -> list[object]:
    if kind == "int":
        return list(range(100, 500))
    return (
        [f"k{n}" for n in range(400)]
        if kind == "string"
        else [dt.date(2000, 1, 1) + dt.timedelta(n) for n in range(400)]
    )


def test_a_key_of_many_columns_with_long_values_is_found(lake: Lake) -> None:
    names = [f"key_{number}" for number in range(10)]
    table = lake.create_table("demo.wide", dict.fromkeys(names, "string not null") | {"value": "long"})
    rows = [{name: f"{name} of row {row}".ljust(50) for name in names} | {"value": row} for row in range(150)]
    assert table.upsert(rows[:60], on=names).rows.inserted == 60
    changed = [row | {"value": -1} for row in rows]
    assert table.upsert(changed, on=names).rows == RowCounts(inserted=90, updated=60, deleted=0)


def test_zero_and_negative_zero_are_one_key(lake: Lake) -> None:
    table = lake.create_table("demo.zeros", {"k": "double", "v": "long"})
    table.append([{"k": 0.0, "v": 1}])
    assert table.upsert([{"k": -0.0, "v": 2}], on=["k"]).rows.updated == 1


def test_many_rows_are_written_in_portions(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_updates, "_PORTION_BYTES", 4_096)
    monkeypatch.setattr(source_keys, "_LISTED_MAX", 10)
    table = lake.create_table("demo.large", NAMED)
    table.append({"id": list(range(5_000)), "name": ["x" * 20] * 5_000})
    commit = table.upsert({"id": list(range(2_000, 7_000)), "name": ["y"] * 5_000}, on=["id"])
    assert (commit.rows.updated, commit.rows.inserted) == (3_000, 2_000)
    assert table.scan().count() == 7_000
    assert table.scan("name = 'y'").count() == 5_000
    assert len(set(table.scan(columns=["id"]).to_arrow().column(0).to_pylist())) == 7_000


def test_every_row_of_the_table_that_has_the_key_is_updated(lake: Lake) -> None:
    table = lake.create_table("demo.twice", NAMED)
    table.append({"id": [1, 1, 2], "price": [1.0, 2.0, 3.0]})
    assert table.upsert([{"id": 1, "name": "n"}], on=["id"]).rows.updated == 2
    assert rows_of(table) == [(1, "n", 1.0), (1, "n", 2.0), (2, None, 3.0)]


def test_deleted_rows_are_not_found(goods: TableHandle) -> None:
    goods.delete_where("id = 2")
    commit = goods.upsert({"id": [2, 3], "name": ["again", "three"]})
    assert (commit.rows.updated, commit.rows.inserted) == (1, 1)
    assert rows_of(goods) == [(1, "old 1", 1.0), (2, "again", None), (3, "three", 3.0)]


def test_an_error_halfway_changes_nothing(goods: TableHandle, folder: Path) -> None:
    goods.append([{"id": 50, "name": "x"}])
    (last,) = goods.scan("id = 50").plan()
    (folder / "demo" / "goods" / last.location).write_bytes(b"PAR1 broken")
    newest = goods.head().version
    with pytest.raises(Exception, match=last.location):
        goods.upsert({"id": [1, 50], "name": ["a", "b"]})
    assert goods.head().version == newest
    assert goods.scan("id < 50").count() == 3


def test_the_snapshot_has_the_summary_of_the_call(goods: TableHandle) -> None:
    goods.upsert([{"id": 1, "name": "n"}], summary={"job": "nightly"})
    assert goods.head().snapshot.summary["job"] == "nightly"
