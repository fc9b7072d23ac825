"""What each topic of a log must be like, and why: pure rules over what the brokers say of it.

Owns: the configurations and the problems. Does not own: asking brokers, creating topics (`topics`).
Invariants: a problem names the topic, the configuration and the value it needs; what loses records is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from confluent_kafka.admin import TopicDescription

from rootline.adapters.kafka.settings import KafkaSettings

DEAD_LETTER_ROOM_BYTES: Final = 65_536
RECORD_ROOM_BYTES: Final = 4_096
"""What a batch adds to one intent: its own header, the key, the record's fields."""
VERDICT_RECORD_BYTES: Final = 524_288
MISSING: Final = "missing"
_HOUR_MS: Final = 3_600_000
_VERDICTS_RETENTION_HOURS: Final = 24


class Weight(StrEnum):
    """What a problem means: `REFUSED` loses records, so nothing starts; `ADVISED` is a risk that may be accepted."""

    REFUSED = "refused"
    ADVISED = "advised"


@dataclass(frozen=True, slots=True)
class TopicProblem:
    """What is wrong with `topic`: its `setting` is `found`, and should be `wanted`, because of `reason`."""

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
    """How each topic is made, by name."""
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
        settings.frontiers_topic: in_sync  # it is read whole when partitions are assigned: keep it short
        | {"cleanup.policy": "compact", "segment.ms": str(_HOUR_MS), "min.cleanable.dirty.ratio": "0.1"},
        settings.parked_topic: shared
        | {"retention.ms": "-1", "retention.bytes": "-1", "max.message.bytes": str(size + DEAD_LETTER_ROOM_BYTES)},
    }


def _intents_bytes(settings: KafkaSettings) -> int:
    return max(settings.intent_bytes_max + RECORD_ROOM_BYTES, 1_048_588)  # the second is Kafka's own default


def of_intents(settings: KafkaSettings, held: Mapping[str, str]) -> Iterable[TopicProblem]:
    """Intents must not be removed before they are decided."""
    name = settings.intents_topic
    yield from _uncompacted(name, held, Weight.REFUSED, "an intent would be removed when its table gets a newer one")
    shortest = settings.intents_retention_min_hours * _HOUR_MS
    yield from _at_least(
        name,
        held,
        "retention.ms",
        shortest,
        "intents could be removed before a coordinator comes back and decides them",
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
    """Writers wait for verdicts."""
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
    """Every intent must fit, with the reason for its rejection."""
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
    """How far each partition is decided must stay."""
    if held["cleanup.policy"] != "compact":
        reason = "how far a partition is decided would be removed, and its coordinators would refuse to start"
        yield TopicProblem(settings.frontiers_topic, "cleanup.policy", held["cleanup.policy"], "compact", reason)


def of_parked(
    settings: KafkaSettings, held: Mapping[str, str], intents: Mapping[str, str] | None, partitions: tuple[int, int]
) -> Iterable[TopicProblem]:
    """Parked records must stay until they are decided. `partitions`: of this topic and of the intents' topic."""
    name = settings.parked_topic
    removed = "undecided records of a table that cannot go on would be removed"
    yield from _uncompacted(name, held, Weight.REFUSED, removed)
    for setting in ("retention.ms", "retention.bytes"):
        if held[setting] != "-1":
            yield TopicProblem(name, setting, held[setting], "-1", removed)
    size = int(intents["max.message.bytes"]) if intents else _intents_bytes(settings)
    too_large = "the largest intent would not fit, and would be rejected if its table cannot go on"
    yield from _at_least(name, held, "max.message.bytes", size + DEAD_LETTER_ROOM_BYTES, too_large, Weight.ADVISED)
    own, wanted = partitions
    if own < wanted:
        reason = "a table that cannot go on would hold back the offset of its partition"
        yield TopicProblem(name, "partitions", str(own), str(wanted), reason, Weight.ADVISED)


def of_copies(name: str, description: TopicDescription, held: Mapping[str, str]) -> Iterable[TopicProblem]:
    """One disk may fail."""
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
    if value != -1 and (least == -1 or value < least):  # -1: without end
        yield TopicProblem(name, setting, str(value), f"{least} or more" if least != -1 else "-1", reason, weight)
