"""What Spark's writer left in a folder, as an intent names it; without Spark."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import pyarrow_to_schema

from rootline.adapters.memory import MemoryIntentLog
from rootline.adapters.system_environment import SystemEnvironment
from rootline.client.lake import Lake
from rootline.client.session import Session
from rootline.ports.object_store import PendingUpload, PutStatus
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import TableName
from rootline.schemas.object_keys import OwnKind, key_of, own_kind, spark_folder
from rootline.spark import hadoop_bucket, parquet_files
from rootline.spark.hadoop_bucket import UploadedFile, copy_file
from rootline.spark.options import parse_options
from rootline.spark.parquet_append import rows_told
from rootline.spark.parquet_files import written_files
from rootline.storage.rows.arrow_types import arrow_schema_of
from tests.services.recording_proxy import Fate, recording_proxy
from tests.services.s3_service import S3Service
from tests.support.opened_sessions import nothing_known

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


def test_a_task_that_lost_may_remove_its_folder_while_the_files_of_the_job_are_listed(
    lake: Lake, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    definition = lake.create_table("demo.flights", pa.schema([("id", pa.int64())])).definition()
    place = spark_folder(uuid.UUID(int=1))
    options = parse_options({"path": "demo.flights", "warehouse": str(folder)}, {})
    path = folder / "demo" / "flights" / place
    attempt = path / "_temporary" / "0" / "_temporary" / "attempt_202611290230_0001_m_000000_1"
    attempt.mkdir(parents=True)
    pq.write_table(pa.table({"id": [1]}, arrow_schema_of(definition.schema)), path / "part-00000-5.c000.snappy.parquet")
    scan = os.scandir

    def scanned(place: Any) -> Any:
        if "_temporary" in str(place):
            raise FileNotFoundError(place)
        return scan(place)

    monkeypatch.setattr(os, "scandir", scanned)
    assert written_files(CONNECT, options, definition, place, str(path)).row_count == 1


def test_a_footer_that_a_killed_task_wrote_in_part_is_written_by_the_next_one(lake: Lake, folder: Path) -> None:
    schema = pa.schema([("list", pa.list_(pa.int64()))])
    definition = lake.create_table("demo.flights", schema).definition()
    options = parse_options({"path": "demo.flights", "warehouse": str(folder)}, {})
    location = f"{spark_folder(uuid.UUID(int=1))}/{uuid.UUID(int=2)}.parquet"
    path = folder / "demo" / "flights" / location
    path.parent.mkdir(parents=True)
    own = pa.field("list", pa.list_(pa.int64()), metadata={"PARQUET:field_id": "1"})  # as Spark writes it
    pq.write_table(pa.table({"list": [[7], [8, 9]]}, pa.schema([own])), path)
    sparks = path.read_bytes()
    shares = [[UploadedFile(location, len(sparks))]]
    described = parquet_files._described(options, definition.to_json(), shares, 0)
    whole = path.read_bytes()
    assert pyarrow_to_schema(pq.read_schema(path)).as_struct() == definition.schema.as_struct(), "each field has its id"
    for end in (len(sparks), len(sparks) + 1, len(whole) - 9, len(whole) - 1, len(whole)):
        path.write_bytes(whole[:end])
        assert parquet_files._described(options, definition.to_json(), shares, 0).files == described.files
        assert path.read_bytes() == whole
    assert whole.startswith(sparks), "a reader of these bytes, such as a second task, is not disturbed"


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
        part = await store.put_part(key, upload_id, 1, original.read_bytes())
        assert await store.length_of(key) is None, "the bytes of an open upload cannot be read"
        await store.complete_upload(PendingUpload(key, upload_id, (part,), rows_bytes + 10))
    with changed.open("rb") as body:
        await copy_file(session, table, "data/original", "data/made", body, rows_bytes)
    made = await store.get(key_of(table, "data/made"))
    assert made is not None
    parts = -(-rows_bytes // (12 * MIB))
    rest = rows_bytes % parts if is_copied else rows_bytes
    assert made.body == b"r" * (rows_bytes - rest) + b"s" * rest + b"the new footer"
    await store.close()


@pytest.mark.services
async def test_a_store_that_fails_once_at_each_request_of_a_copy_costs_no_job(
    s3_service: S3Service, tmp_path: Path
) -> None:
    table, source = TableName("demo.flights"), tmp_path / "source"
    source.write_bytes(b"r" * 6 * MIB + b"the new footer")
    store = s3_service.store()
    assert (await store.put_if_absent(key_of(table, "data/original"), b"r" * 6 * MIB)).answer is PutStatus.CREATED
    once = (Fate.ANSWERED_503, Fate.RELAYED)
    parts = (*3 * (Fate.ANSWERED_503,), Fate.RELAYED, Fate.RELAYED)  # the copy, the end, and the upload of what to copy
    async with recording_proxy(s3_service.address, *once, *parts, *once) as proxy:
        prefix = store.url_of("").removeprefix(f"s3://{s3_service.bucket}/").rstrip("/")
        failing = s3_service.store(prefix, endpoint=proxy.endpoint)
        session = Session(failing, MemoryIntentLog(), SystemEnvironment(), failing.close, nothing_known)
        with source.open("rb") as body:
            await copy_file(session, table, "data/original", "data/made", body, 6 * MIB)
        await failing.close()
    made = await store.get(key_of(table, "data/made"))
    await store.close()
    assert made is not None
    assert made.body == source.read_bytes()
    assert " ".join(request.method for request in proxy.requests) == "POST POST PUT PUT PUT PUT PUT POST HEAD POST"


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
