"""A lake whose log is not in its warehouse: the process that writes to it hosts what the lake needs."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import uuid
from pathlib import Path

import pyarrow as pa
import pytest

from rootline.connect import CoordinatorPlace, connect, open_parts
from rootline.schemas.errors import Invalid
from tests.services.s3_service import S3Service

pytestmark = pytest.mark.slow
SCHEMA = pa.schema([("id", pa.int64())])
PATIENCE_S = 240.0


def test_a_lake_with_a_named_log_is_committed_to_without_a_service(tmp_path: Path) -> None:
    with connect("memory://", log=f"sqlite://{tmp_path}/log") as lake:
        table = lake.create_table("demo.t", SCHEMA, timeout_s=PATIENCE_S)
        assert table.append({"id": [1, 2]}, timeout_s=PATIENCE_S).version == 1
        assert table.scan().count() == 2


@pytest.mark.services
def test_a_lake_in_a_bucket_is_committed_to_without_a_service(
    s3_service: S3Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROOTLINE_S3__ENDPOINT", s3_service.endpoint)
    monkeypatch.setenv("ROOTLINE_S3__ACCESS_KEY_ID", s3_service.access_key_id)
    monkeypatch.setenv("ROOTLINE_S3__SECRET_ACCESS_KEY", s3_service.secret_access_key)
    with connect(f"s3://{s3_service.bucket}/hosted-{uuid.uuid4().hex}", log=f"sqlite://{tmp_path}/log") as lake:
        table = lake.create_table("demo.t", SCHEMA, timeout_s=PATIENCE_S)
        table.append({"id": [1, 2]}, timeout_s=PATIENCE_S)
        assert table.scan().count() == 2


def test_of_two_processes_on_a_named_log_one_hosts_and_the_other_takes_over(tmp_path: Path) -> None:
    log = f"sqlite://{tmp_path}/log"
    program = (
        "import sys, pyarrow as pa, rootline\n"
        "lake = rootline.connect(sys.argv[1], log=sys.argv[2])\n"
        "table = lake.create_table('demo.t', pa.schema([('id', pa.int64())]), timeout_s=240)\n"
        "table.append({'id': [1]}, timeout_s=240)\n"
        "print('hosting', flush=True)\n"
        "sys.stdin.read()\n"
    )
    host = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "lake"), log],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert host.stdout is not None
    try:
        assert host.stdout.readline() == "hosting\n"
        with connect(tmp_path / "lake", log=log) as guest:
            table = guest.table("demo.t")
            table.append({"id": [2]}, timeout_s=PATIENCE_S)
            host.kill()
            host.communicate()
            table.append({"id": [3]}, timeout_s=PATIENCE_S)
            assert sorted(table.scan().to_arrow().column("id").to_pylist()) == [1, 2, 3]
    finally:
        host.kill()
        host.communicate()


def test_a_lake_that_is_only_read_opens_no_named_log(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    with connect(tmp_path / "lake", log=f"sqlite://{tmp_path}/log") as lake:
        assert lake.list_tables() == []
    assert not (tmp_path / "log").exists()


@pytest.mark.parametrize("coordinator", ["auto", "elsewhere"])
def test_the_log_of_another_lake_is_refused_at_the_first_change_with_both_names(
    tmp_path: Path, coordinator: CoordinatorPlace
) -> None:
    log = f"sqlite://{tmp_path}/log"
    with connect(tmp_path / "lake", log=log) as lake:
        table = lake.create_table("demo.t", SCHEMA, timeout_s=PATIENCE_S)
        (tmp_path / "alias").symlink_to(tmp_path / "lake")
        (tmp_path / "other").mkdir()
        with connect(tmp_path / "other", log=log, coordinator=coordinator) as other:
            assert other.list_tables() == []
            with pytest.raises(Invalid) as refusal:
                other.create_table("demo.theirs", SCHEMA, timeout_s=PATIENCE_S)
        with connect(tmp_path / "alias", log=log, coordinator="elsewhere") as same:
            same.table("demo.t").append({"id": [1]}, timeout_s=PATIENCE_S)
        assert table.scan().count() == 1
        assert lake.list_tables() == ["demo.t"]
    assert refusal.value.code == "lake-mismatch"
    assert f"{tmp_path}/other" in refusal.value.message
    assert f"{tmp_path}/lake" in refusal.value.message


async def test_a_worker_of_another_lake_is_refused_before_its_first_intent(tmp_path: Path) -> None:
    log = f"sqlite://{tmp_path}/log"
    (tmp_path / "other").mkdir()
    with connect(tmp_path / "lake", log=log) as lake:
        await asyncio.to_thread(lake.create_table, "demo.t", SCHEMA, timeout_s=PATIENCE_S)
        parts = await open_parts(str(tmp_path / "other"), log)
        try:
            with pytest.raises(Invalid) as refusal:
                await parts.worker_log.publish(b"demo.t", b"{}")
        finally:
            await parts.close()
    assert refusal.value.code == "lake-mismatch"
