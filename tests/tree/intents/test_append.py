from __future__ import annotations

import uuid
from typing import Any

import pytest

from rootline.schemas.content_entry import FieldStatistics, Status
from rootline.schemas.intent import IntentKind
from tests.tree.tables import (
    BUCKET,
    BY_BUCKET,
    CARRIER,
    CODEC,
    ID,
    UNPARTITIONED,
    append,
    codes,
    data_file,
    equality_delete,
    intent,
    new_lake,
    remove,
    removed,
    stats,
)


def encoded(items: dict[int, FieldStatistics]) -> dict[str, Any]:
    return {"content_stats": CODEC.statistics.encode(items), "stats_schema": CODEC.statistics.fingerprint}


def test_a_file_is_added_with_numbers_of_its_own() -> None:
    lake = new_lake(append("a"))
    [entry] = lake.root_entries()
    info = entry.version_info
    assert info.status is Status.ADDED
    assert info.snapshot_id == lake.head.header.snapshot.snapshot_id
    assert info.sequence_number == info.file_sequence_number == 2
    assert entry.content_stats == stats(range(10), "UA")


def test_row_ids_run_on_over_files_and_batches() -> None:
    lake = new_lake()
    lake.put(append("a", data_file("a", rows=3), data_file("b", rows=4)), append("c", data_file("c", rows=2)))
    lake.put(append("d", data_file("d", rows=1)))
    assert [entry.first_row_id for entry in lake.root_entries()] == [0, 3, 7, 9]
    assert lake.head.header.row_ids.next == 10


def test_row_ids_are_used_up_by_a_file_that_its_batch_removes_again() -> None:
    lake = new_lake()
    lake.put(append("a"), remove("r", removed("data/a.parquet")), append("b"))
    assert [entry.first_row_id for entry in lake.root_entries()] == [10]


def test_a_removed_file_may_come_back() -> None:
    lake = new_lake(append("a"), remove("r", removed("data/a.parquet")))
    assert codes(lake.put(append("a2", data_file("a")))) == [None]


@pytest.mark.parametrize(
    ("location", "code"),
    [
        ("../other/data/a.parquet", "location-invalid"),
        ("s3://other/data/a.parquet", "location-invalid"),
        ("metadata/roots/a.avro", "location-invalid"),
        ("export/v3/a.parquet", "location-invalid"),
        ("data/%2e%2e/a.parquet", "location-invalid"),
        ("", "location-invalid"),
    ],
)
def test_a_location_outside_the_tables_data_is_rejected(location: str, code: str) -> None:
    assert codes(new_lake().put(append("a", data_file("a", location=location)))) == [code]


def test_a_file_named_twice_in_one_intent_is_rejected() -> None:
    assert codes(new_lake().put(append("a", data_file("a"), data_file("a")))) == ["file-named-twice"]


def test_a_file_that_is_live_in_a_leaf_is_rejected() -> None:
    lake = new_lake(append("a"))
    lake.put(lake.flush("f", lake.leaf(lake.root_entries())))
    assert codes(lake.put(append("again", data_file("a")))) == ["file-already-live"]


def test_a_file_without_its_partition_value_is_rejected() -> None:
    without = encoded({ID: FieldStatistics(0, 9)})
    assert codes(new_lake().put(append("a", data_file("a", **without)))) == ["statistics-missing"]


def test_a_partition_value_of_null_has_both_bounds_null() -> None:
    lake = new_lake()
    assert codes(lake.put(append("a", data_file("a", carrier=None)))) == [None]


def test_an_upper_bound_without_a_lower_one_is_no_partition_value() -> None:
    only_upper = encoded({CARRIER: FieldStatistics(None, "UA")})
    assert codes(new_lake().put(append("a", data_file("a", **only_upper)))) == ["statistics-missing"]


def test_a_partition_value_of_two_values_is_rejected() -> None:
    two = encoded({CARRIER: FieldStatistics("AA", "UA")})
    assert codes(new_lake().put(append("a", data_file("a", **two)))) == ["statistics-invalid"]


def test_an_expressions_partition_value_is_required_too() -> None:
    lake = new_lake()
    assert codes(lake.put(append("a", data_file("a", partition_spec_id=BY_BUCKET)))) == [None]
    without = data_file("b", partition_spec_id=BY_BUCKET, **encoded({ID: FieldStatistics(0, 1)}))
    assert codes(lake.put(append("b", without))) == ["statistics-missing"]


def test_an_unpartitioned_file_needs_no_statistics() -> None:
    bare = data_file("a", partition_spec_id=UNPARTITIONED, content_stats=None, stats_schema=None)
    assert codes(new_lake().put(append("a", bare))) == [None]


@pytest.mark.parametrize(
    "item",
    [
        FieldStatistics(value_count=11),
        FieldStatistics(value_count=5, null_value_count=6),
        FieldStatistics(9, 0),
        FieldStatistics(avg_value_size_in_bytes=9, max_value_size_in_bytes=8),
    ],
)
def test_statistics_that_contradict_each_other_are_rejected(item: FieldStatistics) -> None:
    bad = encoded({CARRIER: FieldStatistics("UA", "UA"), ID: item})
    assert codes(new_lake().put(append("a", data_file("a", **bad)))) == ["statistics-invalid"]


def test_statistics_of_another_schema_are_rejected_and_the_message_says_what_to_send() -> None:
    [verdict] = new_lake().put(append("a", data_file("a", stats_schema=b"\x00" * 8)))
    assert verdict.code == "statistics-invalid"
    assert verdict.message is not None
    assert CODEC.statistics.fingerprint.hex() in verdict.message


@pytest.mark.parametrize("damage", [lambda data: data + b"\x00", lambda data: data[:-1], lambda data: b"\x07" + data])
def test_statistics_that_cannot_be_decoded_are_rejected(damage: object) -> None:
    assert callable(damage)
    good = CODEC.statistics.encode(stats(range(10), "UA"))
    assert codes(new_lake().put(append("a", data_file("a", content_stats=damage(good))))) == ["statistics-invalid"]


def test_generic_statistics_become_the_tables_own() -> None:
    generic = (
        {"field_id": ID, "lower_value": 0, "upper_value": 9, "tight_bounds": True, "value_count": 10,
         "null_value_count": 0},
        {"field_id": CARRIER, "lower_value": "UA", "upper_value": "UA", "tight_bounds": True},
    )  # fmt: skip
    lake = new_lake()
    lake.put(append("a", data_file("a", content_stats=None, stats_schema=None, statistics=generic)), append("b"))
    generic_entry, encoded_entry = lake.root_entries()
    assert generic_entry.content_stats == encoded_entry.content_stats


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"schema_id": 9}, "schema-unknown"),
        ({"table_uuid": uuid.UUID(int=9)}, "table-uuid-mismatch"),
        ({"summary": {"added-records": "1"}}, "intent-malformed"),
        ({"summary": {"note": "x" * 5000}}, "intent-malformed"),
    ],
)
def test_what_the_table_does_not_know_is_rejected(more: dict[str, Any], code: str) -> None:
    assert codes(new_lake().put(append("a", **more))) == [code]


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"partition_spec_id": 9}, "spec-unknown"),
        ({"file_format": "puffin"}, "intent-malformed"),
        ({"sort_order_id": 9}, "intent-malformed"),
        ({"record_count": 2**63 - 1}, "row-count-implausible"),
    ],
)
def test_a_file_that_the_table_cannot_hold_is_rejected(more: dict[str, Any], code: str) -> None:
    lake = new_lake(append("before"))
    assert codes(lake.put(append("a", data_file("a", **more)))) == [code]


def test_counters_stay_within_64_bits() -> None:
    files = [data_file(f"a{number}", rows=1, file_size_in_bytes=2**62) for number in range(2)]
    assert codes(new_lake().put(append("a", *files), append("b", files[0]))) == ["intent-malformed", None]


def test_a_summary_of_the_writer_stands_beside_the_tables_own() -> None:
    lake = new_lake(append("a", summary={"spark.app.id": "app-1"}))
    summary = lake.head.header.snapshot.summary
    assert summary["spark.app.id"] == "app-1"
    assert summary["added-data-files"] == "1"
    assert summary["total-records"] == "10"


def test_an_equality_delete_without_its_partition_value_is_rejected() -> None:
    lake = new_lake(append("a"))
    bad = equality_delete("e", 3, "UA").model_copy(update=encoded({ID: FieldStatistics(0, 9)}))
    assert codes(lake.put(intent(IntentKind.ROW_DELTA, "r", add_equality_deletes=(bad,)))) == ["statistics-missing"]


def test_an_equality_deletes_columns_must_be_columns() -> None:
    lake = new_lake()
    bad = equality_delete("e", 3, "UA").model_copy(update={"equality_ids": (BUCKET,)})
    assert codes(lake.put(intent(IntentKind.ROW_DELTA, "r", add_equality_deletes=(bad,)))) == ["intent-malformed"]


def test_only_maintenance_is_asked_which_version_it_was_made_from() -> None:
    lake = new_lake()
    one = append("one", data_file("a"), made_from_version=99)
    two = append("two", data_file("b"), data_file("c"), made_from_version=99)
    assert codes(lake.put(one, two)) == [None, None]
