"""`rootline topics accept`: an operator lets the coordinators go on after a refusal."""

from __future__ import annotations

import asyncio

import pytest

from rootline.adapters.kafka.administration import KafkaTopics
from rootline.adapters.kafka.topics import topic_identity
from rootline.adapters.settings import KafkaSettings
from rootline.schemas.errors import Fenced, Invalid, Unavailable
from rootline.schemas.identifiers import LogId
from tests.cli.conftest import Run
from tests.cli.conftest import run as run
from tests.kafka.feeding import (
    append,
    committed,
    expire_offsets,
    make_anew,
    member_of,
    numbered,
    remove_before,
    set_bookmark,
    set_committed,
)
from tests.kafka.shared_log import in_environment
from tests.services.kafka_service import KafkaService
from tests.services.service_process import HOST, free_port

pytestmark = pytest.mark.services


@pytest.fixture
def named(kafka_service: KafkaService, monkeypatch: pytest.MonkeyPatch) -> KafkaSettings:
    """Topics named by the environment."""
    return in_environment(kafka_service.with_topics(partitions=2), monkeypatch)


async def read(settings: KafkaSettings, *, decided: int = 0) -> dict[int, list[int]]:
    """What a coordinator reads; it says that partition 0 is decided up to there."""
    async with member_of(settings) as member:
        await member.until(lambda: member.at_end)
        if decided:
            await member.decided(0, decided)
        return {partition: member.offsets(partition) for partition in member.starts}


def test_of_a_log_that_is_read_nothing_needs_to_be_accepted(run: Run, named: KafkaSettings) -> None:
    words = ("topics", "accept", "--log", named.url)
    append(named, 0, numbered(0, 10))
    assert (run(*words).code, run(*words).out) == (0, "there is nothing to accept\n")
    asyncio.run(read(named, decided=5))
    assert run(*words, "--yes", "--json").records == []
    assert committed(named, 0) == 5


def test_a_topic_made_anew_is_read_from_its_beginning_after_it_was_accepted(run: Run, named: KafkaSettings) -> None:
    words = ("topics", "accept", "--log", named.url)
    append(named, 0, numbered(0, 10))
    asyncio.run(read(named, decided=5))
    new = make_anew(named, partitions=2)
    append(named, 0, numbered(0, 7))

    shown = run(*words)
    assert shown.code == 1
    assert [line for line in shown.lines if "created again" in line and "offset 0" in line] == shown.lines[:2]
    assert shown.lines[2].startswith("nothing was changed")
    assert committed(named, 0) < 0
    with pytest.raises(Fenced):
        asyncio.run(read(named))

    done = run(*words, "--yes", "--json")
    assert done.code == 0
    assert [(record["partition"], record["log"], record["next_offset"]) for record in done.records] == [
        (0, new, 0),
        (1, new, 0),
    ]
    assert run(*words).code == 0
    assert asyncio.run(read(named, decided=2)) == {0: list(range(7)), 1: []}
    assert asyncio.run(read(named)) == {0: [2, 3, 4, 5, 6], 1: []}


def test_offsets_that_outlived_their_topic_are_named(run: Run, named: KafkaSettings) -> None:
    append(named, 0, numbered(0, 10))
    set_committed(named, 0, 5, "cluster/gone")
    (record,) = run("topics", "accept", "--log", named.url, "--yes", "--json").records
    assert (record["remembered"], record["remembered_log"], record["next_offset"]) == (5, "cluster/gone", 0)
    assert asyncio.run(read(named)) == {0: list(range(10)), 1: []}


def test_what_retention_removed_is_told_and_passed(run: Run, named: KafkaSettings) -> None:
    words = ("topics", "accept", "--log", named.url)
    append(named, 0, numbered(0, 20))
    asyncio.run(read(named, decided=5))
    remove_before(named, 0, 12)

    shown = run(*words)
    assert shown.code == 1
    assert (
        "retention removed records that may be undecided, offsets 5 to 11 (7); reading continues at offset 12"
        in shown.lines[0]
    )
    (record,) = run(*words, "--yes", "--json").records
    assert (record["partition"], record["removed"], record["accepted"]) == (0, 7, True)
    assert asyncio.run(read(named)) == {0: list(range(12, 20)), 1: []}


def test_a_log_of_which_nothing_is_known_is_accepted_from_its_beginning_on(run: Run, named: KafkaSettings) -> None:
    words = ("topics", "accept", "--log", named.url)
    append(named, 0, numbered(0, 20))
    remove_before(named, 0, 12)

    shown = run(*words)
    assert shown.code == 1
    assert "partition 0: the records before 12 were removed, and nothing shows that they were decided" in shown.lines[0]
    (record,) = run(*words, "--yes", "--json").records
    assert (record["partition"], record["remembered"], record["removed"]) == (0, None, None)
    expire_offsets(named)
    assert asyncio.run(read(named)) == {0: list(range(12, 20)), 1: []}, "the frontiers' topic knows it too"


async def test_nothing_is_accepted_while_a_coordinator_runs(settings: KafkaSettings) -> None:
    append(settings, 0, numbered(0, 20))
    topics = KafkaTopics(settings)
    async with member_of(settings) as member:
        await member.until(lambda: member.at_end)
        await member.decided(0, 5)
        remove_before(settings, 0, 12)
        assert len(await asyncio.to_thread(topics.accept, apply=False)) == 1
        with pytest.raises(Invalid, match=r"1 coordinators are running: .*stop them first") as refusal:
            await asyncio.to_thread(topics.accept, apply=True)
    assert refusal.value.code == "group-active"
    assert committed(settings, 0) == 5
    assert len(await asyncio.to_thread(topics.accept, apply=True)) == 1
    assert committed(settings, 0) == 12


def test_what_the_log_never_had_is_not_accepted(run: Run, named: KafkaSettings) -> None:
    log: LogId = topic_identity(named, named.intents_topic).log
    set_committed(named, 0, 3, log)
    set_bookmark(named, log)
    result = run("topics", "accept", "--log", named.url, "--yes")
    assert (result.code, "log-behind-root" in result.err) == (1, True)
    assert committed(named, 0) == 3


def test_without_a_broker_nothing_is_accepted() -> None:
    settings = KafkaSettings(bootstrap_servers=f"{HOST}:{free_port()}", request_timeout_s=0.3)
    with pytest.raises(Unavailable, match=settings.servers()):
        KafkaTopics(settings).accept(apply=True)
