"""A leaf that nothing of ours wrote: pyarrow alone, and what the format page says."""

from __future__ import annotations

import hashlib
import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rootline.schemas.bytes.leaf_codec import decode_leaf
from rootline.schemas.content_entry import ContentType, FieldStatistics, Status, VersionInfo
from rootline.tree.proof.leaf_proof import prove_leaf
from tests.tree.tables import CARRIER, DEFINITION, ID

UUID = "4f3c3a52-0000-4000-8000-0000000000aa"


def field(name: str, kind: pa.DataType, field_id: int, *, required: bool = False) -> pa.Field:
    return pa.field(name, kind, nullable=not required, metadata={"PARQUET:field_id": str(field_id)})


def struct_of_statistics(column_id: int, bound: pa.DataType) -> pa.Field:
    base = 10_000 + 200 * column_id
    members = [
        ("lower_bound", bound),
        ("upper_bound", bound),
        ("tight_bounds", pa.bool_()),
        ("value_count", pa.int64()),
        ("null_value_count", pa.int64()),
        ("nan_value_count", pa.int64()),
        ("avg_value_size_in_bytes", pa.int32()),
        ("max_value_size_in_bytes", pa.int32()),
    ]
    kind = pa.struct([field(name, of, base + at) for at, (name, of) in enumerate(members, start=1)])
    return field(f"_{column_id}", kind, base)


SCHEMA = pa.schema(
    [
        field("content_type", pa.int32(), 134, required=True),
        field("location", pa.string(), 100, required=True),
        field("file_format", pa.string(), 101, required=True),
        field(
            "version_info",
            pa.struct(
                [
                    field("status", pa.int32(), 0, required=True),
                    field("snapshot_id", pa.int64(), 1),
                    field("sequence_number", pa.int64(), 3),
                    field("file_sequence_number", pa.int64(), 4),
                ]
            ),
            5,
            required=True,
        ),
        field(
            "deletion_vector",
            pa.struct(
                [
                    field("offset", pa.int64(), 144),
                    field("size_in_bytes", pa.int64(), 145),
                    field("inline_content", pa.binary(), 146),
                ]
            ),
            147,
        ),
        field("partition_spec_id", pa.int32(), 148, required=True),
        field("sort_order_id", pa.int32(), 140),
        field("record_count", pa.int64(), 103, required=True),
        field("file_size_in_bytes", pa.int64(), 104),
        field("referenced_file", pa.string(), 143),
        field("key_metadata", pa.binary(), 131),
        field("split_offsets", pa.list_(field("element", pa.int64(), 133, required=True)), 132),
        field("equality_ids", pa.list_(field("element", pa.int32(), 136, required=True)), 135),
        field("first_row_id", pa.int64(), 142),
        field(
            "content_stats",
            pa.struct([struct_of_statistics(ID, pa.int64()), struct_of_statistics(CARRIER, pa.string())]),
            149,
        ),
    ]
)


def row(name: str) -> dict[str, object]:
    return {
        "content_type": 0,
        "location": f"data/{name}.parquet",
        "file_format": "parquet",
        "version_info": {"status": 1},
        "partition_spec_id": 0,
        "record_count": 10,
        "file_size_in_bytes": 1000,
        "content_stats": {
            f"_{ID}": {"lower_bound": 0, "upper_bound": 9, "tight_bounds": True, "value_count": 10},
            f"_{CARRIER}": {"lower_bound": "UA"},
        },
    }


def written(table: pa.Table | None = None, **options: Any) -> tuple[str, bytes]:
    """(location, body) of a leaf, of two files without a `table`; `options` of the writer."""
    table = pa.Table.from_pylist([row("a"), row("b")], schema=SCHEMA) if table is None else table
    sink = io.BytesIO()
    writer = pq.ParquetWriter(sink, table.schema, **{"compression": "snappy", "store_schema": False} | options)
    writer.write_table(table)
    pages = hashlib.sha256(sink.getvalue()).hexdigest()
    profile = {"format-version": "4", "content": "data", "rootline.profile": "single-file-commits/1"}
    writer.add_key_value_metadata({**profile, "rootline.pages-digest": pages})
    writer.close()
    body = sink.getvalue()
    footer_length = int.from_bytes(body[-8:-4], "little")
    digest = hashlib.sha256(body[-8 - footer_length : -8]).hexdigest()[:16]
    return f"metadata/leaves/{UUID}-data-{digest}.parquet", body


def test_a_leaf_of_pyarrow_alone_is_read_and_proven() -> None:
    location, body = written()
    leaf = decode_leaf(body, location=location)
    entry = leaf.entry(1)
    assert (entry.content_type, entry.location) == (ContentType.DATA, "data/b.parquet")
    assert entry.version_info == VersionInfo(Status.ADDED)
    assert entry.content_stats == {ID: FieldStatistics(0, 9, True, 10), CARRIER: FieldStatistics("UA")}
    proof = prove_leaf(leaf, DEFINITION)
    assert proof.fault is None
    assert proof.rows == 20
