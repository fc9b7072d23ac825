"""An operator's calls on the five topics of a log and on its consumer group.

The calls create and check topics, correct committed offsets (`accept`), request a retry of a parked table (`lift`), and
report retention and group members.

Owns: these calls as one object, finding and correcting faults in the group's committed offsets, the state of the group
as seen from outside, the retention that the brokers report. Does not own: the configuration of each topic (`topics`),
the refusal to start (`group_offsets`), carrying out a lift (coordinators find it in the frontiers topic).
Invariants: The calls block. Only `create`, `lift` and `accept` with `apply=True` change anything. Offsets are corrected
only while no coordinator runs. Only offsets that coordinators would refuse are changed, and never past a record that
still exists. Offsets that the log never had are not accepted. Reading the group's state neither joins the group nor
commits offsets. It sends one request of each kind for all partitions, and reads one record of each partition that has a
lag. If the brokers do not report the retention on which a deletion depends, the call fails.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import IllegalGenerationError, RebalanceInProgressError, UnknownMemberIdError
from aiokafka.errors import KafkaError as ClientError
from aiokafka.partitioner import DefaultPartitioner
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import ConfigResource, ResourceType

from rootline.adapters.kafka.clients import log_unavailable, make_admin, make_consumer, start_consumer, stop_consumer
from rootline.adapters.kafka.frontier_codec import counting, lift_outgoing
from rootline.adapters.kafka.frontiers import frontier_record, publish_alone, read_frontiers
from rootline.adapters.kafka.group_offsets import (
    PartitionFacts,
    check_ranges,
    commit_offsets,
    group_memory,
    is_lost,
    known_offset,
    membership_of,
    write_bookmark,
)
from rootline.adapters.kafka.membership import check_upgraded, recorded_if_any, upgrade_outgoing
from rootline.adapters.kafka.topics import (
    TopicIdentity,
    TopicProblem,
    Weight,
    check_topics,
    complete_topics,
    create_topics,
    topic_identity,
    topic_names,
)
from rootline.adapters.settings import KafkaSettings
from rootline.ports.intent_feed import Lift, ParkedTable
from rootline.ports.intent_log import LogKeeps
from rootline.schemas.errors import Invalid, Unavailable
from rootline.schemas.identifiers import LogId

_SETTING = "offsets.retention.minutes"
_OF_TOPICS: Final = "retention.ms"
_LETTERS_S_MAX: Final = 30 * 24 * 3600
"""After this time, files of rejected intents may expire, even if their dead letters are kept for longer."""


async def kafka_keeps(settings: KafkaSettings) -> LogKeeps | None:
    """The retention of intents and of dead letters that brokers report now.

    `None`: intents are kept for ever. Raises `Unavailable` (`log-unavailable`).
    """
    return await asyncio.to_thread(_keeps, settings)


def _keeps(settings: KafkaSettings) -> LogKeeps | None:
    admin, topics = make_admin(settings), (settings.intents_topic, settings.dead_letters_topic)
    asked = [ConfigResource(ResourceType.TOPIC, name) for name in topics]
    try:
        futures = admin.describe_configs(asked, request_timeout=settings.request_timeout_s)
        intents_ms, letters_ms = (int(futures[resource].result()[_OF_TOPICS].value) for resource in asked)
    except (KafkaException, KeyError, ValueError) as error:
        raise Unavailable(
            "log-unavailable",
            f"the brokers do not report how long topic {settings.intents_topic} keeps records: {error}",
        ) from error
    if intents_ms < 0:
        return None
    letters_s = _LETTERS_S_MAX if letters_ms < 0 else min(_LETTERS_S_MAX, letters_ms // 1000)
    return LogKeeps(-(-intents_ms // 1000), letters_s)


def offsets_retention(settings: KafkaSettings) -> list[TopicProblem]:
    """A problem, if brokers keep the group's offsets for a shorter time than the intents. Blocks.

    Returns an empty list if this client has no right to ask, or the topic does not exist.
    """
    admin, name = make_admin(settings), settings.intents_topic
    timeout_s = settings.request_timeout_s
    try:
        nodes = admin.describe_cluster(request_timeout=timeout_s).result().nodes
        asked = [ConfigResource(ResourceType.TOPIC, name), ConfigResource(ResourceType.BROKER, str(nodes[0].id))]
        futures = admin.describe_configs(asked, request_timeout=timeout_s)
        topic, broker = (futures[resource].result() for resource in asked)
        keep_ms, minutes = int(topic["retention.ms"].value), int(broker[_SETTING].value)
    except (KafkaException, KeyError, IndexError):
        return []
    if minutes * 60_000 >= keep_ms:
        return []
    return [
        TopicProblem(
            name,
            f"{_SETTING} of the brokers",
            str(minutes),
            f"{-(-keep_ms // 60_000)} or more",
            "the group's offsets would expire while the records still exist, and the records would be read again",
            Weight.ADVISED,
        )
    ]


def check_group_empty(settings: KafkaSettings) -> None:
    """Raise `Invalid` (`group-active`) with the names of running coordinators, if there are any. Blocks."""
    members = sorted(set(_owners(settings).values()))
    if members:
        raise group_active(settings, f"{len(members)} coordinators are running: {', '.join(members)}")


def group_active(settings: KafkaSettings, who: str) -> Invalid:
    """The error of a call that requires that no coordinator runs. `who`: a sentence that names those that run."""
    return Invalid("group-active", f"{settings.url}: group {settings.group_id}: {who}; stop them first")


_POLL_MS = 500


@dataclass(frozen=True, slots=True)
class GroupState:
    """The state of the coordinators' group. `members`: each with its host. `owners`: partition → its member.

    `waiting`: partition → the number of records past the committed offset, and when the first of them was appended, ms
    since the epoch, if it could be read.
    """

    members: tuple[str, ...]
    partitions: int
    owners: Mapping[int, str]
    waiting: Mapping[int, tuple[int, int | None]]

    def partition_of(self, key: str) -> int:
        """The partition of records with this key."""
        numbers = list(range(self.partitions))
        number: int = DefaultPartitioner()(key.encode(), numbers, numbers)
        return number


def group_state(settings: KafkaSettings) -> GroupState:
    """The state of the group now.

    Blocks, and must not run on an event loop. Raises `Unavailable` (`log-unavailable`).
    """
    partitions = topic_identity(settings, settings.intents_topic).partitions
    owners = _owners(settings)
    waiting = asyncio.run(_waiting(settings, partitions))
    members = tuple(sorted(set(owners.values())))
    by_partition = {number: member for number, member in owners.items() if number >= 0}
    return GroupState(members, partitions, by_partition, waiting)


def _owners(settings: KafkaSettings) -> dict[int, str]:
    """Partition → its member. A member without partitions has a negative number as its key."""
    admin = make_admin(settings)  # referenced, because no answer arrives after it is collected
    asked = admin.describe_consumer_groups([settings.group_id], request_timeout=settings.request_timeout_s)
    try:
        members = asked[settings.group_id].result(settings.request_timeout_s + 1).members
    except TimeoutError as error:
        raise log_unavailable(settings, error) from None
    except KafkaException as error:
        if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
            return {}  # brokers from 4.0 on do not know a group without members
        raise log_unavailable(settings, error) from None
    owners: dict[int, str] = {}
    for number, member in enumerate(members, 1):
        name = f"{member.host} ({member.group_instance_id or member.member_id})"
        own = [at.partition for at in member.assignment.topic_partitions if at.topic == settings.intents_topic]
        owners |= dict.fromkeys(own or [-number], name)
    return owners


async def _waiting(settings: KafkaSettings, partitions: int) -> dict[int, tuple[int, int | None]]:
    places = [TopicPartition(settings.intents_topic, number) for number in range(partitions)]
    # the group's name is for its committed offsets, and without a subscription the consumer does not join
    consumer = make_consumer(settings, group_id=settings.group_id, reset="none", reads_all=True)
    try:
        async with asyncio.timeout(settings.request_timeout_s):
            await start_consumer(consumer, patience_s=settings.request_timeout_s)
            memory = await group_memory(settings, consumer, places)
            begins, ends = await asyncio.gather(consumer.beginning_offsets(places), consumer.end_offsets(places))
            nexts = {
                at: max(begins[at], memory.offsets[at].offset) if at in memory.offsets else begins[at] for at in places
            }
            behind = [at for at in places if nexts[at] < ends[at]]
            oldest = await _appended(consumer, {at: nexts[at] for at in behind}) if behind else {}
    except (ClientError, TimeoutError) as error:
        raise log_unavailable(settings, error, topic=settings.intents_topic) from None
    finally:
        await stop_consumer(consumer, patience_s=settings.request_timeout_s)
    return {at.partition: (ends[at] - nexts[at], oldest.get(at)) for at in behind}


async def _appended(consumer: AIOKafkaConsumer, nexts: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """The append time of the first record from each offset on, ms since the epoch.

    Records that do not arrive soon are skipped.
    """
    consumer.assign(list(nexts))
    for at, offset in nexts.items():
        consumer.seek(at, offset)
    found: dict[TopicPartition, int] = {}
    for _ in range(4):
        for at, records in (await consumer.getmany(timeout_ms=_POLL_MS)).items():
            found.setdefault(at, records[0].timestamp)
            consumer.pause(at)
        if len(found) == len(nexts):
            break
    return found


@dataclass(frozen=True, slots=True)
class Acceptance:
    """A partition that coordinators refuse to read, and the offset at which they may continue.

    `remembered`: the group's committed offset, or the offset in the frontiers' topic if that is greater.
    `remembered_log`: the log of that offset. `is_new_log`: the topic of `remembered_log` was deleted later. `parked`:
    the parked records of the deleted topic, in words. They stay parked, because their positions belong to a log that no
    longer exists.
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
        """The number of offsets that retention removed after `remembered`, or `None` if it is not known."""
        return None if self.is_new_log or self.remembered is None else self.next_offset - self.remembered

    def __str__(self) -> str:
        if not self.is_new_log:
            last = self.next_offset - 1
            what = (
                f"retention removed records that may be undecided, offsets {self.remembered} to {last} ({self.removed})"
            )
            if self.remembered is None:
                what = f"the records before {self.next_offset} were removed, and nothing shows that they were decided"
        elif self.remembered is None:
            what = "the topic was created again, and undecided records of the old one are lost"
        else:
            what = (
                "the topic was created again, and undecided records of the old one, "
                f"from {self.remembered} on, are lost"
            )
        left = f"; {self.parked}" if self.parked else ""
        return f"partition {self.partition}: {what}; reading continues at offset {self.next_offset}{left}"


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
    """The parked records of a deleted log, in words, by partition."""
    if log is None:
        return {}
    records = (await read_frontiers(settings, log)).parked
    found: dict[int, str] = {}
    for partition in {record.partition for record in records}:
        held = counting(record for record in records if record.partition == partition).values()
        said = ", ".join(f"{parked.records} of {parked.table}" for parked in held if parked.records)
        if said:
            found[partition] = (
                f"parked intents are not decided any more: {said}. They stay in topic {settings.parked_topic}"
            )
    return found


async def _set(settings: KafkaSettings, consumer: AIOKafkaConsumer, log: LogId, accepted: list[Acceptance]) -> None:
    """Write the offsets.

    The bookmark (the log's identity, stored with the group) is written first. Once it names the new log, a missing
    offset means the beginning of that log. The frontiers' topic is written last, because its records are lower bounds
    of the committed offsets.
    """
    offsets = {TopicPartition(settings.intents_topic, held.partition): held.next_offset for held in accepted}
    generation = membership_of(consumer)  # it has not joined, which a broker accepts while the group has no members
    if not await write_bookmark(settings, consumer, log, generation=generation):
        raise ClientError(f"the group's offset of {settings.dead_letters_topic} cannot be written")
    await commit_offsets(consumer, offsets, log, generation=generation)
    # the offsets are committed: if this fails, the next coordinator writes the records
    records = [frontier_record(settings, log, held.partition, held.next_offset) for held in accepted]
    if not (await read_frontiers(settings, log)).is_upgraded:
        records.append(upgrade_outgoing(settings, log))
    await publish_alone(settings, records)


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
        lifts = [
            Lift(parked.table, parked.log, parked.partition, without_missing, parked.first_offset, uuid.uuid4().hex)
            for parked in found
        ]
        await publish_alone(settings, [lift_outgoing(settings, lift) for lift in lifts])
    return found


@dataclass(frozen=True, slots=True)
class KafkaTopics:
    """The five topics of one log, for an operator. All calls block, and must not run on an event loop.

    They raise `Unavailable` (`log-unavailable`).
    """

    settings: KafkaSettings

    def create(self, *, partitions: int, replication_factor: int | None) -> tuple[str, ...]:
        """Create the missing topics, and return their names."""
        return create_topics(self.settings, partitions=partitions, replication_factor=replication_factor)

    def check(self) -> list[TopicProblem]:
        """The settings of topics and brokers that would lose records or offsets."""
        return [*check_topics(self.settings), *offsets_retention(self.settings)]

    def accept(self, *, apply: bool) -> list[Acceptance]:
        """Find the partitions that coordinators refuse to read.

        With `apply`, correct their offsets, so that they can continue.

        Raises:
            Invalid: `group-active`, a coordinator runs, or `setting-invalid`, the group was not upgraded.
            Fenced: `log-behind-root`, which cannot be accepted.
        """
        return asyncio.run(_accept(self.settings, apply))

    def parked(self) -> list[ParkedTable]:
        """The parked and quarantined tables, by table and partition."""
        return asyncio.run(_parked(self.settings))

    def lift(self, table: str, *, without_missing: bool = False) -> list[ParkedTable]:
        """Ask coordinators to retry a parked table. Return its parked partitions, empty if it is not parked.

        `without_missing`: continue even if parked records are lost.
        """
        return asyncio.run(_lift(self.settings, table, without_missing))

    def state(self) -> GroupState:
        """The state of the coordinators' group."""
        return group_state(self.settings)

    def group_members(self, *, timeout_s: float) -> int:
        """The number of coordinators in the group now. Waits up to `timeout_s` seconds for a broker.

        Raises:
            Unavailable: `log-unavailable`.
        """
        group, admin = self.settings.group_id, make_admin(self.settings)
        try:
            asked = admin.describe_consumer_groups([group], request_timeout=timeout_s)
            return len(asked[group].result(timeout_s + 1).members)
        except TimeoutError as error:
            raise log_unavailable(self.settings, f"no answer within {timeout_s + 1:g} s") from error
        except KafkaException as error:
            if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
                return 0  # brokers from 4.0 on do not know a group without members
            raise log_unavailable(self.settings, f"group {group}: {error.args[0].name()}") from error

    def identities(self) -> dict[str, TopicIdentity]:
        """The identity and the number of partitions of each topic, by name."""
        return {name: topic_identity(self.settings, name) for name in topic_names(self.settings)}
