"""The tables of "V4 content entry structure" and "V4 Manifest Key Value Metadata", held against stored bytes."""

from __future__ import annotations

import io
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rootline.schemas.bytes.leaf_schema import id_of
from tests.seed.figure import Figure

# name → (field id, is it required); a name with a dot stands in a struct, `[]` is the element of a list
CONTENT_ENTRY = {
    "content_type": (134, True),
    "location": (100, True),
    "file_format": (101, True),
    "version_info": (5, False),
    "version_info.status": (0, True),
    "version_info.snapshot_id": (1, False),
    "version_info.sequence_number": (3, False),
    "version_info.file_sequence_number": (4, False),
    "deletion_vector": (147, False),
    "deletion_vector.offset": (144, False),
    "deletion_vector.size_in_bytes": (145, False),
    "deletion_vector.inline_content": (146, False),
    "partition_spec_id": (148, True),
    "sort_order_id": (140, False),
    "record_count": (103, True),
    "file_size_in_bytes": (104, False),
    "content_stats": (149, False),
    "manifest_stats": (521, False),
    "manifest_stats.added_files_count": (504, True),
    "manifest_stats.existing_files_count": (505, True),
    "manifest_stats.deleted_files_count": (506, True),
    "manifest_stats.added_rows_count": (512, True),
    "manifest_stats.existing_rows_count": (513, True),
    "manifest_stats.deleted_rows_count": (514, True),
    "manifest_stats.min_sequence_number": (516, True),
    "referenced_file": (143, False),
    "key_metadata": (131, False),
    "split_offsets": (132, False),
    "split_offsets[]": (133, True),
    "equality_ids": (135, False),
    "equality_ids[]": (136, True),
    "first_row_id": (142, False),
}
ONLY_IN_ROOTS = ("manifest_stats",)


@pytest.fixture
def figure() -> Figure:
    """A root with a data manifest, a delete manifest, a data file and a manifest vector."""
    figure = Figure()
    figure.put(figure.deleting_rows_in_leaves(("M1", ["D1", "D2"]), ("M2", [("DV1", "D1", [0])])))
    figure.put(figure.appending("D3"))
    figure.put(figure.removing("D2"))
    return figure


def avro_fields(schema: Any, prefix: str = "") -> dict[str, tuple[int, bool]]:
    """The fields of an Avro record, those inside `content_stats` left out."""
    found: dict[str, tuple[int, bool]] = {}
    for field in schema["fields"]:
        name, kind = prefix + field["name"], field["type"]
        found[name] = (field["field-id"], not isinstance(kind, list))
        inner = next(item for item in kind if item != "null") if isinstance(kind, list) else kind
        if isinstance(inner, dict) and inner["type"] == "array":
            found[f"{name}[]"] = (inner["element-id"], True)
        elif isinstance(inner, dict) and inner["type"] == "record" and name != "content_stats":
            found |= avro_fields(inner, f"{name}.")
    return found


def parquet_fields(schema: pa.Schema | pa.StructType, prefix: str = "") -> dict[str, tuple[int | None, bool]]:
    found: dict[str, tuple[int | None, bool]] = {}
    for field in schema:
        name = prefix + field.name
        found[name] = (id_of(field), not field.nullable)
        if pa.types.is_list(field.type):
            found[f"{name}[]"] = (id_of(field.type.value_field), not field.type.value_field.nullable)
        elif pa.types.is_struct(field.type) and name != "content_stats":
            found |= parquet_fields(field.type, f"{name}.")
    return found


def test_a_root_has_every_field_under_its_id(figure: Figure) -> None:
    schema = fastavro.reader(io.BytesIO(figure.lake.bodies[-1])).writer_schema
    assert avro_fields(schema) == CONTENT_ENTRY


@pytest.mark.parametrize("name", ["M1", "M2"])
def test_a_leaf_has_the_same_fields_but_those_of_manifests(figure: Figure, name: str) -> None:
    """`version_info` is optional in the table; in our leaves every entry has it."""
    schema = pq.read_schema(io.BytesIO(figure.lake.objects[figure.leaves[name].location]))
    expected = {
        field: numbered for field, numbered in CONTENT_ENTRY.items() if field.partition(".")[0] not in ONLY_IN_ROOTS
    }
    assert parquet_fields(schema) == expected | {"version_info": (5, True)}


def test_manifests_say_format_version_and_content_and_neither_schema_nor_spec(figure: Figure) -> None:
    root = fastavro.reader(io.BytesIO(figure.lake.bodies[-1])).metadata
    assert (root["format-version"], root["content"]) == ("4", "root")
    found = [root]
    for name, content in (("M1", "data"), ("M2", "delete")):
        body = figure.lake.objects[figure.leaves[name].location]
        pairs = {key.decode(): value.decode() for key, value in pq.read_metadata(io.BytesIO(body)).metadata.items()}
        assert (pairs["format-version"], pairs["content"]) == ("4", content)
        found.append(pairs)
    assert not {"schema", "schema-id", "partition-spec", "partition-spec-id"} & set().union(*found)
