"""What Kafka's two client libraries report, as errors of the log.

Owns: the words that name the log and the reason. Does not own: which failures are raised, retried or passed on.
Invariants: a reason has an end, however much a library says.
"""

from __future__ import annotations

from typing import Final

from confluent_kafka import KafkaException

from rootline.adapters.kafka.settings import KafkaSettings
from rootline.schemas.errors import Unavailable

_REASON_CHARS_MAX: Final = 200


def log_unavailable(settings: KafkaSettings, failure: BaseException | str, *, topic: str | None = None) -> Unavailable:
    """`log-unavailable`, naming the log, the topic if it is about one, and why."""
    reason = failure if isinstance(failure, str) else reason_of(failure, settings)
    place = settings.url if topic is None else f"{settings.url}: topic {topic}"
    return Unavailable("log-unavailable", f"{place}: {reason}")


def reason_of(failure: BaseException, settings: KafkaSettings) -> str:
    """What a client library or a deadline reported, in one line."""
    if isinstance(failure, KafkaException):
        return str(failure.args[0].str())
    if isinstance(failure, TimeoutError):
        return str(failure) or f"no answer within {settings.request_timeout_s:g} s"
    name, text = type(failure).__name__, f"{failure!s:.{_REASON_CHARS_MAX}}"
    return text if text.startswith(name) else f"{name} {text}".strip()
