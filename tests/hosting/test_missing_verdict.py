"""What a writer is told when no verdict comes."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rootline.adapters.memory import MemoryObjectStore
from rootline.adapters.open import LAKE_FOLDER
from rootline.adapters.posix_files import LakeLock
from rootline.adapters.system_environment import SystemEnvironment
from rootline.client.lake import Lake
from rootline.connect import connect, pause_table
from rootline.hosting.on_demand import LogOnDemand
from rootline.ports.intent_feed import ALL_TABLES
from rootline.ports.intent_log import NewRecord
from rootline.ports.object_store import Predecessor, PutReply
from rootline.schemas.errors import OutcomeUnknown, Unavailable
from rootline.schemas.identifiers import LogPosition, ObjectKey, TableName
from tests.hosting.hosted_store import HostedStore
from tests.kafka.shared_log import SharedLog, in_environment
from tests.services.kafka_service import KafkaService

pytestmark = pytest.mark.slow
SCHEMA = pa.schema([("id", pa.int64())])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A lake with the table `demo.t`, which no process has open."""
    with connect(tmp_path / "lake") as lake:
        lake.create_table("demo.t", SCHEMA)
    return tmp_path / "lake"


def told(lake: Lake) -> str:
    """The message of a write that gets no verdict."""
    with pytest.raises(OutcomeUnknown) as caught:
        lake.table("demo.t").append({"id": [1]}, timeout_s=0.5)
    assert caught.value.code == "verdict-timeout"
    return caught.value.message


def test_the_log_is_named_and_how_to_start_a_coordinator(folder: Path) -> None:
    with connect(folder, coordinator="elsewhere") as lake:
        message = told(lake)
    assert f"log {folder}/.rootline/log.sqlite: no process hosts a coordinator" in message
    assert f"rootline up --warehouse {folder}, or" in message


def test_the_process_that_hosts_the_coordinator_is_named(folder: Path) -> None:
    lock = LakeLock(folder / LAKE_FOLDER)
    assert lock.try_acquire()
    try:
        for place in ("elsewhere", "auto"):
            with connect(folder, coordinator=place) as lake:  # type: ignore[arg-type]
                assert f"process {os.getpid()} hosts the coordinator" in told(lake)
    finally:
        lock.release()


def test_a_host_that_was_stopped_is_named_with_how_to_continue_it(folder: Path) -> None:
    program = """
import sys
from rootline.adapters.posix_files import LakeLock
from pathlib import Path
print(LakeLock(Path(sys.argv[1])).try_acquire(), flush=True)
sys.stdin.readline()
"""
    host = subprocess.Popen(
        [sys.executable, "-c", program, str(folder / LAKE_FOLDER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert host.stdout is not None
        assert host.stdout.readline() == b"True\n"
        os.kill(host.pid, signal.SIGSTOP)
        with connect(folder) as lake:
            assert f"is stopped: `kill -CONT {host.pid}` continues it" in told(lake)
    finally:
        host.kill()
        host.communicate()


@pytest.mark.parametrize(("table", "what"), [("demo.t", "demo.t"), (ALL_TABLES, "--all")])
def test_the_pause_of_a_table_is_named_and_how_to_end_it(folder: Path, table: TableName, what: str) -> None:
    asyncio.run(pause_table(str(folder), None, table, "bad source"))
    with connect(folder, coordinator="elsewhere") as lake:
        assert f"paused by an operator: bad source; to continue: rootline resume {what}" in told(lake)


@pytest.fixture
def slow_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that is slow to open: publishing takes a minute of the clock."""
    publish, minutes = LogOnDemand.publish_many, list[int]()

    async def slowly(self: LogOnDemand, records: Sequence[NewRecord], **named: Any) -> list[LogPosition]:
        positions = await publish(self, records, **named)
        minutes.append(60)
        return positions

    monkeypatch.setattr(LogOnDemand, "publish_many", slowly)
    monkeypatch.setattr(SystemEnvironment, "monotonic_s", lambda _: time.monotonic() + sum(minutes))


@pytest.mark.usefixtures("slow_log")
def test_a_write_whose_publishing_took_all_of_its_time_still_waits_for_the_verdict(folder: Path) -> None:
    with connect(folder) as lake:
        assert lake.table("demo.t").append({"id": [1]}, timeout_s=30).is_new


@pytest.mark.usefixtures("slow_log")
def test_the_time_that_publishing_took_is_named(folder: Path) -> None:
    with connect(folder, coordinator="elsewhere") as lake:
        assert re.search(r"within 60\.\d s, of which publishing took 60 s; log", told(lake))


class FullDisk(MemoryObjectStore):
    """Has no room for roots once it `is_full`; `refused` how many it did not take."""

    is_full, refused = False, 0

    async def put_if_absent(self, key: ObjectKey, body: bytes, *, after: Predecessor | None = None) -> PutReply:
        if self.is_full and "/roots/" in key:
            self.refused += 1
            raise Unavailable("store-unavailable", f"{key}: No space left on device")
        return await super().put_if_absent(key, body, after=after)


def test_an_error_of_the_store_that_this_process_knows_is_told() -> None:
    store = FullDisk()
    with Lake(HostedStore(store)) as lake:
        lake.create_table("demo.t", SCHEMA)
        store.is_full = True
        # a busy machine may need longer than a write waits; before it tries again, it knows why
        while store.refused < 2:
            told(lake)
        message = told(lake)
        store.is_full = False
    assert "the coordinator is hosted here" in message
    assert "No space left on device" in message


@pytest.mark.services
def test_a_log_on_kafka_without_a_coordinator_is_told_so(
    folder: Path, kafka_service: KafkaService, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = SharedLog(folder, kafka_service.with_topics())
    in_environment(shared.settings, monkeypatch)
    with shared.open() as lake:
        message = told(lake)
        for _ in range(20):
            if "cannot check whether a coordinator runs" not in message:  # a broker loads its groups first
                break
            message = told(lake)
    settings = shared.settings
    where = f"log {settings.url}, topic {settings.intents_topic}: the consumer group {settings.group_id}"
    assert f"{where}: its consumer group is empty, so no coordinator runs: start one: rootline up" in message
