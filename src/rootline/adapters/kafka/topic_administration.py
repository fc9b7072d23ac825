"""What an operator does with the four topics of a log: create, check, accept; blocks."""

from __future__ import annotations

from dataclasses import dataclass

from rootline.adapters.kafka.accept import Acceptance, accept_topic
from rootline.adapters.kafka.frontier.retention import offsets_retention
from rootline.adapters.kafka.settings import KafkaSettings
from rootline.adapters.kafka.topics import (
    TopicIdentity,
    TopicProblem,
    check_topics,
    create_topics,
    topic_identity,
    topic_names,
)


@dataclass(frozen=True, slots=True)
class KafkaTopics:
    """The four topics of one log, for an operator; blocks."""

    settings: KafkaSettings

    def create(self, *, partitions: int, replication_factor: int | None) -> tuple[str, ...]:
        """As `create_topics`."""
        return create_topics(self.settings, partitions=partitions, replication_factor=replication_factor)

    def check(self) -> list[TopicProblem]:
        """As `check_topics` and `offsets_retention`."""
        problems = check_topics(self.settings)
        return [*problems, *offsets_retention(self.settings)]

    def accept(self, *, apply: bool) -> list[Acceptance]:
        """As `accept_topic`."""
        return accept_topic(self.settings, apply=apply)

    def identities(self) -> dict[str, TopicIdentity]:
        """`topic_identity` of each, by name."""
        return {name: topic_identity(self.settings, name) for name in topic_names(self.settings)}
