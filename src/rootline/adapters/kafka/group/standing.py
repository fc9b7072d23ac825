"""Refuses the group of a log that only the first release has read, and marks a new group as newer.

Owns: the refusal, the record in the frontiers' topic that says that no coordinator of the first release reads the log.
Does not own: what else keeps such a coordinator out: the assignor (`clients`), the bookmark (`group_offsets`).
Invariants: a group is refused before anything is written; the record is written before a new group is joined, and is
never removed; a record of another group or of another topic id is never used.

Source: docs/decisions/0076.
"""

from __future__ import annotations

import asyncio
import json

from rootline.adapters.kafka.control_records import UPGRADED
from rootline.adapters.kafka.frontier.records import Recorded, read_frontiers
from rootline.adapters.kafka.group_offsets import GroupMemory
from rootline.adapters.kafka.publisher import Outgoing
from rootline.adapters.kafka.settings import KafkaSettings
from rootline.adapters.kafka.topics import topic_exists
from rootline.schemas.distribution import LAST_THAT_UPGRADES
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import LogId


def upgrade_outgoing(settings: KafkaSettings, log: LogId) -> Outgoing:
    """The record. Coordinators up to `LAST_THAT_UPGRADES` read `from`: offsets by partition, absent for 0."""
    key = json.dumps([settings.group_id, log, UPGRADED]).encode()
    return Outgoing(settings.frontiers_topic, key, json.dumps({"from": {}}).encode())


async def recorded_if_any(settings: KafkaSettings, log: LogId) -> Recorded | None:
    """The frontiers' topic as `read_frontiers` returns it; `None`: there is no such topic. Creates none.

    Raises:
        Unavailable: `log-unavailable`.

    """
    if await asyncio.to_thread(topic_exists, settings, settings.frontiers_topic):
        return await read_frontiers(settings, log)
    return None


def check_upgraded(settings: KafkaSettings, log: LogId, memory: GroupMemory, recorded: Recorded | None) -> None:
    """Raise unless the group has been upgraded, or has read nothing of `log`.

    Raises:
        Invalid: `setting-invalid`.

    """
    if memory.is_upgraded or (recorded is not None and recorded.is_upgraded):
        return
    has_record = recorded is not None and bool(recorded.frontiers or recorded.answers or recorded.parked)
    has_offset = any(committed.log == log for committed in memory.offsets.values())
    if has_record or has_offset or memory.bookmark == log:
        raise Invalid(
            "setting-invalid",
            f"{settings.url}: group {settings.group_id} has read topic {settings.intents_topic}, and nothing shows "
            "that it was upgraded since the first release (cb577a9). Stop all coordinators, run `rootline upgrade` of "
            f"commit {LAST_THAT_UPGRADES}, then start those of this version",
        )
