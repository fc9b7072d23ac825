"""A lake in a store of the test's, hosted as `rootline.connect` does it."""

from __future__ import annotations

from dataclasses import dataclass

from rootline.adapters.memory import MemoryIntentLog, MemoryObjectStore
from rootline.adapters.system_environment import SystemEnvironment
from rootline.client.session import Session
from rootline.hosting.embedded_host import EmbeddedHost
from rootline.hosting.on_demand import HostOnDemand, LogOnDemand
from rootline.schemas.identifiers import TableName


@dataclass(frozen=True)
class HostedStore:
    """The address of a lake in `store`."""

    store: MemoryObjectStore
    name: str = "hosted"

    async def open(self) -> Session:
        embedded = EmbeddedHost(self.store, "memory://", None, None)
        host = HostOnDemand(MemoryIntentLog, lambda: embedded, lambda: None)
        log = LogOnDemand(host.open_log)

        async def close() -> None:
            await host.stop()
            await log.close()

        async def trouble(table: TableName) -> str | None:
            return host.trouble(table)

        return Session(self.store, log, SystemEnvironment(), close, trouble)
