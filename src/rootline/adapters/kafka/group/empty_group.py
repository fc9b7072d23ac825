"""What is only done while no coordinator runs: the check, and its refusal, which names those that do."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException

from rootline.adapters.kafka.clients import make_admin
from rootline.adapters.kafka.log_errors import log_unavailable
from rootline.adapters.kafka.settings import KafkaSettings
from rootline.schemas.errors import Invalid


def group_members(settings: KafkaSettings) -> tuple[str, ...]:
    """Who is in the group: the host of each member, and the name that it gave itself. Blocks.

    Raises:
        Unavailable: `log-unavailable`.

    """
    admin = make_admin(settings)
    asked = admin.describe_consumer_groups([settings.group_id], request_timeout=settings.request_timeout_s)
    try:
        members = asked[settings.group_id].result().members
    except KafkaException as error:
        if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
            return ()  # a group that no one has joined is none for brokers of 4.0 and later
        raise log_unavailable(settings, error) from None
    return tuple(sorted(f"{member.host} ({member.group_instance_id or member.member_id})" for member in members))


def check_group_empty(settings: KafkaSettings) -> None:
    """Raise `Invalid` (`group-active`), naming the coordinators, while there are any. Blocks."""
    members = group_members(settings)
    if members:
        raise group_active(settings, f"{len(members)} coordinators run: {', '.join(members)}")


def group_active(settings: KafkaSettings, who: str) -> Invalid:
    """The refusal."""
    return Invalid("group-active", f"{settings.url}: group {settings.group_id}: {who}; stop them first")
