"""Workers are down, writers go on: the coordinator writes the leaves itself."""

from __future__ import annotations

import asyncio

import pytest

from rootline.adapters.embedded_feed import EmbeddedFeed
from rootline.adapters.memory import MemoryIntentLog, MemoryObjectStore
from rootline.coordinator.app import CoordinatorService
from rootline.coordinator.settings import CoordinatorSettings
from rootline.ports.object_store import ObjectStore
from rootline.schemas.bytes.intent_codec import encode_intent
from rootline.schemas.content_entry import ContentType, Status
from rootline.schemas.intent import Intent, IntentKind
from rootline.schemas.verdict import VerdictKind
from rootline.storage.check.chain import check_table
from rootline.storage.check.findings import DataFiles
from rootline.testing.object_stores import PUT_FAULTS, Fault, FaultyObjectStore, scripted
from rootline.testing.seeded_environment import SeededEnvironment
from rootline.testing.virtual_loop import run_virtually
from tests.maintenance.table_builder import TableBuilder, data_file, location_of
from tests.support.loaded_tables import load_table

FILES = 60


async def written_without_workers(store: ObjectStore, judged: MemoryObjectStore) -> None:
    log = MemoryIntentLog()
    coordinator = CoordinatorService(
        store=store,
        log=EmbeddedFeed(log),
        settings=CoordinatorSettings(probe_rounds=0),
        environment=SeededEnvironment(1),
    )
    running = asyncio.create_task(coordinator.run())
    table = TableBuilder(store, **{"rootline.flush.hard-entries": "10"})
    most = 0

    async def commit(intent: Intent) -> None:
        position = await log.publish(table.table.encode(), encode_intent(intent))
        verdict = await log.wait_verdict(position, timeout_s=3_600)
        assert verdict is not None
        assert verdict.kind is VerdictKind.COMMITTED, verdict

    await commit(table.intent(IntentKind.CREATE, definition=table.definition.to_json().decode()))
    for number in range(FILES):
        await commit(table.intent(IntentKind.APPEND, add_data_files=(data_file(number),)))
        state = await load_table(judged, table.table)
        assert state is not None
        most = max(most, sum(row.entry.content_type is ContentType.DATA for row in state.root.rows))
    await coordinator.measure()
    shown = coordinator.metrics.registry.get_sample_value(
        "rootline_root_entries", {"table": table.table, "content": "data"}
    )
    coordinator.request_stop()
    await running
    assert most <= 11
    assert shown == sum(
        row.entry.content_type is ContentType.DATA and row.entry.version_info.status is not Status.DELETED
        for row in state.root.rows
    )
    live = {item.entry.location for item in state.live.entries()}
    assert live == {location_of(number) for number in range(FILES)}
    assert state.header.totals.data_manifests >= 5
    assert [found async for found in check_table(judged, table.table, data_files=DataFiles.IGNORED)] == []


def test_with_workers_down_and_writers_going_on_the_root_stays_bounded() -> None:
    store = MemoryObjectStore()
    run_virtually(written_without_workers(store, store))


@pytest.mark.parametrize("fault", sorted(PUT_FAULTS, key=str))
def test_a_leaf_whose_put_goes_wrong_is_stored_before_the_root_that_names_it(fault: Fault) -> None:
    store = MemoryObjectStore()
    faulty = FaultyObjectStore(store, scripted([fault, fault], under="demo/flights/metadata/leaves/"))
    run_virtually(written_without_workers(faulty, store))
