"""Simulated clients who make, change and drop namespaces, while tables are made and dropped in them.

Owns: what they do, and what must hold of a namespace's versions. Does not own: tables (`writers`), faults of single
requests (`faulty_world`).
Invariants: every choice comes from the seed; nothing is believed of a client but what it asked for and what it heard.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from rootline.client.lake_names import change_properties, create_namespace, drop_namespace
from rootline.client.session import Session
from rootline.schemas.errors import Invalid, OutcomeUnknown, Unavailable
from rootline.schemas.identifiers import NamespaceName, TableName, namespace_of
from rootline.schemas.object_keys import namespace_key, namespace_objects_prefix, version_of_namespace_key
from rootline.schemas.parts.name import NameState
from rootline.schemas.root_header import RootHeader
from rootline.storage.metadata.namespaces import NamespaceRecord, decode_record, namespace_exists
from rootline.storage.metadata.root_reader import newest_root
from rootline.testing.seeded_environment import SeededEnvironment
from tests.simulation.faulty_world import ProcessStore, World
from tests.support.opened_sessions import nothing_known

_EMPTY: Final = NamespaceName("spare")
"""No table is ever in it."""
_TIMEOUT_S: Final = 5.0


class Heard(Enum):
    """What a client heard of its change."""

    DONE = "done"
    REFUSED = "refused"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Change:
    """What a client asked for. `ids`: the changes that it may have stored for it; `None` for properties: dropped."""

    namespace: NamespaceName
    properties: dict[str, str] | None
    creates: bool
    ids: list[str] = field(default_factory=list)
    heard: Heard = Heard.UNKNOWN


@dataclass(slots=True)
class _Ids(SeededEnvironment):
    """Remembers the ids that it gave."""

    given: list[str] = field(default_factory=list)

    def fresh_id(self) -> str:
        """The next one."""
        self.given.append(SeededEnvironment.fresh_id(self))
        return self.given[-1]


@dataclass(slots=True)
class Steward:
    """One client."""

    world: World
    name: str
    tables: Sequence[TableName]
    changes: list[Change] = field(default_factory=list)

    async def run(self) -> None:
        """Change one namespace after another, for ever."""
        rng, running = random.Random(f"{self.name} of {self.world.rng.random()}"), asyncio.Event()
        running.set()
        store, environment = ProcessStore(self.world, self.name, running), _Ids(f"{self.name}/{rng.random()}")
        session = Session(store, self.world.log, environment, store.close, nothing_known)
        names = [_EMPTY, *sorted({namespace_of(table) for table in self.tables})]
        while True:
            await asyncio.sleep(rng.expovariate(1 / 0.3))
            namespace, roll = rng.choice(names), rng.random()
            said = {self.name: str(len(self.changes))}
            change = Change(namespace, None if roll < 0.3 else said, creates=0.3 <= roll < 0.6)
            self.changes.append(change)
            environment.given = change.ids
            before = await self._tables_in(namespace)
            try:
                await _ask(session, change)
                change.heard = Heard.DONE
            except Invalid:
                change.heard = Heard.REFUSED
            except (OutcomeUnknown, Unavailable):
                continue
            self.world.trace.note(self.name, "namespace", namespace, change.heard.value)
            stayed = before & await self._tables_in(namespace)
            if change.properties is None and change.heard is Heard.DONE:
                assert not stayed, f"namespace {namespace} was dropped, and {sorted(stayed)} were in it all the time"

    async def _tables_in(self, namespace: NamespaceName) -> set[tuple[str, str, int]]:
        """The tables and views that are in it now, each with what it was before."""
        heads = [
            await newest_root(self.world.store, table) for table in self.tables if namespace_of(table) == namespace
        ]
        there = [head.header for head in heads if head is not None]
        return {_incarnation(header) for header in there if header.name.state is not NameState.TOMBSTONE}


def _incarnation(header: RootHeader) -> tuple[str, str, int]:
    return str(header.table), str(header.table_uuid), len(header.name.drops)


async def _ask(session: Session, change: Change) -> None:
    if change.properties is None:
        await drop_namespace(session, change.namespace, timeout_s=_TIMEOUT_S)
    elif change.creates:
        await create_namespace(session, change.namespace, change.properties, may_exist=False, timeout_s=_TIMEOUT_S)
    else:
        await change_properties(session, change.namespace, change.properties, (), timeout_s=_TIMEOUT_S)


async def check_namespaces(world: World, stewards: Iterable[Steward], tables: Sequence[TableName]) -> int:
    """Raise `AssertionError` unless each namespace is what its clients made of it; how many versions there are."""
    changes = [change for steward in stewards for change in steward.changes]
    count = 0
    for namespace in {change.namespace for change in changes}:
        records = await _records(world, namespace)
        _check_steps(records, [change for change in changes if change.namespace == namespace])
        heads = [await newest_root(world.store, table) for table in tables if namespace_of(table) == namespace]
        holds = any(head is not None and head.header.name.state is not NameState.TOMBSTONE for head in heads)
        wanted = holds or bool(records and not records[-1].dropped)
        assert await namespace_exists(world.store, namespace) is wanted, f"{namespace}: there or not, it says the other"
        count += len(records)
    return count


async def _records(world: World, namespace: NamespaceName) -> list[NamespaceRecord]:
    """All versions, ascending."""
    listed = await world.store.list(namespace_objects_prefix(namespace))
    versions = sorted(version for key in listed.keys if (version := version_of_namespace_key(key)) is not None)
    assert versions == list(range(len(versions))), f"{namespace}: its versions are {versions}"
    found = []
    for version in versions:
        stored = await world.store.get(namespace_key(namespace, version))
        assert stored is not None
        found.append(decode_record(stored.body, namespace, version))
    return found


def _check_steps(records: Sequence[NamespaceRecord], changes: Sequence[Change]) -> None:
    """Each version is what one client made of the one before, and everyone heard what became of its change."""
    made = {record.change_id for record in records}
    for change in changes:
        times = sum(each in made for each in change.ids)
        fits = {Heard.DONE: times == 1, Heard.REFUSED: times == 0, Heard.UNKNOWN: times <= 1}[change.heard]
        assert fits, f"{change.namespace}: {change} is in {times} versions"
    by_id = {each: change for change in changes for each in change.ids}
    properties: dict[str, str] | None = None
    for record in records:
        change = by_id[record.change_id]
        name = f"version {record.version} of namespace {record.namespace}"
        assert record.dropped is (change.properties is None), f"{name} is not what was asked for"
        if change.creates or change.properties is None:
            assert (properties is None) is change.creates, f"{name} follows {properties}"
        properties = None if change.properties is None else {**(properties or {}), **change.properties}
        assert dict(record.properties) == (properties or {}), f"{name}: a change of properties was lost"
