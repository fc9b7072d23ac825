"""How long brokers keep intents and dead letters, and whether they keep a group's offsets as long.

Owns: asking them. Does not own: how long they should (`rootline.adapters.kafka.topics`), what a sweep makes of it
(`rootline.maintenance.limits`).
Invariants: only asks; that offsets go before the intents is advice, because nothing is lost by it; what brokers do not
say is an error where something is deleted by it.
"""

from __future__ import annotations

import asyncio
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import ConfigResource, ResourceType

from rootline.adapters.kafka.clients import make_admin
from rootline.adapters.kafka.settings import KafkaSettings
from rootline.adapters.kafka.topics import TopicProblem, Weight
from rootline.ports.intent_log import LogKeeps
from rootline.schemas.errors import Unavailable

_SETTING = "offsets.retention.minutes"
_OF_TOPICS: Final = "retention.ms"
_LETTERS_S_MAX: Final = 30 * 24 * 3600
"""Letters that are kept for longer, or for ever, are replayed in time or their files have expired."""


async def kafka_keeps(settings: KafkaSettings) -> LogKeeps | None:
    """As the brokers say now; `None`: intents are kept for ever. Raises `Unavailable` (`log-unavailable`)."""
    return await asyncio.to_thread(_keeps, settings)


def _keeps(settings: KafkaSettings) -> LogKeeps | None:
    admin, topics = make_admin(settings), (settings.intents_topic, settings.dead_letters_topic)
    asked = [ConfigResource(ResourceType.TOPIC, name) for name in topics]
    try:
        futures = admin.describe_configs(asked, request_timeout=settings.request_timeout_s)
        intents_ms, letters_ms = (int(futures[resource].result()[_OF_TOPICS].value) for resource in asked)
    except (KafkaException, KeyError, ValueError) as error:
        raise Unavailable(
            "log-unavailable", f"the brokers do not say how long topic {settings.intents_topic} keeps records: {error}"
        ) from error
    if intents_ms < 0:
        return None
    letters_s = _LETTERS_S_MAX if letters_ms < 0 else min(_LETTERS_S_MAX, letters_ms // 1000)
    return LogKeeps(-(-intents_ms // 1000), letters_s)


def offsets_retention(settings: KafkaSettings) -> list[TopicProblem]:
    """The brokers' time for offsets, if it is shorter than the intents' retention; blocks.

    Nothing where this client has no right to ask, or the topic does not exist.
    """
    admin, name = make_admin(settings), settings.intents_topic
    timeout_s = settings.request_timeout_s
    try:
        nodes = admin.describe_cluster(request_timeout=timeout_s).result().nodes
        asked = [ConfigResource(ResourceType.TOPIC, name), ConfigResource(ResourceType.BROKER, str(nodes[0].id))]
        futures = admin.describe_configs(asked, request_timeout=timeout_s)
        topic, broker = (futures[resource].result() for resource in asked)
        keep_ms, minutes = int(topic["retention.ms"].value), int(broker[_SETTING].value)
    except (KafkaException, KeyError, IndexError):
        return []
    if minutes * 60_000 >= keep_ms:
        return []
    return [
        TopicProblem(
            name,
            f"{_SETTING} of the brokers",
            str(minutes),
            f"{-(-keep_ms // 60_000)} or more",
            "the group would forget how far it has read while the records are still there; they would be read again",
            Weight.ADVISED,
        )
    ]
