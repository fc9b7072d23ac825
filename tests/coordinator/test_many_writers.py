"""A table of thousands of writers that skip sequences: the header stays small, and nothing of them is forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from typing import Any

import pytest

from rootline.adapters.memory import MemoryObjectStore
from rootline.coordinator.protocol.machine_state import Phase
from rootline.ports.object_store import ObjectStore
from rootline.schemas.bytes.intent_codec import encode_intent
from rootline.schemas.bytes.root.header_codec import encode_header
from rootline.schemas.identifiers import Version
from rootline.schemas.intent import Intent, IntentKind, RemovedFile
from rootline.schemas.object_keys import key_of, table_prefix
from rootline.schemas.root_header import RootHeader
from rootline.schemas.verdict import Verdict, VerdictKind
from rootline.storage.check.chain import check_table
from rootline.storage.check.findings import CheckSummary, DataFiles
from rootline.storage.metadata.root_reader import find_head, read_root
from rootline.testing.seeded_environment import SeededEnvironment
from rootline.testing.virtual_loop import run_virtually
from rootline.tree.parts.header_limits import HEADER_BYTES_MAX
from rootline.tree.state.table_state import NO_PAGES
from tests.coordinator.hooked_ports import HookedLog, HookedStore
from tests.coordinator.running_service import TABLE, Running, append_intent, running
from tests.support.loaded_tables import load_table

COMMITTED, DUPLICATE, REJECTED = VerdictKind.COMMITTED, VerdictKind.DUPLICATE, VerdictKind.REJECTED
PAGES = f"{table_prefix(TABLE)}metadata/pages/"


def virtually(work: Coroutine[Any, Any, None]) -> None:
    run_virtually(work)


def commit_of(writer: int, sequence: int) -> Intent:
    name = f"w{writer}-{sequence}"
    return append_intent(name, writer_id=f"spark/query-{writer:05d}", writer_sequence=sequence)


def rejection_of(writer: int) -> Intent:
    return Intent(
        intent_id=f"bad-{writer}",
        table=TABLE,
        kind=IntentKind.REMOVE,
        remove_files=(RemovedFile(location=f"data/{'nowhere' * 40}.parquet"),),
        writer_id=f"spark/query-{writer:05d}",
        writer_sequence=1,
    )


async def decided(service: Running, intents: Sequence[Intent]) -> dict[str, Verdict]:
    """The verdicts by intent id, published a few hundred at a time."""
    found: dict[str, Verdict] = {}
    for start in range(0, len(intents), 250):
        some = intents[start : start + 250]
        found |= {verdict.intent_id: verdict for verdict in await service.commit(*some)}
    return found


async def head_of(store: ObjectStore) -> RootHeader:
    head = await find_head(store, TABLE)
    assert head is not None
    return (await read_root(store, TABLE, head.version)).header


async def headers(store: HookedStore) -> list[RootHeader]:
    newest = (await head_of(store)).version
    return [(await read_root(store, TABLE, Version(version))).header for version in range(newest + 1)]


def sizes(header: RootHeader) -> Iterator[int]:
    metadata = encode_header(header)
    yield len(metadata["rootline.ledger"])
    yield len(metadata["rootline.outcomes"])


def pages_put(store: HookedStore) -> int:
    return sum(operation == "put" and key.startswith(PAGES) for operation, key in store.calls)


@pytest.mark.slow
def test_1000_writers_with_gaps_leave_a_small_header_and_are_known_after_a_restart() -> None:
    async def main() -> None:
        store, log = HookedStore(), HookedLog()
        writers = range(1_000)
        async with running(store, log, SeededEnvironment(1)) as service:
            await service.create()
            first: dict[str, Verdict] = {}
            for sequence in (0, 2, 5):
                first |= await decided(service, [commit_of(writer, sequence) for writer in writers])
            refused = await decided(service, [rejection_of(writer) for writer in writers if writer % 4 == 0])
        assert {verdict.kind for verdict in first.values()} == {COMMITTED}
        assert {verdict.kind for verdict in refused.values()} == {REJECTED}
        roots = await headers(store)
        assert max(size for header in roots for size in sizes(header)) <= HEADER_BYTES_MAX
        assert 1 <= len(roots[-1].ledger.pages) <= 8

        async with running(store, log, SeededEnvironment(2)) as service:
            again = await decided(service, [commit_of(writer, 2 * (writer % 2)) for writer in writers])
            for intent_id, verdict in again.items():
                assert verdict.kind is DUPLICATE
                assert verdict.version == first[intent_id].version
            repeated = await decided(service, [rejection_of(writer) for writer in writers if writer % 4 == 0])
            for intent_id, verdict in repeated.items():
                assert (verdict.kind, verdict.message) == (REJECTED, refused[intent_id].message)
            filled = await decided(service, [commit_of(writer, 1 + 2 * (writer % 2)) for writer in writers])
            assert {verdict.kind for verdict in filled.values()} == {COMMITTED}
        assert max(size for header in await headers(store) for size in sizes(header)) <= HEADER_BYTES_MAX
        summary = CheckSummary()
        findings = [item async for item in check_table(store, TABLE, data_files=DataFiles.IGNORED, summary=summary)]
        assert findings == []
        assert summary.pages >= 2

    virtually(main())


def test_small_commits_of_many_writers_are_one_request_each_but_for_a_page_now_and_then() -> None:
    async def main() -> None:
        store, log = HookedStore(), HookedLog()
        async with running(store, log, SeededEnvironment(1)) as service:
            await service.create()
            before = len(store.calls)
            for writer in range(400):
                [verdict] = await service.commit(commit_of(writer, 0))
                assert verdict.kind is COMMITTED
            puts = [call for call in store.calls[before:] if call[0] == "put"]
        assert 1 <= pages_put(store) <= 4
        assert len(puts) == 400 + pages_put(store)
        assert not [call for call in store.calls[before:] if call[0] == "get"], "a page that was just made is not read"

    virtually(main())


def test_a_coordinator_reads_each_page_once_and_not_again_when_it_loads_the_head_anew() -> None:
    async def main() -> None:
        store, log = HookedStore(), HookedLog()
        async with running(store, log, SeededEnvironment(1)) as service:
            await service.create()
            await decided(service, [commit_of(writer, 0) for writer in range(500)])
        named = {key_of(TABLE, page.location) for page in (await head_of(store)).ledger.pages}
        assert named
        store.calls.clear()
        async with running(store, log, SeededEnvironment(2)) as service:
            [verdict] = await service.commit(commit_of(1, 0))
            assert verdict.kind is DUPLICATE
            await service.commit(commit_of(1, 1))
        reads = [key for operation, key in store.calls if operation == "get" and key.startswith(PAGES)]
        assert sorted(reads) == sorted(named)

    virtually(main())


def test_who_only_reads_the_table_reads_no_page() -> None:
    async def main() -> None:
        store = HookedStore()
        async with running(store, HookedLog(), SeededEnvironment(1)) as service:
            await service.create()
            await decided(service, [commit_of(writer, 0) for writer in range(500)])
        store.calls.clear()
        state = await load_table(store, TABLE)
        assert state is not None
        assert state.header.ledger.pages
        assert state.pages == NO_PAGES
        assert not [key for _, key in store.calls if key.startswith(PAGES)]

    virtually(main())


def test_a_damaged_page_quarantines_the_table_and_is_named() -> None:
    async def main() -> None:
        store, log = MemoryObjectStore(), HookedLog()
        async with running(store, log, SeededEnvironment(1)) as service:
            await service.create()
            await decided(service, [commit_of(writer, 0) for writer in range(500)])
        header = await head_of(store)
        key = key_of(TABLE, header.ledger.pages[0].location)
        found = await store.get(key)
        assert found is not None
        store.place(key, found.body[:-1] + b"x")
        async with running(store, log, SeededEnvironment(2)) as service:
            await log.publish(TABLE.encode(), encode_intent(commit_of(1, 7)))
            await asyncio.sleep(5.0)
            phase, why = service.service.tables()[TABLE]
            assert phase is Phase.QUARANTINED
            assert key in why
            assert "page-corrupt" in why
        assert (await head_of(store)).version == header.version, "nothing was decided without the page"

    virtually(main())
