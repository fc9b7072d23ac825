"""The worked examples of "How do we remove partition tuple and represent them in columnar stats?": statistics."""

from __future__ import annotations

import io
import uuid

import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StringType, TimestamptzType

from rootline.schemas.bytes.entry_schema import content_entry_schema
from rootline.schemas.bytes.leaf_codec import LeafContent, decode_leaf, encode_leaf
from rootline.schemas.bytes.leaf_schema import id_of
from rootline.schemas.content_entry import (
    ContentEntry,
    ContentStats,
    ContentType,
    FieldStatistics,
    FileFormat,
    Status,
    VersionInfo,
)
from rootline.schemas.field_ids import statistics_field_id
from rootline.schemas.table_definition import Expression, PartitionSpec, SortOrder, TableDefinition
from rootline.tree.filter.pruning import PruningFilter, entry_may_match
from rootline.tree.state.aggregates import aggregates_of

EVENT_TYPE, EVENT_TS, EVENT_DATE = 1, 2, 101
DEFINITION = TableDefinition(
    table_uuid=uuid.UUID(int=1),
    schemas=(
        Schema(
            NestedField(EVENT_TYPE, "event_type", StringType()),
            NestedField(EVENT_TS, "event_ts", TimestamptzType()),
        ),
    ),
    current_schema_id=0,
    expressions=(Expression(EVENT_DATE, (EVENT_TS,), "day", "event_ts_day"),),
    partition_specs=(PartitionSpec(0, (EVENT_TYPE, EVENT_DATE)),),
    default_spec_id=0,
    sort_orders=(SortOrder(0),),
    default_sort_order_id=0,
    last_column_id=101,
    properties={},
)
DAY = 20_259  # 2025-06-20
LONG_TYPE = "a type of event whose name is longer than sixteen characters"


def file_of(event_type: str | None, day: int | None, name: str = "d") -> ContentEntry:
    """As the figure has it: the partition value in the lower bound, the upper bound null."""
    stats: ContentStats = {EVENT_TYPE: FieldStatistics(event_type), EVENT_DATE: FieldStatistics(day)}
    info = VersionInfo(Status.ADDED, 1, 1, 1)
    location = f"data/{name}.parquet"
    return ContentEntry(ContentType.DATA, location, FileFormat.PARQUET, info, 0, 10, 100, content_stats=stats)


def leaf_row(*entries: ContentEntry) -> ContentEntry:
    encoded = encode_leaf(entries, DEFINITION, leaf_uuid=uuid.UUID(int=9), content=LeafContent.DATA)
    found = aggregates_of(decode_leaf(encoded.body, location=encoded.location), (EVENT_TYPE, EVENT_DATE))
    return ContentEntry(
        ContentType.DATA_MANIFEST,
        encoded.location,
        FileFormat.PARQUET,
        VersionInfo(Status.EXISTING, 1, 1, 1),
        0,
        len(entries),
        len(encoded.body),
        manifest_stats=found.manifest_stats,
        content_stats=found.content_stats,
    )


def may(where: str, entry: ContentEntry) -> bool:
    return entry_may_match(PruningFilter.of(where, DEFINITION), entry)


@pytest.mark.parametrize(("tracked_id", "struct_id"), [(1, 10_200), (2, 10_400), (101, 30_200)])
def test_the_statistics_of_a_column_or_expression_begin_at_ten_thousand_and_two_hundred_times_its_id(
    tracked_id: int, struct_id: int
) -> None:
    assert statistics_field_id(tracked_id) == struct_id
    schema = content_entry_schema(DEFINITION.tracked_fields)
    [stats] = [field for field in schema["fields"] if field["name"] == "content_stats"]
    assert stats["field-id"] == 149
    by_name = {field["name"]: field["field-id"] for field in stats["type"][1]["fields"]}
    assert by_name[f"_{tracked_id}"] == struct_id


def test_a_leaf_writes_every_statistics_id_in_full() -> None:
    encoded = encode_leaf([file_of("commit", DAY)], DEFINITION, leaf_uuid=uuid.UUID(int=9), content=LeafContent.DATA)
    schema = pq.read_schema(io.BytesIO(encoded.body))
    assert id_of(schema.field("content_stats")) == 149
    members = {field.name: field for field in schema.field("content_stats").type}
    names = (
        "lower_bound",
        "upper_bound",
        "tight_bounds",
        "value_count",
        "null_value_count",
        "nan_value_count",
        "avg_value_size_in_bytes",
        "max_value_size_in_bytes",
    )
    for tracked_id in (EVENT_TYPE, EVENT_DATE):
        struct = members[f"_{tracked_id}"]
        start = statistics_field_id(tracked_id)
        assert [(child.name, id_of(child)) for child in struct.type] == [
            (name, start + offset) for offset, name in enumerate(names, 1)
        ]


def test_a_data_file_keeps_its_partition_value_in_the_lower_bound_only() -> None:
    """The figure's `derived_value` is the lower bound here, never cut where the spec uses the column by identity."""
    entry = file_of(LONG_TYPE, DAY)
    assert may(f"event_type = '{LONG_TYPE}'", entry)
    assert not may(f"event_type = '{LONG_TYPE[:-1]}'", entry)
    assert not may(f"event_type = '{LONG_TYPE} '", entry)
    assert may("event_ts = '2025-06-20T10:00:00.123+00:00'", entry)
    assert not may("event_ts >= '2025-06-21T00:00:00+00:00'", entry)


def test_both_bounds_null_mean_that_the_partition_value_is_null() -> None:
    entry = file_of(None, DAY)
    assert may("event_type is null", entry)
    assert not may("event_type is not null", entry)
    assert not may("event_type = 'commit'", entry)


def test_a_manifest_has_both_bounds_of_the_range_of_its_files_partition_values() -> None:
    row = leaf_row(file_of("commit", DAY, "a"), file_of(LONG_TYPE, DAY + 2, "b"), file_of("push", DAY + 1, "c"))
    types, days = row.content_stats[EVENT_TYPE], row.content_stats[EVENT_DATE]
    assert (types.lower_bound, types.upper_bound) == (LONG_TYPE, "push")
    assert (days.lower_bound, days.upper_bound) == (DAY, DAY + 2)
    assert may("event_type = 'commit'", row)
    assert not may("event_type = 'zebra'", row)
    assert not may("event_ts < '2025-06-20T00:00:00+00:00'", row)
    assert may("event_ts < '2025-06-20T00:00:01+00:00'", row)
