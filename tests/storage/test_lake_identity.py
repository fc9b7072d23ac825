"""The id of a lake: made once, read by all, and never in anyone's way."""

from __future__ import annotations

import asyncio

import pytest

from rootline.adapters.memory import MemoryObjectStore
from rootline.schemas.bytes.record_headers import LAKE_KEY
from rootline.schemas.errors import Unavailable
from rootline.schemas.identifiers import ObjectKey
from rootline.storage.warehouse import lake_of
from rootline.testing.seeded_environment import SeededEnvironment
from tests.coordinator.hooked_ports import HookedStore

FRESH = SeededEnvironment(1).fresh_id


async def test_of_many_that_start_at_once_all_find_the_same_id_under_their_own_urls() -> None:
    store = MemoryObjectStore()
    found = await asyncio.gather(*(lake_of(store, f"url-{number}", FRESH) for number in range(20)))
    lakes = [lake for lake in found if lake is not None]
    assert len({lake.lake_id for lake in lakes}) == 1
    assert [lake.place for lake in lakes] == [f"url-{number}" for number in range(20)]
    other = await lake_of(MemoryObjectStore(), "other", FRESH)
    assert other is not None
    assert other.lake_id != lakes[0].lake_id


async def test_a_warehouse_without_an_id_in_which_nothing_can_be_put_has_none() -> None:
    async def deny(operation: str, key: str) -> None:
        if operation == "put":
            raise Unavailable("store-unavailable", "denied")

    assert await lake_of(HookedStore(before=deny), "read-only", FRESH) is None


async def test_an_object_that_is_no_id_stops_nothing() -> None:
    for body in (b"", b"[" * 10_000, b'{"lake":"x","made-as":""}', b'{"lake":1}', b"[1]"):
        store = MemoryObjectStore()
        await store.put_if_absent(ObjectKey(LAKE_KEY), body)
        assert await lake_of(store, "url", FRESH) is None


async def test_a_client_that_may_not_read_the_id_has_none_and_one_whose_store_does_not_answer_asks_again() -> None:
    denied = {"get"}

    async def deny(operation: str, key: str) -> None:
        if operation in denied:
            raise Unavailable("store-unavailable", "GET was answered 403 AccessDenied")

    store = HookedStore(before=deny)
    assert await lake_of(store, "narrow rights", FRESH) is None
    await store.inner.put_if_absent(ObjectKey(LAKE_KEY), b"{}")
    with pytest.raises(Unavailable):
        await lake_of(store, "the object is there", FRESH)
