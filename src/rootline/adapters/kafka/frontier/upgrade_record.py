"""The record in the frontiers' topic that says: this group's log is read by newer versions only, from these offsets on.

Owns: its form. Does not own: when it is written (`group/upgrade`, `group/standing`), the topic (`records`).
Invariants: never removed; a record of another group or of another topic id is never used.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from rootline.adapters.kafka.publisher import Outgoing
from rootline.adapters.kafka.settings import KafkaSettings
from rootline.schemas.log_position import LogId

_KIND = "upgraded"


def upgrade_outgoing(settings: KafkaSettings, log: LogId, upgraded_from: Mapping[int, int]) -> Outgoing:
    """The record. `upgraded_from`: partition → the first offset that no older version has read; absent: all of it."""
    key = json.dumps([settings.group_id, log, _KIND]).encode()
    body = {"from": {str(partition): offset for partition, offset in upgraded_from.items()}}
    return Outgoing(settings.frontiers_topic, key, json.dumps(body).encode())


def upgrade_of(settings: KafkaSettings, log: LogId, key: bytes | None, value: bytes | None) -> dict[int, int] | None:
    """Partition → that offset, if this is the record of this group and this log."""
    try:
        group, named, kind = json.loads(key or b"")
        if (group, named, kind) != (settings.group_id, log, _KIND):
            return None
        return {int(partition): int(offset) for partition, offset in json.loads(value or b"")["from"].items()}
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
