"""An operator accepts that records are gone, and the coordinators, which refused to start, go on.

Owns: what is wrong with the offsets that the group remembers, and correcting them. Does not own: the refusal
(`start_rules`).
Invariants: nothing changes while a coordinator runs; only offsets that would be refused are changed, and never past a
record that is still there; offsets that the log never had are not accepted.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import IllegalGenerationError, RebalanceInProgressError, UnknownMemberIdError
from aiokafka.errors import KafkaError as ClientError

from rootline.adapters.kafka.clients import make_consumer, start_consumer, stop_consumer
from rootline.adapters.kafka.frontier.records import frontier_publisher, read_frontiers, write_frontiers
from rootline.adapters.kafka.group.empty_group import check_group_empty, group_active
from rootline.adapters.kafka.group.standing import check_upgraded, recorded_if_any, upgrade_outgoing
from rootline.adapters.kafka.group_offsets import commit_offsets, group_memory, membership_of, write_bookmark
from rootline.adapters.kafka.log_errors import log_unavailable
from rootline.adapters.kafka.parking.records import counting
from rootline.adapters.kafka.settings import KafkaSettings
from rootline.adapters.kafka.start_rules import PartitionFacts, check_ranges, is_lost, known_offset
from rootline.adapters.kafka.topics import TopicIdentity, complete_topics, topic_identity
from rootline.schemas.errors import OutcomeUnknown
from rootline.schemas.identifiers import LogId


@dataclass(frozen=True, slots=True)
class Acceptance:
    """A partition that coordinators refuse to read, and the offset from which they may go on.

    `remembered`: the offset that the group remembers, or its record in the frontiers' topic if that is greater, and
    `remembered_log` its log; `is_new_log`: of a topic deleted since. `parked`: what of that topic is parked, and
    stays so: its positions are of a log that is gone.
    """

    partition: int
    remembered: int | None
    remembered_log: LogId | None
    log: LogId
    next_offset: int
    is_new_log: bool
    parked: str = ""

    @property
    def removed(self) -> int | None:
        """How many offsets retention removed from where the partition stood; `None` if this cannot be known."""
        return None if self.is_new_log or self.remembered is None else self.next_offset - self.remembered

    def __str__(self) -> str:
        if not self.is_new_log:
            last = self.next_offset - 1
            what = (
                f"retention removed records that may be undecided, offsets {self.remembered} to {last} ({self.removed})"
            )
            if self.remembered is None:
                what = f"the records before {self.next_offset} are gone, and nothing says that they were decided"
        elif self.remembered is None:
            what = "the topic was created again; undecided records of the old one are gone"
        else:
            what = f"the topic was created again; undecided records of the old one, from {self.remembered} on, are gone"
        left = f"; {self.parked}" if self.parked else ""
        return f"partition {self.partition}: {what}; go on at offset {self.next_offset}{left}"


def accept_topic(settings: KafkaSettings, *, apply: bool) -> list[Acceptance]:
    """What coordinators refuse to read of the intents topic; with `apply` they may go on. Blocks; not on an event loop.

    Raises:
        Invalid: `group-active`, a coordinator runs; `setting-invalid`, nobody has upgraded the group.
        Fenced: `log-behind-root`, which cannot be accepted. Unavailable: `log-unavailable`.

    """
    return asyncio.run(_accept(settings, apply))


async def _accept(settings: KafkaSettings, apply: bool) -> list[Acceptance]:
    found = await asyncio.to_thread(topic_identity, settings, settings.intents_topic)
    consumer = make_consumer(settings, group_id=settings.group_id, reset="none")
    try:
        await start_consumer(consumer, patience_s=settings.request_timeout_s)
        async with asyncio.timeout(settings.request_timeout_s):
            accepted = await _found(settings, consumer, found)
            if apply and accepted:
                await asyncio.to_thread(check_group_empty, settings)
                await _set(settings, consumer, found.log, accepted)
        return accepted
    except (UnknownMemberIdError, IllegalGenerationError, RebalanceInProgressError):
        raise group_active(settings, "a coordinator has just started") from None
    except (ClientError, TimeoutError) as error:
        raise log_unavailable(settings, error, topic=settings.intents_topic) from None
    finally:
        await stop_consumer(consumer, patience_s=settings.request_timeout_s)


async def _found(settings: KafkaSettings, consumer: AIOKafkaConsumer, found: TopicIdentity) -> list[Acceptance]:
    topic = settings.intents_topic
    known = await recorded_if_any(settings, found.log)
    places = [TopicPartition(topic, number) for number in range(found.partitions)]
    memory = await group_memory(settings, consumer, places)
    check_upgraded(settings, found.log, memory, known)
    await asyncio.to_thread(complete_topics, settings)
    recorded = (known or await read_frontiers(settings, found.log)).frontiers
    begins, ends = await consumer.beginning_offsets(places), await consumer.end_offsets(places)
    facts = [
        PartitionFacts(at.partition, memory.offsets.get(at), begins[at], ends[at], recorded.get(at.partition))
        for at in places
    ]
    gone = await _parked_of(settings, memory.bookmark) if memory.bookmark not in (None, found.log) else {}
    was_new_log = memory.bookmark not in (None, found.log)
    accepted: list[Acceptance] = []
    for held in facts:
        offset, log = (None, None) if held.committed is None else (held.committed.offset, held.committed.log)
        is_new_log = was_new_log if log is None else log != found.log
        if not is_new_log:
            offset = known_offset(held)
        if not is_new_log and offset is not None:
            check_ranges(topic, found.log, [(held.partition, offset, 0, held.end)])
        if is_new_log or is_lost(held) or (offset is not None and offset < held.begin):
            left = gone.get(held.partition, "") if is_new_log else ""
            accepted.append(Acceptance(held.partition, offset, log, found.log, held.begin, is_new_log, left))
    return accepted


async def _parked_of(settings: KafkaSettings, log: LogId | None) -> dict[int, str]:
    """What is parked of a log that is gone, by partition."""
    if log is None:
        return {}
    records = (await read_frontiers(settings, log)).parked
    found: dict[int, str] = {}
    for partition in {record.partition for record in records}:
        held = counting(record for record in records if record.partition == partition).values()
        said = ", ".join(f"{parked.records} of {parked.table}" for parked in held if parked.records)
        if said:
            found[partition] = (
                f"intents that are parked are not decided any more: {said}; they stay in topic {settings.parked_topic}"
            )
    return found


async def _set(settings: KafkaSettings, consumer: AIOKafkaConsumer, log: LogId, accepted: list[Acceptance]) -> None:
    """The bookmark first: once it is written, a missing offset means the beginning of the new log.

    The frontiers' topic last: its records are lower bounds of what the group remembers.
    """
    offsets = {TopicPartition(settings.intents_topic, held.partition): held.next_offset for held in accepted}
    generation = membership_of(consumer)  # it has not joined: a broker accepts that while the group has no members
    if not await write_bookmark(settings, consumer, log, generation=generation):
        raise ClientError(f"the group's offset of {settings.dead_letters_topic} cannot be written")
    await commit_offsets(consumer, offsets, log, generation=generation)
    publisher = frontier_publisher(settings)
    try:
        await write_frontiers(settings, publisher, log, {held.partition: held.next_offset for held in accepted})
        if not (await read_frontiers(settings, log)).is_upgraded:
            await publisher.publish([upgrade_outgoing(settings, log)])
    except OutcomeUnknown as error:  # the group remembers it, and the next coordinator writes it
        raise log_unavailable(settings, error.message, topic=settings.frontiers_topic) from None
    finally:
        await publisher.close()
