"""Whether brokers keep a group's offsets as long as the intents; only advice, because nothing is lost if not."""

from __future__ import annotations

from confluent_kafka import KafkaException
from confluent_kafka.admin import ConfigResource, ResourceType

from rootline.adapters.kafka.clients import make_admin
from rootline.adapters.kafka.settings import KafkaSettings
from rootline.adapters.kafka.topics import TopicProblem, Weight

_SETTING = "offsets.retention.minutes"


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
