"""A lake that has something to show: tables with trees, a pause, damage, rejections, names that try to be markup.

Owns: what is in it. Does not own: serving it (`examples.spark_demo.service`), looking at it.
Invariants: all of it goes through the log of a running `rootline up`, as writers do it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from examples.spark_demo.service import running
from rootline.client.lake import Lake
from rootline.client.session import Session
from rootline.connect import connect, pause_table
from rootline.schemas.bytes.intent_codec import encode_intent
from rootline.schemas.identifiers import TableName, Version
from rootline.schemas.intent import Intent
from rootline.schemas.object_keys import root_key
from rootline.workers.kinds import FLUSH, maintain
from tests.coordinator.running_service import append_intent

ORDERS = "shop.orders"
DAMAGED = TableName("shop.invoices")
PAUSED = TableName("web.sessions")
HOSTILE = "<img src=x onerror=document.title='owned'><script>document.title='owned'</script>"
TABLES = (ORDERS, "shop.customers", "shop.payments", "web.clicks", PAUSED, "ops.audit")
OFTEN = {
    "ROOTLINE_COORDINATOR__COORDINATOR_ID": "coordinator-1",
    "ROOTLINE_WORKER__POLL_INTERVAL_S": "0.5",
    "ROOTLINE_WORKER__POLL_INTERVAL_S_MAX": "1",
    "ROOTLINE_WORKER__DISCOVERY_INTERVAL_S": "1",
}


@dataclass(frozen=True)
class Scene:
    """A served lake, open for writing. `url`: of its console."""

    url: str
    folder: Path
    lake: Lake

    def commit(self, table: str, rows: int = 200, first: int = 100_000) -> int:
        """Append rows to a table, their ids from `first` on; the version."""
        ids = pa.array(range(first, first + rows), pa.int64())
        return int(self.lake.table(table).append(pa.table({"id": ids, "amount": [1.5] * rows})).version)

    def flush(self, table: str) -> None:
        """Do by hand what a worker does once the root is long."""

        async def flushed(session: Session) -> None:
            await maintain(session.store, session.log, session.environment, TableName(table), FLUSH, dry_run=False)

        self.lake.holder.run(flushed)

    def publish(self, intent: Intent) -> None:
        """Put an intent on the log; no one waits for its verdict."""
        self.record(intent.table.encode(), encode_intent(intent))

    def record(self, key: bytes, value: bytes) -> None:
        """Put any bytes on the log."""

        async def published(session: Session) -> None:
            await session.log.publish(key, value)

        self.lake.holder.run(published)

    def pause(self, table: TableName) -> None:
        """As `rootline pause` does."""
        asyncio.run(pause_table(str(self.folder), None, table, "backfill of March, ask Dana before you resume"))


@contextmanager
def served_scene(folder: Path, environment: dict[str, str] | None = None) -> Iterator[Scene]:
    """A lake in `folder/lake`, served by a `rootline up` of its own, with empty tables."""
    lake = folder / "lake"
    with running(
        "up", "--root", str(lake), "--http-port", "0",
        output=folder / "up.log", environment=OFTEN | (environment or {}),
    ) as service, connect(lake, coordinator="elsewhere") as opened:  # fmt: skip
        schema = pa.schema([("id", pa.int64()), ("amount", pa.float64())])
        for name in TABLES:
            opened.create_table(name, schema, properties={"rootline.flush.leaf-entries": "2"} if name == ORDERS else {})
        yield Scene(service.url, lake, opened)


def busy(scene: Scene) -> None:
    """What goes well: commits, deletes, a tree with leaves that the worker has flushed."""
    for name in ("shop.customers", "shop.payments", "web.clicks"):
        scene.commit(name, 1_000)
    for number in range(1, 9):
        scene.commit(ORDERS, 100 * number, 1_000 * number)
    scene.flush(ORDERS)
    orders = scene.lake.table(ORDERS)
    orders.delete_where("id < 2000 or (id >= 5000 and id < 6000)")  # two files whole
    orders.delete_where("id >= 7000 and id < 7100")  # a part of one
    for _ in range(3):
        scene.commit(ORDERS)


def broken(scene: Scene) -> None:
    """What goes wrong: a quarantine, a pause with something waiting, rejections."""

    async def damage(session: Session) -> None:
        await session.store.put_if_absent(root_key(DAMAGED, Version(0)), b"damaged", after=None)

    scene.lake.holder.run(damage)
    scene.publish(append_intent("invoice-1", table=DAMAGED))
    scene.pause(PAUSED)
    scene.publish(append_intent("outside", table="shop.payments", location="../outside.parquet"))
    scene.publish(append_intent("no-table", table="shop.returns"))
    scene.record(HOSTILE.encode(), b'{"intent_id": "' + HOSTILE.encode() + b'"}')
