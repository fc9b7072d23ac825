"""The lies are what they say, and nothing else about the store is wrong."""

from __future__ import annotations

import asyncio

from rootline.ports.object_store import PutStatus
from rootline.schemas.identifiers import ObjectKey
from rootline.testing.object_stores import Lie, LyingObjectStore

KEY = ObjectKey("a/1")


async def answers(store: LyingObjectStore, racers: int) -> list[PutStatus]:
    replies = await asyncio.gather(*(store.put_if_absent(KEY, b"%d" % number) for number in range(racers)))
    return [reply.answer for reply in replies]


async def test_a_store_that_ignores_the_precondition_overwrites_and_says_created() -> None:
    store = LyingObjectStore(Lie.IGNORES)
    assert await answers(store, 1) == [PutStatus.CREATED]
    assert (await store.put_if_absent(KEY, b"later")).answer is PutStatus.CREATED
    found = await store.get(KEY)
    assert found is not None
    assert found.body == b"later"


async def test_a_store_that_races_passes_a_sequential_trial_and_lets_racers_win_together() -> None:
    store = LyingObjectStore(Lie.RACES)
    assert await answers(store, 8) == [PutStatus.CREATED] * 8
    assert (await store.put_if_absent(KEY, b"later")).answer is PutStatus.EXISTS


async def test_reads_and_lists_are_right() -> None:
    store = LyingObjectStore(Lie.IGNORES)
    for key in ("b/2", "a/2", "a/1"):
        await store.put_if_absent(ObjectKey(key), key.encode())
    assert list((await store.list("a/")).keys) == ["a/1", "a/2"]
    assert list((await store.list("a/", limit=1)).keys) == ["a/1"]
    assert list(await store.folders("")) == ["a/", "b/"]
    assert await store.get(ObjectKey("none")) is None
    await store.close()
