"""A log that is made anew, cut short, split, or written by others in transactions: end to end (docs/invariants.md)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial

import pytest
from confluent_kafka import Producer

from rootline.adapters.kafka.administration import KafkaTopics
from rootline.adapters.memory import MemoryObjectStore
from rootline.adapters.settings import KafkaSettings
from rootline.adapters.system_environment import SystemEnvironment
from rootline.coordinator.app import CoordinatorService
from rootline.schemas.bytes.intent_codec import encode_intent
from rootline.schemas.errors import Fenced, Invalid
from rootline.schemas.identifiers import TableName
from rootline.schemas.verdict import VerdictKind
from rootline.storage.warehouse import lake_of
from tests.coordinator.running_service import TABLE, append_intent, create_intent
from tests.kafka.coordinating import SharedTable, coordinating, coordinator_of, ready, sharing, until
from tests.kafka.feeding import add_partitions, committed, ended, make_anew, remove_before, set_limit
from tests.services.kafka_service import KafkaService
from tests.support.loaded_tables import load_table

pytestmark = pytest.mark.services
COMMITTED, REJECTED, DUPLICATE = VerdictKind.COMMITTED, VerdictKind.REJECTED, VerdictKind.DUPLICATE


@pytest.fixture
def settings(kafka_service: KafkaService) -> KafkaSettings:
    return kafka_service.with_topics(
        partitions=2, session_timeout_s=6, delivery_timeout_s=20, identity_max_age_s=0.5, request_timeout_s=5
    )


@pytest.fixture
async def shared(settings: KafkaSettings) -> AsyncIterator[SharedTable]:
    async with sharing(settings) as made:
        yield made


async def refusal_of(shared: SharedTable) -> Fenced:
    """How a coordinator that starts now ends."""
    async with asyncio.timeout(60):
        with pytest.raises(Fenced) as refusal:
            await coordinator_of(shared.settings, shared.store).run()
    return refusal.value


async def table_of_ten(shared: SharedTable) -> int:
    """Ten files, under a writer's key; the partition that they are on."""
    async with coordinating(shared.settings, shared.store):
        await shared.create()
        await shared.commit(*(append_intent(f"{n}", writer_id="job", writer_sequence=n) for n in range(10)))
        await shared.judge()
    return next(partition for partition, _ in shared.told)


async def replayed_after_acceptance(shared: SharedTable) -> None:
    """The operator accepts; the writer replays all it ever wrote, and one more."""
    accepted = await asyncio.to_thread(KafkaTopics(shared.settings).accept, apply=True)
    assert accepted
    async with sharing(shared.settings, shared.store) as anew, coordinating(shared.settings, shared.store):
        verdicts = await anew.commit(
            *(append_intent(f"replayed-{n}", writer_id="job", writer_sequence=n) for n in range(11))
        )
    assert [verdict.kind for verdict in verdicts] == [DUPLICATE] * 10 + [COMMITTED]
    assert await shared.live_files() == sorted([f"data/{n}.parquet" for n in range(10)] + ["data/replayed-10.parquet"])


async def test_a_topic_made_anew_under_a_running_coordinator_ends_it_and_an_operator_decides(
    shared: SharedTable,
) -> None:
    await table_of_ten(shared)
    service = coordinator_of(shared.settings, shared.store)
    task = asyncio.ensure_future(service.run())
    await ready(service)
    new = await asyncio.to_thread(make_anew, shared.settings, 2)
    async with asyncio.timeout(60):
        with pytest.raises(Fenced) as refusal:
            await task

    assert refusal.value.code == "log-replaced"
    assert new in refusal.value.message
    assert not service.readiness().ready
    assert (await refusal_of(shared)).code == "log-replaced", "starting again changes nothing"
    await replayed_after_acceptance(shared)


@pytest.mark.parametrize("grown_past_the_old_offset", [False, True])
async def test_a_topic_made_anew_while_nobody_ran_is_refused_until_an_operator_decides(
    shared: SharedTable, grown_past_the_old_offset: bool
) -> None:
    """apache/iceberg 15293; and a first draft of ours, which compared the offsets of two topics."""
    partition = await table_of_ten(shared)
    old = committed(shared.settings, partition)
    assert old == 11
    await asyncio.to_thread(make_anew, shared.settings, 2)
    async with sharing(shared.settings, shared.store) as anew:
        grown = 20 if grown_past_the_old_offset else 1
        positions = await anew.publish(*(append_intent(f"new-{n}", location="data/0.parquet") for n in range(grown)))
        assert (positions[-1].offset > old) == grown_past_the_old_offset
        refusal = await refusal_of(shared)
        assert refusal.code == "log-replaced"
        assert "rootline topics accept" in refusal.message
        versions = await shared.versions()

        await asyncio.to_thread(KafkaTopics(shared.settings).accept, apply=True)
        async with coordinating(shared.settings, shared.store):
            verdicts = await anew.verdicts(positions)
            assert {verdict.kind for verdict in verdicts} == {REJECTED}, "none of the new records was skipped"
        assert await shared.versions() > versions


async def test_undecided_records_that_retention_removed_are_named_and_an_operator_decides(shared: SharedTable) -> None:
    partition = await table_of_ten(shared)
    lost = await shared.publish(*(append_intent(f"lost-{n}") for n in range(5)))
    kept = await shared.publish(append_intent("kept"))
    await asyncio.to_thread(remove_before, shared.settings, partition, kept[0].offset)
    refusal = await refusal_of(shared)

    assert refusal.code == "offset-out-of-range"
    assert f"lost offsets {lost[0].offset} to {lost[-1].offset}" in refusal.message
    assert "rootline topics accept" in refusal.message
    await asyncio.to_thread(KafkaTopics(shared.settings).accept, apply=True)
    async with coordinating(shared.settings, shared.store):
        [verdict] = await shared.verdicts(kept)
    assert verdict.kind is COMMITTED
    assert "data/lost-0.parquet" not in await shared.live_files()


class ForeignTransaction:
    """Somebody's Kafka Streams, or Flink: records that may come to nothing."""

    def __init__(self, settings: KafkaSettings, partition: int, names: list[str]) -> None:
        self.producer = Producer(
            {"bootstrap.servers": settings.servers(), "transactional.id": settings.group_id, "log_level": 0}
        )
        self.producer.init_transactions(30)
        self.producer.begin_transaction()
        for name in names:
            value = encode_intent(append_intent(name))
            self.producer.produce(settings.intents_topic, value, TABLE, partition=partition)
        assert self.producer.flush(30) == 0
        self._place = settings, partition

    def commit(self) -> None:
        ended(*self._place, lambda: self.producer.commit_transaction(30))


async def test_what_a_foreign_producer_aborts_is_never_applied_and_what_it_commits_is(shared: SharedTable) -> None:
    partition = await table_of_ten(shared)
    async with coordinating(shared.settings, shared.store) as service:
        await ready(service)
        aborted = await asyncio.to_thread(ForeignTransaction, shared.settings, partition, ["aborted-0", "aborted-1"])
        [after] = await shared.publish(append_intent("after"))
        assert await shared.writer.wait_verdict(after, timeout_s=1) is None, "an open transaction holds back the rest"
        await asyncio.to_thread(aborted.producer.abort_transaction, 30)
        [verdict] = await shared.verdicts([after])
        assert verdict.kind is COMMITTED

        opened = await asyncio.to_thread(ForeignTransaction, shared.settings, partition, ["in-0", "in-1"])
        assert service.readiness().ready
        await asyncio.to_thread(opened.commit)
        await shared.judge()

    live = set(await shared.live_files())
    assert {"data/after.parquet", "data/in-0.parquet", "data/in-1.parquet"} <= live
    assert not live & {"data/aborted-0.parquet", "data/aborted-1.parquet"}


async def test_the_end_of_a_transaction_is_passed_so_that_retention_loses_nothing(shared: SharedTable) -> None:
    partition = await table_of_ten(shared)
    async with coordinating(shared.settings, shared.store):
        opened = await asyncio.to_thread(ForeignTransaction, shared.settings, partition, ["in"])
        await asyncio.to_thread(opened.commit)
        await shared.judge()
    await asyncio.to_thread(remove_before, shared.settings, partition, -1)  # all of it, after a while
    async with coordinating(shared.settings, shared.store):
        [verdict] = await shared.commit(append_intent("later"))

    assert verdict.kind is COMMITTED


async def test_a_table_whose_intents_moved_to_another_partition_decides_each_once(shared: SharedTable) -> None:
    """Somebody adds partitions while everything runs: two coordinators then have a partition of the table each."""
    total = 2
    async with (
        coordinating(shared.settings, shared.store, batch_intents_max=4) as one,
        coordinating(shared.settings, shared.store, batch_intents_max=4) as two,
    ):
        await shared.create()
        positions = await shared.publish(*(append_intent(f"0-{n}") for n in range(40)))
        while len({at.partition for at in positions}) == 1 and total < 12:
            total += 1
            await asyncio.to_thread(add_partitions, shared.settings, total)
            async with sharing(shared.settings, shared.store) as aware:  # a writer that starts now knows all of them
                positions += await aware.publish(*(append_intent(f"{total}-{n}") for n in range(40)))
        assert len({at.partition for at in positions}) == 2
        async with sharing(shared.settings, shared.store) as aware:
            await aware.judge()
            verdicts = [aware.watch.verdicts[at.partition, at.offset][0] for at in positions]
        await ready(one, two)

    assert {verdict.kind for verdict in verdicts} == {COMMITTED}
    assert len(await shared.live_files()) == len(positions)


@pytest.mark.parametrize("refusing", ["verdicts", "dead letters"])
async def test_a_topic_that_refuses_what_was_decided_holds_the_group_and_looks_ill(
    shared: SharedTable, refusing: str
) -> None:
    """redpanda 15878: healthy to look at, and dropping data."""
    partition = await table_of_ten(shared)
    settings = shared.settings
    topic = settings.verdicts_topic if refusing == "verdicts" else settings.dead_letters_topic
    async with coordinating(settings, shared.store, retry_delay_ms_max=200.0) as service:
        await ready(service)
        before = await asyncio.to_thread(committed, settings, partition)
        await asyncio.to_thread(set_limit, settings, topic, 60)
        positions = await shared.publish(append_intent("../out", location="../out"), append_intent("good"))
        await until(lambda: topic in service.readiness().reason, "readiness says what is wrong")
        assert not service.readiness().ready
        await until(lambda: _waits(service), "the metrics show that intents wait")
        await until(lambda: _is_live(shared, "data/good.parquet"), "what can be decided is")
        await shared.sample()
        assert shared.watch.committed[partition] == before == positions[0].offset
        await asyncio.to_thread(set_limit, settings, topic, None)
        verdicts = await shared.verdicts(positions)
        await shared.judge()
        await ready(service)

    assert [verdict.kind for verdict in verdicts] == [REJECTED, COMMITTED]


async def _is_live(shared: SharedTable, location: str) -> bool:
    return location in await shared.live_files()


async def _waits(service: CoordinatorService) -> bool:
    await service.measure()
    oldest_s = service.metrics.registry.get_sample_value("rootline_oldest_pending_intent_seconds")
    return oldest_s is not None and oldest_s > 0.5


async def test_writers_and_coordinators_of_another_lake_are_refused_with_both_names(shared: SharedTable) -> None:
    fresh_id = SystemEnvironment().fresh_id
    own = partial(lake_of, shared.store, "s3://ours/lake", fresh_id)
    another = partial(lake_of, MemoryObjectStore(), "s3://theirs/lake", fresh_id)
    claimed, other = await own(), await another()
    assert claimed is not None
    assert other is not None
    async with coordinating(shared.settings, shared.store, own):
        await shared.create()  # an older client, which says nothing of its lake
        await shared.writer.introduce(claimed._replace(place="an alias"))
        assert [verdict.kind for verdict in await shared.commit(append_intent("ours"))] == [COMMITTED]
        await shared.writer.introduce(other)
        [refused, made] = await shared.commit(append_intent("theirs"), create_intent(TableName("their.table")))
        assert await shared.live_files() == ["data/ours.parquet"]
        async with asyncio.timeout(60):
            with pytest.raises(Invalid) as refusal:
                await coordinator_of(shared.settings, MemoryObjectStore(), another).run()
    for code, message in (
        (refused.code, refused.message),
        (made.code, made.message),
        (refusal.value.code, refusal.value.message),
    ):
        assert code == "lake-mismatch"
        assert "s3://ours/lake" in (message or "")
        assert "s3://theirs/lake" in (message or "")
    assert await load_table(shared.store, TableName("their.table")) is None
