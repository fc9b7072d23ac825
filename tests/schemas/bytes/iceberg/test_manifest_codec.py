"""Avro manifests of Iceberg V1 to V3 read as leaves."""

from __future__ import annotations

import random
import struct
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from pyiceberg.conversions import from_bytes
from pyiceberg.partitioning import PartitionField
from pyiceberg.partitioning import PartitionSpec as IcebergSpec
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import TableVersion
from pyiceberg.types import (
    DateType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
)

from rootline.schemas.bytes.avro_encoding import encode_block, encode_container
from rootline.schemas.bytes.foreign_avro import read_avro
from rootline.schemas.bytes.leaf import Leaf, LeafContent
from rootline.schemas.bytes.manifest_codec import decode_manifest
from rootline.schemas.bytes.single_values import bound_of_bytes
from rootline.schemas.content_entry import (
    ContentEntry,
    ContentType,
    DeletionVector,
    FieldStatistics,
    FileFormat,
    Status,
)
from rootline.schemas.errors import Corrupt, Invalid
from rootline.tree.filter.pruning import PruningFilter
from rootline.tree.scan.leaf_pruning import prune_leaf
from rootline.tree.state.aggregates import aggregates_of
from tests.schemas.iceberg_manifests import (
    AMOUNT,
    AT,
    CARRIER,
    DAY,
    DEFINITION,
    ID,
    ONE_DAY,
    leaf_row,
    manifest,
    pairs,
    record,
)

VERSIONS: tuple[TableVersion, ...] = (1, 2, 3)
MICROS = ONE_DAY * 86_400_000_000


def read(body: bytes, count: int = 1, **row: Any) -> Leaf:
    return decode_manifest(body, DEFINITION, leaf_row(body, count, **row), name="m.avro")


def only(leaf: Leaf) -> ContentEntry:
    [entry] = leaf.entries()
    return entry


def numbers(entry: ContentEntry) -> tuple[int | None, int | None, int | None]:
    info = entry.version_info
    return info.snapshot_id, info.sequence_number, info.file_sequence_number


@pytest.mark.parametrize("version", VERSIONS)
def test_a_data_file_of_every_version_is_a_data_entry(version: TableVersion) -> None:
    leaf = read(manifest(version, [record("a", split_offsets=[4, 100], key_metadata=b"key", sort_order_id=0)]))
    entry = only(leaf)
    assert (leaf.content, leaf.length, leaf.location) == (LeafContent.DATA, 1, "metadata/m.avro")
    assert (entry.content_type, entry.location, entry.file_format) == (
        ContentType.DATA,
        "data/a.parquet",
        FileFormat.PARQUET,
    )
    assert (entry.record_count, entry.file_size_in_bytes, entry.partition_spec_id) == (10, 1_000, 3)
    assert (entry.split_offsets, entry.key_metadata, entry.sort_order_id) == ((4, 100), b"key", 0)
    assert entry.content_stats == {CARRIER: FieldStatistics("UA", "UA"), DAY: FieldStatistics(ONE_DAY, ONE_DAY)}


def test_version_1_has_sequence_number_0() -> None:
    assert numbers(only(read(manifest(1, [record("a")])))) == (7, 0, 0)
    assert numbers(only(read(manifest(1, [record("a", Status.EXISTING)]), number=0))) == (7, 0, 0)


@pytest.mark.parametrize("version", [2, 3])
def test_an_added_entry_inherits_from_the_root_row_and_an_existing_one_says_its_own(version: TableVersion) -> None:
    added = record("a") | {"snapshot_id": None}
    body = manifest(version, [added, record("b", Status.EXISTING, 2)])
    first, second = read(body, 2, number=5).entries()
    assert (numbers(first), numbers(second)) == ((7, 5, 5), (7, 2, 2))


def test_an_older_writer_of_version_2_knew_no_file_sequence_number() -> None:
    body = manifest(2, [record("a", Status.EXISTING, 2)], without=["file_sequence_number"])
    assert numbers(only(read(body))) == (7, 2, 2)


@pytest.mark.parametrize("version", VERSIONS)
def test_ordinals_count_the_physical_records_deleted_ones_included(version: TableVersion) -> None:
    statuses = [Status.DELETED, Status.ADDED, Status.DELETED, Status.EXISTING]
    body = manifest(version, [record(f"f{index}", status, 1) for index, status in enumerate(statuses)])
    leaf = read(body, 4)
    assert [entry.version_info.status for entry in leaf.entries()] == statuses
    assert [leaf.ordinal_of(entry.place) for entry in leaf.entries()] == [None, 1, None, 3]


def test_row_ids_count_over_live_entries_without_one() -> None:
    records = [
        record("a", Status.EXISTING, 2, first_row_id=800, record_count=25),
        record("b", record_count=50),
        record("gone", Status.DELETED, 3, record_count=99),
        record("c", record_count=50),
    ]
    found = [entry.first_row_id for entry in read(manifest(3, records), 4, first_row_id=1_000).entries()]
    assert found == [800, 1_000, None, 1_050]


def test_bounds_and_counts_become_statistics_of_the_columns_that_the_table_has() -> None:
    stored: dict[str, Any] = {
        "value_counts": pairs({ID: 10, AMOUNT: 10, 99: 10}),
        "null_value_counts": pairs({ID: 1, AMOUNT: 0}),
        "nan_value_counts": pairs({}),
        "lower_bounds": pairs({ID: struct.pack("<q", -5), AT: struct.pack("<q", MICROS), AMOUNT: b"\x01\x00"}),
        "upper_bounds": pairs({ID: struct.pack("<q", 9), AT: struct.pack("<q", MICROS + 1), AMOUNT: b"\x7f\xff"}),
    }
    stats = only(read(manifest(2, [record("a", **stored)]))).content_stats
    assert stats[ID] == FieldStatistics(-5, 9, None, 10, 1)
    assert stats[AT] == FieldStatistics(MICROS, MICROS + 1)
    assert stats[AMOUNT] == FieldStatistics(Decimal("2.56"), Decimal("327.67"), None, 10, 0)
    assert set(stats) == {ID, CARRIER, AT, AMOUNT, DAY}


def test_bounds_of_a_column_that_was_an_int_once_are_read_as_longs() -> None:
    stored: dict[str, Any] = {
        "lower_bounds": pairs({ID: struct.pack("<i", -5)}),
        "upper_bounds": pairs({ID: b"\x01\x02\x03"}),
    }
    assert only(read(manifest(2, [record("a", **stored)]))).content_stats[ID] == FieldStatistics(-5, None)


def test_partition_values_are_read_by_the_manifests_own_spec() -> None:
    other_order = IcebergSpec(PartitionField(CARRIER, 1007, IdentityTransform(), "airline"), spec_id=3)
    stats = only(read(manifest(2, [record("a", partition={"airline": "DL"})], spec=other_order))).content_stats
    assert stats == {CARRIER: FieldStatistics("DL", "DL")}


def test_a_manifest_of_an_unpartitioned_spec_has_no_partition_values() -> None:
    body = manifest(2, [record("a", partition={})], spec=IcebergSpec(spec_id=0))
    assert only(read(body, partition_spec_id=0)).content_stats == {}


def test_a_manifest_without_entries_is_a_leaf_without_any() -> None:
    leaf = read(manifest(2, []), 0)
    assert (len(leaf), list(leaf.entries())) == (0, [])
    masks = prune_leaf(PruningFilter.of("id = 3", DEFINITION), leaf, 3)
    assert masks.may.tolist() == []
    assert aggregates_of(leaf, (CARRIER, DAY)).content_stats == {}


def test_a_null_partition_value_has_two_null_bounds() -> None:
    entry = only(read(manifest(2, [record("a", partition={"carrier": None, "at_day": None})])))
    assert entry.content_stats == {CARRIER: FieldStatistics(), DAY: FieldStatistics()}


def test_an_identity_value_takes_the_place_of_the_columns_bounds() -> None:
    stored: dict[str, Any] = {
        "value_counts": pairs({CARRIER: 10}),
        "null_value_counts": pairs({CARRIER: 0}),
        "lower_bounds": pairs({CARRIER: b"U"}),
        "upper_bounds": pairs({CARRIER: b"V"}),
    }
    assert only(read(manifest(2, [record("a", **stored)]))).content_stats[CARRIER] == FieldStatistics(
        "UA", "UA", None, 10, 0
    )


def test_what_contradicts_itself_is_taken_for_unknown() -> None:
    said = record(
        "a",
        split_offsets=[100, 4],
        value_counts=pairs({ID: 5}),
        null_value_counts=pairs({ID: 9}),
        lower_bounds=pairs({ID: struct.pack("<q", 7)}),
        upper_bounds=pairs({ID: struct.pack("<q", 3)}),
    )
    entry = only(read(manifest(2, [said])))
    assert entry.split_offsets is None
    assert entry.content_stats[ID] == FieldStatistics()


def test_whole_numbers_and_texts_are_read_as_the_general_way_reads_them() -> None:
    texts = [b"", b"UA", "größe".encode(), b"\xff"]
    bodies = [b"", b"\x01", *(struct.pack("<i", one) for one in (-(2**31), -1, 0, 2**31 - 1))]
    bodies += [struct.pack("<q", one) for one in (-(2**63), -1, 2**63 - 1)]
    for kind in (IntegerType(), DateType(), LongType(), TimeType(), TimestampType(), TimestamptzType(), StringType()):
        for body in texts if isinstance(kind, StringType) else bodies:
            try:
                written = IntegerType() if isinstance(kind, LongType) and len(body) == 4 else kind
                wanted = from_bytes(written, body)
            except (struct.error, UnicodeDecodeError):
                wanted = None
            assert bound_of_bytes(kind, body) == wanted, (kind, body)


def test_a_position_delete_file_of_version_2_is_of_type_1_without_a_vector() -> None:
    deletes = [record("p", content=1), record("e", content=2, equality_ids=[ID])]
    leaf = read(manifest(2, deletes, content="deletes"), 2, is_delete=True)
    positions, equality = leaf.entries()
    assert leaf.content is LeafContent.DELETE
    assert (positions.content_type, positions.deletion_vector) == (ContentType.POSITION_DELETE, None)
    assert (equality.content_type, equality.equality_ids) == (ContentType.EQUALITY_DELETE, (ID,))


def test_a_vector_of_version_3_has_its_place_and_its_data_file() -> None:
    stored = record(
        "v",
        content=1,
        file_path="data/v.puffin",
        file_format="PUFFIN",
        referenced_data_file="data/a.parquet",
        content_offset=4,
        content_size_in_bytes=40,
        record_count=2,
    )
    entry = only(read(manifest(3, [stored], content="deletes"), is_delete=True))
    assert entry.deletion_vector == DeletionVector(4, 40)
    assert (entry.referenced_file, entry.file_format, entry.record_count) == ("data/a.parquet", FileFormat.PUFFIN, 2)


def test_aggregates_come_of_an_adopted_leaf_as_of_any_other() -> None:
    records = [record("a"), record("b", partition={"carrier": "DL", "at_day": ONE_DAY + 1})]
    found = aggregates_of(read(manifest(2, records), 2), (CARRIER, DAY))
    assert found.content_stats[CARRIER].lower_bound == "DL"
    assert (found.content_stats[DAY].lower_bound, found.content_stats[DAY].upper_bound) == (ONE_DAY, ONE_DAY + 1)
    assert (found.manifest_stats.added_files_count, found.manifest_stats.min_sequence_number) == (2, 4)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "not a readable Avro file"),
        (b"PAR1 but not Avro", "not a readable Avro file"),
        (manifest(2, [record("a")])[:-40], "not a readable Avro file"),
        (manifest(2, [record("a")], content="root"), "neither data nor deletes"),
        (manifest(2, [record("a", content=1)]), "do not belong"),
        (manifest(2, [record("a")], content="deletes"), "do not belong"),
        (manifest(2, [record("a", Status.EXISTING)]), "no sequence number"),
        (manifest(2, [record("a", content=9)]), "cannot be read"),
        (manifest(2, [record("a", file_format="CSV")]), "cannot be read"),
        (manifest(2, [record("a") | {"status": 5}]), "cannot be read"),
    ],
    ids=range(10),
)
def test_what_is_no_manifest_is_corrupt_and_named(body: bytes, reason: str) -> None:
    with pytest.raises(Corrupt, match=reason) as caught:
        read(body)
    assert caught.value.code == "leaf-corrupt"
    assert caught.value.message.startswith("m.avro: ")


def test_a_manifest_of_another_spec_than_its_row_says_is_corrupt() -> None:
    body = manifest(2, [record("a")])
    with pytest.raises(Corrupt, match="partition spec 3, its root row says 0"):
        decode_manifest(body, DEFINITION, replace(leaf_row(body, 1), partition_spec_id=0), name="m.avro")
    with pytest.raises(Invalid, match="does not exist"):
        decode_manifest(body, DEFINITION, replace(leaf_row(body, 1), partition_spec_id=8), name="m.avro")


def test_flipped_bits_are_read_or_refused_and_nothing_else() -> None:
    body, seeded = manifest(3, [record(f"f{index}") for index in range(5)]), random.Random(4)
    for _ in range(300):
        changed = bytearray(body)
        changed[seeded.randrange(len(body))] ^= 1 << seeded.randrange(8)
        try:
            leaf = read(bytes(changed), 5)
        except (Corrupt, Invalid):
            continue
        assert all(isinstance(entry, ContentEntry) for entry in leaf.entries())


def test_records_without_bytes_are_refused_however_many_a_block_states() -> None:
    schema = b'{"type":"record","name":"r","fields":[]}'
    sync = bytes(16)
    metadata = {"avro.schema": schema, "avro.codec": b"null"}
    body = encode_container(metadata, [], sync, pack=bytes, block_bytes=1) + encode_block(10**12, b"", sync)
    with pytest.raises(Corrupt, match="a block states 1000000000000 records in 0 bytes"):
        read_avro(body, name="bomb")
