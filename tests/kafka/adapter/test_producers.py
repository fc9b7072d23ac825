"""Producers of a lake whose log is on Kafka: order, waiting, time-outs, and a broker that dies in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rootline.adapters.kafka.coordinator_log import KafkaVerdictSink
from rootline.client.producer import AsyncProducer, AsyncReceipt, Receipt
from rootline.schemas.bytes.intent_codec import decode_intent
from rootline.schemas.errors import Invalid, OutcomeUnknown, Unavailable
from rootline.schemas.intent import DataFile, Intent, IntentKind
from rootline.schemas.verdict import Verdict, VerdictKind
from tests.kafka.reading import records_on
from tests.kafka.shared_log import SharedLog, in_environment
from tests.services.kafka_service import KafkaService
from tests.support.decided import verdict_on

pytestmark = pytest.mark.services
SCHEMA = pa.schema([("id", pa.int64()), ("carrier", pa.string())])
Shared = Callable[..., SharedLog]


@pytest.fixture
def kafka_service(mortal_kafka: KafkaService) -> KafkaService:
    """Not the broker of the other files: a test here kills it."""
    return mortal_kafka


@pytest.fixture
def shared(kafka_service: KafkaService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shared:
    """`shared(delivery_timeout_s=1)`: a lake with topics of its own, which `rootline.connect` finds."""

    def made(**settings: Any) -> SharedLog:
        log = SharedLog(tmp_path / "lake", kafka_service.with_topics(**settings))
        log.folder.mkdir()
        in_environment(log.settings, monkeypatch)
        return log

    return made


def intent(number: int, *, files: int = 1, table: str = "demo.flights") -> Intent:
    return Intent(
        intent_id=f"intent-{number}",
        table=table,
        kind=IntentKind.APPEND,
        add_data_files=tuple(
            DataFile(location=f"data/{number}-{file}.parquet", record_count=1, file_size_in_bytes=1)
            for file in range(files)
        ),
    )


def adding(location: str) -> Intent:
    file = DataFile(location=location, record_count=1, file_size_in_bytes=1)
    return Intent(intent_id=location, table="demo.flights", kind=IntentKind.APPEND, add_data_files=(file,))


def verdict_for(receipt: Receipt | AsyncReceipt) -> Verdict:
    """The intent's own, as a coordinator would give it."""
    of_record = verdict_on(receipt.position, table=receipt.intent.table)
    return of_record.model_copy(update={"intent_id": receipt.intent.intent_id})


def on_the_log(log: SharedLog) -> list[Intent]:
    return [decode_intent(found.value, found.headers) for found in records_on(log.settings, log.settings.intents_topic)]


def test_a_thousand_publishes_at_once_keep_the_order_of_each_table_and_wait_for_verdicts_at_once(
    shared: Shared,
) -> None:
    log = shared()

    async def program() -> None:
        sink = KafkaVerdictSink(log.settings)
        async with lake.async_producer() as producer:
            intents = [intent(n, files=300 if n % 50 == 0 else 1, table=f"demo.t{n % 3}") for n in range(1_000)]
            receipts = await asyncio.gather(*map(producer.publish, intents))
            waiting = [asyncio.ensure_future(receipt.verdict(timeout_s=60)) for receipt in receipts]
            later = await producer.publish(intent(1_000))  # whoever waits keeps no writer from publishing
            assert not any(wait.done() for wait in waiting)
            verdicts = [verdict_for(one) for one in [*receipts, later]]
            await sink.publish_verdicts(verdicts, [])
            assert await asyncio.gather(*waiting) == verdicts[:-1]
            assert await later.verdict() == verdicts[-1]
        await sink.close()

    with log.open() as lake:
        asyncio.run(program())
    found = on_the_log(log)
    assert len({one.writer_id for one in found}) == 1
    for table in ("demo.t0", "demo.t1", "demo.t2"):
        numbers = [one.writer_sequence for one in found if one.table == table]
        assert numbers == list(range(len(numbers)))
        ids = [int(one.intent_id.removeprefix("intent-")) for one in found if one.table == table]
        assert ids == sorted(ids)


def test_a_receipt_published_again_is_the_same_intent_at_another_place(shared: Shared) -> None:
    log = shared()
    with log.open() as lake, lake.producer() as producer:
        first = producer.publish(intent(1))
        again = producer.publish(first)
        log.decide([verdict_for(first)])
        log.decide([verdict_for(again)])
        assert (first.verdict().offset, again.verdict().offset) == (first.position.offset, again.position.offset)
    one, other = on_the_log(log)
    assert one == other
    assert one.writer_id is not None


def test_a_writer_that_counts_for_itself_keeps_id_and_sequence_over_a_restart(shared: Shared) -> None:
    log = shared()
    for _ in range(2):
        with log.open() as lake, lake.producer(writer_id="ingest-7") as producer:
            for number in range(3):
                producer.publish(intent(number), writer_sequence=number)
    assert [(one.writer_id, one.writer_sequence) for one in on_the_log(log)] == [
        ("ingest-7", number) for _ in range(2) for number in range(3)
    ]


def test_no_verdict_in_time_is_an_unknown_outcome_and_the_receipt_may_be_asked_and_published_again(
    shared: Shared,
) -> None:
    log = shared()
    with log.open() as lake, lake.producer() as producer:
        receipt = producer.publish(intent(1))
        with pytest.raises(OutcomeUnknown) as failure:
            receipt.verdict(timeout_s=0.05)
        assert failure.value.code == "verdict-timeout"
        again = producer.publish(receipt)
        log.decide([verdict_for(receipt)])
        assert receipt.verdict() == verdict_for(receipt)
        assert again.position.offset == receipt.position.offset + 1


def test_an_intent_over_the_topics_limit_is_refused_and_its_neighbours_go_through(
    shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = shared()
    monkeypatch.setenv("ROOTLINE_KAFKA__INTENT_BYTES_MAX", "20000")

    async def program() -> list[AsyncReceipt | BaseException]:
        async with lake.async_producer() as producer:
            intents = [intent(n, files=2_000 if n == 4 else 1) for n in range(8)]
            return await asyncio.gather(*map(producer.publish, intents), return_exceptions=True)

    with log.open() as lake:
        told = asyncio.run(program())
    assert [at for at, one in enumerate(told) if isinstance(one, Invalid) and one.code == "intent-too-large"] == [4]
    assert [one.writer_sequence for one in on_the_log(log)] == [0, 1, 2, 3, 5, 6, 7]


def test_a_lake_on_kafka_creates_appends_overwrites_and_deletes(shared: Shared) -> None:
    log = shared()
    with log.coordinated(), log.open() as lake:
        table = lake.create_table("demo.flights", SCHEMA, partition_by=["carrier"])
        table.append({"id": [1, 2, 3], "carrier": ["UA", "AA", "UA"]})
        table.overwrite({"id": [4], "carrier": ["AA"]}, where="carrier = 'AA'")
        table.delete_where("id = 3")
        assert sorted(table.scan().to_arrow().column("id").to_pylist()) == [1, 4]
        assert [header.version for header in table.history()] == [3, 2, 1, 0]
        with pytest.raises(Invalid) as refusal:
            lake.create_table("demo.flights", SCHEMA)
        assert refusal.value.code == "table-exists"


async def until_durable(producer: AsyncProducer, stamped: Sequence[Intent]) -> list[AsyncReceipt]:
    """Publish again what the log has not said yes to, until it has said so of all."""
    receipts: dict[int, AsyncReceipt] = {}
    while missing := [at for at in range(len(stamped)) if at not in receipts]:
        told = await asyncio.gather(*(producer.publish(stamped[at]) for at in missing), return_exceptions=True)
        receipts |= {at: one for at, one in zip(missing, told, strict=True) if isinstance(one, AsyncReceipt)}
        assert {type(one) for one in told} <= {AsyncReceipt, OutcomeUnknown, Unavailable}, told
    return [receipts[at] for at in range(len(stamped))]


@pytest.mark.slow
def test_when_the_broker_dies_in_the_middle_what_was_not_answered_is_published_again_and_commits_once(
    shared: Shared, kafka_service: KafkaService
) -> None:
    log = shared(delivery_timeout_s=3, request_timeout_s=2)
    broker = kafka_service.own()
    locations: list[str] = []

    async def one_death(producer: AsyncProducer) -> tuple[set[str], list[AsyncReceipt]]:
        """The codes of the intents whose outcome was unknown when the broker died, and a receipt for every intent."""
        fresh = [f"data/{len(locations) + number}.parquet" for number in range(600)]
        locations.extend(fresh)
        stamped = [producer.stamp(adding(location)) for location in fresh]
        await until_durable(producer, stamped[:1])  # connected
        publishing = [asyncio.ensure_future(producer.publish(one)) for one in stamped]
        await asyncio.wait(publishing, return_when=asyncio.FIRST_COMPLETED)
        broker.kill()
        told = await asyncio.gather(*publishing, return_exceptions=True)
        await asyncio.to_thread(broker.start_again)
        codes = {one.code for one in told if isinstance(one, OutcomeUnknown)}
        return codes, await until_durable(producer, stamped)

    async def program() -> set[VerdictKind]:
        async with lake.async_producer() as producer:
            receipts: list[AsyncReceipt] = []
            codes: set[str] = set()
            for _ in range(6):  # the broker may have answered every record before it died
                codes, durable = await one_death(producer)
                receipts += durable
                if codes:
                    break
            assert codes == {"publish-unknown"}, "some were on their way"
            with log.coordinated():
                return {verdict.kind for verdict in await asyncio.gather(*(one.verdict(60) for one in receipts))}

    with log.open() as lake:
        with log.coordinated():
            table = lake.create_table("demo.flights", SCHEMA)
        kinds = asyncio.run(program())
        assert kinds <= {VerdictKind.COMMITTED, VerdictKind.DUPLICATE}
        assert sorted(task.location for task in table.scan().plan()) == sorted(locations)
    found = [one for one in on_the_log(log) if one.kind is IntentKind.APPEND]
    firsts = list(dict.fromkeys(one.writer_sequence for one in found))
    assert firsts == list(range(len(locations))), "resending keeps the order in which intents are first met"
