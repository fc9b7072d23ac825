"""Equality deletes that another writer published: scans, counts, deletes and overwrites of an embedded lake."""

from __future__ import annotations

import uuid
from pathlib import Path

import pyarrow as pa
import pytest

from rootline.client.data_file_writer import write_files
from rootline.client.lake import Lake
from rootline.client.table_handle import TableHandle
from rootline.schemas.intent import EqualityDeleteFile, Intent, IntentKind
from rootline.schemas.verdict import VerdictKind
from tests.client.conftest import SCHEMA


def _rows(*ids: int, carrier: str = "UA") -> pa.Table:
    return pa.table({"id": ids, "carrier": [carrier] * len(ids), "delay": [float(id_) for id_ in ids]}, SCHEMA)


def delete_by_id(lake: Lake, folder: Path, table: TableHandle, *ids: int, carrier: str = "UA") -> str:
    """Publish an equality delete, in the partition of `carrier`, of the rows that have one of `ids`."""
    definition = table.definition()
    (written,) = write_files(_rows(*ids, carrier=carrier), definition, iter([uuid.uuid4()]))
    file = EqualityDeleteFile(**written.data_file.model_dump(exclude={"equality_ids"}), equality_ids=(1,))
    place = folder / "demo" / "flights" / file.location
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(written.body)
    intent = Intent(
        intent_id=str(uuid.uuid4()),
        table=table.name,
        kind=IntentKind.ROW_DELTA,
        schema_id=definition.current_schema_id,
        add_equality_deletes=(file,),
    )
    with lake.producer() as producer:
        verdict = producer.publish(intent).verdict(timeout_s=30)
    assert verdict.kind is VerdictKind.COMMITTED, verdict.message
    return file.location


def _ids(table: TableHandle, where: str | None = None) -> list[int]:
    return sorted(table.scan(where, ["id"]).to_arrow().column("id").to_pylist())


@pytest.fixture
def deleted(lake: Lake, folder: Path, flights: TableHandle) -> TableHandle:
    """UA flights 0 to 5, of which 1 and 2 are deleted; then flight 1 again; AA flight 1."""
    flights.append(_rows(*range(6)))
    flights.append(_rows(1, carrier="AA"))
    delete_by_id(lake, folder, flights, 1, 2)
    flights.append(_rows(1))
    return flights


def test_rows_written_before_the_delete_are_gone_and_later_ones_stay(deleted: TableHandle) -> None:
    assert _ids(deleted) == [0, 1, 1, 3, 4, 5]
    assert _ids(deleted, "id = 1 and carrier = 'UA'") == [1]
    assert deleted.scan().count() == 6
    assert deleted.scan("carrier = 'AA'").count() == 1
    shown = deleted.scan("id < 3 and carrier = 'UA'", ["id", "_deleted"]).to_arrow().to_pylist()
    assert sorted((row["id"], row["_deleted"]) for row in shown) == [(0, False), (1, False), (1, True), (2, True)]


def test_a_check_reads_the_rows_of_a_delete_file_and_finds_nothing(deleted: TableHandle) -> None:
    assert list(deleted.check(data_files="all")) == []


def test_an_overwrite_of_part_of_a_file_brings_no_deleted_row_back(deleted: TableHandle) -> None:
    deleted.overwrite(_rows(9), where="id = 4")
    assert _ids(deleted) == [0, 1, 1, 3, 5, 9]


def test_deleting_by_a_filter_beside_an_equality_delete_leaves_the_rest(deleted: TableHandle) -> None:
    deleted.delete_where("id >= 4")
    assert _ids(deleted) == [0, 1, 1, 3]
    assert not deleted.delete_where("id = 2").is_new  # an equality delete has done that
    assert _ids(deleted) == [0, 1, 1, 3]


def test_a_plan_names_the_deletes_of_each_file(lake: Lake, folder: Path, deleted: TableHandle) -> None:
    location = delete_by_id(lake, folder, deleted, 1, carrier="AA")
    found = {task.data.content_stats[2].lower_bound: task for task in deleted.scan("carrier = 'AA'").plan()}
    assert [entry.location for entry in found["AA"].deletes.equality] == [location]
    assert _ids(deleted) == [0, 1, 3, 4, 5]
