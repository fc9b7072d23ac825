"""The faults are what they say, and the same seed draws the same ones."""

from __future__ import annotations

import pytest

from rootline.adapters.memory import MemoryObjectStore
from rootline.ports.object_store import PutStatus
from rootline.schemas.errors import Unavailable
from rootline.schemas.identifiers import ObjectKey
from rootline.testing.object_stores import Fault, FaultyObjectStore, scripted, seeded

KEY = ObjectKey("t/roots/0")


@pytest.mark.parametrize(
    ("fault", "answer", "stored"),
    [
        (Fault.LOST_REQUEST, PutStatus.NO_ANSWER, False),
        (Fault.LOST_REPLY, PutStatus.NO_ANSWER, True),
        (Fault.OWN_CONFLICT, PutStatus.EXISTS, True),
        (Fault.LANDS_LATER, PutStatus.NO_ANSWER, False),
    ],
)
async def test_a_put_is_stored_or_not_whatever_the_caller_is_told(
    fault: Fault, answer: PutStatus, stored: bool
) -> None:
    behind = MemoryObjectStore()
    store = FaultyObjectStore(behind, scripted([fault]))

    reply = await store.put_if_absent(KEY, b"body")

    assert reply.answer is answer
    assert (await behind.get(KEY) is not None) is stored


async def test_a_put_that_is_delayed_lands_some_calls_later() -> None:
    store = FaultyObjectStore(MemoryObjectStore(), scripted([Fault.LANDS_LATER]), landing_calls=3)
    await store.put_if_absent(KEY, b"body")

    seen = [await store.get(KEY) is not None for _ in range(4)]

    assert seen == [False, False, True, True]


async def test_a_put_that_is_delayed_loses_against_one_that_landed_meanwhile() -> None:
    behind = MemoryObjectStore()
    store = FaultyObjectStore(behind, scripted([Fault.LANDS_LATER]))
    await store.put_if_absent(KEY, b"delayed")
    await behind.put_if_absent(KEY, b"faster")

    await store.land()

    found = await store.get(KEY)
    assert found is not None
    assert found.body == b"faster"


async def test_reads_fail_or_end_early() -> None:
    behind = MemoryObjectStore()
    await behind.put_if_absent(KEY, b"12345678")
    store = FaultyObjectStore(behind, scripted([Fault.TRUNCATED, Fault.UNAVAILABLE, None, Fault.UNAVAILABLE]))

    found = await store.get(KEY)
    assert found is not None
    assert found.body == b"1234"
    with pytest.raises(Unavailable):
        await store.get(KEY)
    assert await store.get(KEY) is not None
    with pytest.raises(Unavailable):
        await store.list("t/")
    assert list((await store.list("t/")).keys) == [KEY]


async def test_a_full_store_takes_nothing() -> None:
    store = FaultyObjectStore(MemoryObjectStore(), scripted([Fault.FULL]))

    with pytest.raises(Unavailable):
        await store.put_if_absent(KEY, b"body")
    assert await store.get(KEY) is None


async def test_a_script_is_for_the_keys_that_it_names() -> None:
    store = FaultyObjectStore(MemoryObjectStore(), scripted([Fault.LOST_REPLY], under="t/roots/"))

    assert (await store.put_if_absent(ObjectKey("t/leaves/1"), b"")).answer is PutStatus.CREATED
    assert (await store.put_if_absent(KEY, b"")).answer is PutStatus.NO_ANSWER


async def test_the_same_seed_draws_the_same_faults() -> None:
    async def drawn(seed: int) -> list[Fault]:
        store = FaultyObjectStore(MemoryObjectStore(), seeded(seed, {Fault.LOST_REPLY: 0.3, Fault.LANDS_LATER: 0.3}))
        for number in range(50):
            await store.put_if_absent(ObjectKey(f"t/{number}"), b"")
        return [fault for _, _, fault in store.drawn]

    assert await drawn(1) == await drawn(1)
    assert await drawn(1) != await drawn(2)
    assert set(await drawn(1)) == {Fault.LOST_REPLY, Fault.LANDS_LATER}
