"""A table goes through its states, and every view that people have of it is asked in each of them.

Owns: the table of states and views, and the walk. Does not own: the log, and who may be asked for it (the tests of
the embedded log and of Kafka).
Invariants: what a view shows is taken from what an operator sees: a command's output, an answer over HTTP.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

import httpx

from rootline.adapters.local_object_store import LocalObjectStore
from rootline.cli.lake_status import open_lake_poller
from rootline.coordinator.app import CoordinatorService
from rootline.coordinator.http.server import http_app
from rootline.coordinator.runtime.table.table_states import LakeView
from rootline.schemas.errors import Unavailable
from rootline.schemas.identifiers import TableName, Version
from rootline.schemas.intent import Intent
from rootline.schemas.object_keys import root_key
from rootline.storage.metadata.root_reader import find_head
from tests.cli.conftest import Run
from tests.coordinator.hooked_ports import HookedStore, nothing
from tests.coordinator.running_service import TABLE, append_intent, create_intent
from tests.kafka.coordinating import elapsed

PATIENCE_S: Final = 240.0
FREE: Final = TableName("free.table")
NOT_LISTED: Final = ""


def _all(state: str, *, listed: str = NOT_LISTED, outside: str = "") -> dict[str, str]:
    """What each view says; `listed`: by `quarantine list`, `outside`: what is known without the owner's memory."""
    said = dict.fromkeys(("status", "status --json", "console", "/readyz", "metrics"), state)
    return said | {"quarantine list": listed} | dict.fromkeys(("status", "status --json"), outside or state)


VIEWS: Final = {
    "idle": _all("idle"),
    "pending": _all("pending"),
    "delayed": _all("delayed", outside="pending"),  # why the store fails only the owner knows
    "paused": _all("paused", listed="paused"),
    "damaged": _all("damaged"),
    "quarantined": _all("quarantined", listed="quarantined"),
    "parked": _all("parked", listed="parked"),
}
"""State → view → word. `docs/operations.md` has the same table."""


class WalkedLog(Protocol):
    """A lake in `folder`, and its log."""

    folder: Path
    parks: bool

    @property
    def words(self) -> Sequence[str]:
        """What names the lake on the command line."""
        ...

    def coordinated(self, store: HookedStore) -> AbstractAsyncContextManager[CoordinatorService]:
        """A coordinator for a block."""
        ...

    async def publish(self, intent: Intent) -> Callable[[], Awaitable[str]]:
        """Append it; what then waits for its verdict's kind."""
        ...


@dataclass
class Walk:
    """One table of one lake."""

    log: WalkedLog
    run: Run
    seen: list[str] = field(default_factory=list)
    _number: int = 0

    async def through_all_states(self) -> None:
        """Raises `AssertionError` where a view says something else."""
        store = HookedStore(LocalObjectStore(self.log.folder))
        async with self.log.coordinated(store) as service:
            await self._while_it_runs(store, service)
        path = await self._head(store)
        whole = path.read_bytes()
        path.write_bytes(whole[:-3])
        async with self.log.coordinated(store) as service:
            decided = await self._append()
            await self._is("quarantined", service)
            await self._command("quarantine", "lift", TABLE)
            await self._is("quarantined", service)  # it was not mended
            path.write_bytes(whole)
            assert "parked intents" in await self._command("quarantine", "lift", TABLE)
            assert await decided() == "committed"
            await self._is("idle", service)
            if self.log.parks:
                await self._is_parked(store, service)
        await store.close()

    async def _while_it_runs(self, store: HookedStore, service: CoordinatorService) -> None:
        await (await self.log.publish(create_intent(TABLE)))()
        await self._is("idle", service)
        released = asyncio.Event()

        async def waiting(operation: str, key: str) -> None:
            if operation == "put" and TABLE.split(".")[0] == key.split("/")[0]:
                await released.wait()

        async def failing(operation: str, key: str) -> None:
            if operation == "put" and TABLE.split(".")[0] == key.split("/")[0]:
                raise Unavailable("store-unavailable", f"{key}: Slow Down")

        for state, hook in (("pending", waiting), ("delayed", failing)):
            store.before = hook
            decided = await self._append()
            await self._is(state, service)
            store.before = nothing
            released.set()
            assert await decided() == "committed"
            await self._is("idle", service)
        await self._command("pause", TABLE)
        await self._is_paused(service)
        decided = await self._append()
        await self._is("paused", service)
        await self._command("resume", TABLE)
        assert await decided() == "committed"
        await self._is("idle", service)
        path = await self._head(store)
        whole = path.read_bytes()
        path.write_bytes(whole[:-3])
        await service.check_heads()
        await self._is("damaged", service)
        path.write_bytes(whole)
        await service.check_heads()
        await self._is("idle", service)

    async def _is_parked(self, store: HookedStore, service: CoordinatorService) -> None:
        async def failing(operation: str, key: str) -> None:
            if TABLE.split(".")[0] == key.split("/")[0]:
                raise Unavailable("store-unavailable", f"{key}: Slow Down")

        await (await self.log.publish(create_intent(FREE)))()
        store.before = failing
        decided = await self._append()

        async def others_go_on() -> None:
            await (await self._append(FREE))()

        await self._is("parked", service, others_go_on)
        store.before = nothing
        assert await decided() == "committed"
        await self._is("idle", service, others_go_on)

    async def _is_paused(self, service: CoordinatorService) -> None:
        """The coordinator has seen it; or what comes next may be decided before."""
        async with asyncio.timeout(PATIENCE_S):
            while all(own.state != "paused" for own in service.own_tables()):
                await elapsed(0.05)

    async def _is(
        self,
        state: str,
        service: CoordinatorService,
        meanwhile: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Every view comes to say so; a coordinator looks for marks on the log each few seconds."""
        clock = asyncio.get_running_loop().time
        end_s = clock() + PATIENCE_S
        while (said := await self._said(service)) != VIEWS[state]:
            assert clock() < end_s, f"{state}: {said}"
            if meanwhile is not None:
                await meanwhile()
            await elapsed(0.05)
        self.seen.append(state)

    async def _said(self, service: CoordinatorService) -> dict[str, str]:
        status = await self._command("status", TABLE)
        as_json = await asyncio.to_thread(lambda: self.run("status", TABLE, *self.log.words, "--json").records)
        listed = await asyncio.to_thread(lambda: self.run("quarantine", "list", *self.log.words, "--json").records)
        url = None if "--log" not in self.log.words else self.log.words[-1]
        async with open_lake_poller(str(self.log.folder), url) as look, client_of(service, look) as client:
            while look.tables().at_ms is None:
                await elapsed(0.01)
            console = (await client.get("/console/data/tables", params={"search": TABLE})).json()["tables"]
            readyz = (await client.get("/readyz")).json()["tables"]
            metrics = (await client.get("/metrics")).text
        row = next((line for line in status.splitlines() if line.startswith(TABLE)), "")
        gauge = re.findall(rf'rootline_table_state{{state="(\w+)",table="{re.escape(TABLE)}"}} 1\.0', metrics)
        return {
            "status": [*row.split(), "", ""][1],
            "status --json": as_json[0]["state"] if as_json else "",
            "quarantine list": next((found["state"] for found in listed if found["table"] == TABLE), NOT_LISTED),
            "console": console[0]["state"] if console else "",
            "/readyz": readyz.get(TABLE, {}).get("state", ""),
            "metrics": gauge[0] if gauge else "",
        }

    async def _append(self, table: TableName = TABLE) -> Callable[[], Awaitable[str]]:
        self._number += 1
        return await self.log.publish(append_intent(f"n{self._number}", table))

    async def _command(self, *words: str) -> str:
        done = await asyncio.to_thread(self.run, *words, *self.log.words)
        return done.out

    async def _head(self, store: HookedStore) -> Path:
        head = await find_head(store, TABLE)
        assert head is not None
        return self.log.folder / root_key(TABLE, Version(head.version))


def client_of(service: CoordinatorService, look: LakeView) -> httpx.AsyncClient:
    """Who asks the coordinator over HTTP, on its own machine."""
    transport = httpx.ASGITransport(http_app(service, lake=look))
    return httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1")
