"""A coordinator says which version it made, and opens a table the same whatever a hint says."""

from __future__ import annotations

import asyncio

import pytest

from rootline.adapters.memory import MemoryObjectStore
from rootline.ports.head_hints import HintOutcome
from rootline.ports.object_store import Listing
from rootline.schemas.object_keys import MAX_VERSION
from rootline.schemas.verdict import VerdictKind
from rootline.testing.virtual_loop import run_virtually
from tests.coordinator.running_service import append_intent, running
from tests.support.said_hints import Hints


class ListedLater(MemoryObjectStore):
    """Lists after whatever else can be done at once, as a store across a network does."""

    async def list(self, prefix: str, *, limit: int | None = None) -> Listing:
        await asyncio.sleep(1)
        return await super().list(prefix, limit=limit)


def test_each_root_that_lands_is_told() -> None:
    async def story() -> None:
        hints = Hints(None)
        async with running(hints=hints) as service:
            await service.create()
            await service.commit(append_intent("one"))
        assert hints.version == 1

    run_virtually(story())


@pytest.mark.parametrize(
    ("said", "outcome"),
    [(1, HintOutcome.RIGHT), (0, HintOutcome.WRONG), (7, HintOutcome.WRONG), (MAX_VERSION, HintOutcome.WRONG)],
)
def test_a_coordinator_builds_on_the_newest_root_whatever_a_hint_says(said: int, outcome: HintOutcome) -> None:
    async def story() -> None:
        store = ListedLater()
        async with running(store) as first:
            await first.create()
            await first.commit(append_intent("one"))
        hints = Hints(said)
        async with running(store, first.log, hints=hints) as second:
            [verdict] = await second.commit(append_intent("two"))
            assert (verdict.kind, verdict.version) == (VerdictKind.COMMITTED, 2)
        assert hints.outcomes == [outcome]
        assert hints.version == 2

    run_virtually(story())


def test_a_hint_for_a_table_that_does_not_exist_makes_none() -> None:
    async def story() -> None:
        async with running(ListedLater(), hints=Hints(5)) as service:
            [verdict] = await service.commit(append_intent("one"))
            assert verdict.code == "table-unknown"

    run_virtually(story())
