"""A pause, as a record of the frontiers' topic: there while it lasts, a tombstone after that.

Owns: the form of the record. Does not own: when it is written (`pausing/administration`), who follows it
(`pausing/follower`).
Invariants: it names the group, and no log: a pause outlives a topic that is made again; what is not a record of this
form is skipped, and versions that do not know it ignore it.
"""

from __future__ import annotations

import json
from typing import Final

from rootline.adapters.kafka.publisher import Outgoing
from rootline.adapters.kafka.settings import KafkaSettings
from rootline.ports.pausing import Pause
from rootline.schemas.identifiers import TableName

_KIND: Final = "paused"


def pause_outgoing(settings: KafkaSettings, pause: Pause, *, over: bool = False) -> Outgoing:
    """To be published; `over`: it ends."""
    key = json.dumps([settings.group_id, _KIND, pause.table]).encode()
    body = {"since": pause.since_ms, "why": pause.why}
    return Outgoing(settings.frontiers_topic, key, None if over else json.dumps(body).encode())


def paused_table(settings: KafkaSettings, key: bytes | None) -> TableName | None:
    """The table that a record with this key is about; `None`: it is no pause of this group."""
    try:
        group, kind, table = json.loads(key or b"")
    except (ValueError, TypeError):
        return None
    return TableName(table) if (group, kind) == (settings.group_id, _KIND) and isinstance(table, str) else None


def pause_in(settings: KafkaSettings, key: bytes | None, value: bytes | None) -> Pause | None:
    """The pause, if the record is one of this group; a tombstone is none."""
    table = paused_table(settings, key)
    if table is None or value is None:
        return None
    try:
        body = json.loads(value)
        return Pause(table, int(body["since"]), str(body["why"]))
    except (ValueError, TypeError, KeyError):
        return Pause(table, 0, "its record cannot be read")  # of a newer version: paused it is
