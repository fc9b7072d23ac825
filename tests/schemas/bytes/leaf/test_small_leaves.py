"""A small leaf is decoded once but for its statistics: what it shows is what Parquet's reader would have read."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rootline.schemas.bytes import leaf as leaf_module
from rootline.schemas.bytes.leaf import Leaf
from rootline.schemas.bytes.leaf_codec import LeafContent, decode_leaf, encode_leaf
from tests.schemas.leaf_examples import LEAF_UUID, data_entry, definition, equality_entry, vector_entry

ENTRIES = {
    LeafContent.DATA: [data_entry(number) for number in range(6)],
    LeafContent.DELETE: [vector_entry(0), equality_entry(1), vector_entry(2), equality_entry(3)],
}


def body_of(content: LeafContent, row_group_size: int | None) -> tuple[str, bytes]:
    """A leaf of ours; with a size, its rows again in groups of so many."""
    encoded = encode_leaf(ENTRIES[content], definition(), leaf_uuid=LEAF_UUID, content=content)
    if row_group_size is None:
        return encoded.location, encoded.body
    sink = io.BytesIO()
    pq.write_table(pq.read_table(pa.BufferReader(encoded.body)), sink, row_group_size=row_group_size)
    return encoded.location, sink.getvalue()


def paths_of(kind: pa.DataType, path: str) -> list[str]:
    if not pa.types.is_struct(kind):
        return [path]
    return [path, *(name for field in kind for name in paths_of(field.type, f"{path}.{field.name}"))]


BODIES = {(content, size): body_of(content, size) for content in LeafContent for size in (None, 2)}
FILES = {key: pq.ParquetFile(pa.BufferReader(body)) for key, (_, body) in BODIES.items()}
NAMES = sorted(
    {name for file in FILES.values() for field in file.schema_arrow for name in paths_of(field.type, field.name)}
)


def small_leaf(content: LeafContent, size: int | None) -> Leaf:
    location, body = BODIES[content, size]
    return Leaf(location, content, body, FILES[content, size].metadata, len(body))


@settings(deadline=None)
@given(
    st.sampled_from(sorted(BODIES, key=str)),
    st.lists(st.sampled_from([*NAMES, "nothing", "version_info.nothing", "location.nothing"]), max_size=6),
)
@example((LeafContent.DELETE, 2), ["content_stats._1", "content_type", "content_stats"])
def test_columns_are_those_that_the_reader_would_have_read(
    key: tuple[LeafContent, int | None], names: list[str]
) -> None:
    read = FILES[key].read(columns=names, use_threads=False)
    shown = small_leaf(*key).columns(names)
    assert shown.num_rows == read.num_rows
    assert shown.schema.equals(read.schema)
    assert shown.equals(read)


@pytest.mark.parametrize("size", [None, 2])
@pytest.mark.parametrize("content", list(LeafContent))
def test_entries_and_statistics_are_those_of_a_leaf_that_is_too_large(
    content: LeafContent, size: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = list(small_leaf(content, size).entries())
    monkeypatch.setattr(leaf_module, "_SMALL_BYTES", 0)
    assert small == list(small_leaf(content, size).entries()) == ENTRIES[content]


def test_it_is_opened_once_whatever_is_asked_of_it_but_its_statistics(monkeypatch: pytest.MonkeyPatch) -> None:
    location, body = BODIES[LeafContent.DATA, None]
    leaf = decode_leaf(body, location=location)
    monkeypatch.setattr(leaf_module.pq, "ParquetFile", None)
    assert leaf.rows.column("location").to_pylist() == [entry.location for entry in ENTRIES[LeafContent.DATA]]
    assert leaf.columns(["version_info.status", "location"]).column_names == ["version_info", "location"]
