"""The reader of the log: every table gets its own, in order and without a gap, and none holds up another."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from rootline.adapters.embedded_feed import EmbeddedFeed
from rootline.coordinator.app import CoordinatorService
from rootline.coordinator.protocol.machine_state import Phase
from rootline.coordinator.runtime import records as decoding_trial
from rootline.coordinator.runtime import records as record_decoding
from rootline.coordinator.runtime.assignment.consumer_loop import ConsumerLoop
from rootline.coordinator.settings import CoordinatorSettings
from rootline.schemas.bytes.intent_codec import decode_intent, encode_intent
from rootline.schemas.errors import Unavailable
from rootline.schemas.identifiers import TableName
from rootline.schemas.intent import Intent
from rootline.schemas.object_keys import root_key
from rootline.schemas.verdict import Verdict, VerdictKind
from rootline.testing.seeded_environment import SeededEnvironment
from rootline.testing.virtual_loop import run_virtually
from tests.coordinator.hooked_ports import HookedLog, HookedStore
from tests.coordinator.running_service import TABLE, Running, append_intent, create_intent, running

OTHER = TableName("c.d")


def virtually(work: Coroutine[Any, Any, None]) -> None:
    run_virtually(work)


def consumer_of(service: CoordinatorService) -> ConsumerLoop:
    return service._consumer


class Outage:
    """A hook that fails every call on one table's objects while `on`."""

    def __init__(self, table: TableName) -> None:
        self.on = False
        self._prefix = table.replace(".", "/")

    async def __call__(self, operation: str, key: str) -> None:
        await asyncio.sleep(0.001)
        if self.on and key.startswith(self._prefix):
            raise Unavailable("store-unavailable", "503 Slow Down")


async def publish(service: Running, *intents: Intent) -> None:
    for intent in intents:
        await service.log.publish(intent.table.encode(), encode_intent(intent))


def test_a_table_whose_queue_is_full_delays_no_other_and_misses_nothing() -> None:
    async def main() -> None:
        outage, log = Outage(TABLE), HookedLog(read_max=16)
        store = HookedStore(before=outage)
        async with running(store, log, SeededEnvironment(1), table_queue_intents_max=8) as service:
            await service.create()
            await service.create(OTHER)
            outage.on = True
            await publish(service, *(append_intent(f"stuck-{number}") for number in range(200)))
            began_s = asyncio.get_running_loop().time()
            [verdict] = await service.commit(append_intent("free", OTHER))
            assert verdict.kind is VerdictKind.COMMITTED
            assert asyncio.get_running_loop().time() - began_s < 1.0
            loop = service.service._consumer.tables[TABLE]
            assert loop.machine.queued <= 8 + 16, "the queue is bounded"
            await publish(service, *(append_intent(f"late-{number}") for number in range(50)))
            await asyncio.sleep(1.0)
            outage.on = False
            [last] = await service.commit(append_intent("last"))
            assert last.kind is VerdictKind.COMMITTED
            assert consumer_of(service.service).assignment.behind == set()
        own = [verdict for verdict in await log.verdicts() if verdict is not None and verdict.table == TABLE]
        assert [verdict.kind for verdict in own] == [VerdictKind.COMMITTED] * 252
        numbers = [verdict.sequence_number for verdict in own]
        assert numbers == sorted(numbers, key=lambda number: number or 0), "in the log's order"

    virtually(main())


def test_the_own_reader_of_a_table_survives_a_log_that_fails_and_records_without_a_key() -> None:
    async def main() -> None:
        outage = Outage(TABLE)
        failing = iter(range(3))

        async def fail(operation: str, key: str) -> None:
            if operation == "read" and outage.on is False and next(failing, None) is not None:
                raise Unavailable("log-unavailable", "the broker restarts")

        log = HookedLog(read_max=4)
        async with running(
            HookedStore(before=outage), log, SeededEnvironment(1), table_queue_intents_max=1, batch_intents_max=2
        ) as service:
            await service.create()
            await service.create(OTHER)
            outage.on = True
            for number in range(20):
                await log.publish(TABLE.encode(), encode_intent(append_intent(f"a-{number}")))
                await log.publish(OTHER.encode(), encode_intent(append_intent(f"b-{number}", OTHER)))
                await log.publish(TABLE.encode(), b"nothing")
            await asyncio.sleep(2.0)
            log.before = fail
            outage.on = False
            await service.commit(append_intent("last"))
        kinds = [verdict.kind for verdict in await log.verdicts() if verdict is not None]
        assert len(kinds) == 63
        assert kinds.count(VerdictKind.REJECTED) == 20

    virtually(main())


def test_a_quarantined_table_holds_nothing_back_from_the_others() -> None:
    async def main() -> None:
        log, store = HookedLog(), HookedStore()
        async with running(store, log, SeededEnvironment(1)) as service:
            await service.create()
            await service.create(OTHER)
        key = root_key(TABLE, 0)  # type: ignore[arg-type]
        found = await store.inner.get(key)
        assert found is not None
        store.inner.place(key, found.body[:-9])  # type: ignore[attr-defined]
        async with running(store, log, SeededEnvironment(2), table_queue_intents_max=2) as service:
            await publish(service, *(append_intent(f"held-{number}") for number in range(100)))
            [verdict] = await service.commit(append_intent("free", OTHER))
            assert verdict.kind is VerdictKind.COMMITTED
            phase, why = service.service.tables()[TABLE]
            assert phase is Phase.QUARANTINED
            assert "root-corrupt" in why
            await asyncio.sleep(60.0)
            await service.service.measure()
            age_s = service.service.metrics.registry.get_sample_value("rootline_oldest_pending_intent_seconds")
            assert age_s is not None
            assert age_s > 59.0, "what is held back is no healthy-looking zero"
            assert service.service.readiness().ready, "the others are served"
        assert await log.first_undecided() == 2, "what has no verdict stays on the log"

    virtually(main())


def test_a_writer_that_names_tables_that_do_not_exist_fills_no_memory() -> None:
    async def main() -> None:
        log = HookedLog(read_max=100)
        async with running(HookedStore(), log, SeededEnvironment(1)) as service:
            await service.create()
            most = 0
            for round_ in range(3):
                names = [f"bogus.t{round_}x{number}" for number in range(300)]
                verdicts = await asyncio.gather(*(service.commit(append_intent("x", name)) for name in names))
                assert {verdict.code for [verdict] in verdicts} == {"table-unknown"}
                most = max(most, len(service.service.tables()))
            assert most <= 1 + 2 * 100, "those of the newest reads, not all that ever were named"
            [verdict] = await service.commit(append_intent("one"))
            assert verdict.kind is VerdictKind.COMMITTED
            await service.service.measure()
            labels = {
                sample.labels["table"]
                for metric in service.service.metrics.registry.collect()
                for sample in metric.samples
                if "table" in sample.labels
            }
            assert labels == {TABLE}

    virtually(main())


def test_a_table_that_was_forgotten_is_found_when_it_has_been_created() -> None:
    async def main() -> None:
        async with running(HookedStore(), HookedLog(), SeededEnvironment(1)) as service:
            [early] = await service.commit(append_intent("early", OTHER))
            assert early.code == "table-unknown"
            await service.create()
            assert OTHER not in service.service.tables()
            await service.create(OTHER)
            [late] = await service.commit(append_intent("late", OTHER))
            assert late.kind is VerdictKind.COMMITTED

    virtually(main())


def test_undecodable_records_are_dead_lettered_although_the_log_fails_or_hangs_at_first() -> None:
    async def main() -> None:
        tries = iter(["fail", "hang"])

        async def rough(operation: str, key: str) -> None:
            match next(tries, None) if operation == "verdicts" else None:
                case "fail":
                    raise Unavailable("log-unavailable", "x")
                case "hang":
                    await asyncio.sleep(1e9)

        log = HookedLog(before=rough)
        async with running(HookedStore(), log, SeededEnvironment(1)) as service:
            verdicts = await service.decide(*(b"garbage %d" % number for number in range(200)))
            assert {verdict.code for verdict in verdicts} == {"undecodable"}
            letters = await log.dead_letters()
            assert [letter.value for letter in letters] == [b"garbage %d" % number for number in range(200)]

    virtually(main())


def test_a_record_that_breaks_the_decoder_is_rejected_and_what_follows_it_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def breaking(value: bytes, *options: Any) -> Intent:
        if value == b"poison":
            raise RecursionError("a bug of a decoder")
        return decode_intent(value, *options)

    monkeypatch.setattr(record_decoding, "decode_intent", breaking)

    async def main() -> None:
        async with running(HookedStore(), HookedLog(), SeededEnvironment(1)) as service:
            verdicts = await service.decide(b"poison", encode_intent(create_intent(TABLE)))
            assert [verdict.code for verdict in verdicts] == ["undecodable", None]

    virtually(main())


def test_a_backlog_of_many_records_is_read_and_committed_in_few_roots() -> None:
    async def main() -> list[Verdict | None]:
        log, store = HookedLog(), HookedStore()
        await log.publish(TABLE.encode(), encode_intent(create_intent(TABLE)))
        for number in range(2_000):
            await log.publish(TABLE.encode(), encode_intent(append_intent(f"f-{number}")))
        async with running(store, log, SeededEnvironment(1)) as service:
            [last] = await service.commit(append_intent("last"))
            assert last.version is not None
            assert last.version <= 2_002 / 256 + 4  # as many as one read brings, because this store answers at once
        return await log.verdicts()

    verdicts = run_virtually(main())
    assert {verdict.kind for verdict in verdicts if verdict is not None} == {VerdictKind.COMMITTED}
    assert len(verdicts) == 2_002
    assert None not in verdicts


def test_a_log_that_is_at_its_end_makes_the_service_ready_at_once() -> None:
    async def main() -> None:
        async with running(HookedStore(), HookedLog(), SeededEnvironment(1), poll_wait_s=100.0) as service:
            for _ in range(20):
                await asyncio.sleep(0)
            assert service.service.readiness().ready
            assert asyncio.get_running_loop().time() == 0.0

    virtually(main())


def test_short_reads_are_not_taken_for_the_end_of_the_log() -> None:
    async def main() -> None:
        log = HookedLog(read_max=10)
        for number in range(100):
            await log.publish(TABLE.encode(), encode_intent(append_intent(f"f-{number}")))

        async def slow(operation: str, key: str) -> None:
            if operation == "read":
                await asyncio.sleep(1.0)

        log.before = slow
        async with running(HookedStore(), log, SeededEnvironment(1)) as service:
            await asyncio.sleep(5.5)
            assert service.service.readiness().reason == "the log has not been read to its end yet"
            await asyncio.sleep(10.0)
            assert service.service.readiness().ready

    virtually(main())


def test_a_log_that_cannot_be_read_is_said_and_read_again_later() -> None:
    async def main() -> None:
        down = asyncio.Event()

        async def fail(operation: str, key: str) -> None:
            if operation == "read" and down.is_set():
                raise Unavailable("log-unavailable", "the broker is away")

        log = HookedLog(before=fail)
        async with running(HookedStore(), log, SeededEnvironment(1)) as service:
            await service.create()
            down.set()
            await asyncio.sleep(1.0)
            readiness = service.service.readiness()
            assert not readiness.ready
            assert "the broker is away" in readiness.reason
            down.clear()
            await asyncio.sleep(1.0)
            assert service.service.readiness().ready
            await service.commit(append_intent("one"))

    virtually(main())


def test_after_an_end_without_a_word_what_kills_its_decoder_is_dead_lettered_and_the_rest_is_decided(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        mark = tmp_path / "reading"
        mark.touch()  # whoever read here was killed
        log = HookedLog()
        await log.publish(TABLE.encode(), encode_intent(create_intent(TABLE)))
        poison_rejection = await log.publish(TABLE.encode(), encode_intent(append_intent("deadly")))
        last = await log.publish(TABLE.encode(), encode_intent(append_intent("last")))
        settings = CoordinatorSettings(probe_rounds=0, poll_wait_s=0.05)
        service = CoordinatorService(store=HookedStore(), log=EmbeddedFeed(log, mark), settings=settings)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(decoding_trial, "_COMMAND", (sys.executable, "-c", DEADLY_CHILD))
            task = asyncio.ensure_future(service.run())
            verdict = await log.wait_verdict(last, timeout_s=30.0)
            killed = await log.wait_verdict(poison_rejection, timeout_s=30.0)
            assert mark.exists()
            service.request_stop()
            await task
        assert verdict is not None
        assert verdict.kind is VerdictKind.COMMITTED
        assert killed is not None
        assert (killed.kind, killed.code) == (VerdictKind.REJECTED, "undecodable")
        assert "signal 11" in (killed.message or "")
        [letter] = await log.dead_letters()
        assert decode_intent(letter.value).intent_id == "deadly"
        assert not mark.exists(), "this one ended in good order"

    asyncio.run(main())


DEADLY_CHILD = """
import os, signal, sys
import rootline.coordinator.runtime.decoding_child as child

decode = child.decode_intent

def deadly(value, *rest):
    intent = decode(value, *rest)
    if intent.intent_id == "deadly":
        os.kill(os.getpid(), signal.SIGSEGV)
    return intent

child.decode_intent = deadly
child.main(sys.stdin.buffer, sys.stdout.buffer)
"""
