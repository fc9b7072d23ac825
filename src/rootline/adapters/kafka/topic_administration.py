"""What an operator does with the five topics of a log: create, check, accept, lift, count readers; blocks.

Owns: these calls as one object. Does not own: what each topic must look like (`topics`), what may be accepted
(`accept`), what is parked (`parking_lot/administration`).
Invariants: nothing is changed but by `create`, by `lift`, and by `accept` with `apply=True`.
"""

from __future__ import annotations

from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException

from rootline.adapters.kafka.accept import Acceptance, accept_topic
from rootline.adapters.kafka.clients import make_admin
from rootline.adapters.kafka.frontier.retention import offsets_retention
from rootline.adapters.kafka.group.state import GroupState, group_state
from rootline.adapters.kafka.log_errors import log_unavailable
from rootline.adapters.kafka.parking_lot.administration import lift_table, parked_tables
from rootline.adapters.kafka.settings import KafkaSettings
from rootline.adapters.kafka.topics import (
    TopicIdentity,
    TopicProblem,
    check_topics,
    create_topics,
    topic_identity,
    topic_names,
)
from rootline.ports.intent_feed import ParkedTable


@dataclass(frozen=True, slots=True)
class KafkaTopics:
    """The five topics of one log, for an operator; blocks."""

    settings: KafkaSettings

    def create(self, *, partitions: int, replication_factor: int | None) -> tuple[str, ...]:
        """Create the topics that are absent, and return their names."""
        return create_topics(self.settings, partitions=partitions, replication_factor=replication_factor)

    def check(self) -> list[TopicProblem]:
        """The settings of topics and brokers that would lose records or offsets."""
        problems = check_topics(self.settings)
        return [*problems, *offsets_retention(self.settings)]

    def accept(self, *, apply: bool) -> list[Acceptance]:
        """The partitions whose loss of records has to be accepted; accept it if `apply`."""
        return accept_topic(self.settings, apply=apply)

    def parked(self) -> list[ParkedTable]:
        """The tables with parked records."""
        return parked_tables(self.settings)

    def lift(self, table: str, *, without_missing: bool = False) -> list[ParkedTable]:
        """Let a parked table be tried again, and return its notices.

        `without_missing`: also if parked records are lost.
        """
        return lift_table(self.settings, table, without_missing=without_missing)

    def state(self) -> GroupState:
        """The state of the coordinators' group."""
        return group_state(self.settings)

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
