"""What planning asks the store for, the first time and later."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from typing_extensions import override

from rootline.client.planned_files import FilePlan, PlannedFiles, plan_files
from rootline.client.session import Session
from rootline.client.table_handle import TableHandle
from rootline.client.time_travel import PointInTime
from rootline.connect import connect
from rootline.ports.object_store import Listing, ObjectStore, StoredObject
from rootline.schemas.content_entry import FieldStatistics, Status
from rootline.schemas.errors import Corrupt, Invalid
from rootline.schemas.identifiers import ObjectKey, Version
from rootline.storage.metadata.read_cache import PlanRequests, ReadCache
from rootline.storage.metadata.root_reader import read_root
from rootline.testing.object_stores import Fault, FaultyObjectStore, Operation
from tests.client.conftest import SCHEMA
from tests.storage.stored_tables import TABLE, StoredTable, flights, flights_definition


class Planner:
    """Plans scans of a table as one lake after another does; `asked` counts what reaches the store."""

    def __init__(self, table: StoredTable, cache: ReadCache | None = None) -> None:
        self.asked: Counter[Operation] = Counter()
        self.fault: Fault | None = None
        self.fault_under = ""
        cached = ReadCache() if cache is None else cache
        store = FaultyObjectStore(table.store, self._count)
        nothing = cast("Any", None)
        self.session = Session(store, nothing, nothing, nothing, nothing, cached)

    def _count(self, operation: Operation, key: str) -> Fault | None:
        self.asked[operation] += 1
        return self.fault if operation is Operation.GET and self.fault_under in key else None

    def plan(self, where: str | None = None) -> FilePlan:
        self.asked.clear()
        found = asyncio.run(plan_files(self.session, TABLE, where))
        assert self.asked == Counter({Operation.LIST: found.requests.lists, Operation.GET: found.requests.gets})
        return found


class DefinitionFirst(FaultyObjectStore):
    """Answers a LIST after a definition was asked for."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner, lambda *_: None)
        self._asked = asyncio.Event()

    @override
    async def get(self, key: ObjectKey) -> StoredObject | None:
        if "/definitions/" in key:
            self._asked.set()
        return await super().get(key)

    @override
    async def list(self, prefix: str, *, limit: int | None = None) -> Listing:
        async with asyncio.timeout(30):
            await self._asked.wait()
        return await super().list(prefix, limit=limit)


@pytest.fixture
def table() -> StoredTable:
    """Ten data leaves of two files each, every one with a delete leaf of its own, and a file in the root."""
    made = StoredTable(flights_definition())
    for number in range(10):
        ids = range(10 * number, 10 * number + 4)
        files = [made.write(flights(*ids[:2]))[0], made.write(flights(*ids[2:]))[0]]
        data = made.leaf(files, {1: FieldStatistics(ids[0], ids[3], True, 4, 0)})
        made.entries += [data, made.leaf([made.vector(files[0], [0])], referenced_file=data.location)]
    made.entries += made.write(flights(1000))
    made.commit()
    return made


def test_the_first_plan_reads_head_root_definition_and_leaves(table: StoredTable) -> None:
    assert Planner(table).plan().requests == PlanRequests(lists=1, gets=1 + 1 + 20, leaves=20)


def test_a_definition_is_read_beside_the_list_if_a_root_is_known(table: StoredTable) -> None:
    planner = Planner(table)
    planner.session.cache.keep_root(asyncio.run(read_root(table.store, TABLE, Version(0))))
    planner.session = replace(planner.session, store=DefinitionFirst(planner.session.store))
    assert planner.plan().requests == PlanRequests(lists=1, gets=1 + 20, leaves=20)


def test_a_definition_that_was_read_ahead_is_not_used_for_a_newer_one(table: StoredTable) -> None:
    planner = Planner(table)
    planner.session.cache.keep_root(asyncio.run(read_root(table.store, TABLE, Version(0))))
    changed = replace(table.definition, properties={**table.definition.properties, "owner": "me"})
    table.definition = changed
    table.commit()
    assert planner.plan().definition == changed


def test_planning_again_asks_for_the_head_only(table: StoredTable) -> None:
    planner = Planner(table)
    first = planner.plan()
    again = planner.plan()
    assert again.requests == PlanRequests(lists=1)
    assert again.root is first.root
    assert list(again.scan.tasks()) == list(first.scan.tasks())


def test_planning_again_after_a_small_commit_opens_no_leaf(table: StoredTable) -> None:
    planner = Planner(table)
    planner.plan()
    table.entries += table.write(flights(2000))
    table.commit()
    again = planner.plan()
    assert again.requests == PlanRequests(lists=1, gets=1)
    assert len(again.scan) == 22


def test_an_older_version_is_planned_beside_a_newer_one_that_is_known(table: StoredTable) -> None:
    planner = Planner(table)
    table.entries += table.write(flights(2000))
    table.commit()
    assert len(planner.plan().scan) == 22
    older = asyncio.run(plan_files(planner.session, TABLE, None, PointInTime(version=0)))
    assert (len(older.scan), older.root.header.version, older.requests) == (21, 0, PlanRequests(lists=1, gets=1))
    assert planner.plan().requests == PlanRequests(lists=1)


def test_planning_again_after_a_flush_opens_the_new_leaf_only(table: StoredTable) -> None:
    planner = Planner(table)
    planner.plan()
    table.entries[-1] = table.leaf(table.entries[-1:])
    table.commit()
    again = planner.plan()
    assert again.requests == PlanRequests(lists=1, gets=2, leaves=1)
    assert len(again.scan) == 21


def test_a_removal_from_a_leaf_is_seen_without_opening_it(table: StoredTable) -> None:
    planner = Planner(table)
    planner.plan()
    table.entries.append(table.manifest_vector(table.entries[0], [1], Status.ADDED))
    table.commit()
    again = planner.plan()
    assert (again.requests.leaves, len(again.scan)) == (0, 20)


def test_leaves_that_cannot_match_are_not_opened_nor_their_delete_leaves(table: StoredTable) -> None:
    planned = PlannedFiles.of(Planner(table).plan("id = 42"))
    assert planned.requests == PlanRequests(lists=1, gets=1 + 1 + 2, leaves=2)
    assert (planned.leaves_read, planned.leaves_pruned, len(planned)) == (1, 9, 1)
    assert planned.requests.total == 5


def test_a_cache_is_bounded_by_bytes_and_never_changes_a_plan(table: StoredTable) -> None:
    small = ReadCache(20_000)
    planner = Planner(table, small)
    whole = list(Planner(table).plan().scan.tasks())
    for _ in range(3):
        assert list(planner.plan().scan.tasks()) == whole
        assert 0 < small.size_in_bytes <= small.bytes_max
    assert Planner(table, ReadCache(0)).plan().requests.leaves == 20


@pytest.mark.parametrize("under", ["/roots/", "/definitions/", "/leaves/"])
def test_what_could_not_be_proven_is_asked_for_again(table: StoredTable, under: str) -> None:
    planner = Planner(table)
    planner.fault, planner.fault_under = Fault.TRUNCATED, under
    with pytest.raises(Corrupt):
        planner.plan()
    planner.fault_under = "nothing"
    assert len(planner.plan().scan) == 21


def test_a_scan_tells_what_its_plan_took(flights: TableHandle) -> None:
    flights.append({"id": [1], "carrier": ["UA"], "delay": [0.5]})
    first = flights.scan().plan()
    assert (len(first), first.requests.lists, first.requests.gets > 0) == (1, 1, True)
    assert flights.scan("id = 1").plan().requests == PlanRequests(lists=1)
    assert [task.record_count for task in first] == [1]


def test_a_lake_may_be_told_to_keep_nothing(folder: Path) -> None:
    with connect(folder, cache_bytes=0) as lake:
        table = lake.create_table("demo.flights", SCHEMA)
        table.append({"id": [1], "carrier": ["UA"], "delay": [0.5]})
        assert [table.scan().plan().requests.gets for _ in range(2)] == [2, 2]
    with pytest.raises(Invalid, match="cache_bytes is -1"):
        connect(folder, cache_bytes=-1)
