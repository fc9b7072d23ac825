"""Many new files: the client writes leaves, and what is read, checked, removed and flushed afterwards is the same."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest

import rootline
from rootline.client.data_file_writer import write_files
from rootline.client.lake import Lake
from rootline.client.new_files import are_many, upload_all
from rootline.client.table_handle import TableHandle
from rootline.schemas.content_entry import ContentType, Status
from rootline.schemas.errors import Invalid
from rootline.schemas.intent import DataFile, GenericStatistics, Intent, IntentKind
from rootline.schemas.table_definition import TableDefinition
from tests.client.conftest import SCHEMA

FEW = {"rootline.append.leaf-files": "4"}


@pytest.fixture
def planes(lake: Lake) -> TableHandle:
    """A table that takes four files for many."""
    return lake.create_table("demo.planes", SCHEMA, partition_by=["carrier"], properties=FEW)


def rows(*carriers: str) -> dict[str, list[object]]:
    return {"id": list(range(len(carriers))), "carrier": list(carriers), "delay": [1.0] * len(carriers)}


def stored_files(lake: Lake, table: TableHandle, *carriers: str) -> list[DataFile]:
    """Files in the store, one for each carrier, that no intent has named yet."""
    written = write_files(pa.table(rows(*carriers), SCHEMA), definition_of(table), (uuid.uuid4() for _ in carriers))
    lake.holder.run(
        lambda session: upload_all(session, table.name, ((file.data_file.location, file.body) for file in written))
    )
    return [file.data_file for file in written]


def definition_of(table: TableHandle) -> TableDefinition:
    return table.definition()


def leaf_rows(lake: Lake, table: TableHandle) -> list[tuple[ContentType, Status, int]]:
    """(content type, status, entries) of each leaf in the head's root."""
    from tests.support.loaded_tables import load_table

    state = lake.holder.run(lambda session: load_table(session.store, table.name))
    assert state is not None
    found = [row.entry for row in state.root.rows]
    return [
        (entry.content_type, entry.version_info.status, entry.record_count)
        for entry in found
        if entry.content_type in (ContentType.DATA_MANIFEST, ContentType.DELETE_MANIFEST)
    ]


def findings(table: TableHandle) -> list[object]:
    return list(table.check())


def columns_of(files: list[DataFile], definition: TableDefinition) -> pa.Table:
    """The same files as columns: carrier is id 2."""
    carriers = [file.location.split("carrier=")[1].split("/")[0] for file in files]
    bounds = pa.StructArray.from_arrays([pa.array(carriers), pa.array(carriers)], ["lower_bound", "upper_bound"])
    return pa.table(
        {
            "location": [file.location for file in files],
            "record_count": [file.record_count for file in files],
            "file_size_in_bytes": [file.file_size_in_bytes for file in files],
            "content_stats": pa.StructArray.from_arrays([bounds], ["_2"]),
        }
    )


def test_few_files_stand_in_the_intent(lake: Lake, planes: TableHandle) -> None:
    planes.append(rows("AA", "UA"))
    assert leaf_rows(lake, planes) == []


def test_an_append_of_many_files_writes_a_leaf_and_reads_back_what_was_written(lake: Lake, planes: TableHandle) -> None:
    planes.append(rows("AA", "UA", "DL", "WN", "B6"))
    assert leaf_rows(lake, planes) == [(ContentType.DATA_MANIFEST, Status.ADDED, 5)]
    assert sorted(planes.scan().to_arrow().column("carrier").to_pylist()) == ["AA", "B6", "DL", "UA", "WN"]
    planes.append(rows("HA"))
    assert leaf_rows(lake, planes) == [(ContentType.DATA_MANIFEST, Status.EXISTING, 5)]
    assert planes.scan("carrier = 'DL'").to_arrow().num_rows == 1
    assert findings(planes) == []


def test_the_leafs_entries_stand_in_the_order_of_their_partition_values(lake: Lake, planes: TableHandle) -> None:
    planes.append(rows("WN", "AA", "UA", "DL", "B6"))
    assert [task.location.split("carrier=")[1][:2] for task in planes.scan().plan()] == ["AA", "B6", "DL", "UA", "WN"]


def test_the_leafs_entries_keep_the_order_in_which_they_were_written_where_no_bounds_tell_one(lake: Lake) -> None:
    table = lake.create_table("demo.plain", SCHEMA, properties=FEW)
    files = [file for carrier in ("WN", "AA", "UA", "DL", "B6") for file in stored_files(lake, table, carrier)]
    table.add_files(files)
    assert leaf_rows(lake, table) == [(ContentType.DATA_MANIFEST, Status.ADDED, 5)]
    assert [task.location for task in table.scan().plan()] == [file.location for file in files]


def test_files_given_as_columns_become_a_leaf(lake: Lake, planes: TableHandle) -> None:
    files = stored_files(lake, planes, "WN", "AA", "UA", "DL")
    planes.add_files(columns_of(files, definition_of(planes)))
    assert leaf_rows(lake, planes) == [(ContentType.DATA_MANIFEST, Status.ADDED, 4)]
    assert [task.location.split("carrier=")[1][:2] for task in planes.scan().plan()] == ["AA", "DL", "UA", "WN"]
    assert planes.scan("carrier = 'UA'").count() == 1
    assert findings(planes) == []


def test_a_few_files_given_as_columns_stand_in_the_intent(lake: Lake, planes: TableHandle) -> None:
    files = stored_files(lake, planes, "WN", "AA")
    planes.add_files(columns_of(files, definition_of(planes)))
    assert leaf_rows(lake, planes) == []
    assert planes.scan().count() == 2


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda table: table.drop_columns(["record_count"]), "no column 'record_count'"),
        (lambda table: table.append_column("colour", pa.array(["red"] * 4)), "'colour'"),
        (lambda table: table.set_column(1, "record_count", pa.array(["x"] * 4)), "record_count"),
        (lambda table: table.set_column(3, "content_stats", pa.array([1] * 4)), "not a struct"),
        (lambda table: table.set_column(3, "content_stats", pa.array([{"_9": {"lower_bound": 1}}] * 4)), "_9"),
        (lambda table: table.set_column(3, "content_stats", pa.array([{"_2": {"colour": "x"}}] * 4)), "colour"),
        (lambda table: table.set_column(3, "content_stats", pa.array([{"_1": {"lower_bound": "x"}}] * 4)), "_1"),
    ],
)
def test_columns_that_files_do_not_have_are_refused_by_name(
    lake: Lake, planes: TableHandle, change: Callable[[pa.Table], pa.Table], reason: str
) -> None:
    files = stored_files(lake, planes, "WN", "AA", "UA", "DL")
    with pytest.raises(Invalid, match=reason) as caught:
        planes.add_files(change(columns_of(files, definition_of(planes))))
    assert caught.value.code == "rows-invalid"


def test_a_producer_publishes_an_intent_that_names_leaves(lake: Lake, planes: TableHandle) -> None:
    leaves = planes.write_leaves(stored_files(lake, planes, "AA", "UA"))
    intent = Intent(intent_id="by-hand", table=planes.name, kind=IntentKind.APPEND, add_manifests=leaves)
    with lake.producer() as producer:
        receipt = producer.publish(intent)
        assert receipt.verdict().kind == "committed"
        assert producer.publish(receipt).verdict().kind == "duplicate"
    assert planes.scan().count() == 2
    assert findings(planes) == []


def test_a_leaf_that_nobody_stored_is_refused_with_what_to_do(lake: Lake, planes: TableHandle) -> None:
    leaf = planes.write_leaves(stored_files(lake, planes, "AA"))[0]
    absent = leaf.model_copy(update={"location": leaf.location.replace(leaf.location[16:24], "00000000")})
    intent = Intent(intent_id="by-hand", table=planes.name, kind=IntentKind.APPEND, add_manifests=(absent,))
    with lake.producer() as producer:
        verdict = producer.publish(intent).verdict()
    assert (verdict.kind, verdict.code) == ("rejected", "leaf-missing")
    assert "store it" in (verdict.message or "")


def test_a_leaf_names_the_spec_of_its_files(lake: Lake, planes: TableHandle) -> None:
    files = stored_files(lake, planes, "AA", "UA", "DL")
    leaves = planes.write_leaves(files)
    assert [leaf.partition_spec_id for leaf in leaves] == [0]


def test_removing_overwriting_and_deleting_reach_into_a_written_leaf(lake: Lake, planes: TableHandle) -> None:
    planes.append(rows("AA", "UA", "DL", "WN", "B6"))
    planes.overwrite(rows("UA"), where="carrier = 'AA'")
    planes.delete_where("carrier = 'DL' and id = 2")
    planes.append(rows("HA"))
    assert sorted(planes.scan().to_arrow().column("carrier").to_pylist()) == ["B6", "HA", "UA", "UA", "WN"]
    assert findings(planes) == []


def test_an_overwrite_by_many_files_names_a_leaf_of_them(lake: Lake, planes: TableHandle) -> None:
    planes.append(rows("HA", "NK"))
    planes.overwrite(rows("AA", "UA", "DL", "WN"))
    assert leaf_rows(lake, planes) == [(ContentType.DATA_MANIFEST, Status.ADDED, 4)]
    assert sorted(planes.scan().to_arrow().column("carrier").to_pylist()) == ["AA", "DL", "UA", "WN"]
    assert findings(planes) == []


def test_row_ids_are_given_once_and_stay(lake: Lake, planes: TableHandle) -> None:
    planes.append(rows("AA", "AA"))
    planes.append(rows("AA", "UA", "DL", "WN", "B6"))
    planes.append(rows("HA"))
    assert planes.head().row_ids.next == 8
    found = sorted((task.data.first_row_id or 0, task.record_count) for task in planes.scan().plan())
    assert found == [(0, 2), *((number, 1) for number in range(2, 8))]


def test_how_many_are_many_goes_by_count_and_by_bytes(planes: TableHandle) -> None:
    plain = replace(definition_of(planes), properties={})
    one = DataFile(location="data/a.parquet", record_count=1, file_size_in_bytes=1)
    large = DataFile(location="data/" + "a" * 1000, record_count=1, file_size_in_bytes=1)
    assert not are_many([one] * 999, plain)
    assert are_many([one] * 1000, plain)
    assert not are_many([large] * 400, plain)
    assert are_many([large] * 500, plain)


def test_a_threshold_that_is_no_number_is_refused(lake: Lake) -> None:
    properties = {"rootline.append.leaf-files": "many"}
    with pytest.raises(Invalid, match=r"rootline\.append\.leaf-files"):
        lake.create_table("demo.odd", SCHEMA, properties=properties)
    table = lake.create_table("demo.odd", SCHEMA)
    before_it_was_checked = replace(table.definition(), properties=properties)
    assert not are_many([], before_it_was_checked)


def test_changes_show_the_files_of_a_leaf(lake: Lake, planes: TableHandle) -> None:
    planes.append(rows("AA", "UA", "DL", "WN"))
    changes = planes.changes(from_version=0)
    assert len(changes.added_files) == 4
    assert isinstance(planes, rootline.TableHandle)


def generic(carrier: str, at: int, **said: object) -> DataFile:
    name = GenericStatistics(field_id=2, lower_value=carrier, upper_value=carrier)
    number = GenericStatistics(**{"field_id": 1, "lower_bound": at.to_bytes(8, "little"), **said})
    return DataFile(
        location=f"data/{carrier}-{at}.parquet", record_count=1, file_size_in_bytes=9, statistics=(name, number)
    )


def test_many_files_given_one_by_one_with_generic_statistics_become_a_leaf(lake: Lake, planes: TableHandle) -> None:
    planes.add_files([generic(carrier, at) for at, carrier in enumerate(["WN", "AA", "UA", "DL"])])
    assert leaf_rows(lake, planes) == [(ContentType.DATA_MANIFEST, Status.ADDED, 4)]
    assert [task.location for task in planes.scan().plan()] == [
        "data/AA-1.parquet",
        "data/DL-3.parquet",
        "data/UA-2.parquet",
        "data/WN-0.parquet",
    ]
    assert [task.location for task in planes.scan("carrier = 'DL'").plan()] == ["data/DL-3.parquet"]
    assert [task.location for task in planes.scan("id < 0").plan()] == []


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"value_count": 2}, "more values than the file has rows: value_count 2, 1 rows"),
        ({"lower_bound": b"\x01"}, r"statistics of id 1 \(id, long\): lower bound"),
        ({"field_id": 77}, "statistics of id 77: the table has no such column"),
    ],
)
def test_of_many_files_the_one_with_wrong_statistics_is_named_as_if_it_came_alone(
    planes: TableHandle, said: dict[str, object], reason: str
) -> None:
    files = [generic(carrier, at) for at, carrier in enumerate(["WN", "AA", "UA", "DL"])]
    with pytest.raises(Invalid, match=reason) as caught:
        planes.add_files([*files, generic("HA", 9, **said)])
    assert caught.value.code == "statistics-invalid"
