"""What a Python worker of Spark's keeps open between two micro-batches."""

from __future__ import annotations

from pathlib import Path

from rootline.adapters.open import LAKE_FOLDER
from rootline.adapters.posix_files import LakeLock
from rootline.schemas.identifiers import TableName
from rootline.spark.connection import committing_lake
from rootline.spark.options import SourceOptions


def test_commits_that_wait_for_a_service_share_the_connection_of_their_process(tmp_path: Path) -> None:
    options = SourceOptions(str(tmp_path), f"sqlite://{tmp_path / LAKE_FOLDER}", TableName("demo.t"))
    with committing_lake(options) as first, committing_lake(options) as second:
        assert first is second
    assert first.list_tables() == []  # it is still open


def test_a_commit_that_may_host_the_coordinator_hosts_it_no_longer_than_it_takes(tmp_path: Path) -> None:
    options = SourceOptions(str(tmp_path), None, TableName("demo.t"))
    with committing_lake(options) as lake:
        lake.create_table("demo.t", {"id": "long"})
        assert not LakeLock(tmp_path / LAKE_FOLDER).try_acquire()
    lock = LakeLock(tmp_path / LAKE_FOLDER)
    assert lock.try_acquire()
    lock.release()
