"""A store that has lost confirmed roots: nothing is committed on top of what is left before an operator decides."""

from __future__ import annotations

import asyncio

import pytest

from rootline.adapters.memory import MemoryIntentLog, MemoryObjectStore
from rootline.coordinator.protocol.machine_state import Phase
from rootline.schemas.bytes.intent_codec import encode_intent
from rootline.schemas.identifiers import LogPosition
from rootline.testing.seeded_environment import SeededEnvironment
from rootline.testing.virtual_loop import run_virtually
from tests.coordinator.running_service import TABLE, Running, append_intent, running

LOST_ALL = 4


async def filled(store: MemoryObjectStore, log: MemoryIntentLog) -> None:
    """Versions 0 to 3."""
    async with running(store, log, SeededEnvironment(1)) as service:
        await service.create()
        for number in range(3):
            await service.commit(append_intent(f"f-{number}"))


async def lose_roots(store: MemoryObjectStore, count: int) -> None:
    """The newest ones, as a backup from before them would."""
    for key in (await store.list("a/b/metadata/roots/")).keys[:count]:
        store.discard(key)


async def publish(service: Running, name: str) -> LogPosition:
    return await service.log.publish(TABLE.encode(), encode_intent(append_intent(name)))


async def why_quarantined(service: Running) -> str:
    async with asyncio.timeout(60):
        while service.service.tables().get(TABLE, (None, ""))[0] is not Phase.QUARANTINED:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    return service.service.tables()[TABLE][1]


@pytest.mark.parametrize(
    ("count", "shown"), [(1, "version 2 as the newest root"), (3, "version 0 as"), (LOST_ALL, "no root")]
)
def test_a_store_restored_from_before_what_verdicts_named_is_not_committed_to(count: int, shown: str) -> None:
    async def main() -> None:
        store, log = MemoryObjectStore(), MemoryIntentLog()
        await filled(store, log)
        await lose_roots(store, count)
        left = (await store.list("")).keys
        async with running(store, log, SeededEnvironment(2)) as service:
            position = await publish(service, "later")
            why = await why_quarantined(service)
            assert "head-lost" in why
            assert f"{shown}" in why
            assert "version 3 was confirmed" in why
            assert await log.wait_verdict(position, timeout_s=5) is None
        assert (await store.list("")).keys == left, "nothing was written"
        assert await log.first_undecided() == position.offset

    run_virtually(main())


def test_what_this_process_confirmed_is_evidence_after_the_table_was_let_go_even_if_the_log_knows_nothing() -> None:
    async def main() -> None:
        store, log = MemoryObjectStore(), MemoryIntentLog()
        async with running(store, log, SeededEnvironment(1), table_idle_s=5.0) as service:
            await service.create()
            await service.commit(append_intent("f-0"), append_intent("f-1"))
            log._heads.clear()  # as on Kafka
            await asyncio.sleep(10)
            await service.commit(append_intent("x", table="no.such"))
            assert TABLE not in service.service.tables(), "it was let go"
            await lose_roots(store, 1)
            await publish(service, "later")
            assert "head-lost" in await why_quarantined(service)

    run_virtually(main())


def test_the_loss_of_one_table_stops_no_other() -> None:
    async def main() -> None:
        store, log = MemoryObjectStore(), MemoryIntentLog()
        await filled(store, log)
        await lose_roots(store, 1)
        async with running(store, log, SeededEnvironment(2)) as service:
            await publish(service, "later")
            other = append_intent("f", table="a.other")
            [verdict] = await service.commit(other)
            assert verdict.code == "table-unknown"

    run_virtually(main())
