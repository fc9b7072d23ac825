"""The five topics of a log: their configurations, creating them, checking them, and their identity.

Owns: the rules over the brokers' answers, asking brokers, the topics that are created. Does not own: clients
(`clients`), reading or writing records.
Invariants: A topic that exists is never changed, except that partitions are added to the topic of parked records. A
problem names the topic, the configuration and the value it needs. A configuration that loses records is refused. An
identity is cluster id and topic *id*, so that a topic that was created again is another log.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic, ResourceType, TopicDescription

from rootline.adapters.kafka.clients import log_unavailable, make_admin
from rootline.adapters.settings import KafkaSettings
from rootline.schemas.errors import Invalid, Unavailable
from rootline.schemas.identifiers import LogId

DEAD_LETTER_ROOM_BYTES: Final = 65_536
RECORD_ROOM_BYTES: Final = 4_096
"""More than a batch adds to one intent: the batch header, the key, and the record's fields."""
VERDICT_RECORD_BYTES: Final = 524_288
MISSING: Final = "missing"
_HOUR_MS: Final = 3_600_000
_VERDICTS_RETENTION_HOURS: Final = 24


class Weight(StrEnum):
    """The weight of a problem.

    `REFUSED`: records would be lost, so nothing starts. `ADVISED`: a risk that may be accepted.
    """

    REFUSED = "refused"
    ADVISED = "advised"


@dataclass(frozen=True, slots=True)
class TopicProblem:
    """A problem of `topic`: its `setting` is `found`, and should be `wanted`, because of `reason`."""

    topic: str
    setting: str
    found: str
    wanted: str
    reason: str
    weight: Weight = Weight.REFUSED

    def __str__(self) -> str:
        if self.found == MISSING:
            return f"topic {self.topic} is missing: {self.reason}"
        return f"topic {self.topic}: {self.setting} is {self.found}, set it to {self.wanted}: {self.reason}"


def configurations(settings: KafkaSettings, copies: int) -> Mapping[str, Mapping[str, str]]:
    """The configuration with which each topic is created, by name."""
    keep_ms = settings.intents_retention_min_hours * _HOUR_MS
    size = _intents_bytes(settings)
    in_sync = {"min.insync.replicas": "2"} if copies > 2 else {}
    shared = {"cleanup.policy": "delete", **in_sync}
    return {
        settings.intents_topic: shared
        | {
            "retention.ms": str(keep_ms),
            "retention.bytes": "-1",
            "max.message.bytes": str(size),
            "message.timestamp.type": "LogAppendTime",
        },
        settings.verdicts_topic: shared | {"retention.ms": str(_VERDICTS_RETENTION_HOURS * _HOUR_MS)},
        settings.dead_letters_topic: shared
        | {"retention.ms": str(4 * keep_ms), "max.message.bytes": str(size + DEAD_LETTER_ROOM_BYTES)},
        settings.frontiers_topic: in_sync  # it is read completely when partitions are assigned, so it must be short
        | {"cleanup.policy": "compact", "segment.ms": str(_HOUR_MS), "min.cleanable.dirty.ratio": "0.1"},
        settings.parked_topic: shared
        | {"retention.ms": "-1", "retention.bytes": "-1", "max.message.bytes": str(size + DEAD_LETTER_ROOM_BYTES)},
    }


def _intents_bytes(settings: KafkaSettings) -> int:
    return max(settings.intent_bytes_max + RECORD_ROOM_BYTES, 1_048_588)  # the second value is Kafka's default


def of_intents(settings: KafkaSettings, held: Mapping[str, str]) -> Iterable[TopicProblem]:
    """Check that intents are not removed before they are decided."""
    name = settings.intents_topic
    yield from _uncompacted(name, held, Weight.REFUSED, "an intent would be removed when its table gets a newer one")
    shortest = settings.intents_retention_min_hours * _HOUR_MS
    yield from _at_least(
        name,
        held,
        "retention.ms",
        shortest,
        "intents could be removed before a coordinator returns and decides them",
    )
    if held["retention.bytes"] != "-1":
        yield TopicProblem(
            name,
            "retention.bytes",
            held["retention.bytes"],
            "-1",
            "a burst of intents could remove undecided ones",
            Weight.ADVISED,
        )
    least = settings.intent_bytes_max + RECORD_ROOM_BYTES
    yield from _at_least(name, held, "max.message.bytes", least, "the largest allowed intent would not fit")
    if held["message.timestamp.type"] != "LogAppendTime":
        yield TopicProblem(
            name,
            "message.timestamp.type",
            held["message.timestamp.type"],
            "LogAppendTime",
            "retention and the age of an intent must not depend on a writer's clock",
        )


def of_verdicts(settings: KafkaSettings, held: Mapping[str, str]) -> Iterable[TopicProblem]:
    """Yield the problems of the verdicts topic that would make waiting writers miss their verdicts."""
    name = settings.verdicts_topic
    yield from _uncompacted(name, held, Weight.ADVISED, "a slow writer would miss verdicts and publish again")
    yield from _at_least(
        name, held, "retention.ms", _HOUR_MS, "writers would miss verdicts and publish again", Weight.ADVISED
    )
    yield from _at_least(
        name, held, "max.message.bytes", VERDICT_RECORD_BYTES, "a record of many verdicts would not fit"
    )


def of_dead_letters(
    settings: KafkaSettings, held: Mapping[str, str], intents: Mapping[str, str] | None
) -> Iterable[TopicProblem]:
    """Yield the problems of the dead letters topic. A dead letter is an intent with the reason for its rejection."""
    name = settings.dead_letters_topic
    yield from _uncompacted(
        name, held, Weight.REFUSED, "a rejected record would be removed when its table gets another one"
    )
    size = int(intents["max.message.bytes"]) if intents else _intents_bytes(settings)
    yield from _at_least(
        name,
        held,
        "max.message.bytes",
        size + DEAD_LETTER_ROOM_BYTES,
        "the largest intent with the reason for its rejection would not fit, and its partition would stop",
    )
    keep = int(intents["retention.ms"]) if intents else settings.intents_retention_min_hours * _HOUR_MS
    yield from _at_least(
        name, held, "retention.ms", keep, "rejected records would be removed before the intents", Weight.ADVISED
    )


def of_frontiers(settings: KafkaSettings, held: Mapping[str, str]) -> Iterable[TopicProblem]:
    """Check that the frontiers of partitions are not removed."""
    if held["cleanup.policy"] != "compact":
        reason = "the decided offsets of partitions would be removed, and coordinators would refuse to start"
        yield TopicProblem(settings.frontiers_topic, "cleanup.policy", held["cleanup.policy"], "compact", reason)


def of_parked(
    settings: KafkaSettings, held: Mapping[str, str], intents: Mapping[str, str] | None, partitions: tuple[int, int]
) -> Iterable[TopicProblem]:
    """Check that parked records are kept until they are decided.

    `partitions`: the number of partitions of this topic and of the intents' topic.
    """
    name = settings.parked_topic
    removed = "undecided records of a parked table would be removed"
    yield from _uncompacted(name, held, Weight.REFUSED, removed)
    for setting in ("retention.ms", "retention.bytes"):
        if held[setting] != "-1":
            yield TopicProblem(name, setting, held[setting], "-1", removed)
    size = int(intents["max.message.bytes"]) if intents else _intents_bytes(settings)
    too_large = "the largest intent would not fit, and would be rejected if its table is parked"
    yield from _at_least(name, held, "max.message.bytes", size + DEAD_LETTER_ROOM_BYTES, too_large, Weight.ADVISED)
    own, wanted = partitions
    if own < wanted:
        reason = "a blocked table would keep the offset of its partition from advancing"
        yield TopicProblem(name, "partitions", str(own), str(wanted), reason, Weight.ADVISED)


def of_copies(name: str, description: TopicDescription, held: Mapping[str, str]) -> Iterable[TopicProblem]:
    """Check that acknowledged records survive the failure of one disk."""
    copies = min((len(partition.replicas) for partition in description.partitions), default=0)
    if copies < 3:
        yield TopicProblem(
            name,
            "the replication factor",
            str(copies),
            "3",
            "acknowledged records would be lost with one disk",
            Weight.ADVISED,
        )
    elif held["min.insync.replicas"] == "1":
        yield TopicProblem(
            name,
            "min.insync.replicas",
            "1",
            "2",
            "a record would be acknowledged while only one broker has it",
            Weight.ADVISED,
        )


def _uncompacted(name: str, held: Mapping[str, str], weight: Weight, reason: str) -> Iterable[TopicProblem]:
    if "compact" in held["cleanup.policy"]:
        yield TopicProblem(name, "cleanup.policy", held["cleanup.policy"], "delete", reason, weight)


def _at_least(
    name: str, held: Mapping[str, str], setting: str, least: int, reason: str, weight: Weight = Weight.REFUSED
) -> Iterable[TopicProblem]:
    value = int(held[setting])
    if value != -1 and (least == -1 or value < least):  # -1: unlimited
        yield TopicProblem(name, setting, str(value), f"{least} or more" if least != -1 else "-1", reason, weight)


_PAUSE_S: Final = 0.02
_PROPAGATION_S_MAX: Final = 10.0
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class TopicIdentity:
    """The identity of a topic, and its present number of partitions."""

    log: LogId
    partitions: int


def topic_identity(settings: KafkaSettings, topic: str) -> TopicIdentity:
    """The topic's `<cluster id>/<topic id>` and its number of partitions. Blocks.

    Raises:
        Unavailable: `log-unavailable`, no broker answers, or the topic does not exist.
    """
    admin = make_admin(settings)
    description = _descriptions(admin, settings, [topic])[topic]
    if description is None:
        raise log_unavailable(settings, f"there is no topic {topic}: create it with `rootline topics create`")
    cluster = _reached(settings, admin.describe_cluster(request_timeout=settings.request_timeout_s).result)
    return TopicIdentity(LogId(f"{cluster.cluster_id}/{description.topic_id}"), len(description.partitions))


def topic_exists(settings: KafkaSettings, topic: str) -> bool:
    """Whether the brokers know `topic`. Blocks. Raises `Unavailable` (`log-unavailable`)."""
    return _descriptions(make_admin(settings), settings, [topic])[topic] is not None


def record_bytes_max(settings: KafkaSettings, topic: str) -> int | None:
    """The largest batch that `topic` accepts, or `None` if this client has no right to ask. Blocks."""
    try:
        held = _configuration(make_admin(settings), settings, [ConfigResource(ResourceType.TOPIC, topic)])[topic]
        return int(held["max.message.bytes"])
    except (Unavailable, KeyError):
        return None


def create_topics(
    settings: KafkaSettings, *, partitions: int = 12, replication_factor: int | None = None
) -> tuple[str, ...]:
    """Create those of the five topics that do not exist, and return their names. Blocks.

    `replication_factor`: `None` uses the brokers' default.

    Raises:
        Unavailable: `log-unavailable`. Invalid: `setting-invalid`, the broker refuses the topic with these options.
    """
    admin = make_admin(settings)
    names = topic_names(settings)
    before = _descriptions(admin, settings, names)
    wanted = configurations(settings, replication_factor or 0)
    copies = -1 if replication_factor is None else replication_factor
    # request all topics: only the controller knows which ones exist, and the other brokers follow a little later
    topics = [
        NewTopic(name, 1 if name == settings.frontiers_topic else partitions, copies, config=dict(wanted[name]))
        for name in names
    ]
    return _created(admin, settings, topics, before)


def complete_topics(settings: KafkaSettings) -> tuple[str, ...]:
    """Create the topics that only coordinators use, if an older version has not created them. Blocks.

    The frontiers' topic and the topic of parked records get as many replicas as the intents' topic. The topic of parked
    records also gets as many partitions, even if that number grows later. An error while partitions are added is
    ignored, because `check_topics` reports missing ones.

    Raises:
        Unavailable: `log-unavailable`. Invalid: `setting-invalid`, the broker refuses a topic.
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
    """Add partitions to a topic.

    Errors are ignored: another coordinator may have added them, and `check_topics` reports those that are missing.
    """
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
    """Wait, at most ten seconds, until the brokers know the new topics and no longer the topics `before`.

    A writer that publishes earlier would be refused because the topic does not exist, or write to the old one.
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
    """The problems of the five topics, starting with those that lose records. Blocks.

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
    """The topics of intents, verdicts, dead letters, frontiers and parked records.

    Raises `Invalid` (`setting-invalid`) if two have the same name.
    """
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
            f"the five topics need five names, but they are {', '.join(names)}. Change ROOTLINE_KAFKA__…_TOPIC",
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
    """The broker's answer about a topic, or `None` if the topic does not exist."""
    try:
        return future.result()
    except KafkaException as error:
        if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return None
        raise


def _configuration(
    admin: AdminClient, settings: KafkaSettings, resources: list[ConfigResource]
) -> dict[str, dict[str, str]]:
    """Topic → its configuration, without topics that were deleted a moment ago."""

    def asked() -> dict[str, dict[str, str]]:
        futures = admin.describe_configs(resources, request_timeout=settings.request_timeout_s)
        found = {resource.name: _described(future) for resource, future in futures.items()}
        return {
            name: {entry.name: entry.value for entry in entries.values()}
            for name, entries in found.items()
            if entries is not None
        }

    return _reached(settings, asked)


def _reached(settings: KafkaSettings, ask: Callable[[], _T]) -> _T:
    try:
        return ask()
    except KafkaException as error:
        raise log_unavailable(settings, error) from None
