"""Manifest lists of exports, read by our own decoders and by PyIceberg."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import MANIFEST_LIST_FILE_SCHEMAS, ManifestContent, read_manifest_list
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from rootline.catalog.export_keys import FormatVersion
from rootline.catalog.manifest_list_encoder import (
    ManifestRecord,
    PartitionSummary,
    decode_manifest_list_records,
    encode_manifest_list,
)
from rootline.catalog.manifest_schema import manifest_list_schema
from rootline.schemas.bytes.leaf import LeafContent
from rootline.schemas.bytes.manifest_codec import decode_manifest_list
from rootline.schemas.errors import Corrupt
from tests.catalog.exported_tables import definition

BOTH = pytest.mark.parametrize("version", list(FormatVersion))
_COUNT = st.integers(0, 2**40) | st.integers(0, 200)
_FEW = st.integers(0, 2**31 - 1)
_BOUND = st.none() | st.binary(max_size=9)
_RECORDS = st.builds(
    ManifestRecord,
    st.text(max_size=30),
    _COUNT,
    _FEW,
    st.sampled_from(LeafContent),
    _COUNT,
    _COUNT,
    _COUNT,
    _FEW,
    _FEW,
    _FEW,
    _COUNT,
    _COUNT,
    _COUNT,
    st.lists(st.builds(PartitionSummary, st.booleans(), st.none() | st.booleans(), _BOUND, _BOUND), max_size=3).map(
        tuple
    ),
    st.none() | _COUNT,
)


def record(**more: Any) -> ManifestRecord:
    members: dict[str, Any] = {
        "path": "file:///lake/ns/t/export/v3/manifests/a.avro",
        "length": 1234,
        "spec_id": 1,
        "content": LeafContent.DATA,
        "sequence_number": 9,
        "min_sequence_number": 2,
        "added_snapshot_id": 77,
        "added_files_count": 1,
        "existing_files_count": 2,
        "deleted_files_count": 3,
        "added_rows_count": 10,
        "existing_rows_count": 20,
        "deleted_rows_count": 30,
        "partitions": (
            PartitionSummary(False, None, b"AA", b"UA"),
            PartitionSummary(True, None, None, None),
            PartitionSummary(False, None, (1).to_bytes(4, "little"), (3).to_bytes(4, "little")),
        ),
        "first_row_id": 500,
    }
    return ManifestRecord(**members | more)


def encoded(records: list[ManifestRecord], version: FormatVersion, parent_id: int | None = 76) -> bytes:
    return encode_manifest_list(records, snapshot_id=77, parent_id=parent_id, sequence_number=9, format_version=version)


@given(st.lists(_RECORDS, max_size=4), st.sampled_from(FormatVersion))
def test_records_are_read_back(records: list[ManifestRecord], version: FormatVersion) -> None:
    body = encoded(records, version)
    kept = records if version is FormatVersion.V3 else [replace(one, first_row_id=None) for one in records]
    assert decode_manifest_list_records(body, name="l") == tuple(kept)
    assert encoded(records, version) == body


@BOTH
def test_the_schema_is_pyicebergs_own(version: FormatVersion) -> None:
    avro = manifest_list_schema(version)
    fastavro.parse_schema(avro)
    ours, theirs = AvroSchemaConversion().avro_to_iceberg(avro), MANIFEST_LIST_FILE_SCHEMAS[version]
    assert [(one.field_id, one.name, one.field_type, one.required) for one in ours.fields] == [
        (one.field_id, one.name, one.field_type, one.required) for one in theirs.fields
    ]


@BOTH
def test_pyiceberg_reads_the_list(version: FormatVersion, tmp_path: Path) -> None:
    path = tmp_path / "l.avro"
    path.write_bytes(encoded([record(), record(content=LeafContent.DELETE, partitions=())], version))
    first, second = read_manifest_list(PyArrowFileIO().new_input(str(path)))
    assert (first.content, second.content) == (ManifestContent.DATA, ManifestContent.DELETES)
    assert (first.manifest_path, first.manifest_length, first.partition_spec_id) == (record().path, 1234, 1)
    assert (first.sequence_number, first.min_sequence_number, first.added_snapshot_id) == (9, 2, 77)
    assert (first.added_files_count, first.existing_files_count, first.deleted_files_count) == (1, 2, 3)
    assert (first.added_rows_count, first.existing_rows_count, first.deleted_rows_count) == (10, 20, 30)
    assert first.partitions is not None
    assert (first.partitions[0].lower_bound, first.partitions[1].contains_null) == (b"AA", True)
    assert second.partitions == []


@BOTH
def test_adoption_reads_the_list_as_rows_of_a_root(version: FormatVersion) -> None:
    [row] = decode_manifest_list(encoded([record()], version), definition(), name="l").rows
    assert (row.location, row.partition_spec_id, row.file_size_in_bytes) == (record().path, 1, 1234)
    assert (row.content_stats[2].lower_bound, row.content_stats[102].upper_bound) == ("AA", 3)
    assert row.first_row_id == (500 if version is FormatVersion.V3 else 0)


@BOTH
def test_the_file_metadata_names_snapshot_parent_and_version(version: FormatVersion) -> None:
    metadata = dict(fastavro.reader(io.BytesIO(encoded([], version))).metadata)
    assert (metadata["snapshot-id"], metadata["parent-snapshot-id"], metadata["sequence-number"]) == ("77", "76", "9")
    assert metadata["format-version"] == str(int(version))
    orphan = dict(fastavro.reader(io.BytesIO(encoded([], version, parent_id=None))).metadata)
    assert orphan["parent-snapshot-id"] == "null"


def test_what_is_no_list_of_ours_is_corrupt() -> None:
    with pytest.raises(Corrupt, match="a/list"):
        decode_manifest_list_records(b"Obj\x01nonsense", name="a/list")
    sink = io.BytesIO()
    fastavro.writer(sink, {"type": "record", "name": "r", "fields": [{"name": "x", "type": "int"}]}, [{"x": 1}])
    with pytest.raises(Corrupt, match="a/list"):
        decode_manifest_list_records(sink.getvalue(), name="a/list")
