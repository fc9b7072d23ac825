"""Topics made and held against what Rootline needs."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from rootline.adapters.kafka.administration import KafkaTopics, kafka_keeps
from rootline.adapters.kafka.topics import (
    Weight,
    check_topics,
    complete_topics,
    create_topics,
    topic_identity,
    topic_names,
)
from rootline.adapters.settings import KafkaSettings
from rootline.ports.intent_log import LogKeeps
from rootline.schemas.errors import Invalid, Unavailable
from tests.kafka.feeding import add_partitions, make_anew, until_shown
from tests.kafka.reading import records_on
from tests.services.kafka_service import KafkaService
from tests.services.service_process import HOST, free_port

pytestmark = pytest.mark.services
WEEK = str(7 * 24 * 3_600_000)
RIGHT = {
    "intents": {"message.timestamp.type": "LogAppendTime", "retention.ms": WEEK},
    "verdicts": {},
    "dead-letters": {"max.message.bytes": "1114124", "retention.ms": WEEK},
    "frontiers": {"cleanup.policy": "compact"},
    "parked": {"retention.ms": "-1", "max.message.bytes": "1114124"},
}


def make(settings: KafkaSettings, topic: str, **config: str) -> None:
    """The five topics as they should be, but one with `config`."""
    admin = AdminClient({"bootstrap.servers": settings.servers(), "log_level": 0})
    wrong = {name.replace("_", "."): value for name, value in config.items()}
    names = topic_names(settings)
    topics = [
        NewTopic(name, 1, 1, config=held | (wrong if kind == topic else {}))
        for name, (kind, held) in zip(names, RIGHT.items(), strict=True)
    ]
    for future in admin.create_topics(topics).values():
        future.result(60)
    until_shown(lambda: not missing(settings), "the topics")


def missing(settings: KafkaSettings) -> int:
    """How many topics there are not."""
    return sum(problem.found == "missing" for problem in check_topics(settings))


async def test_the_brokers_say_how_long_they_keep_intents_and_for_ever_is_no_time(kafka_service: KafkaService) -> None:
    settings = kafka_service.settings()
    with pytest.raises(Unavailable, match="do not report how long"):
        await kafka_keeps(settings)
    make(settings, "intents", retention_ms="86400000")
    assert await kafka_keeps(settings) == LogKeeps(86_400, 7 * 24 * 3_600)
    endless = kafka_service.settings()
    make(endless, "intents", retention_ms="-1")
    assert await kafka_keeps(endless) is None


def test_topics_that_were_made_have_no_problem_but_their_single_copy(kafka_service: KafkaService) -> None:
    settings = kafka_service.settings()

    made = create_topics(settings, partitions=3, replication_factor=1)

    assert made == topic_names(settings)
    assert create_topics(settings, partitions=3, replication_factor=1) == ()
    problems = check_topics(settings)
    assert [(problem.setting, problem.weight) for problem in problems] == [
        ("the replication factor", Weight.ADVISED)
    ] * 5
    assert topic_identity(settings, settings.intents_topic).partitions == 3
    assert topic_identity(settings, settings.frontiers_topic).partitions == 1
    assert topic_identity(settings, settings.parked_topic).partitions == 3


@pytest.mark.parametrize(
    ("topic", "setting", "value", "wanted", "weight"),
    [
        ("intents", "cleanup.policy", "compact", "delete", "refused"),
        ("intents", "cleanup.policy", "compact,delete", "delete", "refused"),
        ("intents", "retention.ms", "3600000", f"{WEEK} or more", "refused"),
        ("intents", "retention.bytes", "1000000000", "-1", "advised"),
        ("intents", "max.message.bytes", "500000", "1004096 or more", "refused"),
        ("intents", "message.timestamp.type", "CreateTime", "LogAppendTime", "refused"),
        ("verdicts", "cleanup.policy", "compact", "delete", "advised"),
        ("verdicts", "retention.ms", "60000", "3600000 or more", "advised"),
        ("verdicts", "max.message.bytes", "100000", "524288 or more", "refused"),
        ("dead-letters", "cleanup.policy", "compact", "delete", "refused"),
        ("dead-letters", "max.message.bytes", "1048588", "1114124 or more", "refused"),
        ("dead-letters", "retention.ms", "3600000", f"{WEEK} or more", "advised"),
        ("frontiers", "cleanup.policy", "delete", "compact", "refused"),
        ("frontiers", "cleanup.policy", "compact,delete", "compact", "refused"),
        ("parked", "cleanup.policy", "compact", "delete", "refused"),
        ("parked", "retention.ms", WEEK, "-1", "refused"),
        ("parked", "retention.bytes", "1000000", "-1", "refused"),
        ("parked", "max.message.bytes", "1048588", "1114124 or more", "advised"),
    ],
)
def test_a_setting_that_loses_records_is_named_with_the_value_it_needs(
    kafka_service: KafkaService, topic: str, setting: str, value: str, wanted: str, weight: str
) -> None:
    settings = kafka_service.settings()
    make(settings, topic, **{setting.replace(".", "_"): value})

    (problem,) = [found for found in check_topics(settings) if found.setting != "the replication factor"]

    assert problem.topic.endswith(f".{topic}")
    assert (problem.setting, problem.found, problem.wanted, problem.weight) == (setting, value, wanted, weight)
    assert f"{setting} is {value}, set it to {wanted}: " in str(problem)


def test_intents_without_end_ask_the_same_of_dead_letters(kafka_service: KafkaService) -> None:
    settings = kafka_service.settings()
    make(settings, "intents", retention_ms="-1")

    (problem,) = [found for found in check_topics(settings) if found.setting != "the replication factor"]

    assert (problem.topic, problem.setting, problem.wanted) == (settings.dead_letters_topic, "retention.ms", "-1")


def test_missing_topics_are_named(kafka_service: KafkaService) -> None:
    settings = kafka_service.settings()

    problems = check_topics(settings)
    assert [(problem.topic, problem.found) for problem in problems] == [
        (settings.intents_topic, "missing"),
        (settings.verdicts_topic, "missing"),
        (settings.dead_letters_topic, "missing"),
        (settings.frontiers_topic, "missing"),
        (settings.parked_topic, "missing"),
    ]
    assert [str(problem) for problem in problems] == [
        f"topic {problem.topic} is missing: create it with `rootline topics create`" for problem in problems
    ]


def test_brokers_that_forget_offsets_sooner_than_the_log_its_records_are_named(kafka_service: KafkaService) -> None:
    settings = kafka_service.settings()
    make(settings, "intents", retention_ms=str(8 * 24 * 3_600_000))

    (problem,) = [found for found in KafkaTopics(settings).check() if "offsets.retention" in found.setting]

    assert (problem.found, problem.wanted, problem.weight) == ("10080", "11520 or more", Weight.ADVISED)
    assert "set it to 11520 or more" in str(problem)


def test_only_the_coordinators_own_topics_are_made_by_a_coordinator(kafka_service: KafkaService) -> None:
    settings = kafka_service.with_topics(partitions=3)
    admin = AdminClient({"bootstrap.servers": settings.servers(), "log_level": 0})
    assert complete_topics(settings) == ()
    gone = [settings.frontiers_topic, settings.parked_topic, settings.verdicts_topic]
    for future in admin.delete_topics(gone).values():
        future.result(60)
    until_shown(lambda: missing(settings) == 3, "three topics are gone")

    assert set(complete_topics(settings)) == {settings.frontiers_topic, settings.parked_topic}
    assert topic_identity(settings, settings.parked_topic).partitions == 3
    assert [problem.topic for problem in check_topics(settings) if problem.found == "missing"] == [
        settings.verdicts_topic
    ]


def test_the_topic_of_parked_records_gets_the_partitions_that_the_intents_topic_gets(
    kafka_service: KafkaService,
) -> None:
    settings = kafka_service.with_topics(partitions=1)
    add_partitions(settings, 3)
    found = []
    while not found:  # the brokers hear of it a little later
        found = [problem for problem in check_topics(settings) if problem.setting == "partitions"]
    [problem] = found
    assert (problem.topic, problem.found, problem.wanted) == (settings.parked_topic, "1", "3")
    while complete_topics(settings) == () and topic_identity(settings, settings.parked_topic).partitions < 3:
        pass  # the brokers hear of it a little later


def test_the_log_appends_its_own_time(kafka_service: KafkaService) -> None:
    from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Producer

    settings = kafka_service.with_topics()
    producer = Producer({"bootstrap.servers": settings.servers(), "log_level": 0})
    producer.produce(settings.intents_topic, b"v", b"k", timestamp=1)
    assert producer.flush(30) == 0

    (found,) = records_on(settings, settings.intents_topic)
    assert found.timestamp_type == TIMESTAMP_LOG_APPEND_TIME


def test_a_topic_made_anew_has_another_identity(kafka_service: KafkaService) -> None:
    settings = kafka_service.with_topics()
    before = topic_identity(settings, settings.intents_topic)
    make_anew(settings)

    after = topic_identity(settings, settings.intents_topic)

    assert after.log != before.log
    assert after.log.partition("/")[0] == before.log.partition("/")[0]


def test_more_copies_than_brokers_are_refused_with_the_brokers_words(kafka_service: KafkaService) -> None:
    with pytest.raises(Invalid, match="replication factor"):
        create_topics(kafka_service.settings(), replication_factor=5)


def test_two_topics_cannot_share_a_name(kafka_service: KafkaService) -> None:
    settings = kafka_service.settings(verdicts_topic="same", dead_letters_topic="same")
    with pytest.raises(Invalid, match="five names"):
        check_topics(settings)


def test_without_a_broker_the_servers_are_named() -> None:
    settings = KafkaSettings(bootstrap_servers=f"{HOST}:{free_port()}", request_timeout_s=0.3)
    with pytest.raises(Unavailable, match=settings.servers()) as failure:
        check_topics(settings)
    assert failure.value.code == "log-unavailable"
