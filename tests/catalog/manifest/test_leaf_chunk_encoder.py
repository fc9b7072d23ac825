"""Chunks of leaves as manifests: the same bytes as their entries one by one."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rootline.catalog.export_keys import FormatVersion
from rootline.catalog.exported_definition import ExportedDefinition
from rootline.catalog.leaf_chunk_encoder import encode_leaf_chunk, joined, longs, texts
from rootline.catalog.manifest_encoder import EncodedManifest, encode_manifest
from rootline.schemas.bytes.avro_encoding import LONG_MAX, LONG_MIN, encode_long
from rootline.schemas.bytes.leaf import Leaf, LeafContent
from rootline.schemas.bytes.leaf_codec import decode_leaf, encode_leaf, leaf_of_entries
from rootline.schemas.content_entry import ContentEntry, ContentType, FieldStatistics, FileFormat, Status, VersionInfo
from rootline.schemas.errors import Invalid
from tests.catalog.exported_entries import SYNC, absolute, entries
from tests.catalog.exported_tables import definition
from tests.support.examples import examples

TABLE = definition()
EXPORTED = {version: ExportedDefinition.of(TABLE, version) for version in FormatVersion}


def leaf_of(given_entries: list[ContentEntry], content: LeafContent) -> Leaf:
    return leaf_of_entries(given_entries, TABLE, location="leaf", content=content, size_in_bytes=1)


def chunk(leaf: Leaf, ordinals: list[int], spec_id: int, version: FormatVersion = FormatVersion.V3) -> EncodedManifest:
    return encode_leaf_chunk(leaf, ordinals, EXPORTED[version], spec_id, leaf.content, absolute=absolute, sync=SYNC)


def one_by_one(
    given_entries: list[ContentEntry], content: LeafContent, spec_id: int, version: FormatVersion = FormatVersion.V3
) -> EncodedManifest:
    return encode_manifest(given_entries, EXPORTED[version], spec_id, content, absolute=absolute, sync=SYNC)


@st.composite
def _leaves(draw: st.DrawFn) -> tuple[FormatVersion, int, LeafContent, list[ContentEntry]]:
    version = draw(st.sampled_from(FormatVersion))
    content = LeafContent.DATA if version is FormatVersion.V2 else draw(st.sampled_from(LeafContent))
    spec_id = draw(st.integers(0, 4))
    return version, spec_id, content, draw(st.lists(entries(TABLE, spec_id, content), min_size=1, max_size=6))


@settings(deadline=None, max_examples=examples(100))
@given(_leaves(), st.data())
def test_a_chunk_is_byte_for_byte_the_manifest_of_its_entries(
    case: tuple[FormatVersion, int, LeafContent, list[ContentEntry]], data: st.DataObject
) -> None:
    version, spec_id, content, given_entries = case
    leaf = leaf_of(given_entries, content)
    ordinals = sorted(data.draw(st.sets(st.integers(0, len(given_entries) - 1))))
    made = chunk(leaf, ordinals, spec_id, version)
    assert made == one_by_one([given_entries[ordinal] for ordinal in ordinals], content, spec_id, version)


def test_entries_of_several_row_groups_are_one_manifest() -> None:
    many = [
        ContentEntry(
            ContentType.DATA,
            f"data/{number}.parquet",
            FileFormat.PARQUET,
            VersionInfo(Status.EXISTING, 1, number, number),
            0,
            number,
            number * 1_000,
            content_stats={} if number % 3 else {1: FieldStatistics(-number, number, True, number, 0)},
        )
        for number in range(16_500)
    ]
    made = encode_leaf(many, TABLE, leaf_uuid=uuid.UUID(int=1), content=LeafContent.DATA)
    leaf = decode_leaf(made.body, location=made.location)
    ordinals = [*range(0, 16_500, 100), 16_383, 16_384, 16_499]
    ordinals = sorted(set(ordinals))
    assert chunk(leaf, ordinals, 0) == one_by_one([many[ordinal] for ordinal in ordinals], LeafContent.DATA, 0)


def test_what_a_root_row_lends_is_in_the_manifest() -> None:
    entry = ContentEntry(
        ContentType.DATA, "data/a.parquet", FileFormat.PARQUET, VersionInfo(Status.ADDED), 0, 10, 1_000
    )
    row = replace(
        entry,
        content_type=ContentType.DATA_MANIFEST,
        version_info=VersionInfo(Status.EXISTING, 7, 8, 8),
        first_row_id=500,
    )
    leaf = leaf_of([entry, replace(entry, location="data/b.parquet")], LeafContent.DATA).of_row(row)
    record = chunk(leaf, [0, 1], 0).record
    assert (record.added_snapshot_id, record.sequence_number, record.first_row_id) == (7, 8, 500)
    assert chunk(leaf, [0, 1], 0) == one_by_one(list(leaf.entries()), LeafContent.DATA, 0)


def test_what_an_entry_by_itself_is_refused_for_a_chunk_is_refused_for() -> None:
    entry = ContentEntry(
        ContentType.DATA,
        "data/a.parquet",
        FileFormat.PARQUET,
        VersionInfo(Status.EXISTING, 1, 1, 1),
        1,
        10,
        1_000,
        content_stats={2: FieldStatistics("UA"), 102: FieldStatistics(3)},
    )
    with pytest.raises(Invalid, match=r"'data/a.parquet'.*'at_day' \(id 1001\)"):
        chunk(leaf_of([entry], LeafContent.DATA), [0], 1)


@given(st.lists(st.none() | st.integers(LONG_MIN, LONG_MAX) | st.integers(-200, 200), min_size=1))
def test_a_column_of_numbers_is_encoded_as_each_number_is(values: list[int | None]) -> None:
    made = joined([longs(pa.array(values, pa.int64()), prefix=b"ab", null=b"\x00")])
    assert made == [b"\x00" if value is None else b"ab" + encode_long(value) for value in values]


@given(st.lists(st.none() | st.text(max_size=200), min_size=1))
def test_a_column_of_texts_is_encoded_as_each_text_is(values: list[str | None]) -> None:
    made = joined(texts(pa.array(values, pa.string()), prefix=b"a", null=b"\x00"))
    assert made == [
        b"\x00" if value is None else b"a" + encode_long(len(value.encode())) + value.encode() for value in values
    ]
