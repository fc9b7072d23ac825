"""Replacing a table through the library: rows, columns, partitioning, and those who come late."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, ListType, LongType, NestedField, StringType, StructType

from rootline import Lake, TableHandle
from rootline.client.create_drop import build_definition
from rootline.client.replace_table import renumbered
from rootline.schemas.errors import Invalid
from tests.tree.tables import TABLE_UUID

SCHEMA = pa.schema([("id", pa.int64()), ("carrier", pa.string()), ("delay", pa.float64())])
ROWS = {"id": [1, 2, 3], "carrier": ["UA", "AA", None], "delay": [5.0, None, -1.0]}
OTHERS = {"id": [7, 8], "gate": ["A", "B"]}


def rows_of(table: TableHandle, **at: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table.scan(**at).to_arrow().to_pylist()
    return sorted(found, key=lambda row: row["id"])


def refused(attempt: Callable[[], object]) -> str:
    with pytest.raises(Invalid) as caught:
        attempt()
    return caught.value.code


def test_a_replace_empties_the_table_and_what_was_can_be_read_and_brought_back(
    lake: Lake, flights: TableHandle
) -> None:
    flights.append(ROWS)
    before, uuid = rows_of(flights), flights.definition().table_uuid
    commit = flights.replace()
    assert rows_of(flights) == []
    assert rows_of(flights, version=1) == before
    assert flights.definition().table_uuid == uuid
    assert {change["change"] for change in flights.changes(from_version=1).records()} == {"removed"}
    flights.append(ROWS)
    flights.restore(version=1)
    assert rows_of(flights) == before
    flights.append({"id": [9]})
    assert len(rows_of(flights)) == 4
    assert commit.version == 2
    assert list(flights.check()) == []


def test_rows_columns_and_partitioning_change_in_one_commit(lake: Lake, flights: TableHandle) -> None:
    flights.append(ROWS)
    flights.replace(
        OTHERS,
        schema={"id": "long", "gate": "string not null"},
        partition_by=["bucket(4, id)"],
        sort_by=["-id"],
        properties={"owner": "ops"},
    )
    assert rows_of(flights) == [{"id": 7, "gate": "A"}, {"id": 8, "gate": "B"}]
    definition = flights.definition()
    assert definition.schema.find_field("id").field_id == 1
    assert definition.schema.find_field("gate").field_id > 3
    assert definition.properties["owner"] == "ops"
    assert flights.head().version == 2
    assert rows_of(flights, version=1) == [
        {"id": at, "carrier": carrier, "delay": delay}
        for at, carrier, delay in zip(ROWS["id"], ROWS["carrier"], ROWS["delay"], strict=True)
    ]
    assert list(flights.check()) == []
    flights.restore(version=1)
    assert [row["carrier"] for row in rows_of(flights)] == ["UA", "AA", None]
    assert list(flights.check()) == []


def test_what_is_not_said_stays_in_a_table_and_goes_with_replace_table(lake: Lake) -> None:
    table = lake.create_table("demo.parts", SCHEMA, partition_by=["carrier"], sort_by=["id"])
    table.replace(ROWS)
    definition = table.definition()
    assert len(definition.spec_by_id(definition.default_spec_id).expr_ids) == 1
    assert definition.default_sort_order_id == 1
    table = lake.replace_table("demo.parts", SCHEMA, ROWS)
    definition = table.definition()
    assert definition.spec_by_id(definition.default_spec_id).expr_ids == ()
    assert definition.default_sort_order_id == 0
    assert len(rows_of(table)) == 3
    assert refused(lambda: table.replace(OTHERS, schema={"gate": "string"}, partition_by=["carrier"])) == (
        "definition-invalid"
    )


def test_a_writer_of_before_is_refused_once_and_then_writes_to_what_there_is(lake: Lake, flights: TableHandle) -> None:
    late = lake.table(flights.name)
    late.append(ROWS)
    flights.replace()
    assert refused(lambda: late.append(ROWS)) == "table-replaced"
    assert rows_of(flights) == []
    late.append(ROWS)
    assert len(rows_of(flights)) == 3


def test_create_or_replace_makes_the_table_replaces_it_and_makes_it_again(lake: Lake) -> None:
    name = "demo.either"
    assert refused(lambda: lake.replace_table(name, SCHEMA)) == "table-unknown"
    first = lake.replace_table(name, data=ROWS, create=True)
    assert len(rows_of(first)) == 3
    uuid = first.definition().table_uuid
    second = lake.replace_table(name, {"id": "long", "gate": "string"}, OTHERS, partition_by=["gate"], create=True)
    assert [row["gate"] for row in rows_of(second)] == ["A", "B"]
    assert second.definition().table_uuid == uuid
    lake.drop_table(name)
    assert refused(lambda: lake.replace_table(name, SCHEMA)) == "table-dropped"
    third = lake.replace_table(name, data=ROWS, create=True)
    assert third.definition().table_uuid != uuid
    assert len(rows_of(third)) == 3


def test_a_view_is_not_replaced_by_a_table(lake: Lake) -> None:
    lake.create_view("demo.late", "SELECT 1")
    assert refused(lambda: lake.replace_table("demo.late", SCHEMA)) == "name-is-view"
    assert refused(lambda: lake.replace_table("demo.late", SCHEMA, create=True)) == "name-is-view"


def test_of_many_who_replace_at_once_each_lands_whole_and_the_last_one_stays(lake: Lake, flights: TableHandle) -> None:
    def work(number: int) -> None:
        lake.table(flights.name).replace({"id": [number] * 3, "carrier": ["X"] * 3, "delay": [1.0] * 3}, timeout_s=120)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = [row["id"] for row in rows_of(flights)]
    assert len(found) == 3
    assert len(set(found)) == 1
    assert flights.head().snapshot.summary["rootline.replaced-table"] == "6"


def test_of_many_who_make_or_replace_the_same_table_at_once_none_is_refused(lake: Lake) -> None:
    done: list[str] = []

    def work(number: int) -> None:
        rows = {"id": [number] * 3}
        done.append(lake.replace_table("demo.raced", data=rows, create=True, timeout_s=120).name)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(done) == 6
    assert list(lake.table("demo.raced").check()) == []


def test_wrong_arguments_are_refused_before_anything_is_stored(lake: Lake, flights: TableHandle) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"schema": 5}, "definition-invalid"),
        ({"schema": {}}, "definition-invalid"),
        ({"partition_by": ["nope"]}, "definition-invalid"),
        ({"sort_by": ["nope"]}, "definition-invalid"),
        ({"properties": {"rootline.expire": "perhaps"}}, "property-invalid"),
        ({"data": 5}, "rows-invalid"),
        ({"timeout_s": "soon"}, "setting-invalid"),
    ]
    for given, code in wrong:
        assert refused(lambda given=given: flights.replace(**given)) == code
    assert refused(lambda: lake.replace_table(flights.name)) == "definition-invalid"
    assert flights.head().version == 0


def test_columns_keep_their_ids_where_files_of_before_can_be_read_by_what_they_become() -> None:
    struct = StructType(NestedField(4, "x", IntegerType(), required=False))
    before = build_definition(
        Schema(
            NestedField(1, "same", LongType(), required=False),
            NestedField(2, "wider", IntegerType(), required=False),
            NestedField(3, "deep", struct, required=False),
            NestedField(5, "many", ListType(6, IntegerType(), element_required=False), required=False),
            NestedField(7, "other", StringType(), required=False),
            NestedField(8, "never_null", StringType(), required=False),
            schema_id=0,
        ),
        table_uuid=TABLE_UUID,
    )
    deeper = StructType(
        NestedField(30, "y", StringType(), required=True), NestedField(31, "x", LongType(), required=False)
    )
    wanted = Schema(
        NestedField(20, "never_null", StringType(), required=True),
        NestedField(21, "other", LongType(), required=False),
        NestedField(22, "many", ListType(23, StringType(), element_required=False), required=False),
        NestedField(24, "deep", deeper, required=False),
        NestedField(25, "wider", LongType(), required=False),
        NestedField(26, "same", LongType(), required=False),
        schema_id=3,
        identifier_field_ids=[20],
    )
    after = renumbered(wanted, before)
    assert {name: after.find_field(name).field_id for name in ("same", "wider", "deep", "deep.x")} == {
        "same": 1,
        "wider": 2,
        "deep": 3,
        "deep.x": 4,
    }
    new = [after.find_field(name).field_id for name in ("never_null", "other", "many", "many.element", "deep.y")]
    assert min(new) > 8
    assert len(set(new)) == 5
    assert after.identifier_field_ids == [after.find_field("never_null").field_id]
