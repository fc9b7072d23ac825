"""What the errors of a log on Kafka say."""

from __future__ import annotations

import pytest
from aiokafka.errors import KafkaConnectionError
from confluent_kafka import KafkaError, KafkaException

from rootline.adapters.kafka.clients import log_unavailable
from rootline.adapters.settings import KafkaSettings

SETTINGS = KafkaSettings(bootstrap_servers="a:1", request_timeout_s=2.5)


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        ("the log was closed", "the log was closed"),
        (TimeoutError(), "no answer within 2.5 s"),
        (TimeoutError("no record came for 2.5 s"), "no record came for 2.5 s"),
        (KafkaConnectionError("refused"), "KafkaConnectionError: refused"),
        (OSError("unplugged"), "OSError unplugged"),
        (KafkaException(KafkaError(KafkaError._TRANSPORT, "broker is down")), "broker is down"),
    ],
    ids=["ours", "a deadline", "a deadline with a reason", "aiokafka", "another library", "librdkafka"],
)
def test_an_unavailable_log_is_named_with_its_topic_and_the_reason(failure: BaseException | str, reason: str) -> None:
    error = log_unavailable(SETTINGS, failure, topic="rootline.intents")

    assert (error.code, error.message) == ("log-unavailable", f"kafka://a:1: topic rootline.intents: {reason}")
    assert log_unavailable(SETTINGS, failure).message == f"kafka://a:1: {reason}"


def test_a_reason_has_an_end() -> None:
    assert len(log_unavailable(SETTINGS, KafkaConnectionError("x" * 9_000)).message) < 300
