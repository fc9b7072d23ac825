"""Reading needs no log, and no folder that can be written to."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path

import pyarrow as pa
import pytest

from rootline.adapters.open import LAKE_FOLDER
from rootline.connect import connect
from rootline.hosting.on_demand import IMPORTING
from rootline.schemas.errors import Invalid, OutcomeUnknown, Unavailable
from tests.hosting.warned import NotHosted
from tests.services.s3_service import S3Service

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A lake with one row, whose log can neither be opened nor made: a file has its folder's place."""
    with connect(tmp_path / "lake") as lake:
        lake.create_table("demo.t", pa.schema([("id", pa.int64())])).append({"id": [1]})
    shutil.rmtree(tmp_path / "lake" / LAKE_FOLDER)
    (tmp_path / "lake" / LAKE_FOLDER).touch()
    return tmp_path / "lake"


def test_a_lake_whose_log_cannot_be_opened_is_scanned_and_a_write_says_why(folder: Path) -> None:
    with connect(folder) as lake:
        table = lake.table("demo.t")
        assert table.scan().count() == 1
        for _ in range(2):
            with pytest.raises(Unavailable) as caught:
                table.append({"id": [2]}, timeout_s=5)
            assert caught.value.code == "log-unavailable"
            assert LAKE_FOLDER in caught.value.message


def test_a_program_that_reads_and_ends_soon_makes_no_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rootline.hosting.on_demand.HOST_DELAY_S", 600.0)
    with connect(tmp_path) as lake:
        lake.create_table("demo.t", {"id": "long"}).append({"id": [1]})
    shutil.rmtree(tmp_path / LAKE_FOLDER)
    with connect(tmp_path) as lake:
        assert lake.table("demo.t").scan().count() == 1
    assert not (tmp_path / LAKE_FOLDER).exists()


def test_a_lake_that_stays_open_is_hosted_though_nothing_is_written(tmp_path: Path) -> None:
    with connect(tmp_path) as lake:
        lake.create_table("demo.t", {"id": "long"})
    with connect(tmp_path, coordinator="elsewhere") as writer, connect(tmp_path) as reader:
        table = reader.table("demo.t")
        assert writer.table("demo.t").append({"id": [1]}, timeout_s=60).version == 1
        assert table.scan().count() == 1


def test_a_short_program_reads_what_a_writer_left_undecided(tmp_path: Path) -> None:
    with connect(tmp_path) as lake:
        lake.create_table("demo.t", {"id": "long"})
    with connect(tmp_path, coordinator="elsewhere") as writer, pytest.raises(OutcomeUnknown):
        writer.table("demo.t").append({"id": [1]}, timeout_s=0.5)
    with connect(tmp_path) as reader:
        assert reader.table("demo.t").scan().count() == 1


def test_a_lake_that_is_read_says_why_it_is_not_hosted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with connect(tmp_path) as lake:
        lake.create_table("demo.t", {"id": "long"}).append({"id": [1]})
    monkeypatch.setattr("rootline.hosting.on_demand.HOST_DELAY_S", 0.0)
    monkeypatch.setenv("ROOTLINE_COORDINATOR__BATCH_INTENTS_MAX", "many")
    with NotHosted.heard() as heard, connect(tmp_path) as lake:
        assert lake.table("demo.t").scan().count() == 1
        assert heard.is_said.wait(30)
    assert "BATCH_INTENTS_MAX" in heard.text


def test_no_thread_forks_while_another_imports_what_a_host_needs() -> None:
    imported, end = threading.Event(), threading.Event()

    def load() -> None:
        with IMPORTING:
            imported.set()
            end.wait(30)

    def fork() -> None:
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)

    threads = [threading.Thread(target=load), threading.Thread(target=fork)]
    threads[0].start()
    assert imported.wait(30)
    threads[1].start()
    threads[1].join(0.2)
    assert threads[1].is_alive()
    end.set()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()


@pytest.mark.services
def test_a_bucket_is_read_without_a_log_and_a_write_asks_for_one(
    s3_service: S3Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROOTLINE_S3__ENDPOINT", s3_service.endpoint)
    monkeypatch.setenv("ROOTLINE_S3__ACCESS_KEY_ID", s3_service.access_key_id)
    monkeypatch.setenv("ROOTLINE_S3__SECRET_ACCESS_KEY", s3_service.secret_access_key)
    with connect(f"s3://{s3_service.bucket}/nothing-yet") as lake:
        assert lake.list_tables() == []
        with pytest.raises(Invalid, match="name a log too"):
            lake.create_table("demo.t", pa.schema([("id", pa.int64())]), timeout_s=5)
