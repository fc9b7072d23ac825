"""The worker that comes with the coordinator of an embedded lake."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from rootline.adapters.memory import MemoryObjectStore
from rootline.client.lake import Lake
from rootline.client.table_handle import TableHandle
from rootline.connect import connect
from rootline.ports.object_store import Predecessor, PutReply
from rootline.schemas.identifiers import ObjectKey
from tests.hosting.hosted_store import HostedStore

pytestmark = pytest.mark.slow
SCHEMA = pa.schema([("id", pa.int64())])
EARLY = {"rootline.flush.data-files": "3"}
DEADLINE_S = 120.0


class NoLeafIsStored(MemoryObjectStore):
    """A store that never answers a PUT of a leaf; `asked` says that one came."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = False

    async def put_if_absent(self, key: ObjectKey, body: bytes, *, after: Predecessor | None = None) -> PutReply:
        if "/leaves/" in key:
            self.asked = True
            await asyncio.Event().wait()
        return await super().put_if_absent(key, body, after=after)


def until(reached: Iterator[bool]) -> None:
    """Return once the iterator says so."""
    end = time.monotonic() + DEADLINE_S
    for there in reached:
        if there:
            return
        assert time.monotonic() < end, "it did not come"
        threading.Event().wait(0.05)


def appended(lake: Lake) -> TableHandle:
    """A table of four commits, one more than a flush waits for."""
    table = lake.create_table("demo.t", SCHEMA, properties=EARLY)
    for number in range(4):
        table.append({"id": [number]})
    return table


def flushed(table: TableHandle) -> Iterator[bool]:
    """Whether the current root has a leaf."""
    while True:
        yield table.history(limit=1)[0].totals.data_manifests > 0


def test_a_lake_that_is_only_ever_appended_to_stays_small(tmp_path: Path) -> None:
    with connect(tmp_path / "lake") as lake:
        table = appended(lake)
        until(flushed(table))
        assert table.scan().count() == 4
        assert list(table.check()) == []


def test_closing_a_lake_does_not_wait_for_maintenance() -> None:
    store = NoLeafIsStored()
    with Lake(HostedStore(store)) as lake:
        appended(lake)
        until(iter(lambda: store.asked, None))
        began_s = time.monotonic()
    assert time.monotonic() - began_s < 10  # a clean stop of a worker service takes 20 s here


def test_a_worker_that_cannot_start_leaves_the_coordinator_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("ROOTLINE_WORKER__JOBS_AT_ONCE", "none")
    with connect(tmp_path / "lake") as lake:
        table = appended(lake)
        until(iter(lambda: "maintenance-failed" in caplog.text, None))
        assert table.append({"id": [9]}).version == 5
