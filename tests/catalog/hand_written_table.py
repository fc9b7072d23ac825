"""An Iceberg table of V1 to V3 written by hand: every kind of delete, and whatever no writer would write."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.typedef import TableVersion
from pyroaring import BitMap64

from rootline.schemas.bytes.vector_codec import VectorBlob, encode_puffin
from rootline.schemas.content_entry import Status
from rootline.storage.rows.arrow_types import arrow_schema_of
from tests.schemas.iceberg_manifests import ONE_DAY, SCHEMA, list_entry, manifest, manifest_list, record

AT = dt.datetime(2025, 6, 20, 10, tzinfo=dt.UTC)
SNAPSHOT = 7
LIST_METADATA = "metadata/list.avro"
UUID = "00000000-0000-0000-0000-00000000004d"
_POSITION_IDS = {"file_path": b"2147483546", "pos": b"2147483545"}


def rows(first: int, carrier: str, count: int = 10) -> list[dict[str, Any]]:
    return [{"id": key, "carrier": carrier, "at": AT, "amount": None} for key in range(first, first + count)]


def into_folder(location: str, body: bytes) -> None:
    path = Path(location.removeprefix("file://"))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(body)


@dataclass
class HandWritten:
    """A table at `base`; `put` stores an object under its absolute location."""

    base: str
    version: TableVersion
    put: Callable[[str, bytes], None]
    listed: list[dict[str, Any]] = field(default_factory=list)
    next_row_id: int = 0

    def at(self, name: str) -> str:
        return f"{self.base}/{name}"

    def data(self, name: str, held: Sequence[Mapping[str, Any]], **more: Any) -> dict[str, Any]:
        """Write a data file; its manifest entry."""
        body = _parquet(pa.Table.from_pylist(list(held), arrow_schema_of(SCHEMA)))
        partition = {"carrier": held[0]["carrier"], "at_day": ONE_DAY}
        return self._entry(f"data/{name}.parquet", body, len(held), partition=partition, **more)

    def position_deletes(self, name: str, positions: Mapping[str, Sequence[int]], **more: Any) -> dict[str, Any]:
        """A position delete file: data file → positions."""
        pairs = [(self.at(path), at) for path in sorted(positions) for at in sorted(positions[path])]
        columns = {"file_path": pa.array([path for path, _ in pairs]), "pos": pa.array([at for _, at in pairs])}
        fields = [
            pa.field(key, column.type, nullable=False, metadata={b"PARQUET:field_id": _POSITION_IDS[key]})
            for key, column in columns.items()
        ]
        body = _parquet(pa.table(columns, pa.schema(fields)))
        return self._entry(f"data/{name}.parquet", body, len(pairs), content=1, **more)

    def equality_deletes(self, name: str, held: Sequence[Mapping[str, Any]], **more: Any) -> dict[str, Any]:
        """Deletes the rows with these ids."""
        body = _parquet(pa.Table.from_pylist(list(held), arrow_schema_of(SCHEMA)).select(["id"]))
        return self._entry(f"data/{name}.parquet", body, len(held), content=2, equality_ids=[1], **more)

    def vector(self, name: str, target: str, positions: Sequence[int], **more: Any) -> dict[str, Any]:
        puffin = encode_puffin([VectorBlob(self.at(target), BitMap64(positions))])
        [place] = puffin.places
        return self._entry(
            f"data/{name}.puffin",
            puffin.body,
            len(positions),
            content=1,
            file_format="PUFFIN",
            referenced_data_file=self.at(target),
            content_offset=place.offset,
            content_size_in_bytes=place.size,
            **more,
        )

    def _entry(self, name: str, body: bytes, count: int, **more: Any) -> dict[str, Any]:
        self.put(self.at(name), body)
        status, number = more.pop("status", Status.ADDED), more.pop("number", None)
        more = {"file_path": self.at(name), "record_count": count, "file_size_in_bytes": len(body), **more}
        return record(name, status, number, **more)

    def manifest(self, name: str, entries: Sequence[dict[str, Any]], number: int, **more: Any) -> None:
        """Write a manifest of these entries and list it."""
        content = "deletes" if entries and entries[0]["data_file"]["content"] else "data"
        body = manifest(self.version, entries, content=content)
        self.put(self.at(f"metadata/{name}.avro"), body)
        counts: dict[str, int] = {}
        for status, kind in ((0, "existing"), (1, "added"), (2, "deleted")):
            files = [entry["data_file"] for entry in entries if entry["status"] == status]
            counts |= {
                f"{kind}_files_count": len(files),
                f"{kind}_rows_count": sum(one["record_count"] for one in files),
            }
        said = {"sequence_number": number, "min_sequence_number": 0, "content": int(content == "deletes"), **counts}
        if content == "data" and self.version == 3:
            said["first_row_id"] = self.next_row_id
            self.next_row_id += counts["added_rows_count"] + counts["existing_rows_count"]
        self.listed.append(list_entry(self.at(f"metadata/{name}.avro"), len(body), **(said | more)))

    def finish(self, number: int = 0, **more: Any) -> str:
        """Write list and metadata; where the metadata is."""
        self.put(self.at(LIST_METADATA), manifest_list(self.version, self.listed))
        snapshot = {
            "snapshot-id": SNAPSHOT,
            "sequence-number": number,
            "timestamp-ms": 1_700_000_000_000,
            "manifest-list": self.at(LIST_METADATA),
            "summary": {"operation": "append"},
        }
        fields = [
            {"source-id": 2, "field-id": 1000, "transform": "identity", "name": "carrier"},
            {"source-id": 3, "field-id": 1001, "transform": "day", "name": "at_day"},
        ]
        body = {
            "format-version": self.version,
            "table-uuid": UUID,
            "location": self.base,
            "last-column-id": 4,
            "last-updated-ms": 1_700_000_000_000,
            "last-sequence-number": number,
            "next-row-id": self.next_row_id,
            "schemas": [json.loads(SCHEMA.model_dump_json())],
            "current-schema-id": 0,
            "partition-specs": [{"spec-id": 0, "fields": []}, {"spec-id": 3, "fields": fields}],
            "default-spec-id": 3,
            "sort-orders": [{"order-id": 0, "fields": []}],
            "default-sort-order-id": 0,
            "current-snapshot-id": SNAPSHOT,
            "snapshots": [snapshot],
            "properties": {},
        } | more
        self.put(self.at("metadata/1.metadata.json"), json.dumps(body).encode())
        return self.at("metadata/1.metadata.json")


def _parquet(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return bytes(sink.getvalue())
