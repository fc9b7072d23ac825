"""What Spark's writer left in a folder, as an intent names it; without Spark."""

from __future__ import annotations

import uuid
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rootline.client.lake import Lake
from rootline.ports.object_store import PendingUpload
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import TableName
from rootline.schemas.object_keys import OwnKind, key_of, own_kind, spark_folder
from rootline.spark import hadoop_bucket
from rootline.spark.hadoop_bucket import copy_file
from rootline.spark.options import parse_options
from rootline.spark.parquet_append import rows_told
from rootline.spark.parquet_files import written_files
from rootline.storage.rows.arrow_types import arrow_schema_of
from tests.services.s3_service import S3Service

MIB = 1024 * 1024
CONNECT: Any = SimpleNamespace()  # a session of Spark Connect does not say how many cores there are


def test_files_that_spark_names_alike_get_names_of_their_own_by_which_a_sweep_knows_them(
    lake: Lake, folder: Path
) -> None:
    table = lake.create_table("demo.flights", pa.schema([("id", pa.int64())]), partition_by=["id"])
    definition, place = table.definition(), spark_folder(uuid.UUID(int=1))
    options = parse_options({"path": "demo.flights", "warehouse": str(folder)}, {})
    path = folder / "demo" / "flights" / place
    for number in range(2):
        group = path / f"partition_group={number}"
        group.mkdir(parents=True)
        rows = pa.table({"id": pa.array([number], pa.int64())}, arrow_schema_of(definition.schema))
        pq.write_table(rows, group / "part-00000-5.c000.snappy.parquet")

    written = written_files(CONNECT, options, definition, place, str(path))
    locations = [file.location for file in written.files]
    assert (written.row_count, len(locations)) == (2, 2)
    assert {own_kind(location) for location in locations} == {OwnKind.DATA_FILE}
    assert len({Path(location).name for location in locations}) == 2
    table.add_files(list(written.files))
    assert sorted(table.scan().to_arrow().column("id").to_pylist()) == [0, 1]


@pytest.mark.services
@pytest.mark.parametrize("is_copied", [True, False])
@pytest.mark.parametrize("rows_bytes", [12 * MIB, 20 * MIB + 5, 36 * MIB])
async def test_a_store_copies_the_rows_of_a_file_and_gets_them_uploaded_if_it_refuses(
    s3_service: S3Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows_bytes: int, is_copied: bool
) -> None:
    monkeypatch.setattr(hadoop_bucket, "_COPY_BYTES", 12 * MIB)
    table, original, changed = TableName("demo.flights"), tmp_path / "original", tmp_path / "changed"
    original.write_bytes(b"r" * rows_bytes + b"old footer")
    changed.write_bytes(b"s" * rows_bytes + b"the new footer")  # other rows than stored, to see where bytes are from
    store = s3_service.store()
    session: Any = SimpleNamespace(store=store)
    if is_copied:
        key = key_of(table, "data/original")
        upload_id = await store.begin_upload(key)
        etag = await store.put_part(key, upload_id, 1, original.read_bytes())
        assert await store.length_of(key) is None, "the bytes of an open upload cannot be read"
        await store.complete_upload(PendingUpload(key, upload_id, (etag,), rows_bytes + 10))
    with changed.open("rb") as body:
        await copy_file(session, table, "data/original", "data/made", body, rows_bytes)
    made = await store.get(key_of(table, "data/made"))
    assert made is not None
    parts = -(-rows_bytes // (12 * MIB))
    rest = rows_bytes % parts if is_copied else rows_bytes
    assert made.body == b"r" * (rows_bytes - rest) + b"s" * rest + b"the new footer"
    await store.close()


class Silent:
    """An observation whose event Spark dropped: it waits for ever."""

    def __init__(self) -> None:
        self.end = Event()

    @property
    def get(self) -> dict[str, Any]:
        self.end.wait()
        return {"rows": 1}


def test_an_append_does_not_wait_for_ever_for_a_count_that_spark_dropped() -> None:
    silent: Any = Silent()
    with pytest.raises(Invalid, match=r"did not report its number of rows within 0\.01 s") as caught:
        rows_told(silent, 0.01, "demo.flights")
    assert caught.value.code == "rows-invalid"
    silent.end.set()
    assert rows_told(silent, 600, "demo.flights") == 1
