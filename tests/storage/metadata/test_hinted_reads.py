"""A hint lets the newest root be read while the store lists; it never says which root that is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

import pytest

from rootline.adapters.memory import MemoryObjectStore
from rootline.ports.head_hints import NO_HINTS, HintOutcome
from rootline.ports.object_store import Listing, StoredObject
from rootline.schemas.errors import Unavailable
from rootline.schemas.identifiers import ObjectKey, TableName, Version
from rootline.schemas.object_keys import MAX_VERSION, root_key, roots_prefix
from rootline.storage.metadata.read_cache import hinted_reads
from rootline.storage.metadata.root_reader import find_head, table_root
from rootline.testing.virtual_loop import run_virtually
from tests.maintenance.table_builder import TableBuilder
from tests.support.said_hints import Hints

FLIGHTS = TableName("demo.flights")


class SlowStore(MemoryObjectStore):
    """Each answer takes a second; counts the GETs."""

    def __init__(self) -> None:
        super().__init__()
        self.gets: list[ObjectKey] = []
        self.failing: ObjectKey | None = None

    async def list(self, prefix: str, *, limit: int | None = None) -> Listing:
        await asyncio.sleep(1)
        return await super().list(prefix, limit=limit)

    async def get(self, key: ObjectKey) -> StoredObject | None:
        self.gets.append(key)
        await asyncio.sleep(1)
        if key == self.failing:
            self.failing = None
            raise Unavailable("store-unavailable", "no")
        return await super().get(key)


def told(story: Callable[[], Coroutine[None, None, None]]) -> None:
    run_virtually(story())


async def three_versions() -> SlowStore:
    store = SlowStore()
    builder = TableBuilder(store, FLIGHTS)
    await builder.create()
    await builder.append(1)
    await builder.append(2)
    store.gets.clear()
    return store


async def opened(store: SlowStore, hints: Hints) -> tuple[int, float]:
    """The version that an opening finds, and how long it takes."""
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    async with hinted_reads(store, FLIGHTS, hints) as reads:
        root = await table_root(reads, FLIGHTS)
    return root.header.version, loop.time() - began_s


def test_a_right_hint_saves_a_round_trip() -> None:
    async def story() -> None:
        store, hints = await three_versions(), Hints(2)
        assert await opened(store, hints) == (2, pytest.approx(1))
        assert await opened(store, Hints(2, are_kept=False)) == (2, pytest.approx(2))
        assert store.gets == 2 * [root_key(FLIGHTS, Version(2))]
        assert hints.outcomes == [HintOutcome.RIGHT]

    told(story)


@pytest.mark.parametrize("hint", [0, 1, 3, 4_711, MAX_VERSION])
def test_a_hint_of_an_older_version_or_one_to_come_changes_nothing_but_a_wasted_request(hint: int) -> None:
    async def story() -> None:
        store, hints = await three_versions(), Hints(hint)
        assert await opened(store, hints) == (2, pytest.approx(2))
        assert store.gets == [root_key(FLIGHTS, Version(hint)), root_key(FLIGHTS, Version(2))]
        assert hints.outcomes == [HintOutcome.WRONG]

    told(story)


@pytest.mark.parametrize(("hints", "outcome"), [(Hints(None), HintOutcome.NONE), (Hints(2, 9.0), HintOutcome.LATE)])
def test_no_one_waits_for_a_hint(hints: Hints, outcome: HintOutcome) -> None:
    async def story() -> None:
        store = await three_versions()
        assert await opened(store, hints) == (2, pytest.approx(2))
        assert store.gets == [root_key(FLIGHTS, Version(2))]
        assert hints.outcomes == [outcome]

    told(story)


def test_what_fails_ahead_is_read_again() -> None:
    async def story() -> None:
        store = await three_versions()
        store.failing = root_key(FLIGHTS, Version(2))
        assert await opened(store, Hints(2)) == (2, pytest.approx(2))
        assert len(store.gets) == 2

    told(story)


def test_what_was_read_ahead_is_used_once() -> None:
    async def story() -> None:
        store, key = await three_versions(), root_key(FLIGHTS, Version(2))
        async with hinted_reads(store, FLIGHTS, Hints(2)) as reads:
            assert await find_head(reads, FLIGHTS) is not None
            first = await reads.get(key)
            store.discard(key)
            assert first is not None
            assert await reads.get(key) is None
            assert await find_head(reads, FLIGHTS) != await find_head(store, TableName("demo.other"))
            listing = await reads.list(roots_prefix(FLIGHTS), limit=1)
            assert list(listing.keys) == [root_key(FLIGHTS, Version(1))]

    told(story)


def test_an_opening_that_fails_or_is_cancelled_leaves_nothing_behind() -> None:
    async def story() -> None:
        store = await three_versions()

        async def open_it() -> None:
            async with hinted_reads(store, FLIGHTS, Hints(2, 0.5)) as reads:
                await find_head(reads, FLIGHTS)

        opening = asyncio.create_task(open_it())
        await asyncio.sleep(0.7)
        opening.cancel()
        await asyncio.wait({opening})
        assert opening.cancelled()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        async with hinted_reads(store, FLIGHTS, NO_HINTS) as reads:
            assert reads is store

    told(story)
