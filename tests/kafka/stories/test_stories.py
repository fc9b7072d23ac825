"""What went wrong elsewhere, on a real broker: replays, restarts, refusals, limits (docs/invariants.md).

Coordinators are in this process. Where a kill or a hang is the point: `test_stories_of_processes`; where the log itself
changes: `test_stories_of_logs`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from confluent_kafka import KafkaError, Producer

from rootline.adapters.memory import MemoryObjectStore
from rootline.adapters.settings import KafkaSettings
from rootline.schemas.bytes.intent_codec import encode_intent
from rootline.schemas.errors import Invalid
from rootline.schemas.intent import DataFile, Intent, IntentKind
from rootline.schemas.object_keys import roots_prefix
from rootline.schemas.verdict import VerdictKind
from rootline.testing.object_stores import Fault, FaultyObjectStore, scripted
from tests.coordinator.hooked_ports import HookedStore
from tests.coordinator.running_service import TABLE, append_intent, create_intent
from tests.kafka.coordinating import SharedTable, coordinating, ready, sharing, until
from tests.kafka.feeding import add_partitions
from tests.services.kafka_service import KafkaService

pytestmark = pytest.mark.services


@pytest.fixture
def settings(kafka_service: KafkaService) -> KafkaSettings:
    return kafka_service.with_topics(partitions=3, session_timeout_s=6, delivery_timeout_s=20)


@pytest.fixture
async def shared(settings: KafkaSettings) -> AsyncIterator[SharedTable]:
    async with sharing(settings) as made:
        yield made


def written_by(writer: str, sequence: int, name: str) -> Intent:
    return append_intent(name, writer_id=writer, writer_sequence=sequence)


async def test_rebalances_replay_records_and_double_nothing(shared: SharedTable) -> None:
    """apache/iceberg 17340: 149 files twice."""
    published = []
    async with coordinating(shared.settings, shared.store, batch_intents_max=4) as first:
        await shared.create()
        await ready(first)
        for turn in range(3):
            published += await shared.publish(*(append_intent(f"{turn}-before-{number}") for number in range(20)))
            async with coordinating(shared.settings, shared.store, batch_intents_max=4) as second:
                published += await shared.publish(
                    *(written_by("w", 20 * turn + number, f"{turn}-{number}") for number in range(20))
                )
                await ready(second)
        verdicts = await shared.verdicts(published)

    assert {verdict.kind for verdict in verdicts} == {VerdictKind.COMMITTED}
    assert len(await shared.live_files()) == 120
    await shared.judge()


async def test_a_log_that_is_read_again_from_its_start_doubles_nothing(shared: SharedTable) -> None:
    async with coordinating(shared.settings, shared.store):
        await shared.create()
        await shared.commit(*(append_intent(f"{number}") for number in range(20)))
    versions = await shared.versions()
    forgetful = shared.settings.model_copy(update={"group_id": f"{shared.settings.group_id}-anew"})
    async with coordinating(forgetful, shared.store) as service:
        await ready(service)
        [verdict] = await shared.commit(append_intent("after"))

    assert verdict.kind is VerdictKind.COMMITTED
    assert await shared.versions() == versions + 1
    assert len(await shared.live_files()) == 21
    async with sharing(forgetful, shared.store) as anew:
        await anew.judge()


async def test_what_was_published_before_anybody_ever_ran_is_decided(shared: SharedTable) -> None:
    """apache/iceberg 17551: `latest` is never where reading begins."""
    positions = await shared.publish(create_intent(TABLE), append_intent("early"))
    async with coordinating(shared.settings, shared.store):
        verdicts = await shared.verdicts(positions)

    assert [verdict.version for verdict in verdicts] == [0, 1] or [verdict.version for verdict in verdicts] == [0, 0]
    await shared.judge()


async def test_what_is_published_on_a_new_partition_before_anybody_knows_of_it_is_decided(shared: SharedTable) -> None:
    watchful = shared.settings.model_copy(update={"identity_max_age_s": 0.5})
    async with coordinating(watchful, shared.store):
        await shared.create()
        await asyncio.to_thread(add_partitions, shared.settings, 4)
        producer = Producer({"bootstrap.servers": shared.settings.servers(), "log_level": 0})
        producer.produce(shared.settings.intents_topic, encode_intent(append_intent("new")), TABLE, partition=3)
        assert await asyncio.to_thread(producer.flush, 30) == 0

        async with sharing(shared.settings, shared.store) as later:  # it knows all partitions
            await until(lambda: _is_decided(later, (3, 0)), "the record on the new partition is decided")
            await later.judge()
    assert await shared.live_files() == ["data/new.parquet"]


async def _is_decided(shared: SharedTable, place: tuple[int, int]) -> bool:
    return bool((await shared.sample()).verdicts.get(place))


async def test_an_old_commit_lands_after_the_next_owner_asked_whether_it_was_done(shared: SharedTable) -> None:
    """apache/iceberg 14425, with two coordinators that live: partitions move while a PUT is on its way."""
    settings = shared.settings.model_copy(update={"rebalance_deadline_s": 0.5})
    async with coordinating(settings, shared.store):
        await shared.create()
    first_lands_late = scripted([Fault.LANDS_LATER], under=roots_prefix(TABLE))
    late = FaultyObjectStore(shared.store, first_lands_late, landing_calls=1_000_000)

    async def land(operation: str, _: str) -> None:
        if operation == "put" and late.drawn:
            await late.land()  # whoever owns the table now has looked for its head already

    stores = HookedStore(late, before=land), HookedStore(shared.store, before=land)
    async with coordinating(settings, stores[0], retry_delay_ms_min=5_000.0, retry_delay_ms_max=5_000.0) as one:
        await ready(one)
        [at] = await shared.publish(append_intent("one"))
        await until(lambda: bool(late.drawn), "the PUT is on its way")
        async with coordinating(settings, stores[1]) as two:
            [verdict] = await shared.verdicts([at])
            await ready(one, two)
            await shared.commit(append_intent("two"))
            await shared.judge()

    assert verdict.version == 1
    assert [call for store in stores for call, _ in store.calls].count("put") >= 3
    assert await shared.live_files() == ["data/one.parquet", "data/two.parquet"]
    assert await shared.versions() == 3


async def test_a_writer_that_starts_again_under_its_key_commits_nothing_twice(shared: SharedTable) -> None:
    """apache/iceberg 16008: the writer's id and number stay, whatever else is made anew."""
    async with coordinating(shared.settings, shared.store):
        await shared.create()
        before = await shared.commit(*(written_by("job", number, f"first-{number}") for number in range(3)))
    async with sharing(shared.settings, shared.store) as restarted, coordinating(shared.settings, shared.store):
        again = await restarted.commit(*(written_by("job", number, f"second-{number}") for number in range(4)))

    assert [verdict.kind for verdict in before] == [VerdictKind.COMMITTED] * 3
    assert [verdict.kind for verdict in again] == [VerdictKind.DUPLICATE] * 3 + [VerdictKind.COMMITTED]
    assert [verdict.version for verdict in again[:3]] == [verdict.version for verdict in before]
    assert await shared.live_files() == sorted(
        [f"data/first-{number}.parquet" for number in range(3)] + ["data/second-3.parquet"]
    )
    await shared.judge()


async def test_an_intent_of_seven_megabytes_is_refused_at_the_producer_and_the_limit_is_named(
    shared: SharedTable,
) -> None:
    location = "data/" + "x" * 900
    files = tuple(DataFile(location=f"{location}/{n}", record_count=1, file_size_in_bytes=1) for n in range(7_700))
    intent = Intent(intent_id="huge", table=TABLE, kind=IntentKind.APPEND, add_data_files=files)
    assert len(encode_intent(intent)) > 7_000_000
    with pytest.raises(Invalid) as refusal:
        await shared.publish(intent)

    assert refusal.value.code == "intent-too-large"
    assert str(shared.settings.intent_bytes_max) in refusal.value.message
    await shared.sample()
    assert shared.watch.written == {}


async def test_a_foreign_client_cannot_put_seven_megabytes_on_the_log_either(shared: SharedTable) -> None:
    failures: list[KafkaError | None] = []
    producer = Producer(
        {"bootstrap.servers": shared.settings.servers(), "log_level": 0, "message.max.bytes": 10_000_000}
    )
    producer.produce(
        shared.settings.intents_topic, bytes(7_000_000), TABLE, on_delivery=lambda error, _: failures.append(error)
    )
    await asyncio.to_thread(producer.flush, 30)

    assert [error.code() for error in failures if error] == [KafkaError.MSG_SIZE_TOO_LARGE]


async def test_a_coordinator_without_partitions_is_ready_and_holds_nobody_up(shared: SharedTable) -> None:
    """An idle participant stalled a barrier: there is none."""
    async with (
        coordinating(shared.settings, shared.store) as one,
        coordinating(shared.settings, shared.store) as two,
        coordinating(shared.settings, shared.store) as three,
        coordinating(shared.settings, shared.store) as four,
    ):
        await ready(one, two, three, four)
        await shared.create()
        verdicts = await shared.commit(*(append_intent(f"{number}") for number in range(8)))

    assert {verdict.kind for verdict in verdicts} == {VerdictKind.COMMITTED}
    await shared.judge()


async def test_what_is_no_intent_becomes_a_dead_letter_as_kafka_connect_writes_it_and_is_passed(
    shared: SharedTable,
) -> None:
    garbage = b"\x00\x01 nothing of ours"
    producer = Producer({"bootstrap.servers": shared.settings.servers(), "log_level": 0})
    async with coordinating(shared.settings, shared.store):
        await shared.create()
        [created] = shared.told
        for value in (garbage, None):
            producer.produce(
                shared.settings.intents_topic,
                value,
                TABLE,
                partition=created[0],
                headers={"trace": "of their own"},
            )
        assert await asyncio.to_thread(producer.flush, 30) == 0
        [after] = await shared.commit(append_intent("after"))
        judged = await shared.judge()

    assert after.kind is VerdictKind.COMMITTED
    assert judged.kinds == {VerdictKind.COMMITTED: 2, VerdictKind.REJECTED: 2}
    place = (created[0], created[1] + 1)
    letter = shared.watch.letters[place][0]
    said = dict(letter.headers)
    assert (letter.key, letter.value) == (TABLE.encode(), garbage)
    assert letter.headers[0] == ("trace", b"of their own")
    assert said["__connect.errors.topic"] == shared.settings.intents_topic.encode()
    assert said["__connect.errors.partition"] == str(place[0]).encode()
    assert said["__connect.errors.offset"] == str(place[1]).encode()
    assert said["__connect.errors.exception.message"]
    assert said["rootline.code"] == b"undecodable"


async def test_a_coordinator_works_through_tls_and_a_login(kafka_service: KafkaService) -> None:
    plain = kafka_service.with_topics(partitions=2)
    secure = kafka_service.secure(plain)
    store = MemoryObjectStore()
    async with sharing(plain, store) as shared, sharing(plain, store) as other:
        other.writer = type(other.writer)(secure)
        async with coordinating(secure, store) as service:
            await other.create()
            verdicts = await other.commit(append_intent("one"), append_intent("../out", location="../out"))
            await ready(service)
        assert [verdict.kind for verdict in verdicts] == [VerdictKind.COMMITTED, VerdictKind.REJECTED]
        await shared.judge()
