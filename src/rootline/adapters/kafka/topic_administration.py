"""What an operator does with the three topics of a log: create, check, accept, count their readers; blocks.

Owns: one object for all of it. Does not own: what topics must be like (`topics`), accepting one (`accept`).
Invariants: only `create` and `accept` change anything.
"""

from __future__ import annotations

from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException

from rootline.adapters.kafka.accept import Acceptance, accept_topic
from rootline.adapters.kafka.clients import make_admin
from rootline.adapters.kafka.log_errors import log_unavailable
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
    """The three topics of one log, for an operator; blocks."""

    settings: KafkaSettings

    def create(self, *, partitions: int, replication_factor: int | None) -> tuple[str, ...]:
        """As `create_topics`."""
        return create_topics(self.settings, partitions=partitions, replication_factor=replication_factor)

    def check(self) -> list[TopicProblem]:
        """As `check_topics`."""
        return check_topics(self.settings)

    def accept(self, *, apply: bool) -> list[Acceptance]:
        """As `accept_topic`."""
        return accept_topic(self.settings, apply=apply)

    def group_members(self, *, timeout_s: float) -> int:
        """How many coordinators the group has now; waits up to `timeout_s` seconds for a broker.

        Raises:
            Unavailable: `log-unavailable`.

        """
        group, admin = self.settings.group_id, make_admin(self.settings)
        try:
            asked = admin.describe_consumer_groups([group], request_timeout=timeout_s)
            return len(asked[group].result(timeout_s + 1).members)
        except TimeoutError as error:
            raise log_unavailable(self.settings, f"no answer within {timeout_s + 1:g} s") from error
        except KafkaException as error:
            if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
                return 0  # a group that no one has joined is none for brokers of 4.0 and later
            raise log_unavailable(self.settings, f"group {group}: {error.args[0].name()}") from error

    def identities(self) -> dict[str, TopicIdentity]:
        """`topic_identity` of each, by name."""
        return {name: topic_identity(self.settings, name) for name in topic_names(self.settings)}
