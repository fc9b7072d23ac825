"""An entry as bytes: equal to fastavro's for every type, split into version info and a tail that never changes."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, IntegerType, LongType, NestedField

from rootline.schemas.bytes.root.entry_codec import EntryCodec, encode_version_info
from rootline.schemas.bytes.root.statistics_codec import LazyStats
from rootline.schemas.content_entry import ContentEntry, FieldStatistics, Status, VersionInfo
from rootline.schemas.errors import Corrupt, Invalid
from rootline.schemas.table_definition import PartitionSpec, SortOrder, TableDefinition, TrackedField
from tests.schemas.entry_values import (
    TRACKED,
    as_avro,
    entries,
    example_entry,
    fastavro_decoded,
    fastavro_encoded,
    version_infos,
)

CODEC = EntryCodec(TRACKED)


def encoded_of(entry: ContentEntry) -> bytes:
    return encode_version_info(entry.version_info) + CODEC.encode_tail(entry)


@given(entries())
def test_our_bytes_are_those_that_fastavro_writes(entry: ContentEntry) -> None:
    assert encoded_of(entry) == fastavro_encoded(entry)


@given(entries())
def test_fastavro_reads_our_bytes_and_we_read_its(entry: ContentEntry) -> None:
    assert fastavro_decoded(encoded_of(entry)) == as_avro(entry)
    decoded, _, end = CODEC.decode_row(fastavro_encoded(entry))
    assert decoded == entry
    assert end == len(fastavro_encoded(entry))


@given(entries(), version_infos())
def test_another_version_info_leaves_the_tail_as_it_is(entry: ContentEntry, other: VersionInfo) -> None:
    encoded = encoded_of(entry)
    _, tail_start, end = CODEC.decode_row(encoded)
    changed, _, _ = CODEC.decode_row(encode_version_info(other) + encoded[tail_start:end])
    assert changed == replace(entry, version_info=other)


@given(entries())
def test_a_decoded_entry_encodes_to_the_same_bytes(entry: ContentEntry) -> None:
    encoded = encoded_of(entry)
    decoded, _, _ = CODEC.decode_row(encoded)
    assert encoded_of(decoded) == encoded


@given(entries(), st.data())
def test_changed_and_cut_bytes_decode_or_are_corrupt(entry: ContentEntry, data: st.DataObject) -> None:
    encoded = bytearray(encoded_of(entry))
    encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    check_hostile(bytes(encoded[: data.draw(st.integers(0, len(encoded)))]))


@given(st.binary(max_size=200))
def test_any_bytes_decode_or_are_corrupt(hostile: bytes) -> None:
    check_hostile(hostile)


def check_hostile(hostile: bytes) -> None:
    try:
        decoded, tail_start, end = CODEC.decode_row(hostile, name="root 3")
        list(decoded.content_stats.items())
    except Corrupt as error:
        named = error.message.startswith("root 3: ")
    else:
        named = 0 < tail_start < end <= len(hostile)
    assert named


def test_statistics_stay_bytes_until_they_are_read() -> None:
    entry = example_entry()
    decoded, _, _ = CODEC.decode_row(encoded_of(entry))
    assert isinstance(decoded.content_stats, LazyStats)
    assert decoded.content_stats == entry.content_stats


def test_a_list_longer_than_the_bytes_is_corrupt() -> None:
    entry = replace(example_entry(), split_offsets=(1, 2), content_stats={})
    encoded = encoded_of(entry)
    hostile = encoded.replace(b"\x04\x02\x04\x00", b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f")
    assert hostile != encoded
    with pytest.raises(Corrupt, match="a list states"):
        CODEC.decode_row(hostile)


def test_a_list_in_sized_blocks_reads_as_any_avro_library_reads_it() -> None:
    entry = replace(example_entry(), split_offsets=(1, 2), content_stats={})
    sized = encoded_of(entry).replace(b"\x04\x02\x04\x00", b"\x01\x02\x02\x01\x02\x04\x00")
    assert CODEC.decode_row(sized)[0] == entry


@pytest.mark.parametrize(
    "entry",
    [
        replace(example_entry(), record_count=2**63),
        replace(example_entry(), partition_spec_id=2**31),
        replace(example_entry(), location="data/\ud800"),
    ],
)
def test_a_value_that_does_not_fit_is_invalid(entry: ContentEntry) -> None:
    with pytest.raises(Invalid, match="entry 'data/") as caught:
        CODEC.encode_tail(entry)
    assert caught.value.code == "intent-malformed"


def test_a_null_version_info_is_corrupt() -> None:
    with pytest.raises(Corrupt, match="version_info is null"):
        CODEC.decode_row(b"\x00" + CODEC.encode_tail(example_entry()))


def test_version_info_takes_few_bytes() -> None:
    assert len(encode_version_info(VersionInfo(Status.ADDED, 2**62, 1000, 1000))) <= 20


def test_the_schema_alone_gives_back_an_equal_codec() -> None:
    again = EntryCodec.of_avro_schema(CODEC.schema_json)
    assert again == CODEC
    assert hash(again) == hash(CODEC)
    assert again.statistics.fingerprint == CODEC.statistics.fingerprint
    assert [field.type for field in again.tracked] == [field.type for field in TRACKED]


def test_version_info_is_the_first_field_and_content_stats_the_last() -> None:
    fields = [field["name"] for field in json.loads(CODEC.schema_json)["fields"]]
    assert (fields[0], fields[-1]) == ("version_info", "content_stats")


@pytest.mark.parametrize(
    "schema",
    [
        b"",
        b"null",
        b"[]",
        b'{"fields":[]}',
        b'{"type":"record","name":"content_entry","fields":[{"type":["null",{"fields":[{"name":"_1"}]}]}]}',
        CODEC.schema_json.replace(b'"field-id":100', b'"field-id":99', 1),
        CODEC.schema_json.replace(b"decimal_9_2", b"decimal_99_2"),
        CODEC.schema_json.replace(b'"_1"', b'"_99999999"'),
        b"[" * 100_000,
    ],
)
def test_a_schema_that_this_profile_does_not_write_is_refused(schema: bytes) -> None:
    with pytest.raises(ValueError):
        EntryCodec.of_avro_schema(schema)


def test_floating_columns_that_a_spec_uses_may_have_nan_bounds() -> None:
    definition = TableDefinition(
        table_uuid=uuid.UUID(int=1),
        schemas=(
            Schema(
                NestedField(1, "measured", DoubleType(), required=False),
                NestedField(2, "other", DoubleType(), required=False),
                NestedField(3, "id", IntegerType(), required=False),
            ),
        ),
        current_schema_id=0,
        expressions=(),
        partition_specs=(PartitionSpec(0, (1, 3)),),
        default_spec_id=0,
        sort_orders=(SortOrder(0),),
        default_sort_order_id=0,
        last_column_id=3,
        properties={},
    )
    codec = EntryCodec.of_definition(definition)
    assert codec.nan_bounds == {1}
    assert EntryCodec.of_avro_schema(codec.schema_json).nan_bounds == {1}
    codec.statistics.encode({1: FieldStatistics(lower_bound=float("nan"))})
    with pytest.raises(Invalid):
        codec.statistics.encode({2: FieldStatistics(lower_bound=float("nan"))})


def test_int_to_long_changes_the_schema_and_not_the_layout() -> None:
    narrow = EntryCodec([TrackedField(1, "id", IntegerType())])
    wide = EntryCodec([TrackedField(1, "id", LongType())])
    assert narrow != wide
    assert narrow.layout == wide.layout
