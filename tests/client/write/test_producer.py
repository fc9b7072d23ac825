"""Publishing intents by hand."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from rootline.adapters.sqlite.intent_log import SqliteIntentLog
from rootline.client.dead_letters import Replay, replay
from rootline.client.lake import Lake
from rootline.client.session import Session
from rootline.client.table_handle import TableHandle
from rootline.connect import connect
from rootline.hosting.on_demand import LogOnDemand
from rootline.schemas.bytes.intent_codec import encode_intent
from rootline.schemas.bytes.record_headers import LAKE_KEY, encode_lake, lake_header
from rootline.schemas.bytes.record_headers import Lake as Place
from rootline.schemas.errors import Invalid, OutcomeUnknown
from rootline.schemas.intent import Intent, IntentKind, RemovedFile
from rootline.schemas.verdict import DeadLetter, VerdictKind


def removal(table: TableHandle, intent_id: str | None = None) -> Intent:
    """An intent that removes the table's first file."""
    location = table.scan().plan()[0].location
    return Intent(
        intent_id=intent_id or str(uuid.uuid4()),
        table=table.name,
        kind=IntentKind.REMOVE,
        remove_files=(RemovedFile(location=location),),
    )


def letters_of(lake: Lake) -> list[DeadLetter]:
    """All dead letters."""

    async def all_of(session: Session) -> list[DeadLetter]:
        log = session.log.opened() if isinstance(session.log, LogOnDemand) else session.log
        assert isinstance(log, SqliteIntentLog)
        return await log.dead_letters()

    return lake.holder.run(all_of)


@pytest.fixture
def filled(flights: TableHandle) -> TableHandle:
    """A table with two files."""
    flights.append({"id": [1, 2], "carrier": ["UA", "AA"], "delay": [0.0, 1.0]})
    return flights


def test_an_intent_gets_the_verdict_that_names_its_commit(lake: Lake, filled: TableHandle) -> None:
    with lake.producer() as producer:
        verdict = producer.publish(removal(filled)).verdict(timeout_s=30)
    assert verdict.kind is VerdictKind.COMMITTED
    assert verdict.version == filled.head().version


def test_the_same_receipt_published_again_commits_once(lake: Lake, filled: TableHandle) -> None:
    with lake.producer() as producer:
        receipt = producer.publish(removal(filled))
        first, again = receipt.verdict(), producer.publish(receipt).verdict()
    assert (first.kind, again.kind) == (VerdictKind.COMMITTED, VerdictKind.DUPLICATE)
    assert (again.version, again.snapshot_id) == (first.version, first.snapshot_id)


def test_an_intent_stamped_beforehand_is_published_as_it_is(lake: Lake, filled: TableHandle) -> None:
    with lake.producer() as producer:
        stamped = producer.stamp(removal(filled))
        kinds = [producer.publish(stamped).verdict().kind for _ in range(2)]
    assert kinds == [VerdictKind.COMMITTED, VerdictKind.DUPLICATE]


def test_a_writer_that_starts_again_with_its_own_count_repeats_nothing(lake: Lake, filled: TableHandle) -> None:
    intent = removal(filled)
    kinds = []
    for _ in range(2):
        with lake.producer(writer_id="ingest-7") as producer:
            kinds.append(producer.publish(intent, writer_sequence=41).verdict().kind)
    assert kinds == [VerdictKind.COMMITTED, VerdictKind.DUPLICATE]


def test_a_writer_that_uses_a_number_again_for_other_data_is_told_so(lake: Lake, flights: TableHandle) -> None:
    flights.append({"id": [1], "carrier": ["UA"], "delay": [0.0]})
    flights.append({"id": [2], "carrier": ["AA"], "delay": [0.0]})
    first, second = (
        removal(flights).model_copy(update={"remove_files": (RemovedFile(location=task.location),)})
        for task in flights.scan().plan()
    )
    with lake.producer(writer_id="ingest-7") as producer:
        assert producer.publish(first, writer_sequence=0).verdict().kind is VerdictKind.COMMITTED
        receipt = producer.publish(second, writer_sequence=0)
        verdict = receipt.verdict()
        assert (verdict.kind, verdict.code) == (VerdictKind.REJECTED, "sequence-reused")
        assert "sequence 0 of writer 'ingest-7' was committed in version 3" in (verdict.message or "")
        assert producer.publish(receipt).verdict().code == "sequence-reused"
        fresh = second.model_copy(update={"intent_id": str(uuid.uuid4())})
        assert producer.publish(fresh, writer_sequence=1).verdict().kind is VerdictKind.COMMITTED
    [letter, _] = letters_of(lake)
    assert letter.code == "sequence-reused"


@pytest.mark.parametrize("content", ["", "offsets 100 to 200"])
def test_a_replay_in_other_files_is_a_duplicate_where_the_writer_says_what_it_holds(
    lake: Lake, flights: TableHandle, content: str
) -> None:
    flights.append({"id": [1], "carrier": ["UA"], "delay": [0.0]})
    flights.append({"id": [2], "carrier": ["AA"], "delay": [0.0]})
    kinds = []
    for task in flights.scan().plan():
        again = removal(flights).model_copy(update={"remove_files": (RemovedFile(location=task.location),)})
        with lake.producer(writer_id="ingest-7") as producer:
            kinds.append(producer.publish(again, writer_sequence=7, content=content).verdict().kind)
    assert kinds == [VerdictKind.COMMITTED, VerdictKind.DUPLICATE]


def test_a_replayed_dead_letter_says_what_its_record_said(lake: Lake, flights: TableHandle) -> None:
    flights.append({"id": [1], "carrier": ["UA"], "delay": [0.0]})
    flights.append({"id": [2], "carrier": ["AA"], "delay": [0.0]})
    tasks = flights.scan().plan()
    with lake.producer(writer_id="ingest-7") as producer:
        for task in tasks:
            intent = removal(flights).model_copy(update={"remove_files": (RemovedFile(location=task.location),)})
            producer.publish(intent, writer_sequence=0).verdict()
    letters = letters_of(lake)
    [one] = list(lake.holder.iterate(lambda session: replay(session, letters, timeout_s=30)))
    assert one.verdict is not None
    assert one.verdict.code == "sequence-reused"


@pytest.mark.parametrize("is_own", [True, False])
def test_a_letter_of_another_lake_is_published_again_only_if_it_is_this_one_by_now(
    lake: Lake, filled: TableHandle, is_own: bool
) -> None:
    """As after an operator has copied the id that was left behind when the warehouse was moved."""
    intent = removal(filled)
    own, other = Place("a" * 32, "here"), Place("b" * 32, "there")
    letter = DeadLetter(
        log="topic",
        partition=0,
        offset=7,
        intent_id=intent.intent_id,
        table=intent.table,
        code="lake-mismatch",
        message="",
        key=intent.table.encode(),
        value=encode_intent(intent),
        headers=lake_header(own if is_own else other),
    )

    async def replayed(session: Session) -> Replay:
        await session.store.put_if_absent(LAKE_KEY, encode_lake(own))
        [one] = [found async for found in replay(session, [letter], timeout_s=30)]
        return one

    one = lake.holder.run(replayed)
    if is_own:
        assert one.verdict is not None
        assert one.verdict.kind is VerdictKind.COMMITTED
    else:
        assert isinstance(one.error, Invalid)
        assert one.error.code == "lake-mismatch"
        assert filled.head().version == 1


def test_a_writer_of_its_own_name_must_count(lake: Lake, filled: TableHandle) -> None:
    with lake.producer(writer_id="ingest-7") as producer, pytest.raises(Invalid, match="writer_sequence"):
        producer.publish(removal(filled))


def test_a_rejection_is_a_verdict_with_a_code(lake: Lake, filled: TableHandle) -> None:
    intent = removal(filled).model_copy(update={"remove_files": (RemovedFile(location="data/none.parquet"),)})
    with lake.producer() as producer:
        verdict = producer.publish(intent).verdict()
    assert (verdict.kind, verdict.code) == (VerdictKind.REJECTED, "file-not-live")


def test_no_verdict_in_time_is_an_unknown_outcome_and_publishing_again_is_safe(
    folder: Path, lake: Lake, filled: TableHandle
) -> None:
    intent = removal(filled)
    lake.close()
    with connect(folder, coordinator="elsewhere") as idle, idle.producer() as producer:
        receipt = producer.publish(intent)
        with pytest.raises(OutcomeUnknown) as caught:
            receipt.verdict(timeout_s=0.05)
        assert caught.value.code == "verdict-timeout"
        with connect(folder) as hosting:
            assert hosting.list_tables() == [filled.name]
            assert producer.publish(receipt).verdict().kind is VerdictKind.DUPLICATE
            assert receipt.verdict().kind is VerdictKind.COMMITTED


def test_a_verdict_on_the_record_that_a_restored_log_has_in_an_intents_place_is_not_the_intents(
    folder: Path, lake: Lake, filled: TableHandle
) -> None:
    intent = removal(filled)
    lake.close()
    place = folder / ".rootline" / "log.sqlite"
    with closing(sqlite3.connect(place)) as log, closing(sqlite3.connect(":memory:")) as older:
        log.backup(older)
        with connect(folder, coordinator="elsewhere") as idle, idle.producer() as producer:
            receipt = producer.publish(intent)
            older.backup(log)
            with connect(folder) as hosting:
                hosting.table(filled.name).append({"id": [3], "carrier": ["UA"], "delay": [2.0]})
                with pytest.raises(OutcomeUnknown, match="restored from an older copy") as caught:
                    receipt.verdict()
                assert caught.value.code == "publish-unknown"
                assert producer.publish(receipt).verdict().kind is VerdictKind.COMMITTED


def test_an_intent_over_the_size_limit_is_refused_before_it_is_sent(lake: Lake, filled: TableHandle) -> None:
    intent = removal(filled).model_copy(update={"summary": {"note": "x" * 1_000_001}})
    with lake.producer() as producer, pytest.raises(Invalid) as caught:
        producer.publish(intent)
    assert caught.value.code == "intent-too-large"


def test_a_closed_producer_publishes_nothing(lake: Lake, filled: TableHandle) -> None:
    producer = lake.producer()
    producer.close()
    with pytest.raises(Invalid) as caught:
        producer.publish(removal(filled))
    assert caught.value.code == "lake-closed"


def test_one_producer_serves_many_threads(lake: Lake, filled: TableHandle) -> None:
    intent = removal(filled).model_copy(update={"remove_files": (RemovedFile(location="data/none.parquet"),)})
    with lake.producer() as producer, ThreadPoolExecutor(8) as threads:
        receipts = list(
            threads.map(lambda at: producer.publish(intent.model_copy(update={"intent_id": str(at)})), range(40))
        )
        verdicts = list(threads.map(lambda receipt: receipt.verdict(), receipts))
    assert {verdict.intent_id for verdict in verdicts} == {str(at) for at in range(40)}
    assert {receipt.intent.writer_sequence for receipt in receipts} == set(range(40))


def test_coroutines_have_a_producer_of_their_own(lake: Lake, filled: TableHandle) -> None:
    intent = removal(filled)

    async def program() -> list[VerdictKind]:
        async with lake.async_producer() as producer:
            receipt = await producer.publish(intent)
            again = await producer.publish(receipt)
            return [(await one.verdict()).kind for one in (receipt, again)]

    assert asyncio.run(program()) == [VerdictKind.COMMITTED, VerdictKind.DUPLICATE]


def test_closing_a_lake_under_a_waiting_caller_is_an_unknown_outcome(
    folder: Path, lake: Lake, filled: TableHandle
) -> None:
    intent = removal(filled)
    lake.close()
    idle = connect(folder, coordinator="elsewhere")
    published = threading.Event()

    def wait_plainly() -> None:
        receipt = idle.producer().publish(intent)
        published.set()
        receipt.verdict(timeout_s=60)

    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(wait_plainly)
        published.wait(30)
        idle.close(patience_s=0)
        with pytest.raises((OutcomeUnknown, Invalid)) as caught:
            waiting.result(30)
    assert caught.value.code in ("verdict-timeout", "lake-closed")


def test_closing_a_lake_under_a_waiting_coroutine_does_not_look_like_its_cancellation(
    folder: Path, lake: Lake, filled: TableHandle
) -> None:
    intent = removal(filled)
    lake.close()
    idle = connect(folder, coordinator="elsewhere")

    async def program() -> None:
        receipt = await idle.async_producer().publish(intent)
        waiting = asyncio.ensure_future(receipt.verdict(timeout_s=60))
        await asyncio.sleep(0)
        await asyncio.to_thread(idle.close, patience_s=0)
        with pytest.raises(OutcomeUnknown, match="closed"):
            await waiting

    asyncio.run(program())
