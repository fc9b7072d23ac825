"""A pause, as a record of the frontiers' topic: there while it lasts, a tombstone after that.

Owns: the form of the record. Does not own: when it is written (`pausing/administration`), who follows it
(`pausing/follower`).
Invariants: it names the group, and no log: a pause outlives a topic that is made again; a value that cannot
be read pauses, because `rootline resume` ends it; versions that do not know the key ignore it.
"""

from __future__ import annotations

import json

from rootline.adapters.kafka.control_records import PAUSED, ControlKey, Unreadable, control_body, text, whole
from rootline.adapters.kafka.publisher import Outgoing
from rootline.adapters.kafka.settings import KafkaSettings
from rootline.ports.intent_feed import Pause
from rootline.schemas.identifiers import TableName


def pause_outgoing(settings: KafkaSettings, pause: Pause, *, over: bool = False) -> Outgoing:
    """To be published; `over`: it ends."""
    key = json.dumps([settings.group_id, PAUSED, pause.table]).encode()
    body = {"since": pause.since_ms, "why": pause.why}
    return Outgoing(settings.frontiers_topic, key, None if over else json.dumps(body).encode())


def pause_of(key: ControlKey, value: bytes) -> tuple[Pause, Unreadable | None]:
    """The pause in a record of this kind, and the reason if the record cannot be read.

    A record that cannot be read is a pause all the same.
    """
    table = TableName(key.names[0])
    try:
        body = control_body(value)
        return Pause(table, whole(body.get("since")), text(body.get("why"))), None
    except Unreadable as why:
        return Pause(table, 0, "its record cannot be read"), why  # of a newer version: paused it is
