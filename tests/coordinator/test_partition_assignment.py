"""What a process does with its partitions: no table holds up another, and none is passed before it is decided."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine
from typing import Any

import pytest

from rootline.coordinator.protocol.machine_state import Phase
from rootline.coordinator.runtime.records import decoded
from rootline.schemas.bytes.intent_codec import encode_intent
from rootline.schemas.errors import Unavailable
from rootline.schemas.identifiers import TableName
from rootline.schemas.intent_rules import IntentLimits
from rootline.schemas.object_keys import root_key
from rootline.schemas.verdict import VerdictKind
from rootline.testing.virtual_loop import run_virtually
from rootline.tree.draft.batch import Record
from tests.coordinator.group_service import coordinating
from tests.coordinator.hooked_ports import HookedStore, taking
from tests.coordinator.running_service import TABLE, append_intent, create_intent
from tests.coordinator.test_consumer_loop import Outage
from tests.support.group_log import GroupLog

OTHER = TableName("c.d")


def virtually(work: Coroutine[Any, Any, None]) -> None:
    run_virtually(work)


def test_a_table_that_is_stuck_delays_no_other_and_holds_its_partitions_offset_back() -> None:
    async def main() -> None:
        outage, log = Outage(TABLE), GroupLog(1, read_max=16, before=taking(read_again=0.2))
        store = HookedStore(before=outage)
        async with coordinating("a", log=log, store=store, table_queue_intents_max=8) as group:
            await group.create(TABLE, OTHER)
            await group.until_settled()
            outage.on = True
            stuck = group.publish(*(append_intent(f"stuck-{number}") for number in range(200)))
            began_s = asyncio.get_running_loop().time()
            await group.commit(*(append_intent(f"free-{number}", OTHER) for number in range(50)))
            assert asyncio.get_running_loop().time() - began_s < 1.0
            await asyncio.sleep(100.0)
            assert log.remembered(0) == stuck[0].offset
            assert group.assignment("a").tables[TABLE].machine.queued <= 8 + 16
            outage.on = False
            await group.decided(stuck)
            await group.until_settled()
            assert group.assignment("a").behind == set()
            group.check_order(TABLE)

    virtually(main())


def test_a_quarantined_table_holds_its_partitions_offset_back_and_no_other_partitions() -> None:
    async def main() -> None:
        log, store = GroupLog(4), HookedStore()
        tables = [TableName(f"t.t{number}") for number in range(12)]
        async with coordinating("a", log=log, store=store) as group:
            await group.create(*tables)
            await group.until_settled()
        corrupt = tables[0]
        key = root_key(corrupt, 0)  # type: ignore[arg-type]
        found = await store.inner.get(key)
        assert found is not None
        store.inner.place(key, found.body[:-9])  # type: ignore[attr-defined]
        place = log.partition_of(corrupt.encode())
        mates = [table for table in tables[1:] if log.partition_of(table.encode()) == place]
        assert mates
        async with coordinating("a", "b", log=log, store=store, table_queue_intents_max=2) as group:
            held = group.publish(*(append_intent(f"held-{number}", corrupt) for number in range(20)))
            await group.commit(*(append_intent("free", table) for table in tables[1:]))
            await group.until(lambda: group.lag() == log.span(place)[1] - held[0].offset)
            owner = next(name for name in "ab" if place in log.owns(name))
            assert group.services[owner].tables()[corrupt][0] is Phase.QUARANTINED
            assert log.remembered(place) == held[0].offset
        assert sorted(log.undecided()) == held
        store.inner.place(key, found.body)  # type: ignore[attr-defined]
        async with coordinating("a", log=log, store=store) as group:
            await group.decided(held)
            await group.until_settled()

    virtually(main())


def test_records_that_are_no_intents_are_dead_lettered_once_although_their_table_is_behind() -> None:
    async def main() -> None:
        outage, log = Outage(TABLE), GroupLog(1, read_max=7)
        store = HookedStore(before=outage)
        async with coordinating(
            "a", log=log, store=store, table_queue_intents_max=2, batch_intents_max=2, queue_bytes_max=10**7
        ) as group:
            await group.create(TABLE, OTHER)
            await group.until_settled()
            outage.on = True
            garbage = []
            for number in range(60):
                group.publish(append_intent(f"a-{number}"))
                if number % 2:
                    garbage.append(log.append(TABLE.encode(), b"keyed"))
                if number % 3:
                    garbage.append(log.append(None, b"keyless", partition=0))
                if number % 5 == 0:
                    garbage.append(log.append(OTHER.encode(), b"another's"))
                    garbage += [log.append(TABLE.encode(), b"in a row") for _ in range(3)]
                if number % 20 == 7:
                    await asyncio.sleep(0.3)
            await asyncio.sleep(10.0)
            assert (TABLE, (log.log_id, 0)) in group.assignment("a").behind
            outage.on = False
            await group.until_settled()
        assert Counter(letter.offset for letter in log.letters) == Counter(position.offset for position in garbage)

    virtually(main())


def test_intents_without_a_key_reach_their_table_once_and_in_order_although_it_is_behind() -> None:
    async def main() -> None:
        outage, log = Outage(TABLE), GroupLog(1, read_max=5)
        async with coordinating("a", log=log, store=HookedStore(before=outage), table_queue_intents_max=3) as group:
            await group.create(TABLE, OTHER)
            await group.until_settled()
            outage.on = True
            positions = []
            for number in range(60):
                intent = append_intent(f"f-{number}", (TABLE, OTHER)[number % 3 == 0])
                key = None if number % 4 else intent.table.encode()
                positions.append(log.append(key, encode_intent(intent), partition=0))
                if number % 20 == 0:
                    await asyncio.sleep(0.5)
            await asyncio.sleep(1.0)
            assert (TABLE, (log.log_id, 0)) in group.assignment("a").behind
            outage.on = False
            for number in range(60, 90):
                positions.append(log.append(None, encode_intent(append_intent(f"f-{number}")), partition=0))
                await asyncio.sleep(0.05)
            verdicts = await group.decided(positions)
            assert {verdict.kind for verdict in verdicts} == {VerdictKind.COMMITTED}
            await group.until_settled()
            group.check_order(TABLE)
            group.check_order(OTHER)
            assert len(await group.files(TABLE)) == 70

    virtually(main())


def test_a_table_that_does_not_exist_is_not_forgotten_while_its_own_reader_brings_more() -> None:
    async def main() -> None:
        log = GroupLog(1, before=taking(read_again=0.05), read_max=5)
        async with coordinating("a", log=log, table_queue_intents_max=3) as group:
            await group.create(TABLE)
            await group.until_settled()
            positions = group.publish(*(append_intent(f"stray-{number}", OTHER) for number in range(100)))
            for number in range(60):
                positions += group.publish(append_intent("x", TableName(f"nowhere.t{number}")))
                await asyncio.sleep(0.02)
            verdicts = await group.decided(positions)
            assert {verdict.code for verdict in verdicts} == {"table-unknown"}
            await group.until_settled()
            await group.create(OTHER)

    virtually(main())


def test_no_offset_passes_a_rejection_whose_dead_letter_the_log_does_not_take() -> None:
    async def main() -> None:
        refusing = True

        async def refuse(operation: str, reader: str) -> None:
            if operation == "letters" and refusing:
                raise Unavailable("log-unavailable", "the dead letters' topic is full")

        log = GroupLog(1, before=refuse)
        async with coordinating("a", log=log) as group:
            await group.create(TABLE)
            await group.until_settled()
            garbage = log.append(None, b"garbage", partition=0)
            await group.commit(append_intent("one"))
            [wrong] = group.publish(append_intent("wrong", schema_id=9))
            await asyncio.sleep(60.0)
            assert log.remembered(0) == garbage.offset
            refusing = False
            await group.decided([garbage, wrong])
            await group.until_settled()

    virtually(main())


def test_a_storm_of_rejections_delays_no_table_and_loses_nothing() -> None:
    async def main() -> None:
        async def slow(operation: str, reader: str) -> None:
            await asyncio.sleep(0.02 if operation == "verdicts" else 0.0)

        log = GroupLog(2, before=slow)
        async with coordinating("a", log=log) as group:
            await group.create(TABLE)
            for number in range(12_000):
                log.append(None, b"garbage %d" % number)
                if number % 1_000 == 0:
                    group.publish(append_intent(f"f-{number}"))
            began_s = asyncio.get_running_loop().time()
            await group.commit(append_intent("last"))
            assert asyncio.get_running_loop().time() - began_s < 3.0
            await group.until_settled()
        assert len(log.letters) == 12_000
        for partition in (0, 1):
            offsets = [letter.offset for letter in log.letters if letter.partition == partition]
            assert offsets == sorted(set(offsets)), "in the order of the log, each once"

    virtually(main())


def test_rejections_that_cannot_be_published_fill_no_memory_whoever_reads_them() -> None:
    async def main() -> None:
        hanging = False

        async def hang(operation: str, reader: str) -> None:
            if hanging and operation == "verdicts":
                await asyncio.sleep(1.0)
                raise Unavailable("log-unavailable", "the broker is away")

        outage, log = Outage(TABLE), GroupLog(1, before=hang, read_max=100)
        store = HookedStore(before=outage)
        async with coordinating("a", log=log, store=store, table_queue_intents_max=4) as group:
            await group.create(TABLE)
            await group.until_settled()
            outage.on = hanging = True
            group.publish(*(append_intent(f"f-{number}") for number in range(20)))
            await asyncio.sleep(1.0)
            for _ in range(9_000):
                log.append(TABLE.encode(), b"under the key of a table that is behind")
            await asyncio.sleep(1.0)
            outage.on = False
            await asyncio.sleep(60.0)
            assert group.assignment("a")._outbox.waiting <= 4_096 + 100
            hanging = False
            await group.until_settled()
        assert len({letter.offset for letter in log.letters}) == len(log.letters) == 9_000

    virtually(main())


def test_large_records_that_are_no_intents_count_as_memory_until_they_are_published() -> None:
    async def main() -> None:
        hanging, most = True, 0

        async def hang(operation: str, reader: str) -> None:
            if hanging and operation == "verdicts":
                raise Unavailable("log-unavailable", "the broker is away")

        log = GroupLog(1, before=hang, read_max=10)
        async with coordinating("a", log=log, queue_bytes_max=5_000_000) as group:
            for _ in range(300):
                log.append(None, bytes(100_000))
            for _ in range(100):
                await asyncio.sleep(0.5)
                most = max(most, group.assignment("a").buffered_bytes)
            assert 5_000_000 <= most <= 5_000_000 + 10 * 101_000
            hanging = False
            await group.until_settled()
            assert group.assignment("a").buffered_bytes == 0
        assert len(log.letters) == 300

    virtually(main())


def test_the_memory_of_the_whole_process_holds_the_reading_which_goes_on_later() -> None:
    async def main() -> None:
        tables = [TableName(f"t.t{number}") for number in range(8)]
        slow = 0.0

        async def before(operation: str, key: str) -> None:
            await asyncio.sleep(slow if operation == "put" else 0.0)

        log, store = GroupLog(2, read_max=10), HookedStore(before=before)
        async with coordinating("a", log=log, store=store, queue_bytes_max=100_000) as group:
            await group.create(*tables)
            await group.until_settled()
            slow = 5.0
            for number in range(100):
                group.publish(*(append_intent(f"f-{number}", table) for table in tables))
            *_, newest = log.records(0)
            record = decoded(newest, IntentLimits())
            assert isinstance(record, Record)
            assert record.buffered_bytes * 800 > 10 * 100_000
            most = 0
            while group.lag():
                assignment = group.assignment("a")
                most = max(most, assignment.buffered_bytes)
                assert not assignment.behind, "no table is over its own limit"
                await asyncio.sleep(0.01)
            assert 100_000 <= most <= 100_000 + 10 * 2 * record.buffered_bytes
            assert group.assignment("a").buffered_bytes == 0
        for table in tables:
            assert len(await group.files(table)) == 100

    virtually(main())


@pytest.mark.slow
def test_hundreds_of_tables_are_let_go_of_when_idle_and_come_back() -> None:
    async def main() -> None:
        tables = [TableName(f"t.t{number}") for number in range(400)]
        log = GroupLog(4)
        async with coordinating("a", log=log, table_idle_s=30.0) as group:
            await group.create(*tables)
            await group.until_settled()
            assert len(group.assignment("a").tables) == 400
            for _ in range(40):
                await group.commit(append_intent(f"f-{asyncio.get_running_loop().time()}", tables[0]))
                await asyncio.sleep(1.0)
            assert list(group.assignment("a").tables) == [tables[0]]
            await group.commit(*(append_intent("back", table) for table in tables))
            assert len(group.assignment("a").tables) == 400
            await group.until_settled()
        assert {len(await group.files(table)) for table in tables[1:]} == {1}
        assert log.letters == []

    virtually(main())


def test_tables_whose_heads_are_not_found_yet_hold_the_reading_and_then_all_are_served() -> None:
    async def main() -> None:
        async def slow(operation: str, key: str) -> None:
            await asyncio.sleep(3.0 if operation == "list" else 0.0)

        tables = [TableName(f"t.t{number}") for number in range(300)]
        log, store = GroupLog(1, read_max=50), HookedStore()
        async with coordinating("a", log=log, store=store) as group:
            await group.create(*tables)
        store.before = slow
        async with coordinating("a", log=log, store=store) as group:
            positions = group.publish(*(append_intent("one", table) for table in tables))
            await asyncio.sleep(2.0)
            assert 100 <= len(group.assignment("a").tables) <= 200
            verdicts = await group.decided(positions)
            assert {verdict.kind for verdict in verdicts} == {VerdictKind.COMMITTED}
            await group.until_settled()

    virtually(main())


def test_gaps_in_the_log_hold_nothing_back() -> None:
    async def main() -> None:
        outage, log = Outage(TABLE), GroupLog(1, read_max=3)
        async with coordinating("a", log=log, store=HookedStore(before=outage), table_queue_intents_max=2) as group:
            await group.create(TABLE, OTHER)
            log.skip(0, 5)
            outage.on = True
            positions = []
            for number in range(20):
                positions += group.publish(append_intent(f"a-{number}"), append_intent(f"b-{number}", OTHER))
                log.skip(0, number % 4)
            await asyncio.sleep(5.0)
            outage.on = False
            positions += group.publish(create_intent(TableName("x.y")))
            await group.decided(positions)
            await group.until_settled()

    virtually(main())


def test_the_lag_counts_what_a_table_that_is_behind_has_yet_to_read() -> None:
    async def main() -> None:
        outage, log = Outage(TABLE), GroupLog(1, read_max=16)
        async with coordinating("a", log=log, store=HookedStore(before=outage), table_queue_intents_max=8) as group:
            await group.create(TABLE, OTHER)
            await group.until_settled()
            outage.on = True
            group.publish(*(append_intent(f"f-{number}") for number in range(100)))
            await asyncio.sleep(1.0)
            lag = await group.services["a"]._consumer.lag()
            assert 100 - 8 - 16 <= lag[log.log_id, 0] <= 100
            outage.on = False
            await group.until_settled()
            assert await group.services["a"]._consumer.lag() == {(log.log_id, 0): 0}

    virtually(main())
