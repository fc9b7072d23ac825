"""An immutable object is stored once, whatever the store answers, and the caller learns what its name holds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rootline.adapters.local_object_store import LocalObjectStore
from rootline.adapters.memory import MemoryObjectStore
from rootline.ports.object_store import ObjectStore
from rootline.schemas.errors import Unavailable
from rootline.schemas.identifiers import ObjectKey
from rootline.storage.stored_objects import store_object
from rootline.testing.object_stores import PUT_FAULTS, Fault, FaultyObjectStore, scripted

KEY = ObjectKey("demo/flights/metadata/leaves/x.parquet")
BODY = b"an object"
OTHER = b"another's bytes"


@pytest.fixture(params=["memory", "local folder"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ObjectStore]:
    made: ObjectStore = MemoryObjectStore() if request.param == "memory" else LocalObjectStore(tmp_path / "lake")
    yield made
    await made.close()


async def held(store: ObjectStore) -> bytes | None:
    found = await store.get(KEY)
    return None if found is None else found.body


async def test_an_object_that_is_not_there_is_stored(store: ObjectStore) -> None:
    assert await store_object(store, KEY, BODY) == BODY
    assert await held(store) == BODY


async def test_storing_the_same_object_again_is_no_conflict(store: ObjectStore) -> None:
    await store_object(store, KEY, BODY)
    assert await store_object(store, KEY, BODY) == BODY


async def test_two_that_store_the_same_object_at_once_both_find_it_stored(store: ObjectStore) -> None:
    assert await asyncio.gather(*(store_object(store, KEY, BODY) for _ in range(8))) == [BODY] * 8


async def test_anothers_bytes_under_the_name_are_handed_to_the_caller_and_stay(store: ObjectStore) -> None:
    await store_object(store, KEY, OTHER)
    assert await store_object(store, KEY, BODY) == OTHER
    assert await held(store) == OTHER


@pytest.mark.parametrize("fault", [Fault.LOST_REPLY, Fault.OWN_CONFLICT])
async def test_ones_own_object_is_recognized_when_its_answer_is_lost_or_a_conflict(
    store: ObjectStore, fault: Fault
) -> None:
    faulty = FaultyObjectStore(store, scripted([fault]))
    assert await store_object(faulty, KEY, BODY) == BODY
    assert await held(store) == BODY


@pytest.mark.parametrize("fault", [Fault.LOST_REPLY, Fault.OWN_CONFLICT, Fault.LOST_REQUEST])
async def test_anothers_bytes_are_found_whatever_the_answer_was(store: ObjectStore, fault: Fault) -> None:
    await store_object(store, KEY, OTHER)
    faulty = FaultyObjectStore(store, scripted([fault]))
    assert await store_object(faulty, KEY, BODY) == OTHER


@pytest.mark.parametrize("fault", [Fault.LOST_REQUEST, Fault.LANDS_LATER, Fault.FULL])
async def test_an_object_that_is_not_confirmed_is_unavailable_and_can_be_stored_again(
    store: ObjectStore, fault: Fault
) -> None:
    faulty = FaultyObjectStore(store, scripted([fault]))
    with pytest.raises(Unavailable, match=KEY) as failure:
        await store_object(faulty, KEY, BODY)
    assert failure.value.code == "store-unavailable"
    await faulty.land()
    assert await store_object(faulty, KEY, BODY) == BODY


@pytest.mark.parametrize("fault", sorted(PUT_FAULTS, key=lambda fault: fault.value))
async def test_a_store_that_cannot_be_read_back_leaves_the_outcome_open(store: ObjectStore, fault: Fault) -> None:
    faulty = FaultyObjectStore(store, scripted([fault, Fault.UNAVAILABLE]))
    with pytest.raises(Unavailable):
        await store_object(faulty, KEY, BODY)
    await faulty.land()
    assert await held(store) in (None, BODY)
    assert await store_object(store, KEY, BODY) == BODY
