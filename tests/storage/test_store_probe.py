"""A store that lies about conditional PUTs is found out before anything is committed to it."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from rootline.adapters.local_object_store import LocalObjectStore
from rootline.adapters.memory import MemoryObjectStore
from rootline.ports.object_store import Listing
from rootline.schemas.errors import Fenced, Unavailable
from rootline.storage.warehouse import PROBE_PREFIX, probe_store
from rootline.testing.object_stores import Fault, FaultyObjectStore, Lie, LyingObjectStore, Operation, scripted, seeded


def fresh_id() -> str:
    return uuid.uuid4().hex


async def test_an_honest_store_passes_and_its_tables_are_left_alone(tmp_path: Path) -> None:
    local, memory = LocalObjectStore(tmp_path), MemoryObjectStore()

    await probe_store([local], fresh_id)
    await probe_store([memory, memory], fresh_id)

    assert all(key.startswith(PROBE_PREFIX) for key in (await local.list("")).keys)
    await local.close()


@pytest.mark.parametrize(
    ("lie", "fault"),
    [(Lie.IGNORES, "ignores If-None-Match"), (Lie.RACES, r"let 32 of 32 writers win a race")],
)
async def test_a_store_that_lies_is_refused_and_its_fault_is_named(lie: Lie, fault: str) -> None:
    with pytest.raises(Fenced, match=fault) as refusal:
        await probe_store([LyingObjectStore(lie)], fresh_id)

    assert refusal.value.code == "store-lies"


async def test_clients_of_two_different_stores_are_found_out() -> None:
    with pytest.raises(Fenced, match=r"win a race|another object"):
        await probe_store([MemoryObjectStore(), MemoryObjectStore()], fresh_id)


@pytest.mark.parametrize("seed", range(20))
async def test_lost_replies_are_resolved_by_reading_back(seed: int) -> None:
    chances = {Fault.LOST_REQUEST: 0.1, Fault.LOST_REPLY: 0.1, Fault.OWN_CONFLICT: 0.3}
    faulty = FaultyObjectStore(MemoryObjectStore(), seeded(seed, chances))

    await probe_store([faulty], fresh_id)

    assert faulty.drawn


async def test_a_store_that_carries_out_nothing_cannot_be_judged() -> None:
    def lose_puts(operation: Operation, _: str) -> Fault | None:
        return Fault.LOST_REQUEST if operation is Operation.PUT else None

    with pytest.raises(Unavailable, match="none of 32 PUTs"):
        await probe_store([FaultyObjectStore(MemoryObjectStore(), lose_puts)], fresh_id)


async def test_a_store_that_cannot_be_reached_is_said_to_be() -> None:
    with pytest.raises(Unavailable, match="no space left"):
        await probe_store([FaultyObjectStore(MemoryObjectStore(), scripted([Fault.FULL]))], fresh_id)


class _UnorderedStore(MemoryObjectStore):
    """As S3 directory buckets are: a LIST has no order."""

    async def list(self, prefix: str, *, limit: int | None = None) -> Listing:
        found = await super().list(prefix)
        return Listing(tuple(reversed(found.keys))[:limit], None)


async def test_a_store_whose_listings_have_no_order_is_refused() -> None:
    with pytest.raises(Fenced, match="ascending order"):
        await probe_store([_UnorderedStore()], fresh_id)
