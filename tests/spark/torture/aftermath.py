"""The days after a torture: sweeps delete what dead drivers and expired versions left, and nothing that a version has.

Owns: services whose clocks run fast over the tortured lake, what of its data is still stored that no version names.
Does not own: the clock and its services (`constant_ingest`), the judgement of rows (`tortured_lake`).
Invariants: the services are the product's own; before them nothing ran in other than real time, so all that is stored
has its real date.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from rootline.client.lake import Lake
from rootline.client.session import Session
from rootline.client.version_history import read_history
from rootline.schemas.content_entry import LEAF_TYPES, ContentEntry
from rootline.schemas.errors import Corrupt
from rootline.schemas.identifiers import TableName
from rootline.schemas.object_keys import key_of
from rootline.storage.metadata.object_reader import read_leaf
from rootline.storage.metadata.root_reader import read_root
from tests.kafka.kafka_lake import KafkaLake
from tests.services.constant_ingest.fast_clock import FastClock
from tests.services.constant_ingest.fast_dates import running_fast_dates
from tests.services.constant_ingest.fast_service import CLOCK
from tests.services.constant_ingest.side import SERVICE_SETTINGS
from tests.services.service_process import ServiceProcess

_SPEED: Final = 60.0
_PATIENCE_S: Final = 300.0
_TELL_S: Final = 5.0
_VERSIONS_MAX: Final = 100_000


@contextmanager
def swept(
    address: KafkaLake, folder: Path, tables: Sequence[str], days: int, tell: Callable[[str], None]
) -> Iterator[tuple[Lake, list[str]]]:
    """The lake so many days later, and the objects of data that no version names and that are stored all the same."""
    clock = FastClock.make(folder / "clock", _SPEED)
    with ExitStack() as around:
        endpoint = around.enter_context(running_fast_dates(address.s3, clock, folder / "fast-dates.log"))
        settings = {**address.through(s3_endpoint=endpoint).environment(), **SERVICE_SETTINGS, CLOCK: str(clock.path)}
        for role in ("coordinator", "worker"):
            command = (sys.executable, "-m", "tests.services.constant_ingest.fast_service", role)
            around.callback(ServiceProcess(command, folder / f"later-{role}.log", settings).stop)
        lake = around.enter_context(address.client())
        for day in range(days):
            clock.leap()
            for name in tables:
                _touch(lake, name, day)
        tell(f"{days} days later")
        yield lake, _left(lake, tables, tell)


def _left(lake: Lake, tables: Sequence[str], tell: Callable[[str], None]) -> list[str]:
    """What is left once nothing is, or when patience ends."""
    deadline_s, turn = time.monotonic() + _PATIENCE_S, 0
    while True:
        left = {name: sorted(_stored(lake, name) - _named(lake, name)) for name in tables}
        every = [key for keys in left.values() for key in keys]
        if not every or time.monotonic() > deadline_s:
            return every
        tell("not deleted yet: " + ", ".join(f"{name} {len(keys)}" for name, keys in left.items()))
        threading.Event().wait(_TELL_S)
        for name, keys in left.items():
            if keys:
                _touch(lake, name, turn)
        turn += 1


def _touch(lake: Lake, name: str, number: int) -> None:
    """One more version: with it a table's time goes on, a day at most, and the worker sees to it at once."""
    with lake.table(name).alter(timeout_s=120.0) as change:
        change.set_properties({"rootline.sweep.interval-s": str(5 + number % 2)})


def _stored(lake: Lake, name: str) -> set[str]:
    async def listed(session: Session) -> set[str]:
        return set((await session.store.list(key_of(TableName(name), "data/"))).keys)

    return lake.holder.run(listed)


def _named(lake: Lake, name: str) -> set[str]:
    """The objects of data that versions name which can be read, also those of dead rows of their leaves."""
    table, found, leaves = TableName(name), set[str](), dict[str, ContentEntry]()

    async def read(session: Session) -> None:
        for header in await read_history(session.store, table, _VERSIONS_MAX, everything=True):
            with suppress(Corrupt):  # it has expired since
                root = await read_root(session.store, table, header.version)
                rows = [row.entry for block in root.blocks for row in block.rows]
                found.update(row.location for row in rows)
                leaves.update({row.location: row for row in rows if row.content_type in LEAF_TYPES})
        for row in leaves.values():
            with suppress(Corrupt):
                leaf = await read_leaf(session.store, table, row)
                found.update(leaf.columns(["location"]).column(0).to_pylist())

    lake.holder.run(read)
    return {key_of(table, location) for location in found}
