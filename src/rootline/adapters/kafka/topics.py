"""The five topics of a log: creating them, checking them, and their identity.

Owns: asking brokers, and what is created. Does not own: how each topic must be configured, and why
(`checks/topic_rules`), clients (`clients`), reading or writing records.
Invariants: a topic that exists is never changed; a problem names the topic, the configuration and the value it needs;
an identity is cluster id and topic *id*, so that a topic that was created again is another log.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic, ResourceType, TopicDescription

from rootline.adapters.kafka.checks.topic_rules import DEAD_LETTER_ROOM_BYTES as DEAD_LETTER_ROOM_BYTES
from rootline.adapters.kafka.checks.topic_rules import (
    MISSING,
    configurations,
    of_copies,
    of_dead_letters,
    of_frontiers,
    of_intents,
    of_parked,
    of_verdicts,
)
from rootline.adapters.kafka.checks.topic_rules import RECORD_ROOM_BYTES as RECORD_ROOM_BYTES
from rootline.adapters.kafka.checks.topic_rules import VERDICT_RECORD_BYTES as VERDICT_RECORD_BYTES
from rootline.adapters.kafka.checks.topic_rules import TopicProblem as TopicProblem
from rootline.adapters.kafka.checks.topic_rules import Weight as Weight
from rootline.adapters.kafka.clients import make_admin
from rootline.adapters.kafka.log_errors import log_unavailable
from rootline.adapters.kafka.settings import KafkaSettings
from rootline.schemas.errors import Invalid, Unavailable
from rootline.schemas.identifiers import LogId

_PAUSE_S: Final = 0.02
_PROPAGATION_S_MAX: Final = 10.0
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class TopicIdentity:
    """A topic as it is now."""

    log: LogId
    partitions: int


def topic_identity(settings: KafkaSettings, topic: str) -> TopicIdentity:
    """The topic's `<cluster id>/<topic id>` and its number of partitions; blocks.

    Raises:
        Unavailable: `log-unavailable`, no broker answers, or there is no such topic.

    """
    admin = make_admin(settings)
    description = _descriptions(admin, settings, [topic])[topic]
    if description is None:
        raise log_unavailable(settings, f"there is no topic {topic}: create it with `rootline topics create`")
    cluster = _answer(settings, admin.describe_cluster(request_timeout=settings.request_timeout_s))
    return TopicIdentity(LogId(f"{cluster.cluster_id}/{description.topic_id}"), len(description.partitions))


def topic_exists(settings: KafkaSettings, topic: str) -> bool:
    """Whether the brokers know `topic`; blocks. Raises `Unavailable` (`log-unavailable`)."""
    return _descriptions(make_admin(settings), settings, [topic])[topic] is not None


def record_bytes_max(settings: KafkaSettings, topic: str) -> int | None:
    """The largest batch that `topic` accepts; `None` if this client has no right to ask; blocks."""
    try:
        held = _configuration(make_admin(settings), settings, [ConfigResource(ResourceType.TOPIC, topic)])[topic]
        return int(held["max.message.bytes"])
    except (Unavailable, KeyError):
        return None


def create_topics(
    settings: KafkaSettings, *, partitions: int = 12, replication_factor: int | None = None
) -> tuple[str, ...]:
    """Create the topics of the five that do not exist; their names. Blocks.

    `replication_factor`: `None` leaves it to the brokers.

    Raises:
        Unavailable: `log-unavailable`. Invalid: `setting-invalid`, the broker refuses the topic with these options.

    """
    admin = make_admin(settings)
    names = topic_names(settings)
    before = _descriptions(admin, settings, names)
    wanted = configurations(settings, replication_factor or 0)
    copies = -1 if replication_factor is None else replication_factor
    # ask for all: the controller alone knows which ones exist, the brokers learn of changes a little later
    topics = [
        NewTopic(name, 1 if name == settings.frontiers_topic else partitions, copies, config=dict(wanted[name]))
        for name in names
    ]
    return _created(admin, settings, topics, before)


def complete_topics(settings: KafkaSettings) -> tuple[str, ...]:
    """Create what only coordinators use, if it is missing, as where an older version made the topics; blocks.

    The frontiers' topic and the topic of parked records get as many copies as the intents' topic has, the latter as
    many partitions too, also later. What the brokers refuse is left to `check_topics`.

    Raises:
        Unavailable: `log-unavailable`.

    """
    admin, own = make_admin(settings), (settings.frontiers_topic, settings.parked_topic)
    before = _descriptions(admin, settings, [settings.intents_topic, *own])
    intents, parked = before.pop(settings.intents_topic), before[settings.parked_topic]
    if intents is None:
        return ()
    partitions = len(intents.partitions)
    if parked is not None and len(parked.partitions) < partitions:
        _grow(admin, settings, settings.parked_topic, partitions)
    copies = min(len(partition.replicas) for partition in intents.partitions)
    wanted = configurations(settings, copies)
    missing = [
        NewTopic(name, 1 if name == settings.frontiers_topic else partitions, copies, config=dict(wanted[name]))
        for name in own
        if before[name] is None
    ]
    return _created(admin, settings, missing, before) if missing else ()


def _grow(admin: AdminClient, settings: KafkaSettings, name: str, partitions: int) -> None:
    """Perhaps another coordinator has done it, or this one may not: `check_topics` says what is wrong."""
    asked = admin.create_partitions([NewPartitions(name, partitions)], operation_timeout=settings.request_timeout_s)
    with contextlib.suppress(KafkaException):
        asked[name].result()


def _created(
    admin: AdminClient,
    settings: KafkaSettings,
    topics: Sequence[NewTopic],
    before: Mapping[str, TopicDescription | None],
) -> tuple[str, ...]:
    made: list[str] = []
    for name, future in admin.create_topics(list(topics), operation_timeout=settings.request_timeout_s).items():
        try:
            future.result()
        except KafkaException as error:
            code = error.args[0].code()
            if code == KafkaError.TOPIC_ALREADY_EXISTS:
                continue
            if code in (
                KafkaError.INVALID_REPLICATION_FACTOR,
                KafkaError.INVALID_PARTITIONS,
                KafkaError.INVALID_CONFIG,
            ):
                raise Invalid("setting-invalid", f"{settings.url}: topic {name}: {error.args[0].str()}") from None
            raise log_unavailable(settings, error) from None
        made.append(name)
    if made:
        _await_brokers(admin, settings, {name: before[name] for name in made})
    return tuple(made)


def _await_brokers(admin: AdminClient, settings: KafkaSettings, before: Mapping[str, TopicDescription | None]) -> None:
    """Wait until the brokers know the new topics, and no longer the topics `before`; ten seconds at most.

    A writer that publishes earlier would be told that there is no such topic, or write to the old one.
    """
    deadline = time.monotonic() + _PROPAGATION_S_MAX
    while time.monotonic() < deadline:
        found = _descriptions(admin, settings, list(before))
        if all(_is_new(found[name], old) for name, old in before.items()):
            return
        time.sleep(_PAUSE_S)


def _is_new(found: TopicDescription | None, old: TopicDescription | None) -> bool:
    if found is None or (old is not None and str(found.topic_id) == str(old.topic_id)):
        return False
    return all(partition.leader is not None for partition in found.partitions)


def check_topics(settings: KafkaSettings) -> list[TopicProblem]:
    """What is wrong with the five topics, first the problems that lose records; blocks.

    Raises:
        Unavailable: `log-unavailable`.

    """
    admin = make_admin(settings)
    described = _descriptions(admin, settings, topic_names(settings))
    resources = [ConfigResource(ResourceType.TOPIC, name) for name, found in described.items() if found is not None]
    held = _configuration(admin, settings, resources) if resources else {}
    present = {name: found for name, found in described.items() if found is not None and name in held}
    problems = [
        TopicProblem(name, "the topic", MISSING, "existing", "create it with `rootline topics create`")
        for name in described
        if name not in present
    ]
    if settings.intents_topic in held:
        problems += of_intents(settings, held[settings.intents_topic])
    if settings.verdicts_topic in held:
        problems += of_verdicts(settings, held[settings.verdicts_topic])
    if settings.frontiers_topic in held:
        problems += of_frontiers(settings, held[settings.frontiers_topic])
    if settings.parked_topic in held:
        counts = {name: len(found.partitions) for name, found in present.items()}
        own, wanted = counts[settings.parked_topic], counts.get(settings.intents_topic, 0)
        intents = held.get(settings.intents_topic)
        problems += of_parked(settings, held[settings.parked_topic], intents, (own, wanted))
    if settings.dead_letters_topic in held:
        problems += of_dead_letters(settings, held[settings.dead_letters_topic], held.get(settings.intents_topic))
    for name, description in present.items():
        problems += of_copies(name, description, held[name])
    return sorted(problems, key=lambda problem: problem.weight is not Weight.REFUSED)


def topic_names(settings: KafkaSettings) -> tuple[str, str, str, str, str]:
    """Intents, verdicts, dead letters, frontiers, parked. Raises `Invalid` (`setting-invalid`) if two are the same."""
    names = (
        settings.intents_topic,
        settings.verdicts_topic,
        settings.dead_letters_topic,
        settings.frontiers_topic,
        settings.parked_topic,
    )
    if len(set(names)) < len(names):
        raise Invalid(
            "setting-invalid",
            f"the five topics need five names, but they are {', '.join(names)}: change ROOTLINE_KAFKA__…_TOPIC",
        )
    return names


def _descriptions(
    admin: AdminClient, settings: KafkaSettings, topics: Sequence[str]
) -> dict[str, TopicDescription | None]:
    def asked() -> dict[str, TopicDescription | None]:
        futures = admin.describe_topics(TopicCollection(list(topics)), request_timeout=settings.request_timeout_s)
        return {name: _described(future) for name, future in futures.items()}

    return _reached(settings, asked)


def _described(future: Future[_T]) -> _T | None:
    """What is said of a topic; `None`: there is no such topic."""
    try:
        return future.result()
    except KafkaException as error:
        if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return None
        raise


def _configuration(
    admin: AdminClient, settings: KafkaSettings, resources: list[ConfigResource]
) -> dict[str, dict[str, str]]:
    """Topic → its configuration; a topic that was deleted a moment ago is left out."""

    def asked() -> dict[str, dict[str, str]]:
        futures = admin.describe_configs(resources, request_timeout=settings.request_timeout_s)
        found = {resource.name: _described(future) for resource, future in futures.items()}
        return {
            name: {entry.name: entry.value for entry in entries.values()}
            for name, entries in found.items()
            if entries is not None
        }

    return _reached(settings, asked)


def _answer(settings: KafkaSettings, future: Future[_T]) -> _T:
    return _reached(settings, future.result)


def _reached(settings: KafkaSettings, ask: Callable[[], _T]) -> _T:
    try:
        return ask()
    except KafkaException as error:
        raise log_unavailable(settings, error) from None
