"""What an operator does with tables that cannot go on: see what is parked of them, and let them be tried again; blocks.

Owns: both calls. Does not own: carrying a lift out (the coordinators, which find it in the frontiers' topic).
Invariants: a lift changes nothing but that it asks; it works whether or not coordinators run.
"""

from __future__ import annotations

import asyncio
import uuid

from rootline.adapters.kafka.frontier.records import frontier_publisher, read_frontiers
from rootline.adapters.kafka.log_errors import log_unavailable
from rootline.adapters.kafka.parking.records import counting, lift_outgoing
from rootline.adapters.kafka.settings import KafkaSettings
from rootline.adapters.kafka.topics import topic_identity
from rootline.ports.intent_feed import Lift, ParkedTable
from rootline.schemas.errors import OutcomeUnknown


def parked_tables(settings: KafkaSettings) -> list[ParkedTable]:
    """What is parked or quarantined, by table and partition; not on an event loop.

    Raises:
        Unavailable: `log-unavailable`.

    """
    return asyncio.run(_parked(settings))


def lift_table(settings: KafkaSettings, table: str, *, without_missing: bool) -> list[ParkedTable]:
    """Ask for a lift of what is parked of `table`, which is returned; nothing is asked if there is nothing.

    Raises:
        Unavailable: `log-unavailable`.

    """
    return asyncio.run(_lift(settings, table, without_missing))


async def _parked(settings: KafkaSettings) -> list[ParkedTable]:
    log = (await asyncio.to_thread(topic_identity, settings, settings.intents_topic)).log
    recorded = await read_frontiers(settings, log)
    found = [
        parked
        for partition in {record.partition for record in recorded.parked}
        for parked in counting(record for record in recorded.parked if record.partition == partition).values()
    ]
    return sorted(found, key=lambda parked: (parked.table, parked.partition))


async def _lift(settings: KafkaSettings, table: str, without_missing: bool) -> list[ParkedTable]:
    found = [parked for parked in await _parked(settings) if parked.table == table]
    if found:
        publisher = frontier_publisher(settings)
        lifts = [
            Lift(parked.table, parked.log, parked.partition, without_missing, parked.first_offset, uuid.uuid4().hex)
            for parked in found
        ]
        try:
            await publisher.publish([lift_outgoing(settings, lift) for lift in lifts])
        except OutcomeUnknown as error:
            raise log_unavailable(settings, error.message, topic=settings.frontiers_topic) from None
        finally:
            await publisher.close()
    return found
