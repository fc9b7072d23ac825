"""The record in the frontiers' topic that says: this group's coordinators commit to this lake.

Owns: its form, and which of several counts. Does not own: when it is written (`membership`), the topic (`records`).
Invariants: the first one on the topic counts; each lake has a key of its own, so compaction keeps their order.
"""

from __future__ import annotations

import json

from rootline.adapters.kafka.control_records import LAKE, Unreadable
from rootline.adapters.kafka.publisher import Outgoing
from rootline.adapters.kafka.settings import KafkaSettings
from rootline.schemas.bytes.record_headers import LAKE_KEY, LAKE_MISMATCH, Lake, decode_lake, encode_lake
from rootline.schemas.errors import Invalid


def lake_outgoing(settings: KafkaSettings, lake: Lake) -> Outgoing:
    """The record."""
    key = json.dumps([settings.group_id, LAKE, lake.lake_id, ""]).encode()
    return Outgoing(settings.frontiers_topic, key, encode_lake(lake))


def lake_of(value: bytes) -> Lake:
    """The lake that a record of this kind names. Raises `Unreadable`."""
    lake = decode_lake(value)
    if lake is None:
        raise Unreadable("it names no lake")
    return lake


def check_lake(settings: KafkaSettings, known: Lake | None, own: Lake | None) -> None:
    """Raises `Invalid` (`lake-mismatch`) if the group is another lake's."""
    if known is None or own is None or known.lake_id == own.lake_id:
        return
    raise Invalid(
        LAKE_MISMATCH,
        f"{settings.url}: the coordinators of the group {settings.group_id} commit to the lake {known}, and this one "
        f"would commit to {own}: name that warehouse, or give this lake a log of its own. If the warehouse was moved "
        f"without its object {LAKE_KEY}, copy that too",
    )
