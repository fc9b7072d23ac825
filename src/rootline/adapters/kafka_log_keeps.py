"""How long the topics of intents and of dead letters keep their records, as the brokers say."""

from __future__ import annotations

import asyncio
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import ConfigResource, ResourceType

from rootline.adapters.kafka.clients import make_admin
from rootline.adapters.kafka.settings import KafkaSettings
from rootline.ports.log_keeps import LogKeeps
from rootline.schemas.errors import Unavailable

_SETTING: Final = "retention.ms"
_LETTERS_S_MAX: Final = 30 * 24 * 3600
"""Letters that are kept for longer, or for ever, are replayed in time or their files have expired."""


async def kafka_keeps(settings: KafkaSettings) -> LogKeeps | None:
    """As the brokers say now; `None`: intents are kept for ever. Raises `Unavailable` (`log-unavailable`)."""
    return await asyncio.to_thread(_asked, settings)


def _asked(settings: KafkaSettings) -> LogKeeps | None:
    topics = (settings.intents_topic, settings.dead_letters_topic)
    asked = [ConfigResource(ResourceType.TOPIC, name) for name in topics]
    try:
        futures = make_admin(settings).describe_configs(asked, request_timeout=settings.request_timeout_s)
        intents_ms, letters_ms = (int(futures[resource].result()[_SETTING].value) for resource in asked)
    except (KafkaException, KeyError, ValueError) as error:
        raise Unavailable(
            "log-unavailable", f"the brokers do not say how long topic {settings.intents_topic} keeps records: {error}"
        ) from error
    if intents_ms < 0:
        return None
    letters_s = _LETTERS_S_MAX if letters_ms < 0 else min(_LETTERS_S_MAX, letters_ms // 1000)
    return LogKeeps(-(-intents_ms // 1000), letters_s)
