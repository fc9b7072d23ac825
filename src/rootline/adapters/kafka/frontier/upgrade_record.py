"""The record in the frontiers' topic that says: this group's log is read by newer versions only, from these offsets on.

Owns: its form. Does not own: when it is written (`group/upgrade`, `group/standing`), the topic (`records`).
Invariants: never removed; a record of another group or of another topic id is never used.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from rootline.adapters.kafka.control_records import UPGRADED, Unreadable, control_body, count
from rootline.adapters.kafka.publisher import Outgoing
from rootline.adapters.kafka.settings import KafkaSettings
from rootline.schemas.log_position import LogId


def upgrade_outgoing(settings: KafkaSettings, log: LogId, upgraded_from: Mapping[int, int]) -> Outgoing:
    """The record. `upgraded_from`: partition → the first offset that no older version has read; absent: all of it."""
    key = json.dumps([settings.group_id, log, UPGRADED]).encode()
    body = {"from": {str(partition): offset for partition, offset in upgraded_from.items()}}
    return Outgoing(settings.frontiers_topic, key, json.dumps(body).encode())


def upgrade_of(value: bytes) -> dict[int, int]:
    """Partition → that offset, from a record of this kind. Raises `Unreadable`."""
    offsets = control_body(value).get("from")
    if not isinstance(offsets, dict) or not all(partition.isdecimal() and len(partition) < 10 for partition in offsets):
        raise Unreadable("`from` is not offsets by partition")
    return {int(partition): count(offset) for partition, offset in offsets.items()}
