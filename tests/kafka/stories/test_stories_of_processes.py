"""Coordinators that die, hang, leave, or are slow while partitions move: end to end (docs/invariants.md)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import structlog
from confluent_kafka import KafkaException

from rootline.adapters.settings import KafkaSettings
from rootline.schemas.errors import OutcomeUnknown, Unavailable
from rootline.schemas.identifiers import LogPosition, Version
from rootline.schemas.verdict import Verdict, VerdictKind
from rootline.storage.metadata.root_reader import read_root
from tests.coordinator.running_service import TABLE, append_intent
from tests.kafka.coordinating import SharedTable, coordinating, coordinator_of, elapsed, ready, sharing, until
from tests.kafka.feeding import set_limit
from tests.kafka.kafka_lake import KafkaLake
from tests.kafka.rootline_process import RootlineProcess, ending
from tests.services.kafka_service import KafkaService
from tests.services.s3_service import S3Service
from tests.services.toxiproxy import Toxiproxy

pytestmark = [pytest.mark.services, pytest.mark.slow]
SESSION_S = 6.0
OFTEN = {"ROOTLINE_COORDINATOR__OFFSETS_COMMIT_INTERVAL_S": "0.1", "ROOTLINE_COORDINATOR__PROBE_ROUNDS": "0"}
RARELY = {**OFTEN, "ROOTLINE_COORDINATOR__OFFSETS_COMMIT_INTERVAL_S": "600"}


@pytest.fixture
def kafka_service(mortal_kafka: KafkaService) -> KafkaService:
    """Not the broker of the other files: a test here kills it."""
    return mortal_kafka


@pytest.fixture
def settings(kafka_service: KafkaService) -> KafkaSettings:
    return kafka_service.with_topics(
        partitions=1, session_timeout_s=SESSION_S, rebalance_deadline_s=3, delivery_timeout_s=60, request_timeout_s=5
    )


@pytest.fixture
def lake(s3_service: S3Service, settings: KafkaSettings) -> KafkaLake:
    return KafkaLake(s3_service, settings)


@pytest.fixture
async def shared(lake: KafkaLake) -> AsyncIterator[SharedTable]:
    store = lake.store()
    async with sharing(lake.kafka, store) as made:
        yield made
    await store.close()


def process_of(lake: KafkaLake, name: str, folder: Path, settings: dict[str, str]) -> RootlineProcess:
    words = ("coordinator", "--http-port", "0")
    return RootlineProcess(name, words, {**lake.environment(), **settings}, folder)


def assignments(process: RootlineProcess) -> int:
    return sum(line.get("event") == "partitions assigned" and bool(line["partitions"]) for line in process.lines())


async def test_what_a_zombie_remembers_late_moves_nothing_back_and_skips_nothing(
    lake: KafkaLake, shared: SharedTable, tmp_path: Path
) -> None:
    """apache/iceberg 17551 and 16016: it was paused past its session, and wakes with offsets that it has not told."""
    zombie, heir = process_of(lake, "zombie", tmp_path, RARELY), process_of(lake, "heir", tmp_path, OFTEN)
    with ending(zombie, heir):
        zombie.start()
        await shared.create()
        await shared.commit(*(append_intent(f"first-{number}") for number in range(20)))
        await shared.sample()
        assert shared.watch.committed.get(0, 0) <= 1, "the first one has told nothing of them yet"
        zombie.pause()
        heir.start()
        await shared.commit(*(append_intent(f"second-{number}") for number in range(20)))

        async def has_told() -> bool:
            return (await shared.sample()).committed == {0: 41}

        await until(has_told, "the heir remembers what it has decided")
        zombie.resume()
        await until(lambda: _sampled(shared, assignments(heir) >= 2 or assignments(zombie) >= 2), "it has joined again")
        verdicts = await shared.commit(*(append_intent(f"third-{number}") for number in range(5)))
        heir.request_stop()
        await shared.commit(append_intent("last"))
        zombie.request_stop()
        await asyncio.to_thread(zombie.wait)
        await shared.judge()

    assert {verdict.kind for verdict in verdicts} == {VerdictKind.COMMITTED}
    assert len(await shared.live_files()) == 46


async def _sampled(shared: SharedTable, holds: bool) -> bool:
    await shared.sample()  # the group's offset does not go back meanwhile
    return holds


async def test_a_put_whose_outcome_nobody_heard_is_found_by_the_next_owner(
    lake: KafkaLake, shared: SharedTable, toxiproxy: Toxiproxy, tmp_path: Path
) -> None:
    """apache/iceberg 12792: the store has it, the reply is lost, and who waited for it is killed."""
    with toxiproxy.proxy(f"{lake.prefix}-s3", lake.s3.address) as way:
        dying = process_of(lake.through(s3_endpoint=way.endpoint), "dying", tmp_path, OFTEN)
        heir = process_of(lake, "heir", tmp_path, OFTEN)
        with ending(dying, heir):
            dying.start()
            await shared.create()
            way.add("timeout", stream="downstream", timeout=0)
            [at] = await shared.publish(append_intent("one"))
            await until(lambda: _has_versions(shared, 2), "the root is on the store")
            dying.kill()
            heir.start()
            [verdict] = await shared.verdicts([at])
            await shared.commit(append_intent("two"))
            await shared.judge()

    assert (verdict.kind, verdict.version) == (VerdictKind.COMMITTED, 1)
    root = await read_root(shared.store, TABLE, Version(1))
    assert root.header.coordinator_id == "dying.1"
    assert await shared.live_files() == ["data/one.parquet", "data/two.parquet"]


async def _has_versions(shared: SharedTable, wanted: int) -> bool:
    return await shared.versions() == wanted


async def test_a_rejection_whose_verdict_was_never_told_is_told_by_the_next_owner(
    lake: KafkaLake, shared: SharedTable, tmp_path: Path
) -> None:
    """A first draft of ours: a crash between a root that rejects and its verdict."""
    dying, heir = process_of(lake, "dying", tmp_path, OFTEN), process_of(lake, "heir", tmp_path, OFTEN)
    with ending(dying, heir):
        dying.start()
        await shared.create()
        await asyncio.to_thread(set_limit, lake.kafka, lake.kafka.verdicts_topic, 60)
        positions = await shared.publish(append_intent("../out", location="../out"), append_intent("good"))
        await until(lambda: _has_versions(shared, 2), "the root is on the store")
        dying.kill()
        await asyncio.to_thread(set_limit, lake.kafka, lake.kafka.verdicts_topic, None)
        heir.start()
        verdicts = await shared.verdicts(positions)
        judged = await shared.judge()

    assert [verdict.kind for verdict in verdicts] == [VerdictKind.REJECTED, VerdictKind.COMMITTED]
    assert await shared.versions() == 2, "what is decided is not decided again"
    assert judged.repeated == 0


async def test_a_coordinator_that_is_asked_to_stop_leaves_at_once(
    kafka_service: KafkaService, s3_service: S3Service, tmp_path: Path
) -> None:
    """The other takes over although the session would last for longer than anybody waits here."""
    patient = kafka_service.with_topics(partitions=2, session_timeout_s=600)
    lake = KafkaLake(s3_service, patient)
    store = lake.store()
    first, second = process_of(lake, "first", tmp_path, OFTEN), process_of(lake, "second", tmp_path, OFTEN)
    async with sharing(patient, store) as shared:
        with ending(first, second):
            first.start()
            second.start()
            await shared.create()
            for process in (first, second):  # whoever has the table's partition
                await asyncio.to_thread(first.wait_ready)
                await asyncio.to_thread(second.wait_ready)
                positions = await shared.publish(*(append_intent(f"{process.name}-{n}") for n in range(30)))
                process.request_stop()
                await shared.verdicts(positions)
                assert await asyncio.to_thread(process.wait) == 0
                process.start()
            await shared.judge()
        assert len(await shared.live_files()) == 60
    await store.close()


@pytest.mark.parametrize("answered_at", ["partitions revoked", "tables cut off"])
async def test_a_root_in_flight_when_partitions_move_is_decided_or_left_to_the_next_owner(
    shared: SharedTable, lake: KafkaLake, toxiproxy: Toxiproxy, answered_at: str
) -> None:
    """Within the rebalance's deadline it is finished, beyond it is cut off; either way it lands once."""
    logged: list[str] = []

    def note(_: object, __: str, line: structlog.typing.EventDict) -> structlog.typing.EventDict:
        logged.append(line["event"])
        raise structlog.DropEvent

    structlog.configure(processors=[note])
    with toxiproxy.proxy(f"{lake.prefix}-s3", lake.s3.address) as way:
        slow = lake.through(s3_endpoint=way.endpoint).store()
        async with coordinating(lake.kafka, shared.store):
            await shared.create()
        leaving = coordinator_of(lake.kafka, slow, request_timeout_s=20)
        task = asyncio.ensure_future(leaving.run())
        await ready(leaving)
        await shared.commit(append_intent("warm"))
        way.add("latency", stream="downstream", latency=60_000)
        [at] = await shared.publish(append_intent("one"))
        await until(lambda: _has_versions(shared, 3), "its PUT is under way")
        async with coordinating(lake.kafka, shared.store) as joining:
            await until(lambda: answered_at in logged, answered_at)
            was_cut_off = "tables cut off" in logged[: logged.index(answered_at) + 1]  # when it was said, not now
            way.mend()
            [verdict] = await shared.verdicts([at])
            leaving.request_stop()
            await task
            await ready(joining)
            await shared.commit(append_intent("two"))
            await shared.judge()
        await slow.close()

    assert (verdict.kind, verdict.version) == (VerdictKind.COMMITTED, 2)
    assert await shared.live_files() == ["data/one.parquet", "data/two.parquet", "data/warm.parquet"]
    assert was_cut_off == (answered_at == "tables cut off")


class StubbornWriter:
    """Publishes its intents one after the other, each until it has heard that the log has it."""

    def __init__(self, shared: SharedTable, name: str) -> None:
        self._shared = shared
        self._name = name
        self.positions: list[LogPosition] = []

    async def run(self, stop: asyncio.Event) -> list[Verdict]:
        sequence = 0
        while not stop.is_set():
            intent = append_intent(f"{self._name}-{sequence}", writer_id=self._name, writer_sequence=sequence)
            try:
                self.positions += await self._shared.publish(intent)
            except (OutcomeUnknown, Unavailable):
                await elapsed(0.05)
                continue
            sequence += 1
            await elapsed(0.02)
        return await self._shared.verdicts(self.positions)


async def test_a_broker_that_is_killed_in_the_middle_of_commits_loses_nothing_and_doubles_nothing(
    kafka_service: KafkaService, settings: KafkaSettings
) -> None:
    broker, stop = kafka_service.own(), asyncio.Event()
    async with sharing(settings) as shared, coordinating(settings, shared.store) as service:
        await shared.create()
        writers = [StubbornWriter(shared, f"w{number}") for number in range(4)]
        writing = [asyncio.ensure_future(writer.run(stop)) for writer in writers]
        for round_number in (1, 2):
            wanted = 40 * round_number
            await until(lambda wanted=wanted: _has_passed(shared, wanted), "it goes on")  # type: ignore[misc]
            broker.kill()
            await asyncio.to_thread(broker.start_again)
        await until(lambda: _has_passed(shared, 120), "it goes on")
        stop.set()
        verdicts = [verdict for found in await asyncio.gather(*writing) for verdict in found]
        await shared.judge()
        await ready(service)

    kinds = {verdict.kind for verdict in verdicts}
    assert kinds <= {VerdictKind.COMMITTED, VerdictKind.DUPLICATE}


async def _has_passed(shared: SharedTable, wanted: int) -> bool:
    try:
        return (await shared.sample()).committed.get(0, 0) >= wanted
    except KafkaException:  # it has just come back
        return False
