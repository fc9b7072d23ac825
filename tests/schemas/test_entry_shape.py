"""Every field of every content type, in roots and in leaves: required, null or free, refused both ways when broken."""

from __future__ import annotations

import hashlib
import io
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rootline.schemas.bytes.leaf_codec import LeafContent, decode_leaf, encode_leaf
from rootline.schemas.bytes.root.entry_codec import EntryCodec
from rootline.schemas.bytes.root.root_codec import Row, read_rows, row_bytes, seal
from rootline.schemas.content_entry import (
    ContentEntry,
    ContentType,
    DeletionVector,
    FileFormat,
    ManifestStats,
    Status,
    VersionInfo,
)
from rootline.schemas.entry_rules import ManifestKind, entry_violations, fault_of_row
from rootline.schemas.errors import Corrupt, Invalid, RootlineError
from rootline.schemas.object_keys import leaf_location
from tests.schemas.leaf_examples import LEAF_UUID, definition
from tests.schemas.test_entry_rules import DATA, DELETE_LEAF, EQUALITY, INFO, LEAF, LEAF_VECTOR, VECTOR

DEFINITION: Final = definition()
CODEC: Final = EntryCodec.of_definition(DEFINITION)
SYNC: Final = bytes(16)
IN_PUFFIN: Final = replace(
    LEAF_VECTOR, file_size_in_bytes=100, deletion_vector=DeletionVector(4, 40), location="metadata/leaves/l"
)
EXAMPLES: Final = {entry.content_type: entry for entry in (DATA, VECTOR, EQUALITY, LEAF, DELETE_LEAF, LEAF_VECTOR)}
LEAF_CONTENT: Final = {
    ContentType.DATA: LeafContent.DATA,
    ContentType.POSITION_DELETE: LeafContent.DELETE,
    ContentType.EQUALITY_DELETE: LeafContent.DELETE,
}
VALUES: Final[dict[str, Any]] = {
    "deletion_vector": DeletionVector(4, 40),
    "sort_order_id": 0,
    "manifest_stats": ManifestStats(0, 3, 0, 0, 300, 0, 1),
    "referenced_file": "data/other.parquet",
    "key_metadata": b"key",
    "split_offsets": (4, 100),
    "equality_ids": (1,),
    "first_row_id": 7,
    "file_size_in_bytes": 1_000,
}
R, N, F = "required", "null", "free"
# The columns of the table are the content types 0 to 5. A field's row says what the proposal's "V4 content entry
# structure" says of it; type 5 is shown inline, where the size of a location
# may be left out.
TABLE: Final[dict[str, tuple[str, ...]]] = {
    "deletion_vector":    (N, R, N, N, N, R),
    "sort_order_id":      (F, N, N, N, N, N),
    "manifest_stats":     (N, N, N, R, R, N),
    "referenced_file":    (N, R, N, N, F, R),
    "key_metadata":       (F, F, F, F, F, F),
    "split_offsets":      (F, F, F, F, F, F),
    "equality_ids":       (N, N, R, N, N, N),
    "first_row_id":       (F, N, N, F, N, N),
    "file_size_in_bytes": (R, R, R, R, R, F),
}  # fmt: skip


def cases() -> Iterator[Any]:
    for field, row in TABLE.items():
        for content_type, rule in zip(ContentType, row, strict=True):
            yield pytest.param(field, content_type, rule, id=f"{field}-{content_type.name}-{rule}")


def with_value(entry: ContentEntry, field: str, value: Any) -> ContentEntry:
    changed = replace(entry, **{field: value})
    if field == "referenced_file" and value is not None and entry.content_type is ContentType.MANIFEST_DV:
        return replace(changed, location=value)
    return changed


def code_of(attempt: Callable[[], object]) -> str | None:
    """The code of the error that an attempt ends with."""
    try:
        attempt()
    except RootlineError as error:
        return error.code
    return None


def refused_in_a_root(entry: ContentEntry) -> bool:
    """Whether a root with such a row can neither be written nor read; anything between the two fails."""
    row = Row(entry, CODEC.encode_tail(entry))
    found = (
        code_of(lambda: seal([row], CODEC, SYNC)),
        code_of(lambda: read_rows(row_bytes(row), 1, CODEC, name="root 3", block=0)),
    )
    assert found in ((None, None), ("invariant-broken", "root-corrupt"))
    return found != (None, None)


def refused_in_a_leaf(entry: ContentEntry) -> bool:
    """As `refused_in_a_root`: a leaf that was written anyway is not read."""
    content, sound = LEAF_CONTENT[entry.content_type], EXAMPLES[entry.content_type]
    body, location = forged_leaf(sound, entry, content)
    found = (
        code_of(lambda: encode_leaf([sound, entry], DEFINITION, leaf_uuid=LEAF_UUID, content=content)),
        code_of(lambda: decode_leaf(body, location=location)),
    )
    assert found in ((None, None), ("leaf-invalid", "leaf-corrupt"))
    return found != (None, None)


def forged_leaf(sound: ContentEntry, entry: ContentEntry, content: LeafContent) -> tuple[bytes, str]:
    """A leaf of both entries, written by a writer that keeps no rules, with digests that agree."""
    encoded = encode_leaf([sound, sound], DEFINITION, leaf_uuid=LEAF_UUID, content=content)
    table = decode_leaf(encoded.body, location=encoded.location).table
    schema = pq.read_schema(io.BytesIO(encoded.body))
    row = table.slice(0, 1).to_pylist()[0]
    info, vector = entry.version_info, entry.deletion_vector
    row |= {name: getattr(entry, name) for name in row if name not in ("version_info", "deletion_vector")}
    row["version_info"] = {name: getattr(info, name) for name in VersionInfo.__slots__}
    row["deletion_vector"] = vector and {name: getattr(vector, name) for name in DeletionVector.__slots__}
    changed = pa.Table.from_pylist([table.slice(0, 1).to_pylist()[0], row], schema=schema.remove_metadata())
    sink = io.BytesIO()
    writer = pq.ParquetWriter(sink, changed.schema, store_schema=False)
    writer.write_table(changed)
    metadata = {key.decode(): value.decode() for key, value in schema.metadata.items() if b"ARROW" not in key}
    pages = hashlib.sha256(sink.getbuffer()).hexdigest()
    writer.add_key_value_metadata(metadata | {"rootline.pages-digest": pages})
    writer.close()
    body = sink.getvalue()
    footer = len(body) - 8 - int.from_bytes(body[-8:-4], "little")
    return body, leaf_location(LEAF_UUID, content.value, hashlib.sha256(body[footer:-8]).hexdigest())


@pytest.mark.parametrize(("field", "content_type", "rule"), list(cases()))
def test_a_field_in_a_root_is_there_exactly_where_it_may_be(field: str, content_type: ContentType, rule: str) -> None:
    entry = EXAMPLES[content_type]
    assert refused_in_a_root(with_value(entry, field, None)) is (rule == R)
    value = VALUES[field] if getattr(entry, field) is None else getattr(entry, field)
    assert refused_in_a_root(with_value(entry, field, value)) is (rule == N)


@pytest.mark.parametrize(("field", "content_type", "rule"), [case for case in cases() if case.values[1] <= 2])
def test_a_field_in_a_leaf_is_there_exactly_where_it_may_be(field: str, content_type: ContentType, rule: str) -> None:
    if field == "manifest_stats":  # a leaf has no such column
        return
    entry = EXAMPLES[content_type]
    assert refused_in_a_leaf(with_value(entry, field, None)) is (rule == R)
    value = VALUES[field] if getattr(entry, field) is None else getattr(entry, field)
    assert refused_in_a_leaf(with_value(entry, field, value)) is (rule == N)


@pytest.mark.parametrize(
    "content_type", [ContentType.DATA_MANIFEST, ContentType.DELETE_MANIFEST, ContentType.MANIFEST_DV]
)
def test_content_types_3_to_5_stand_in_no_leaf(content_type: ContentType) -> None:
    with pytest.raises(Invalid, match="a data leaf cannot contain"):
        encode_leaf([EXAMPLES[content_type]], DEFINITION, leaf_uuid=LEAF_UUID, content=LeafContent.DATA)
    body, location = forged_leaf(DATA, replace(DATA, content_type=content_type), LeafContent.DATA)
    with pytest.raises(Corrupt, match="content_type"):
        decode_leaf(body, location=location)


@pytest.mark.parametrize("content_type", ContentType)
@pytest.mark.parametrize("file_format", FileFormat)
def test_a_file_format_goes_with_its_content_type(content_type: ContentType, file_format: FileFormat) -> None:
    files, leaves, puffin = {"parquet", "avro", "orc"}, {"parquet", "avro"}, {"puffin"}
    allowed = (files, puffin, files, leaves, leaves, puffin)[content_type]
    entry = replace(EXAMPLES[content_type], file_format=file_format)
    assert refused_in_a_root(entry) is (file_format not in allowed)
    if content_type in LEAF_CONTENT:
        assert refused_in_a_leaf(entry) is (file_format not in allowed)


@pytest.mark.parametrize("content_type", ContentType)
@pytest.mark.parametrize("name", ["snapshot_id", "sequence_number", "file_sequence_number"])
@pytest.mark.parametrize("status", Status)
def test_numbers_are_explicit_but_for_what_is_added_in_a_leaf(
    content_type: ContentType, name: str, status: Status
) -> None:
    change: dict[str, Any] = {name: None, "status": status}
    entry = replace(EXAMPLES[content_type], version_info=replace(INFO, **change))
    assert refused_in_a_root(entry)
    if content_type in LEAF_CONTENT:
        assert refused_in_a_leaf(entry) is (status is not Status.ADDED)


@pytest.mark.parametrize("content_type", ContentType)
@pytest.mark.parametrize(
    "change",
    [
        {"version_info": VersionInfo(Status.ADDED, -1, 2, 2)},
        {"version_info": VersionInfo(Status.ADDED, 1, -2, -2)},
        {"partition_spec_id": -1},
        {"record_count": -1},
        {"split_offsets": (5, 4)},
        {"location": ""},
    ],
    ids=str,
)
def test_no_number_is_negative_no_list_descends_and_no_location_is_empty(
    content_type: ContentType, change: dict[str, Any]
) -> None:
    entry = replace(EXAMPLES[content_type], **change)
    assert refused_in_a_root(entry)
    if content_type in LEAF_CONTENT and "location" not in change:
        assert refused_in_a_leaf(entry)


@pytest.mark.parametrize("content_type", [ContentType.DATA_MANIFEST, ContentType.DELETE_MANIFEST])
def test_both_sequence_numbers_of_a_leafs_row_are_one(content_type: ContentType) -> None:
    assert refused_in_a_root(replace(EXAMPLES[content_type], version_info=VersionInfo(Status.ADDED, 1, 2, 3)))
    assert not refused_in_a_root(replace(EXAMPLES[content_type], version_info=VersionInfo(Status.ADDED, 1, 3, 3)))


@pytest.mark.parametrize(
    ("vector", "size", "is_refused"),
    [
        (DeletionVector(4, 40), 100, False),
        (DeletionVector(4), 100, True),
        (DeletionVector(None, 40), 100, True),
        (DeletionVector(-4, 40), 100, True),
        (DeletionVector(4, 0), 100, True),
        (DeletionVector(), 100, True),
        (DeletionVector(4, 40, b"bits"), 100, True),
    ],
    ids=str,
)
def test_a_vector_in_a_puffin_file_has_offset_and_size(vector: DeletionVector, size: int, is_refused: bool) -> None:
    for entry in (VECTOR, IN_PUFFIN):
        assert refused_in_a_root(replace(entry, deletion_vector=vector, file_size_in_bytes=size)) is is_refused
    assert refused_in_a_leaf(replace(VECTOR, deletion_vector=vector, file_size_in_bytes=size)) is is_refused


def test_the_vector_of_a_manifest_may_be_inline_and_that_of_a_data_file_may_not() -> None:
    inline = DeletionVector(inline_content=b"bits")
    assert not refused_in_a_root(replace(IN_PUFFIN, deletion_vector=inline, file_size_in_bytes=None))
    assert refused_in_a_root(replace(VECTOR, deletion_vector=inline, file_size_in_bytes=None))
    assert refused_in_a_leaf(replace(VECTOR, deletion_vector=inline))


def test_what_only_contradicts_itself_is_read_and_reported_by_check() -> None:
    newer = replace(DATA, version_info=VersionInfo(Status.EXISTING, 1, 3, 2))
    assert fault_of_row(newer) is None
    assert entry_violations(newer, ManifestKind.ROOT) == ["sequence_number is greater than file_sequence_number"]


def test_a_broken_row_says_which_root_and_file_it_is_of() -> None:
    row = Row(replace(DATA, equality_ids=(1,)), CODEC.encode_tail(replace(DATA, equality_ids=(1,))))
    with pytest.raises(Corrupt) as caught:
        read_rows(row_bytes(row), 1, CODEC, name="demo/t/metadata/roots/7.avro", block=0)
    assert caught.value.message == (
        "demo/t/metadata/roots/7.avro: DATA 'data/a.parquet': equality_ids is set on content_type DATA (block 0, row 0)"
    )


def test_a_uuid_names_a_leaf_whatever_it_holds() -> None:
    encoded = encode_leaf([EQUALITY, VECTOR], DEFINITION, leaf_uuid=uuid.UUID(int=3), content=LeafContent.DELETE)
    assert len(decode_leaf(encoded.body, location=encoded.location)) == 2
