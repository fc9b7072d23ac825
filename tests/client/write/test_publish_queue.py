"""The way of a producer's intents to the log: in order, together, each with its own answer."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rootline.adapters.memory import MemoryIntentLog, MemoryObjectStore
from rootline.adapters.sqlite.log_file import LogReader
from rootline.adapters.system_environment import SystemEnvironment
from rootline.client.producer import PublishQueue, Queued
from rootline.client.session import Session
from rootline.connect import connect
from rootline.ports.intent_log import NewRecord
from rootline.schemas.bytes.intent_codec import decode_intent
from rootline.schemas.errors import Invalid, OutcomeUnknown, RootlineError, Unavailable
from rootline.schemas.identifiers import LogPosition, by_name
from rootline.schemas.intent import DataFile, GenericStatistics, Intent, IntentKind
from tests.support.opened_sessions import nothing_known


def intent(number: int, *, files: int = 1, table: str = "demo.flights") -> Intent:
    return Intent(
        intent_id=f"intent-{number}",
        table=table,
        kind=IntentKind.APPEND,
        writer_id="w",
        writer_sequence=number,
        add_data_files=tuple(
            DataFile(location=f"data/{number}-{file}.parquet", record_count=1, file_size_in_bytes=1)
            for file in range(files)
        ),
    )


def of_mixed_sizes(number: int) -> Intent:
    """Every tenth one takes a while to encode."""
    return intent(number, files=400 if number % 10 == 0 else 1).model_copy(
        update={"writer_id": None, "writer_sequence": None}
    )


class ScriptedLog(MemoryIntentLog):
    """Fails as it is told, before or after it has appended."""

    def __init__(self, *script: Callable[[Sequence[NewRecord]], RootlineError | None]) -> None:
        super().__init__()
        self.script = list(script)
        self.batches: list[int] = []

    async def publish_many(
        self, records: Sequence[NewRecord], *, oldest_file_ms: int | None = None
    ) -> list[LogPosition]:
        self.batches.append(len(records))
        error = self.script.pop(0)(records) if self.script else None
        if isinstance(error, OutcomeUnknown):
            await super().publish_many(records[: len(records) // 2])
        if error is not None:
            raise error
        return await super().publish_many(records, oldest_file_ms=oldest_file_ms)

    async def numbers(self) -> list[int | None]:
        records = await self.read(0, limit=10_000, wait_s=0)
        return [decode_intent(record.value, by_name(record.headers)).writer_sequence for record in records]


async def nothing_to_close() -> None:
    pass


def session_on(log: MemoryIntentLog) -> Session:
    return Session(MemoryObjectStore(), log, SystemEnvironment(), nothing_to_close, nothing_known)


def queued(queue: PublishQueue, *intents: Intent) -> list[Queued]:
    return [queue.add(lambda one=one: one) for one in intents]  # type: ignore[misc]


async def answers(log: MemoryIntentLog, queue: PublishQueue, waiting: Sequence[Queued]) -> list[LogPosition | str]:
    session = session_on(log)
    told = await asyncio.gather(*(queue.deliver(session, one) for one in waiting), return_exceptions=True)
    for one in told:
        assert isinstance(one, LogPosition | RootlineError), one
    return [one.code if isinstance(one, RootlineError) else one for one in told]  # type: ignore[misc]


async def test_what_waits_travels_together_and_in_order() -> None:
    log, queue = ScriptedLog(), PublishQueue()

    told = await answers(log, queue, queued(queue, *map(intent, range(1_200))))

    assert [position.offset for position in told if isinstance(position, LogPosition)] == list(range(1_200))
    assert await log.numbers() == list(range(1_200))
    assert log.batches == [500, 500, 200]


async def test_tables_do_not_wait_for_each_other() -> None:
    log, queue = ScriptedLog(), PublishQueue()

    await answers(log, queue, queued(queue, *(intent(n, table=f"demo.t{n % 3}") for n in range(30))))

    assert sorted(log.batches) == [10, 10, 10]


async def test_an_intent_that_cannot_be_sent_is_refused_alone() -> None:
    log, queue = ScriptedLog(), PublishQueue()
    too_large = intent(1).model_copy(update={"summary": {"note": "x" * 1_000_001}})

    told = await answers(log, queue, queued(queue, intent(0), too_large, intent(2)))

    assert told[1] == "intent-too-large"
    assert await log.numbers() == [0, 2]


async def test_when_the_log_refuses_one_of_several_the_others_go_through_in_order() -> None:
    def too_large(records: Sequence[NewRecord]) -> RootlineError | None:
        over = any(b"intent-1" in record[1] for record in records)
        return Invalid("intent-too-large", "over the topic's limit") if over else None

    log, queue = ScriptedLog(*[too_large] * 9), PublishQueue()

    told = await answers(log, queue, queued(queue, *map(intent, range(4))))

    assert told[1] == "intent-too-large"
    assert await log.numbers() == [0, 2, 3]


async def test_an_unknown_outcome_is_sent_again_whole_before_anything_later() -> None:
    log = ScriptedLog(lambda _: OutcomeUnknown("publish-unknown", "no answer"))
    queue = PublishQueue()

    told = await answers(log, queue, queued(queue, *map(intent, range(4))))

    assert await log.numbers() == [0, 1, 0, 1, 2, 3]
    assert [position.offset for position in told if isinstance(position, LogPosition)] == [2, 3, 4, 5]


async def test_a_log_that_is_away_after_an_unknown_outcome_may_have_the_intent() -> None:
    log = ScriptedLog(
        lambda _: OutcomeUnknown("publish-unknown", "no answer"), lambda _: Unavailable("log-unavailable", "away")
    )
    queue = PublishQueue()

    assert await answers(log, queue, queued(queue, intent(0), intent(1))) == ["publish-unknown"] * 2
    assert await log.numbers() == [0]


async def test_a_log_that_is_away_tells_everybody_who_waits_and_nobody_after() -> None:
    log, queue = ScriptedLog(lambda _: Unavailable("log-unavailable", "away")), PublishQueue()

    assert await answers(log, queue, queued(queue, intent(0), intent(1))) == ["log-unavailable"] * 2
    assert isinstance((await answers(log, queue, queued(queue, intent(2))))[0], LogPosition)
    assert await log.numbers() == [2]


async def test_what_was_given_up_before_it_was_taken_is_never_sent() -> None:
    log, queue = ScriptedLog(), PublishQueue()
    first, second, third = queued(queue, *map(intent, range(3)))
    second.withdraw()

    await answers(log, queue, [first, third])

    assert await log.numbers() == [0, 2]


async def test_bounds_that_are_json_values_travel_as_json() -> None:
    plain = GenericStatistics(field_id=1, lower_value=1, upper_value="b")
    one = intent(0)
    one = one.model_copy(
        update={"add_data_files": (one.add_data_files[0].model_copy(update={"statistics": (plain,)}),)}
    )
    log, queue = ScriptedLog(), PublishQueue()

    await answers(log, queue, queued(queue, one))

    (record,) = await log.read(0, limit=1, wait_s=0)
    assert record.value.startswith(b"{")
    assert decode_intent(record.value) == one


def on_the_log(folder: Path) -> list[Intent]:
    reader = LogReader(folder / ".rootline" / "log.sqlite")
    try:
        return [decode_intent(record.value) for record in reader.records(0, 10_000)]
    finally:
        reader.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "lake"
    made.mkdir()
    return made


def test_coroutines_publishing_at_once_are_on_the_log_in_the_order_they_were_stamped(folder: Path) -> None:
    async def program() -> None:
        async with lake.async_producer() as producer:
            receipts = await asyncio.gather(*(producer.publish(of_mixed_sizes(number)) for number in range(300)))
        assert [receipt.intent.writer_sequence for receipt in receipts] == list(range(300))

    with connect(folder, coordinator="elsewhere") as lake:
        asyncio.run(program())
    assert [one.intent_id for one in on_the_log(folder)] == [f"intent-{number}" for number in range(300)]


def test_threads_publishing_at_once_are_on_the_log_in_the_order_they_were_stamped(folder: Path) -> None:
    with (
        connect(folder, coordinator="elsewhere") as lake,
        lake.producer() as producer,
        ThreadPoolExecutor(8) as threads,
    ):
        receipts = list(threads.map(lambda number: producer.publish(of_mixed_sizes(number)), range(100)))
    found = on_the_log(folder)
    assert [one.writer_sequence for one in found] == list(range(100))
    assert {receipt.intent.intent_id: receipt.intent.writer_sequence for receipt in receipts} == {
        one.intent_id: one.writer_sequence for one in found
    }


def test_a_forked_child_sends_nothing_of_its_parents(folder: Path) -> None:
    with connect(folder, coordinator="elsewhere") as lake, lake.producer() as producer:
        producer.publish(of_mixed_sizes(1))
        left = producer._queue.add(lambda: of_mixed_sizes(2))  # taken by nobody yet, as when the fork comes in between
        child = os.fork()
        if child == 0:
            code = 1
            try:
                producer.publish(of_mixed_sizes(3))
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        left.withdraw()
    assert [one.intent_id for one in on_the_log(folder)] == ["intent-1", "intent-3"]
