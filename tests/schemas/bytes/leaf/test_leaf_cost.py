"""What a leaf of a stranger would take in memory is known before it is decoded."""

from __future__ import annotations

import dataclasses
import io
from random import Random
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.types import LongType

from rootline.schemas.bytes import leaf_cost
from rootline.schemas.bytes.leaf_codec import MAX_ENTRIES, LeafContent, decode_leaf, encode_columns, encode_leaf
from rootline.schemas.bytes.leaf_cost import LOCATION_BYTES_MAX, check_leaf_cost
from rootline.schemas.bytes.leaf_schema import ROW_FIELDS
from rootline.schemas.content_entry import FieldStatistics
from rootline.schemas.errors import Corrupt
from tests.schemas.bytes.leaf.test_foreign_leaf import SCHEMA, row, struct_of_statistics, written
from tests.schemas.leaf_examples import BOUNDS, data_entry, definition
from tests.tree.tables import ID


def repeated(name: str, value: str | bytes, rows: int = MAX_ENTRIES) -> pa.Table:
    """So many entries, all but one column null or of one value; `name` refers to a dictionary of one value."""
    table = pa.Table.from_pylist([row("a")] * rows, schema=SCHEMA)
    kind = SCHEMA.field(name).type
    column = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array([value], kind))
    index = table.schema.get_field_index(name)
    return table.set_column(index, SCHEMA.field(name).with_type(column.type), column)


def decoded(table: pa.Table, **options: object) -> int:
    """The length of the leaf's file; raises what a coordinator gets of it."""
    location, body = written(table, **options)
    decode_leaf(body, location=location, is_new=True)
    return len(body)


@pytest.mark.parametrize("compression", ["none", "snappy", "zstd", "gzip", "brotli"])
def test_many_entries_that_share_a_long_location_are_refused_and_nothing_is_decoded(compression: str) -> None:
    location, body = written(repeated("location", "data/" + "x" * 100_000), compression=compression)
    before = pa.total_allocated_bytes()
    with pytest.raises(Corrupt, match=f"column location has a value of 100005 bytes, {LOCATION_BYTES_MAX} are allowed"):
        decode_leaf(body, location=location, is_new=True)
    assert pa.total_allocated_bytes() - before < 1 << 20
    assert len(body) < 200_000


@pytest.mark.parametrize("name", ["key_metadata", "file_format"])
def test_many_entries_that_share_other_long_bytes_are_refused(name: str) -> None:
    value = b"x" * 100_000 if name == "key_metadata" else "x" * 100_000
    with pytest.raises(Corrupt, match=r"its text would take 6\d{9} bytes in memory"):
        decoded(repeated(name, value), compression="zstd")


def test_many_entries_of_one_location_of_the_greatest_length_are_decoded() -> None:
    assert decoded(repeated("location", "data/" + "x" * 1_019, 1_000)) < 20_000


def test_values_that_repeat_the_beginning_of_the_one_before_are_refused() -> None:
    table = pa.Table.from_pylist([row("x" * 200_000)], schema=SCHEMA).take(pa.array([0] * 200)).combine_chunks()
    options = {"use_dictionary": False, "column_encoding": {"location": "DELTA_BYTE_ARRAY"}, "compression": "zstd"}
    with pytest.raises(Corrupt, match="its text would take"):
        decoded(table, **options)


@pytest.mark.parametrize("pages", ["1.0", "2.0"])
@pytest.mark.parametrize("compression", ["none", "zstd"])
@pytest.mark.parametrize("page_bytes", [2_000, 1 << 20])
def test_paths_that_repeat_the_beginning_of_the_one_before_are_decoded(
    pages: str, compression: str, page_bytes: int
) -> None:
    seeded, options = Random(3), {"compression": compression, "data_page_version": pages, "data_page_size": page_bytes}
    paths = [f"data/day=2024-01-{at % 30:02}/{seeded.randbytes(16).hex()}-{at:06}.parquet" for at in range(20_000)]
    text = dict.fromkeys(["location", "file_format"], "DELTA_BYTE_ARRAY")
    table = pa.Table.from_pylist([row(path) for path in paths], schema=SCHEMA)
    assert decoded(table, use_dictionary=False, column_encoding=text, **options) < 4 << 20


def test_wide_bounds_cost_their_width_also_where_all_are_null(monkeypatch: pytest.MonkeyPatch) -> None:
    statistics = SCHEMA.field("content_stats").with_type(pa.struct([struct_of_statistics(ID, pa.binary(100_000))]))
    wide = SCHEMA.set(SCHEMA.get_field_index("content_stats"), statistics)
    entries = [{**row("a"), "content_stats": None}] * 100
    monkeypatch.setattr(leaf_cost, "NUMBERS_BYTES_MAX", 1 << 20)
    with pytest.raises(Corrupt, match=r"its numbers would take 200\d{5} bytes in memory"):
        decoded(pa.Table.from_pylist(entries, schema=wide))


def test_pages_that_grow_when_they_are_decompressed_are_refused() -> None:
    table = pa.Table.from_pylist([row("a")], schema=SCHEMA)
    index = table.schema.get_field_index("key_metadata")
    table = table.set_column(index, SCHEMA.field("key_metadata"), pa.array([bytes(3_000_000)], pa.binary()))
    with pytest.raises(Corrupt, match="its text would take 3000"):
        decoded(table, use_dictionary=False, compression="zstd")


def test_lists_have_no_more_elements_than_files_can_need() -> None:
    table = pa.Table.from_pylist([row("a")], schema=SCHEMA)
    index, kind = table.schema.get_field_index("split_offsets"), SCHEMA.field("split_offsets").type
    offsets = pa.ListArray.from_arrays(
        pa.array([0, 1_200_000], pa.int32()), pa.repeat(pa.scalar(4, pa.int64()), 1_200_000)
    )
    table = table.set_column(index, SCHEMA.field("split_offsets"), offsets.cast(kind))
    with pytest.raises(Corrupt, match="its lists have 120000"):
        decoded(table)


def test_a_leaf_of_ours_with_as_many_entries_as_fit_is_decoded() -> None:
    names = pa.array([f"data/{number}-{'y' * 60}.parquet" for number in range(MAX_ENTRIES)])
    one = pa.Table.from_pylist([{**row("a"), "content_stats": None}], schema=pa.schema(ROW_FIELDS))
    table = one.take(pa.array([0] * MAX_ENTRIES)).set_column(1, ROW_FIELDS[1], names).combine_chunks()
    leaf = encode_columns(table, leaf_uuid=UUID(int=1), content=LeafContent.DATA)
    assert len(decode_leaf(leaf.body, location=leaf.location, is_new=True)) == MAX_ENTRIES


def test_a_leaf_of_ours_is_decoded_however_wide_and_empty_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaf_cost, "NUMBERS_BYTES_MAX", 0)  # what a few columns take does not count in a wide leaf
    numbers = {index: FieldStatistics() for index, (kind, _, _) in enumerate(BOUNDS, 1) if isinstance(kind, LongType)}
    one = encode_leaf(
        [dataclasses.replace(data_entry(1), content_stats=numbers)],
        definition(),
        leaf_uuid=UUID(int=1),
        content=LeafContent.DATA,
    )
    table = decode_leaf(one.body, location=one.location).table.take(pa.array([0] * MAX_ENTRIES)).combine_chunks()
    leaf = encode_columns(table, leaf_uuid=UUID(int=1), content=LeafContent.DATA)
    assert len(decode_leaf(leaf.body, location=leaf.location, is_new=True)) == MAX_ENTRIES


def test_any_damage_to_footer_or_page_headers_is_refused_or_harmless() -> None:
    _, body = written()
    start = len(body) - 8 - int.from_bytes(body[-8:-4], "little")
    schema = pq.ParquetFile(io.BytesIO(body)).schema_arrow
    chosen = Random(3)
    refused = 0
    for _ in range(600):
        damaged = bytearray(body)
        for _ in range(chosen.randrange(1, 4)):
            damaged[chosen.randrange(4, len(body) - 8)] = chosen.randrange(256)
        try:
            check_leaf_cost(bytes(damaged), bytes(damaged[start:-8]), schema, 2)
        except (ValueError, pa.ArrowException):
            refused += 1
    assert 200 < refused < 600
