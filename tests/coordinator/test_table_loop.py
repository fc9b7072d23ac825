"""The task that owns a table: order, room, stops, and what it says about itself."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Collection, Coroutine
from typing import Any

import pytest

from rootline.coordinator.protocol.group_window import BatchLimits
from rootline.coordinator.protocol.machine_state import Phase, Policy
from rootline.coordinator.protocol.messages import Noted, Report
from rootline.coordinator.runtime.table import table_loop
from rootline.coordinator.runtime.table.effect_runner import EffectRunner
from rootline.coordinator.runtime.table.table_loop import TableContext, TableLoop
from rootline.coordinator.runtime.table.verdict_outbox import Publication
from rootline.ports.intent_feed import Partition
from rootline.ports.object_store import ObjectStore
from rootline.ports.retry_policy import RetryPolicy
from rootline.schemas.errors import OutcomeUnknown, Unavailable
from rootline.schemas.identifiers import Acknowledged, LogId, LogPosition, TableName
from rootline.schemas.intent import Intent
from rootline.schemas.root_header import RootHeader
from rootline.schemas.verdict import VerdictKind
from rootline.testing.seeded_environment import SeededEnvironment
from rootline.testing.virtual_loop import run_virtually
from rootline.tree.draft.batch import Record
from tests.coordinator.hooked_ports import HookedLog, HookedStore, taking
from tests.coordinator.running_service import TABLE, append_intent, create_intent

PUT_S = 0.02


class Table:
    """A running loop over a hooked store and log."""

    def __init__(self, store: ObjectStore, log: HookedLog, queue_intents_max: int = 4, queue_bytes_max: int = 10**6):
        self.log = log
        self.seen: list[Report | Publication] = []
        self.delivered: list[Record] = []
        self.progress: dict[tuple[LogId, int], int] = {}
        self.buffered_bytes = 0
        self.turn = asyncio.Lock()
        retry = RetryPolicy(0.02, 5.0, 8)
        context = TableContext(
            table=TABLE,
            policy=Policy("me", BatchLimits(16, 10**6, 0.25), retry, 4),
            runner=EffectRunner(store, TABLE, 10.0, no_check),
            verdicts=log,
            environment=SeededEnvironment(1),
            observe=lambda _, note: self.seen.append(note),
            owner=self,
            queue_intents_max=queue_intents_max,
            queue_bytes_max=queue_bytes_max,
        )
        self.loop = TableLoop(context, {})

    async def confirm(self) -> None:
        """Always."""

    def decided(self, table: TableName, up_to: Acknowledged) -> None:
        self.progress.update(up_to)

    def took_event(self, table: TableName) -> None:
        """It does."""

    def buffered(self, more_bytes: int) -> None:
        self.buffered_bytes += more_bytes

    async def deliver(self, *intents: Intent, size: int = 100) -> None:
        records = []
        for intent in intents:
            position = await self.log.publish(TABLE.encode(), b"")
            at_ms = SeededEnvironment(1).now_ms()
            records.append(Record(position, intent, 1, TABLE.encode(), b"bytes", at_ms, buffered_bytes=size))
        self.delivered += records
        self.loop.deliver(tuple(records))

    async def until_decided(self, offset: int) -> None:
        position = LogPosition(await self.log.identity(), 0, offset)
        assert await self.log.wait_verdict(position, timeout_s=600.0) is not None


async def no_check(header: RootHeader, decided: Collection[Partition]) -> None:
    """A log that reaches as far as every root."""


@contextlib.asynccontextmanager
async def owned(store: ObjectStore | None = None, log: HookedLog | None = None, **limits: int) -> AsyncIterator[Table]:
    table = Table(store or HookedStore(after=taking(put=PUT_S)), log or HookedLog(), **limits)
    running = asyncio.ensure_future(table.loop.run())
    try:
        yield table
    finally:
        table.loop.request_stop()
        await running


def virtually(work: Coroutine[Any, Any, None]) -> None:
    run_virtually(work)


def test_verdicts_follow_the_logs_order_although_the_log_fails_in_between() -> None:
    async def main() -> None:
        failures = iter([Unavailable("log-unavailable", "x"), OutcomeUnknown("publish-unknown", "x"), TimeoutError()])

        async def fail(operation: str, key: str) -> None:
            if operation == "verdicts" and (error := next(failures, None)) is not None:
                raise error

        log = HookedLog(before=fail)
        async with owned(log=log) as table:
            await table.deliver(create_intent(TABLE))
            for number in range(5):
                await table.deliver(append_intent(f"f-{number}"))
            await table.until_decided(5)
        assert [verdict.offset for verdict in log.published] == list(range(6))
        assert {verdict.kind for verdict in log.published} == {VerdictKind.COMMITTED}

    virtually(main())


def test_an_acknowledgement_that_was_lost_changes_nothing() -> None:
    async def main() -> None:
        lost = iter([Unavailable("log-unavailable", "the acknowledgement was lost")])

        async def lose(operation: str, key: str) -> None:
            if operation == "verdicts" and (error := next(lost, None)) is not None:
                raise error

        log = HookedLog(after=lose)
        async with owned(log=log) as table:
            await table.deliver(create_intent(TABLE), append_intent("one"))
            await table.until_decided(1)
        first, second = [verdict for verdict in await log.verdicts() if verdict is not None]
        assert (first.version, second.version) == (0, 0)

    virtually(main())


def test_a_full_queue_says_so_by_count_and_by_bytes_and_has_room_again_later() -> None:
    async def main() -> None:
        async with owned(queue_intents_max=2) as table:
            assert table.loop.has_room
            await table.deliver(create_intent(TABLE), append_intent("one"))
            assert not table.loop.has_room
            await table.loop.wait_for_room()
            assert table.loop.has_room
        async with owned(queue_bytes_max=1_000) as table:
            await table.deliver(create_intent(TABLE), size=999)
            assert table.loop.has_room
            await table.deliver(append_intent("one"), size=1)
            assert not table.loop.has_room
            await table.loop.wait_for_room()

    virtually(main())


def test_a_table_works_only_in_its_turn() -> None:
    async def main() -> None:
        async with owned() as table:
            async with table.turn:
                await table.deliver(create_intent(TABLE))
                await asyncio.sleep(60.0)
                assert table.loop.phase is Phase.COLD
                assert not table.log.published
            await table.until_decided(0)

    virtually(main())


def test_a_stop_waits_for_the_root_in_flight_and_for_its_verdict() -> None:
    async def main() -> None:
        log = HookedLog(before=taking(verdicts=3.0))
        store = HookedStore(before=taking(put=2.0))
        async with owned(store, log) as table:
            await table.deliver(create_intent(TABLE))
            while table.loop.phase is not Phase.PUTTING:  # noqa: ASYNC110 - virtual time
                await asyncio.sleep(0.1)
            await table.deliver(append_intent("later"))
        assert [verdict.offset for verdict in log.published] == [0]
        assert table.loop.phase is Phase.STOPPED

    virtually(main())


def test_a_stop_with_nothing_in_flight_takes_no_time() -> None:
    async def main() -> None:
        async with owned() as table:
            await table.deliver(create_intent(TABLE))
            await table.until_decided(0)
            before_s = asyncio.get_running_loop().time()
        assert asyncio.get_running_loop().time() == before_s

    virtually(main())


def test_a_bug_in_the_machine_quarantines_the_table_which_then_takes_and_ignores_everything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def violations(*_: object) -> Any:
        raise ZeroDivisionError("a bug")

    async def main() -> None:
        async with owned(queue_intents_max=1) as table:
            await table.deliver(create_intent(TABLE))
            await table.until_decided(0)
            began_ms = SeededEnvironment(1).now_ms()
            monkeypatch.setattr(table_loop, "step", violations)
            await table.deliver(append_intent("poison"))
            await asyncio.sleep(1.0)
            monkeypatch.undo()
            assert table.loop.phase is Phase.QUARANTINED
            assert table.loop.why == "ZeroDivisionError: a bug"
            await table.deliver(*(append_intent(f"f-{number}") for number in range(10)))
            await table.loop.wait_for_room()
            assert table.loop.pending_since_ms == began_ms, "what it holds back is not forgotten"

    virtually(main())


def test_the_oldest_pending_record_is_known_until_its_verdict_is_acknowledged() -> None:
    async def main() -> None:
        log = HookedLog(before=taking(verdicts=5.0))
        async with owned(log=log) as table:
            assert table.loop.pending_since_ms is None
            began_ms = SeededEnvironment(1).now_ms()
            await table.deliver(create_intent(TABLE))
            await asyncio.sleep(1.0)
            await table.deliver(append_intent("one"))
            await asyncio.sleep(1.0)
            assert table.loop.phase is Phase.IDLE
            assert table.loop.pending_since_ms == began_ms
            await table.until_decided(1)
            await asyncio.sleep(1.0)
            assert table.loop.pending_since_ms is None

    virtually(main())


def test_a_table_that_does_not_exist_is_absent_only_once_its_rejections_are_acknowledged() -> None:
    async def main() -> None:
        log = HookedLog(before=taking(verdicts=5.0))
        async with owned(log=log) as table:
            await table.deliver(append_intent("stray"))
            assert not table.loop.is_absent, "it has a record to handle"
            await asyncio.sleep(1.0)
            assert table.loop.phase is Phase.COLD
            assert not table.loop.is_absent, "its verdict is on its way"
            await asyncio.sleep(10.0)
            assert table.loop.is_absent

    virtually(main())


def test_everything_that_people_want_to_know_is_observed() -> None:
    async def main() -> None:
        async with owned() as table:
            await table.deliver(create_intent(TABLE))
            await table.until_decided(0)
            await asyncio.sleep(1.0)
            noted = [note.noted for note in table.seen if isinstance(note, Report)]
            assert noted == [Noted.HEAD_LOADED, Noted.ROOT_LANDED]
            assert [note.version for note in table.seen if isinstance(note, Publication)] == [0]

    virtually(main())


def test_a_put_that_is_cut_off_by_cancellation_is_left_to_the_next_owner() -> None:
    async def main() -> None:
        store = HookedStore(after=taking(put=1.0))  # it lands, and nobody hears of it
        log = HookedLog()
        table = Table(store, log)
        task = asyncio.ensure_future(table.loop.run())
        await table.deliver(create_intent(TABLE))
        await asyncio.sleep(1.5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert log.published == []
        heir = Table(store, log)
        heir_task = asyncio.ensure_future(heir.loop.run())
        heir.loop.deliver(tuple(table.delivered))
        await heir.until_decided(0)
        assert [(verdict.kind, verdict.version) for verdict in log.published] == [(VerdictKind.COMMITTED, 0)]
        heir.loop.request_stop()
        await heir_task

    virtually(main())


def test_a_rejected_record_becomes_a_dead_letter_with_its_own_headers() -> None:
    headers = (("traceparent", b"00-4bf9"), ("traceparent", None))

    async def main() -> None:
        log = HookedLog()
        async with owned(log=log) as table:
            await table.deliver(create_intent(TABLE))
            position = await log.publish(TABLE.encode(), b"")
            again = Record(position, create_intent(TABLE), 100, TABLE.encode(), b"bytes", 1, headers)
            table.loop.deliver((again,))
            await table.until_decided(1)
        (letter,) = await log.dead_letters()
        assert (letter.code, letter.key, letter.value, letter.headers) == (
            "table-exists",
            TABLE.encode(),
            b"bytes",
            headers,
        )

    virtually(main())
