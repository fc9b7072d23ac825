"""A list of files read by columns gives the leaf that the same files give one by one, or nothing."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rootline.maintenance.file_leaves import columns_of, leaf_columns
from rootline.schemas.bytes.leaf_codec import table_of, tracked_in
from rootline.schemas.bytes.single_values import from_generic, to_generic
from rootline.schemas.content_entry import ContentEntry, ContentType, FieldStatistics, FileFormat, Status, VersionInfo
from rootline.schemas.intent import DataFile, GenericStatistics
from tests.schemas import leaf_examples
from tests.schemas.entry_values import field_statistics
from tests.schemas.leaf_examples import BOUNDS, UNKNOWN_COLUMN
from tests.support.examples import examples

TABLE = leaf_examples.definition()
LONG, DOUBLE, TEXT, FIXED = 3, 5, 12, 15


def described(number: int, *statistics: GenericStatistics) -> DataFile:
    return DataFile(
        location=f"data/{number}.parquet",
        file_format=FileFormat.ORC if number % 2 else FileFormat.PARQUET,
        record_count=number,
        file_size_in_bytes=10 + number,
        statistics=statistics,
        sort_order_id=0 if number % 3 == 0 else None,
        split_offsets=(4, 90) if number % 3 else None,
        key_metadata=b"key" if number % 5 == 0 else None,
    )


def entry_of(file: DataFile) -> ContentEntry:
    return ContentEntry(
        content_type=ContentType.DATA,
        location=file.location,
        file_format=file.file_format,
        version_info=VersionInfo(Status.ADDED),
        partition_spec_id=0,
        record_count=file.record_count,
        file_size_in_bytes=file.file_size_in_bytes,
        sort_order_id=file.sort_order_id,
        key_metadata=file.key_metadata,
        split_offsets=file.split_offsets,
        content_stats=from_generic(file.statistics, TABLE.tracked_by_id),
    )


def by_columns(files: list[DataFile]) -> pa.Table:
    columns = columns_of(files, TABLE)
    assert columns is not None
    return leaf_columns(columns, TABLE, 0)


def one_by_one(files: list[DataFile]) -> pa.Table:
    entries = [entry_of(file) for file in files]
    return table_of(entries, tracked_in(entries, TABLE))


ONE = st.sampled_from(list(enumerate([kind for kind, _, _ in BOUNDS], 1))).flatmap(
    lambda at: st.tuples(st.just(at[0]), field_statistics(at[1]))
)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.lists(ONE, max_size=4).map(dict), min_size=1, max_size=5))
def test_whatever_files_say_of_columns_of_any_type_is_what_they_say_one_by_one(
    statistics: list[dict[int, FieldStatistics]],
) -> None:
    files = [described(at, *to_generic(said, TABLE.tracked_by_id)) for at, said in enumerate(statistics, 1)]
    assert by_columns(files) == one_by_one(files)


def test_columns_of_every_type_are_read_by_columns() -> None:
    said = {at: FieldStatistics(lower, upper, value_count=at) for at, (_, lower, upper) in enumerate(BOUNDS, 1)}
    said[UNKNOWN_COLUMN] = FieldStatistics(value_count=3)
    files = [described(at, *to_generic(said, TABLE.tracked_by_id)) for at in range(1, 4)]
    assert by_columns(files) == one_by_one(files)


def test_bounds_as_json_values_are_read_by_columns_too() -> None:
    said = (
        GenericStatistics(field_id=LONG, lower_value=-5, upper_value=2**40),
        GenericStatistics(field_id=TEXT, lower_value="a", upper_value="ü"),
        GenericStatistics(field_id=6, lower_value="2024-01-31", upper_bound=b"\xff\xff\xff\x7f"),
    )
    files = [described(1, *said), described(2)]
    assert by_columns(files) == one_by_one(files)


@pytest.mark.parametrize(
    "said",
    [
        GenericStatistics(field_id=LONG, lower_bound=b"\x01\x02"),
        GenericStatistics(field_id=LONG, lower_bound=b"\x01\x00\x00\x00"),
        GenericStatistics(field_id=TEXT, lower_bound=b"\xff\xfe"),
        GenericStatistics(field_id=FIXED, lower_bound=b"four"),
        GenericStatistics(field_id=LONG, lower_value="many"),
        GenericStatistics(field_id=LONG, lower_value=1, lower_bound=bytes(8)),
        GenericStatistics(field_id=UNKNOWN_COLUMN, lower_bound=b""),
        GenericStatistics(field_id=9_999, value_count=1),
    ],
)
def test_what_columns_cannot_hold_is_left_to_the_way_that_says_what_is_wrong(said: GenericStatistics) -> None:
    sound = described(1, GenericStatistics(field_id=LONG, lower_bound=bytes(8)))
    assert columns_of([sound, described(2, said), sound], TABLE) is None


def test_a_file_with_encoded_statistics_is_left_to_the_way_that_proves_them() -> None:
    encoded = described(2).model_copy(update={"content_stats": b"", "stats_schema": bytes(8)})
    assert columns_of([described(1), encoded], TABLE) is None


def test_an_id_that_a_file_names_twice_is_never_read_as_that_of_the_next_file() -> None:
    item = GenericStatistics(field_id=LONG, value_count=1)
    twice = described(1).model_copy(update={"statistics": (item, item)})
    assert columns_of([twice, described(2)], TABLE) is None
