"""What ends a membership, as one of our errors."""

from __future__ import annotations

from aiokafka.errors import InconsistentGroupProtocolError, InvalidSessionTimeoutError, KafkaError

from rootline.adapters.kafka.log_errors import log_unavailable
from rootline.adapters.kafka.settings import KafkaSettings
from rootline.schemas.errors import Invalid, RootlineError


def error_of_group(settings: KafkaSettings, error: KafkaError | TimeoutError) -> RootlineError:
    """An error of the library, or a missed deadline."""
    topic = settings.intents_topic
    if isinstance(error, InvalidSessionTimeoutError):
        return Invalid(
            "setting-invalid",
            f"{settings.url}: session_timeout_s is {settings.session_timeout_s:g}, which the brokers refuse: set it "
            "between their group.min.session.timeout.ms and group.max.session.timeout.ms (by default 6 and 1800 "
            "seconds)",
        )
    if isinstance(error, InconsistentGroupProtocolError):
        reason = (
            f"group {settings.group_id} has coordinators of another version of Rootline, which join it otherwise: stop "
            "the older ones"
        )
        return log_unavailable(settings, reason, topic=topic)
    return log_unavailable(settings, error, topic=topic)
