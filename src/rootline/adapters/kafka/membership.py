"""One member of the consumer group of coordinators: its partitions, and when it may read them.

Owns: the consumer, every step of a rebalance, its background tasks and their failures, the protocol that keeps older
versions out of the group, the check that the topic is still the same. Does not own: reading (`intent_feed`), the start
of a partition (`group_offsets`), committed offsets (`progress`).
Invariants: No partition is read before its start was decided by this member, and none after it was revoked. A failure
in the background is raised by `advance`. At most one task of a name runs, and none starts after `close`. After a change
of the cluster, nothing is read until the topic's identity was checked. The broker refuses every member that does not
know the group's protocol.

The library's callbacks swallow the errors that they raise, run without heartbeats, and delay the group. So they only
pause, seek and wait for `released`. Tasks that `advance` starts and checks do the rest.

Source: docs/protocol.md, "Older versions".
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import InconsistentGroupProtocolError, InvalidSessionTimeoutError, KafkaError

from rootline.adapters.kafka.clients import (
    is_broken,
    log_unavailable,
    make_consumer,
    on_cluster_change,
    raise_errors_of_group,
    refresh_metadata,
    start_consumer,
    stop_consumer,
)
from rootline.adapters.kafka.control_records import UPGRADED
from rootline.adapters.kafka.frontier_codec import AnswerRecord, ParkingRecord, check_lake, lake_outgoing
from rootline.adapters.kafka.frontiers import (
    FrontierKeeper,
    Recorded,
    assigned_with,
    check_marks,
    read_frontiers,
    take_over,
)
from rootline.adapters.kafka.group_offsets import (
    GroupMemory,
    PartitionFacts,
    check_log,
    check_ranges,
    group_memory,
    membership_of,
    poison_candidates_of,
    start_of,
    starts_of,
    write_bookmark,
)
from rootline.adapters.kafka.parked_topic import with_rebuilt_names
from rootline.adapters.kafka.publisher import Outgoing
from rootline.adapters.kafka.topics import Weight, check_topics, complete_topics, topic_exists, topic_identity
from rootline.adapters.settings import KafkaSettings
from rootline.library_log import library_logger
from rootline.ports.intent_feed import Assigned, FeedEvent, Revoked
from rootline.schemas.bytes.record_headers import Lake
from rootline.schemas.distribution import LAST_THAT_UPGRADES
from rootline.schemas.errors import Fenced, Invalid, RootlineError, Unavailable
from rootline.schemas.identifiers import LogId, LogRecord


class BackgroundTasks:
    """Named tasks in the background, for one event loop. `changed` is called when a task ends."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._stopped: set[asyncio.Task[None]] = set()
        self._closed = False

    def start(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start `work`, unless a task of this name is running."""
        if name in self._tasks or self._closed:
            return
        task = self._tasks[name] = asyncio.get_running_loop().create_task(work(), name=f"rootline {name}")
        task.add_done_callback(lambda _: self._changed())

    def raise_failure(self) -> None:
        """Forget the tasks that have ended, and raise the failure of one of them."""
        for name, task in list(self._tasks.items()):
            if task.done():
                del self._tasks[name]
                if not task.cancelled() and (failure := task.exception()) is not None:
                    raise failure

    def stop(self, name: str) -> None:
        """Cancel the task of this name, and ignore its outcome."""
        task = self._tasks.pop(name, None)
        if task is not None:
            self._end(task)

    async def close(self) -> None:
        """Stop all tasks and wait for them."""
        self._closed = True
        for name in list(self._tasks):
            self.stop(name)
        if self._stopped:
            await asyncio.wait(self._stopped)

    def _end(self, task: asyncio.Task[None]) -> None:
        task.add_done_callback(_retrieve)
        if task.cancel():
            self._stopped.add(task)
            task.add_done_callback(self._stopped.discard)


def _retrieve(task: asyncio.Task[None]) -> None:
    """Retrieve the task's failure, or asyncio would log it."""
    if not task.cancelled():
        task.exception()


class RebalanceListener(ConsumerRebalanceListener):  # type: ignore[misc]
    """Passes on the library's callbacks and their errors, which the library would swallow."""

    def __init__(self, receiver: KafkaMembership, consumer: AIOKafkaConsumer) -> None:
        self._receiver = receiver
        self._consumer = consumer

    async def on_partitions_revoked(self, revoked: Any) -> None:
        """Call `on_revoked`."""
        try:
            await self._receiver.on_revoked(self._consumer)
        except Exception as error:
            self._receiver.failed(error)

    def on_partitions_assigned(self, assigned: Any) -> None:
        """Call `on_assigned`."""
        try:
            self._receiver.on_assigned(self._consumer, assigned)
        except Exception as error:
            self._receiver.failed(error)


def error_of_group(settings: KafkaSettings, error: KafkaError | TimeoutError) -> RootlineError:
    """The log's error for an error of the library, or for a missed deadline."""
    topic = settings.intents_topic
    if isinstance(error, InvalidSessionTimeoutError):
        return Invalid(
            "setting-invalid",
            f"{settings.url}: session_timeout_s is {settings.session_timeout_s:g}, which the brokers refuse. Set it "
            "between their group.min.session.timeout.ms and group.max.session.timeout.ms (by default 6 and 1800 "
            "seconds)",
        )
    if isinstance(error, InconsistentGroupProtocolError):
        reason = (
            f"group {settings.group_id} has coordinators of another version of Rootline with another protocol. Stop "
            "the older ones"
        )
        return log_unavailable(settings, reason, topic=topic)
    return log_unavailable(settings, error, topic=topic)


def upgrade_outgoing(settings: KafkaSettings, log: LogId) -> Outgoing:
    """The record which states that the group was upgraded.

    Its field `from` (offsets by partition, absent for 0) is for coordinators up to `LAST_THAT_UPGRADES`.
    """
    key = json.dumps([settings.group_id, log, UPGRADED]).encode()
    return Outgoing(settings.frontiers_topic, key, json.dumps({"from": {}}).encode())


async def recorded_if_any(settings: KafkaSettings, log: LogId) -> Recorded | None:
    """Read the frontiers' topic like `read_frontiers`, or return `None` if it does not exist. Creates no topic.

    Raises:
        Unavailable: `log-unavailable`.
    """
    if await asyncio.to_thread(topic_exists, settings, settings.frontiers_topic):
        return await read_frontiers(settings, log)
    return None


def check_upgraded(settings: KafkaSettings, log: LogId, memory: GroupMemory, recorded: Recorded | None) -> None:
    """Raise if the group has read `log`, and nothing shows that it was upgraded since the first release.

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


_Read = TypeVar("_Read")


@dataclass(slots=True)
class Place:
    """A partition of this member: the next offset to deliver, the committed offset, and the last known end."""

    next_offset: int
    committed: int
    end: int
    held: AnswerRecord | None = None  # its rejections in the frontiers' topic
    parked: ParkingRecord | None = None  # its parked tables in the frontiers' topic
    last: LogRecord | None = None  # the record that was read last
    sent: int = 0  # the greatest offset that was sent to be committed, which is decided in any case


class KafkaMembership:
    """The membership of one coordinator, for one event loop.

    `changed`: called when `advance` may have an event or a step to do. `lost`: called before partitions are assigned to
    other members.
    """

    def __init__(self, settings: KafkaSettings, changed: Callable[[], None], lost: Callable[[], None]) -> None:
        self._settings = settings
        self._topic = settings.intents_topic
        self.lake: Lake | None = None
        """The lake to which this coordinator commits, if it is known."""
        self._changed = changed
        self._lost = lost
        self.consumer: AIOKafkaConsumer | None = None
        self.generation = -1
        self.log: LogId | None = None
        self.places: dict[TopicPartition, Place] = {}
        """The partitions whose start was decided, and that were not revoked since."""
        self.is_settled = False
        self.frontiers = FrontierKeeper(settings)
        self._events: deque[FeedEvent] = deque()
        self._tasks = BackgroundTasks(changed)
        self._unsettled: tuple[TopicPartition, ...] | None = None
        self._release: asyncio.Event | None = None
        self._retiring: set[asyncio.Task[Any]] = set()
        self._suspects_offsets = False
        self._doubted_at_s = 0.0
        self._sure_at_s = -1.0
        self._fenced: Fenced | None = None
        self._partitions = 0
        self._closed = False
        self._has_checked = False
        self._logger = library_logger("rootline.kafka")

    @property
    def may_read(self) -> bool:
        """Whether records may be delivered now."""
        return self.is_settled and not self._events and self._sure_at_s >= self._doubted_at_s

    def advance(self) -> FeedEvent | None:
        """Continue the steps in progress, and return the oldest event that was not returned yet.

        Raises:
            RootlineError: as `IntentFeed.next`. Exception: any other failure in the background.
        """
        if self._closed:
            raise self.unavailable("the log was closed")
        if self._fenced is not None:
            raise self._fenced
        if self._events:
            return self._events.popleft()
        try:
            self._tasks.raise_failure()
            if self.consumer is not None:
                raise_errors_of_group(self.consumer)
        except (KafkaError, TimeoutError) as error:
            if self.consumer is not None and is_broken(self.consumer):
                self.rejoin(repr(error))
            raise self.translated(error) from None
        except Fenced as error:
            self._fenced = error
            raise
        if self.consumer is not None and is_broken(self.consumer):
            self.rejoin("a part of the client has ended")
        if self.consumer is None:
            self._tasks.start("connect", self._connect)
        elif self._unsettled is not None:
            self._tasks.start("settle", self._settle)
        elif self._needs_confirmation():
            self._tasks.start("confirm", self._confirm)
        return None

    def released(self) -> None:
        """Let the partitions be assigned to others, because nothing is in flight."""
        if self._release is not None:
            self._release.set()

    def doubt(self, *, suspects_offsets: bool = False) -> None:
        """Stop reading until a check has shown that the topic was not created again.

        `suspects_offsets`: check also that it contains the offsets in use.
        """
        self._doubted_at_s = asyncio.get_running_loop().time()
        self._suspects_offsets = self._suspects_offsets or suspects_offsets
        self._changed()

    def rejoin(self, reason: str) -> None:
        """Replace the consumer, and join the group again."""
        consumer, self.consumer = self.consumer, None
        if consumer is None:
            return
        self.generation = -1
        self._logger.warning("joining the group again", action="rejoin", reason=reason)
        self.released()
        was_reported = self._forget()
        if was_reported and not self._events:
            self._events.append(Revoked(self._settings.rebalance_deadline_s))
        self.places.clear()
        stopping = stop_consumer(consumer, patience_s=self._settings.request_timeout_s)
        task = asyncio.get_running_loop().create_task(stopping)
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)

    async def identity(self) -> LogId:
        """The topic's identity. It is read once, then kept up to date in the background."""
        if self.log is None:
            await self._ask_identity()
        assert self.log is not None
        return self.log

    async def close(self) -> None:
        """Leave the group without delay."""
        self._closed = True
        self.released()
        self._changed()
        consumer, self.consumer = self.consumer, None
        self._forget()
        self.places.clear()
        if consumer is not None:
            await stop_consumer(consumer, patience_s=self._settings.request_timeout_s)
        await self._tasks.close()
        await self.frontiers.close()
        if self._retiring:
            await asyncio.wait(self._retiring)

    def unavailable(self, reason: str) -> Unavailable:
        """The error `log-unavailable`, with the log and the topic."""
        return log_unavailable(self._settings, reason, topic=self._topic)

    def translated(self, error: KafkaError | TimeoutError) -> RootlineError:
        """The log's error for an error of the library, or for a missed deadline."""
        return error_of_group(self._settings, error)

    # a rebalance

    async def on_revoked(self, consumer: AIOKafkaConsumer) -> None:
        """Called before the consumer joins the group again. The join waits for this, and heartbeats are still sent."""
        if not self._is_current(consumer):
            return
        if self._forget():
            await self._release_partitions()
        self.frontiers.forget()
        self.places.clear()
        self.generation = -1

    def on_assigned(self, consumer: AIOKafkaConsumer, partitions: Iterable[TopicPartition]) -> None:
        """Called after the consumer has joined the group. No heartbeats are sent until it returns."""
        if not self._is_current(consumer):
            return
        self._unsettled = tuple(sorted(partitions))
        consumer.pause(*self._unsettled)
        for where in self._unsettled:
            consumer.seek(where, 0)  # or the library would fetch the committed offset
        self.generation = membership_of(consumer)
        self._changed()

    def failed(self, error: Exception) -> None:
        """Let `advance` raise the error of a callback."""

        async def fail() -> None:
            raise error

        self._tasks.stop("callback")
        self._tasks.start("callback", fail)

    def _is_current(self, consumer: AIOKafkaConsumer) -> bool:
        return self.consumer is consumer

    def _forget(self) -> bool:
        """Stop reading. Returns whether the caller of `advance` knows of partitions that this member has."""
        self._lost()
        self.frontiers.forget()
        self.is_settled = False
        self._unsettled = None
        for name in ("connect", "settle", "confirm"):
            self._tasks.stop(name)
        kept: deque[FeedEvent] = deque(event for event in self._events if not isinstance(event, Assigned))
        was_reported = bool(self.places) and len(kept) == len(self._events)
        self._events = kept
        return was_reported

    async def _release_partitions(self) -> None:
        deadline_s = self._settings.rebalance_deadline_s
        self._release = asyncio.Event()
        self._events.append(Revoked(deadline_s))
        self._changed()
        try:
            async with asyncio.timeout(deadline_s):
                await self._release.wait()
        except TimeoutError:
            self._logger.warning("partitions were not released in time", action="revoke", deadline_s=deadline_s)
        finally:
            self._release = None

    # in the background

    async def _connect(self) -> None:
        log = await self._ask_identity()
        consumer = make_consumer(self._settings, group_id=self._settings.group_id, reset="none")
        await start_consumer(consumer, patience_s=self._settings.request_timeout_s)
        try:
            await self._prepare_group(consumer, log)
        except BaseException:
            await stop_consumer(consumer, patience_s=self._settings.request_timeout_s)
            raise
        self.consumer = consumer
        on_cluster_change(consumer, self.doubt)
        consumer.subscribe([self._topic], listener=RebalanceListener(self, consumer))

    async def _prepare_group(self, consumer: AIOKafkaConsumer, log: LogId) -> None:
        """Refuse a group or a lake that must not be joined, then write the records of the group's first member."""
        recorded = await self._reading(recorded_if_any(self._settings, log))
        places = [TopicPartition(self._topic, number) for number in range(self._partitions)]
        async with asyncio.timeout(self._settings.request_timeout_s):
            memory = await group_memory(self._settings, consumer, places)
        check_log(self._topic, memory.bookmark, log)
        check_upgraded(self._settings, log, memory, recorded)
        await self._check_topics()
        if recorded is None:
            recorded = await self._recorded(log)
        check_lake(self._settings, recorded.lake, self.lake)
        first = []
        if self.lake is not None and recorded.lake is None:
            first.append(lake_outgoing(self._settings, self.lake))
        if not recorded.is_upgraded:
            first.append(upgrade_outgoing(self._settings, log))
        if first:
            await self.frontiers.publish(first)

    async def _check_topics(self) -> None:
        """Refuse topics that would lose records, once, before anything is read."""
        if self._has_checked:
            return
        try:
            made = await asyncio.to_thread(complete_topics, self._settings)
            if made:
                self._logger.info("topic created", action="create-topics", topics=list(made))
            problems = await asyncio.to_thread(check_topics, self._settings)
        except Unavailable as error:  # this client may have no right to ask
            self._logger.warning("topics not checked", action="check-topics", reason=error.message)
            return
        self._has_checked = True
        for problem in problems:
            self._logger.warning(
                "topic with a problem", action="check-topics", problem=str(problem), weight=problem.weight.value
            )
        refused = [str(problem) for problem in problems if problem.weight is Weight.REFUSED]
        if refused:
            raise Invalid("setting-invalid", f"{self._settings.url}: {'; '.join(refused)}")

    async def _settle(self) -> None:
        """Decide the start of each partition."""
        consumer, partitions = self.consumer, self._unsettled
        assert consumer is not None
        assert partitions is not None
        log = await self._ask_identity()
        recorded = await self._recorded(log)
        check_lake(self._settings, recorded.lake, self.lake)
        async with asyncio.timeout(self._settings.request_timeout_s):
            memory, begins, ends = await asyncio.gather(
                group_memory(self._settings, consumer, partitions),
                consumer.beginning_offsets(partitions),
                consumer.end_offsets(partitions),
            )
        facts = [
            PartitionFacts(
                at.partition, memory.offsets.get(at), begins[at], ends[at], recorded.frontiers.get(at.partition)
            )
            for at in partitions
        ]
        starts = starts_of(self._topic, log, memory.bookmark, facts)
        await check_marks(self._settings, log, recorded.marks, begins, ends)
        recorded = await with_rebuilt_names(self._settings, log, recorded, facts)
        if memory.bookmark != log or not memory.is_upgraded:
            await write_bookmark(self._settings, consumer, log, generation=self.generation)
        poison_candidates = poison_candidates_of(facts)
        begun = {at: starts[at.partition] for at in partitions}
        taken = await take_over(self._settings, self.frontiers, consumer, self.generation, log, recorded, begun)
        moved = {held.partition: start_of(held) for held in facts if start_of(held) != held.recorded}
        self.frontiers.note(log, moved, recorded.marks)
        self._unsettled = None
        for at, start in begun.items():
            own = taken[at]
            self.places[at] = Place(start, start, ends[at], own.answers, own.parked)
            consumer.seek(at, start)
        self.is_settled = True
        retention_s = self._settings.intents_retention_min_hours * 3600.0
        self._events.append(
            assigned_with(log, starts, poison_candidates, taken, retention_s, self.generation, recorded.pauses)
        )

    async def _recorded(self, log: LogId) -> Recorded:
        """The records of the frontiers' topic."""
        return await self._reading(read_frontiers(self._settings, log))

    async def _reading(self, read: Coroutine[Any, Any, _Read]) -> _Read:
        """Run `read` in a task that a rebalance does not cancel, so that it always closes its own connection."""
        reading = asyncio.get_running_loop().create_task(read)
        self._retiring.add(reading)
        reading.add_done_callback(self._retired)
        return await asyncio.shield(reading)

    def _retired(self, task: asyncio.Task[Any]) -> None:
        self._retiring.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved, or asyncio would log it

    async def _confirm(self) -> None:
        """Check that the topic is the same, and that it contains the offsets in use."""
        consumer, suspects_offsets = self.consumer, self._suspects_offsets
        assert consumer is not None
        log = await self._ask_identity()
        if not suspects_offsets:
            return
        partitions = list(self.places)
        async with asyncio.timeout(self._settings.request_timeout_s):
            begins, ends = await asyncio.gather(
                consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
            )
        check_ranges(
            self._topic,
            log,
            [(at.partition, place.next_offset, begins[at], ends[at]) for at, place in self.places.items()],
        )
        self._suspects_offsets = False

    async def _ask_identity(self) -> LogId:
        asked_at_s = asyncio.get_running_loop().time()
        try:
            found = await asyncio.to_thread(topic_identity, self._settings, self._topic)
        except Unavailable:
            if self.consumer is not None:
                refresh_metadata(self.consumer)
            raise
        check_log(self._topic, self.log, found.log)
        self.log = found.log
        self._sure_at_s, self._partitions = max(self._sure_at_s, asked_at_s), found.partitions
        if self.consumer is not None:
            known = self.consumer.partitions_for_topic(self._topic)
            if known is not None and len(known) != found.partitions:
                refresh_metadata(self.consumer)
        return found.log

    def _needs_confirmation(self) -> bool:
        age_s = asyncio.get_running_loop().time() - self._sure_at_s
        return (
            self._sure_at_s < self._doubted_at_s or self._suspects_offsets or age_s > self._settings.identity_max_age_s
        )
