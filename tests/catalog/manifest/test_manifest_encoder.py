"""Manifests of exports, read by our own decoder, by fastavro and by PyIceberg."""

from __future__ import annotations

import io
import json
import uuid
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.conversions import to_bytes
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    MANIFEST_ENTRY_SCHEMAS,
    DataFileContent,
    ManifestContent,
    ManifestEntryStatus,
    ManifestFile,
)
from pyiceberg.manifest import FileFormat as IcebergFormat
from pyiceberg.types import DecimalType, DoubleType, FloatType, IntegerType, PrimitiveType, StringType, UUIDType
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from rootline.catalog.export_keys import FormatVersion
from rootline.catalog.exported_definition import ExportedDefinition, ExportedField
from rootline.catalog.manifest_encoder import EncodedManifest, encode_manifest
from rootline.catalog.manifest_schema import bound_bytes, manifest_entry_schema
from rootline.schemas.bytes.leaf import LeafContent
from rootline.schemas.bytes.manifest_codec import decode_manifest
from rootline.schemas.bytes.single_values import bound_of_bytes
from rootline.schemas.content_entry import (
    ContentEntry,
    ContentType,
    DeletionVector,
    FieldStatistics,
    FileFormat,
    Status,
    VersionInfo,
)
from rootline.schemas.errors import Invalid
from rootline.schemas.field_ids import DELETE_FILE_PATH
from tests.catalog.exported_entries import SYNC, absolute, entries, leaf_row, read_back
from tests.catalog.exported_tables import definition
from tests.schemas.entry_values import TYPES, bounds
from tests.support.examples import examples

BOTH = pytest.mark.parametrize("version", list(FormatVersion))
TABLE = definition()
EXPORTED = {version: ExportedDefinition.of(TABLE, version) for version in FormatVersion}


def data_file(name: str = "a", status: Status = Status.EXISTING, **more: Any) -> ContentEntry:
    """A data file of spec 1: carrier UA, 2025-06-20, bucket 3."""
    members: dict[str, Any] = {
        "content_type": ContentType.DATA,
        "location": f"data/{name}.parquet",
        "file_format": FileFormat.PARQUET,
        "version_info": VersionInfo(status, 77, 4, 5),
        "partition_spec_id": 1,
        "record_count": 10,
        "file_size_in_bytes": 1_000,
        "first_row_id": 500,
        "content_stats": {
            1: FieldStatistics(-1, 2**40, True, 10, 0),
            2: FieldStatistics("UA", None, None, 10, 0),
            4: FieldStatistics(Decimal("-1.28"), Decimal("300.00"), None, 10, 3),
            7: FieldStatistics(0.0, -0.0, None, 10, 1, 2),
            101: FieldStatistics(20_259, 20_259),
            102: FieldStatistics(3, 3),
        },
    }
    return ContentEntry(**members | more)


def vector(**more: Any) -> ContentEntry:
    values = {
        key: FieldStatistics(item.lower_bound)
        for key, item in data_file().content_stats.items()
        if key in (2, 101, 102)
    }
    members: dict[str, Any] = {
        "content_type": ContentType.POSITION_DELETE,
        "location": "metadata/vectors/v.puffin",
        "file_format": FileFormat.PUFFIN,
        "version_info": VersionInfo(Status.ADDED, 78, 6, 6),
        "partition_spec_id": 1,
        "record_count": 2,
        "file_size_in_bytes": 100,
        "deletion_vector": DeletionVector(4, 44),
        "referenced_file": "data/a.parquet",
        "content_stats": values,
    }
    return ContentEntry(**members | more)


def encoded(
    given: list[ContentEntry],
    version: FormatVersion = FormatVersion.V3,
    content: LeafContent = LeafContent.DATA,
    spec_id: int = 1,
) -> EncodedManifest:
    return encode_manifest(given, EXPORTED[version], spec_id, content, absolute=absolute, sync=SYNC)


def records_of(made: EncodedManifest) -> list[Any]:
    return list(fastavro.reader(io.BytesIO(made.body)))


def of_pyiceberg(made: EncodedManifest, folder: Path) -> list[Any]:
    path = folder / "m.avro"
    path.write_bytes(made.body)
    listed = ManifestFile.from_args(
        manifest_path=str(path),
        manifest_length=made.record.length,
        partition_spec_id=made.record.spec_id,
        content=ManifestContent.DATA,
        sequence_number=made.record.sequence_number,
        min_sequence_number=made.record.min_sequence_number,
        added_snapshot_id=made.record.added_snapshot_id,
    )
    return listed.fetch_manifest_entry(PyArrowFileIO(), discard_deleted=False)


@st.composite
def _manifests(draw: st.DrawFn) -> tuple[FormatVersion, int, LeafContent, list[ContentEntry]]:
    version = draw(st.sampled_from(FormatVersion))
    content = LeafContent.DATA if version is FormatVersion.V2 else draw(st.sampled_from(LeafContent))
    spec_id = draw(st.integers(0, 4))
    return version, spec_id, content, draw(st.lists(entries(TABLE, spec_id, content), min_size=1, max_size=4))


@settings(deadline=None, max_examples=examples(100))
@given(_manifests())
def test_our_own_decoder_reads_back_every_entry_that_was_exported(
    case: tuple[FormatVersion, int, LeafContent, list[ContentEntry]],
) -> None:
    version, spec_id, content, given_entries = case
    made = encoded(given_entries, version, content, spec_id)
    row = leaf_row(given_entries, content, spec_id, len(made.body))
    leaf = decode_manifest(made.body, TABLE, row, name="m")
    wanted = [read_back(entry, EXPORTED[version], content) for entry in given_entries]
    assert repr([_plain(entry) for entry in leaf.entries()]) == repr([_plain(entry) for entry in wanted])


def _plain(entry: ContentEntry) -> ContentEntry:
    """With statistics whose text equals itself, NaN and the sign of zeros included."""
    kept = {key: _signless(item) for key, item in sorted(entry.content_stats.items())}
    return replace(entry, content_stats=kept)


def _signless(item: FieldStatistics) -> FieldStatistics:
    values = [value + 0.0 if isinstance(value, float) else value for value in (item.lower_bound, item.upper_bound)]
    values = [value.normalize() + 0 if isinstance(value, Decimal) else value for value in values]
    return replace(item, lower_bound=values[0], upper_bound=values[1])


@BOTH
def test_the_schema_has_the_fields_of_pyicebergs_own(version: FormatVersion) -> None:
    exported = EXPORTED[version]
    avro = manifest_entry_schema(version, exported.fields(1))
    fastavro.parse_schema(avro)
    ours = AvroSchemaConversion().avro_to_iceberg(avro)
    theirs = MANIFEST_ENTRY_SCHEMAS[version]
    assert [(field.field_id, field.name, field.required) for field in ours.fields] == [
        (field.field_id, field.name, field.required) for field in theirs.fields
    ]
    data_file_type: Any = ours.find_type("data_file")
    found = {field.field_id: field for field in data_file_type.fields}
    for field in DATA_FILE_TYPE[version].fields:
        mine = found[field.field_id]
        assert (mine.name, mine.required) == (field.name, field.required)
        if field.name not in ("partition", "equality_ids"):  # pyiceberg has equality ids as longs, the page as ints
            assert mine.field_type == field.field_type
    assert found[135].field_type.element_type == IntegerType()
    assert set(found) - {field.field_id for field in DATA_FILE_TYPE[version].fields} <= {143}
    partition: Any = found[102].field_type
    assert [(field.field_id, field.name) for field in partition.fields] == [
        (1000, "carrier"),
        (1001, "at_day"),
        (1002, "id_bucket"),
    ]


@BOTH
def test_several_partition_fields_of_one_named_type_are_each_defined_and_names_are_made_for_avro(
    version: FormatVersion,
) -> None:
    exported = EXPORTED[version]
    for spec_id in range(5):
        fastavro.parse_schema(manifest_entry_schema(version, exported.fields(spec_id)))
    avro = manifest_entry_schema(version, exported.fields(2))
    partition = next(field for field in avro["fields"][4]["type"]["fields"] if field["name"] == "partition")
    nested = next(field for field in partition["type"]["fields"] if "iceberg-field-name" in field)
    assert (nested["name"], nested["iceberg-field-name"]) == ("place_x2Ecode", "place.code")


@pytest.mark.parametrize(("name", "avro"), [("größe", "gr_xF6_xDFe"), ("大小", "_x5927_x5C0F"), ("1 a", "_1_x20a")])
def test_avro_has_names_of_letters_of_ascii(name: str, avro: str) -> None:
    """DuckDB ends the process that reads another one."""
    field = ExportedField(1000, name, 1, "identity", 1, StringType())
    schema: Any = manifest_entry_schema(FormatVersion.V3, (field,))
    partition = next(field for field in schema["fields"][4]["type"]["fields"] if field["name"] == "partition")
    [named] = partition["type"]["fields"]
    assert (named["name"], named["iceberg-field-name"]) == (avro, name)


@BOTH
def test_pyiceberg_reads_what_was_exported(version: FormatVersion, tmp_path: Path) -> None:
    made = encoded([data_file("a", sort_order_id=1, split_offsets=(4, 90)), data_file("b", Status.DELETED)], version)
    [first, second] = of_pyiceberg(made, tmp_path)
    assert (first.status, second.status) == (ManifestEntryStatus.EXISTING, ManifestEntryStatus.DELETED)
    assert (first.snapshot_id, first.sequence_number, first.file_sequence_number) == (77, 4, 5)
    found = first.data_file
    assert (found.content, found.file_format) == (DataFileContent.DATA, IcebergFormat.PARQUET)
    assert (found.file_path, found.record_count, found.file_size_in_bytes) == (absolute("data/a.parquet"), 10, 1_000)
    assert list(found.partition) == ["UA", 20_259, 3]
    assert (found.value_counts[4], found.null_value_counts[4], found.nan_value_counts) == (10, 3, {7: 2})
    assert found.lower_bounds == {
        1: to_bytes(TABLE.tracked_by_id[1].type, -1),
        2: b"UA",
        4: b"\x80",
        7: to_bytes(FloatType(), -0.0),
    }
    assert found.upper_bounds[2] == b"UA", "of a partition value the upper bound may be left out, and is the lower one"
    assert found.upper_bounds[4] == to_bytes(DecimalType(9, 2), Decimal("300.00"))
    assert found.upper_bounds[7] == to_bytes(FloatType(), 0.0)
    assert (found.sort_order_id, found.split_offsets, found.column_sizes) == (1, [4, 90], {})


def test_pyiceberg_reads_partition_values_of_every_type(tmp_path: Path) -> None:
    values: dict[int, Any] = {
        4: Decimal("-12.34"), 8: 20_000, 11: b"", 12: False, 13: -7, 14: 0.25,
    }  # fmt: skip
    stats = {key: FieldStatistics(value) for key, value in values.items()}
    made = encoded([data_file(partition_spec_id=3, content_stats=stats)], FormatVersion.V2, spec_id=3)
    [found] = of_pyiceberg(made, tmp_path)
    expected = [Decimal("-12.34"), 20_000, b"", False, -7, 0.25]
    assert list(found.data_file.partition) == expected
    nothing = {key: FieldStatistics() for key in values}
    [found] = of_pyiceberg(encoded([data_file(partition_spec_id=3, content_stats=nothing)], spec_id=3), tmp_path)
    assert list(found.data_file.partition) == [None] * 6


def test_a_vector_is_a_position_delete_of_a_part_of_a_puffin_file_and_names_its_data_file(tmp_path: Path) -> None:
    made = encoded([vector()], content=LeafContent.DELETE)
    found = records_of(made)[0]["data_file"]
    assert (found["content"], found["file_format"], found["record_count"]) == (1, "PUFFIN", 2)
    assert found["referenced_data_file"] == absolute("data/a.parquet")
    assert (found["content_offset"], found["content_size_in_bytes"], found["first_row_id"]) == (4, 44, None)
    assert found["partition"]["carrier"] == "UA"
    path = absolute("data/a.parquet").encode()
    for side in ("lower_bounds", "upper_bounds"):
        assert found[side] == [{"key": DELETE_FILE_PATH, "value": path}]
    [entry] = of_pyiceberg(made, tmp_path)
    assert entry.data_file.content is DataFileContent.POSITION_DELETES


def test_a_position_delete_file_of_v2_names_its_data_file_and_a_vector_is_refused() -> None:
    plain = vector(deletion_vector=None, file_format=FileFormat.PARQUET, location="export/v2/deletes/x.parquet")
    made = encoded([plain], FormatVersion.V2, LeafContent.DELETE)
    found = records_of(made)[0]["data_file"]
    assert (found["file_format"], found["referenced_data_file"]) == ("PARQUET", absolute("data/a.parquet"))
    assert "content_offset" not in found
    with pytest.raises(Invalid, match="deletion vector, which format version 2 lacks"):
        encoded([vector()], FormatVersion.V2, LeafContent.DELETE)


def test_a_file_without_a_partition_value_is_refused_because_null_would_hide_its_rows() -> None:
    stats = {key: item for key, item in data_file().content_stats.items() if key != 101}
    with pytest.raises(Invalid, match=r"'data/a.parquet'.*'at_day' \(id 1001\)") as caught:
        encoded([data_file(content_stats=stats)])
    assert caught.value.code == "export-unsupported"


@BOTH
def test_the_file_metadata_says_what_the_specification_asks_for(version: FormatVersion) -> None:
    for content, name in ((LeafContent.DATA, "data"), (LeafContent.DELETE, "deletes")):
        made = encode_manifest([], EXPORTED[version], 1, content, absolute=absolute, sync=SYNC)
        metadata = dict(fastavro.reader(io.BytesIO(made.body)).metadata)
        assert json.loads(metadata["schema"])["fields"][0]["name"] == "id"
        assert (metadata["schema-id"], metadata["partition-spec-id"]) == ("0", "1")
        assert [field["field-id"] for field in json.loads(metadata["partition-spec"])] == [1000, 1001, 1002]
        assert (metadata["format-version"], metadata["content"]) == (str(int(version)), name)
        assert metadata["avro.codec"] == "deflate"


def test_the_same_entries_make_the_same_bytes() -> None:
    many = [data_file(f"{number}") for number in range(900)]
    assert encoded(many).body == encoded(many).body
    assert len(records_of(encoded(many))) == 900


def test_the_record_counts_files_and_rows_and_sums_up_partitions() -> None:
    other = {**data_file().content_stats, 2: FieldStatistics("AA"), 101: FieldStatistics()}
    made = encoded(
        [
            data_file("a", Status.EXISTING, first_row_id=500),
            data_file("b", Status.ADDED, version_info=VersionInfo(Status.ADDED, 79, 2, 9), content_stats=other),
        ]
    )
    record = made.record
    assert record.length == len(made.body)
    assert (record.added_files_count, record.existing_files_count, record.deleted_files_count) == (1, 1, 0)
    assert (record.added_rows_count, record.existing_rows_count, record.deleted_rows_count) == (10, 10, 0)
    assert (record.sequence_number, record.min_sequence_number, record.added_snapshot_id) == (9, 2, 79)
    assert record.first_row_id == 500
    carrier, day, bucket = record.partitions
    assert (carrier.lower_bound, carrier.upper_bound, carrier.contains_null) == (b"AA", b"UA", False)
    assert (day.contains_null, day.lower_bound) == (True, (20_259).to_bytes(4, "little"))
    assert bucket.contains_nan is None


def test_a_manifest_of_deleted_entries_belongs_to_the_snapshot_that_deleted_them() -> None:
    gone = data_file(version_info=VersionInfo(Status.DELETED, 99, 4, 5))
    record = encoded([gone]).record
    assert (record.added_snapshot_id, record.deleted_files_count, record.deleted_rows_count) == (99, 1, 10)


def test_a_manifest_hands_out_row_ids_only_when_every_entry_has_its_own() -> None:
    assert encoded([data_file(first_row_id=None), data_file("b")]).record.first_row_id is None
    assert encoded([data_file(first_row_id=70), data_file("b", first_row_id=20)]).record.first_row_id == 20
    assert encoded([vector()], content=LeafContent.DELETE).record.first_row_id is None


def test_nan_partition_values_are_kept_and_are_no_bound() -> None:
    stats = {key: FieldStatistics() for key in (4, 8, 11, 12, 13)} | {14: FieldStatistics(float("nan"))}
    made = encoded([data_file(partition_spec_id=3, content_stats=stats)], spec_id=3)
    found = records_of(made)[0]["data_file"]
    assert found["partition"]["ratio"] != found["partition"]["ratio"]
    assert (found["lower_bounds"], found["upper_bounds"]) == (None, None)
    summary = made.record.partitions[-1]
    assert (summary.contains_nan, summary.contains_null, summary.lower_bound) == (True, False, None)


def test_uuids_have_no_bounds_because_engines_misread_them() -> None:
    key = uuid.UUID(int=1).bytes
    stats = {9: FieldStatistics(key, key, value_count=7)}
    found = records_of(encoded([data_file(partition_spec_id=0, content_stats=stats)], spec_id=0))[0]["data_file"]
    assert (found["lower_bounds"], found["upper_bounds"]) == (None, None)
    assert found["value_counts"] == [{"key": 9, "value": 7}]


def _with_bounds() -> st.SearchStrategy[tuple[PrimitiveType, Any]]:
    kinds = [kind for kind in TYPES if str(kind) != "unknown"]
    return st.sampled_from(kinds).flatmap(lambda kind: st.tuples(st.just(kind), bounds(kind)))


@settings(max_examples=examples(200))
@given(_with_bounds())
def test_single_values_are_those_of_pyiceberg_and_are_read_back(case: tuple[PrimitiveType, Any]) -> None:
    kind, value = case
    for encode in bound_bytes(kind):
        made = encode(value)
        assert bound_of_bytes(kind, made) == value
        if isinstance(kind, FloatType | DoubleType) and value == 0:
            continue
        given_to_pyiceberg = uuid.UUID(bytes=value) if isinstance(kind, UUIDType) else value
        assert made == to_bytes(kind, given_to_pyiceberg)
