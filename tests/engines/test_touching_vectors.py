"""DuckDB 1.5.5 confuses deletion vectors that touch each other in a Puffin file, so those of an export never do.

It caches what it reads of a file by ranges. Where one range ends at the byte at which another begins, and they are read
in certain orders, it hands out one vector for another: rows come back and others vanish. Tables that Spark wrote are
read wrongly as well; `SET enable_external_file_cache = false` cures it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from rootline.client.table_handle import TableHandle
from rootline.connect import connect
from rootline.schemas.bytes.vector_codec import VectorBlob, decode_puffin, encode_puffin
from tests.engines.duckdb_reader import open_duckdb
from tests.engines.pyiceberg_reader import pyiceberg_rows, pyiceberg_table

SCHEMA = pa.schema([("id", pa.int64()), ("carrier", pa.string())])
LIVE = [id_ for id_ in range(40) if id_ % 10 != id_ // 10]
WRONG_ORDER = (0, 3, 1, 2)
"""The first vector, the last, then the two between them."""


@dataclass(frozen=True)
class Vectors:
    """The one manifest of deletes of an export, and its entries."""

    location: str
    manifest: Path
    entries: list[dict[str, Any]]

    @property
    def puffin(self) -> Path:
        [location] = {entry["data_file"]["file_path"] for entry in self.entries}
        return local(location)

    def write(self, entries: list[dict[str, Any]]) -> None:
        with self.manifest.open("rb") as old:
            reader = fastavro.reader(old)
            schema, metadata = reader.writer_schema, reader.metadata
        kept = {name: text for name, text in metadata.items() if not name.startswith("avro.")}
        with self.manifest.open("wb") as new:
            fastavro.writer(new, schema, entries, metadata=kept)


def local(location: str) -> Path:
    return Path(location.removeprefix("file://"))


@pytest.fixture
def table(tmp_path: Path) -> Iterator[TableHandle]:
    """Four files of ten rows; of each another row is deleted, and one Puffin file holds all four vectors."""
    with connect(tmp_path / "lake") as lake:
        made = lake.create_table("demo.flights", SCHEMA)
        for first in (0, 10, 20, 30):
            made.append(pa.table({"id": range(first, first + 10), "carrier": ["UA"] * 10}, SCHEMA))
        made.delete_where("id in (0, 11, 22, 33)")
        yield made


@pytest.fixture
def vectors(table: TableHandle) -> Vectors:
    location = table.export(3).metadata_location
    exported = pyiceberg_table(location)
    snapshot = exported.current_snapshot()
    assert snapshot is not None
    [manifest] = [found for found in snapshot.manifests(exported.io) if found.content.value == 1]
    path = local(manifest.manifest_path)
    with path.open("rb") as file:
        entries = [entry for entry in fastavro.reader(file) if isinstance(entry, dict)]
    assert len(entries) == 4
    return Vectors(location, path, entries)


def ids_of_duckdb(location: str, *settings: str) -> list[int]:
    with open_duckdb() as reader:
        for setting in settings:
            reader.query(f"SET {setting}")
        return sorted(reader.rows(location, columns=["id"]).column("id").to_pylist())


def test_vectors_of_an_export_do_not_touch_each_other(vectors: Vectors) -> None:
    files = [entry["data_file"] for entry in vectors.entries]
    ranges = sorted((file["content_offset"], file["content_size_in_bytes"]) for file in files)
    assert all(one + size < other for (one, size), (other, _) in pairwise(ranges))
    vectors.write([vectors.entries[at] for at in WRONG_ORDER])
    assert ids_of_duckdb(vectors.location) == LIVE
    assert sorted(pyiceberg_rows(vectors.location).column("id").to_pylist()) == LIVE


def test_duckdb_confuses_vectors_that_touch_each_other(vectors: Vectors) -> None:
    """When this fails, a newer DuckDB is cured, and exports need no gaps for it."""
    blobs = decode_puffin(vectors.puffin.read_bytes(), name=vectors.puffin.name)
    touching = encode_puffin([VectorBlob(blob.referenced_data_file, blob.vector) for blob in blobs])
    vectors.puffin.write_bytes(touching.body)
    places = {blob.referenced_data_file: place for blob, place in zip(blobs, touching.places, strict=True)}
    for entry in vectors.entries:
        file = entry["data_file"]
        place = places[file["referenced_data_file"]]
        file["content_offset"], file["content_size_in_bytes"] = place.offset, place.size
        file["file_size_in_bytes"] = len(touching.body)
    in_order = sorted(vectors.entries, key=lambda entry: int(entry["data_file"]["content_offset"]))
    vectors.write([in_order[at] for at in WRONG_ORDER])
    assert sorted(pyiceberg_rows(vectors.location).column("id").to_pylist()) == LIVE
    assert ids_of_duckdb(vectors.location, "enable_external_file_cache = false") == LIVE
    assert ids_of_duckdb(vectors.location) != LIVE
