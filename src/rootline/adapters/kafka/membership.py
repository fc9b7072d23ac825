"""One member of the group of coordinators: its partitions, and when it may read them.

Owns: the consumer, every step of a rebalance, its background tasks and their failures, the protocol that keeps older
versions out of the group, the check that the topic is still the same. Does not own: reading (`intent_feed`), where a
partition starts (`group_offsets`), remembered offsets (`progress`).
Invariants: no partition is read before its start was decided here, and none after it was revoked. A failure in the
background is raised by `advance`. At most one task of a name runs, and none starts after `close`. After the cluster
changed, nothing is read until the topic is known to be the same. The broker refuses every member that does not know
the group's protocol.

The library's callbacks swallow the errors that they raise, run without heartbeats, and delay the group: so they only
pause, seek and wait for `released`. Tasks that `advance` starts and checks do the rest.

Source: docs/protocol.md, "Older versions".
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import structlog
from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import InconsistentGroupProtocolError, InvalidSessionTimeoutError, KafkaError

from rootline.adapters.kafka.clients import (
    is_broken,
    log_unavailable,
    look_at_cluster,
    make_consumer,
    on_cluster_change,
    raise_errors_of_group,
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
from rootline.adapters.kafka.parked_topic import with_names_found_again
from rootline.adapters.kafka.publisher import Outgoing
from rootline.adapters.kafka.topics import Weight, check_topics, complete_topics, topic_exists, topic_identity
from rootline.adapters.settings import KafkaSettings
from rootline.ports.intent_feed import Assigned, FeedEvent, Revoked
from rootline.schemas.bytes.record_headers import Lake
from rootline.schemas.distribution import LAST_THAT_UPGRADES
from rootline.schemas.errors import Fenced, Invalid, RootlineError, Unavailable
from rootline.schemas.identifiers import LogId, LogRecord


class BackgroundTasks:
    """For one event loop. `changed` is called when a task ends."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._stopped: set[asyncio.Task[None]] = set()
        self._closed = False

    def go_on(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start `work`, unless a task of this name is running."""
        if name in self._tasks or self._closed:
            return
        task = self._tasks[name] = asyncio.get_running_loop().create_task(work(), name=f"rootline {name}")
        task.add_done_callback(lambda _: self._changed())

    def raise_failure(self) -> None:
        """Forget the tasks that ended; raise the failure of one of them."""
        for name, task in list(self._tasks.items()):
            if task.done():
                del self._tasks[name]
                if not task.cancelled() and (failure := task.exception()) is not None:
                    raise failure

    def stop(self, name: str) -> None:
        """End the task of this name soon, and ignore its outcome."""
        task = self._tasks.pop(name, None)
        if task is not None:
            self._end(task)

    async def close(self) -> None:
        """Stop all of them and wait."""
        self._closed = True
        for name in list(self._tasks):
            self.stop(name)
        if self._stopped:
            await asyncio.wait(self._stopped)

    def _end(self, task: asyncio.Task[None]) -> None:
        task.add_done_callback(_look_at)
        if task.cancel():
            self._stopped.add(task)
            task.add_done_callback(self._stopped.discard)


def _look_at(task: asyncio.Task[None]) -> None:
    """Asyncio complains about failures that were not looked at."""
    if not task.cancelled():
        task.exception()


class Rebalanced(Protocol):
    """Who is told."""

    async def on_revoked(self, consumer: AIOKafkaConsumer) -> None:
        """Called before the consumer joins again."""
        ...

    def on_assigned(self, consumer: AIOKafkaConsumer, partitions: Any) -> None:
        """Called after the consumer has joined."""
        ...

    def failed(self, error: Exception) -> None:
        """One of the two has raised `error`."""
        ...


class RebalanceListener(ConsumerRebalanceListener):  # type: ignore[misc]
    """Passes on the library's calls; the library would swallow what is raised."""

    def __init__(self, told: Rebalanced, consumer: AIOKafkaConsumer) -> None:
        self._told = told
        self._consumer = consumer

    async def on_partitions_revoked(self, revoked: Any) -> None:
        """The library's word for it."""
        try:
            await self._told.on_revoked(self._consumer)
        except Exception as error:
            self._told.failed(error)

    def on_partitions_assigned(self, assigned: Any) -> None:
        """The library's word for it."""
        try:
            self._told.on_assigned(self._consumer, assigned)
        except Exception as error:
            self._told.failed(error)


def error_of_group(settings: KafkaSettings, error: KafkaError | TimeoutError) -> RootlineError:
    """An error of the library, or a missed deadline."""
    topic = settings.intents_topic
    if isinstance(error, InvalidSessionTimeoutError):
        return Invalid(
            "setting-invalid",
            f"{settings.url}: session_timeout_s is {settings.session_timeout_s:g}, which the brokers refuse: set it "
            "between their group.min.session.timeout.ms and group.max.session.timeout.ms (by default 6 and 1800 "
            "seconds)",
        )
    if isinstance(error, InconsistentGroupProtocolError):
        reason = (
            f"group {settings.group_id} has coordinators of another version of Rootline, which join it otherwise: stop "
            "the older ones"
        )
        return log_unavailable(settings, reason, topic=topic)
    return log_unavailable(settings, error, topic=topic)


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


_Read = TypeVar("_Read")


@dataclass(slots=True)
class Place:
    """A partition of this member: the next offset to deliver, the remembered one, the end when last asked for."""

    next_offset: int
    committed: int
    end: int
    held: AnswerRecord | None = None  # the rejections that the frontiers' topic holds of it
    parked: ParkingRecord | None = None  # the tables of which it names parked records
    last: LogRecord | None = None  # the record that was read last
    sent: int = 0  # the greatest offset that the group was asked to remember; whether it did or not, it is decided


class KafkaMembership:
    """For one event loop. `changed` is called when there may be news; `lost` before partitions go to others."""

    def __init__(self, settings: KafkaSettings, changed: Callable[[], None], lost: Callable[[], None]) -> None:
        self._settings = settings
        self._topic = settings.intents_topic
        self.lake: Lake | None = None
        """To which this coordinator commits, if it is known."""
        self._changed = changed
        self._lost = lost
        self.consumer: AIOKafkaConsumer | None = None
        self.generation = -1
        self.log: LogId | None = None
        self.places: dict[TopicPartition, Place] = {}
        """The partitions whose start was decided and that were not revoked since."""
        self.is_settled = False
        self.frontiers = FrontierKeeper(settings)
        self._events: deque[FeedEvent] = deque()
        self._tasks = BackgroundTasks(changed)
        self._unsettled: tuple[TopicPartition, ...] | None = None
        self._release: asyncio.Event | None = None
        self._retiring: set[asyncio.Task[Any]] = set()
        self._is_odd = False
        self._doubted_at_s = 0.0
        self._sure_at_s = -1.0
        self._fenced: Fenced | None = None
        self._partitions = 0
        self._closed = False
        self._has_checked = False
        self._logger = structlog.get_logger("rootline.kafka")

    @property
    def may_read(self) -> bool:
        """Whether records may be delivered now."""
        return self.is_settled and not self._events and self._sure_at_s >= self._doubted_at_s

    def advance(self) -> FeedEvent | None:
        """Continue what is under way; returns the oldest event that was not returned yet.

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
                self.start_anew(repr(error))
            raise self.translated(error) from None
        except Fenced as error:
            self._fenced = error
            raise
        if self.consumer is not None and is_broken(self.consumer):
            self.start_anew("a part of the client has ended")
        if self.consumer is None:
            self._tasks.go_on("connect", self._connect)
        elif self._unsettled is not None:
            self._tasks.go_on("settle", self._settle)
        elif self._needs_confirmation():
            self._tasks.go_on("confirm", self._confirm)
        return None

    def released(self) -> None:
        """Nothing is in flight: the partitions may go to others."""
        if self._release is not None:
            self._release.set()

    def doubt(self, *, is_odd: bool = False) -> None:
        """Read nothing more until the topic is known to be the same; `is_odd`: and to contain the offsets in use."""
        self._doubted_at_s = asyncio.get_running_loop().time()
        self._is_odd = self._is_odd or is_odd
        self._changed()

    def start_anew(self, reason: str) -> None:
        """Give up the consumer and join again."""
        consumer, self.consumer = self.consumer, None
        if consumer is None:
            return
        self.generation = -1
        self._logger.warning("joining the group again", action="rejoin", reason=reason)
        self.released()
        was_told = self._forget()
        if was_told and not self._events:
            self._events.append(Revoked(self._settings.rebalance_deadline_s))
        self.places.clear()
        stopping = stop_consumer(consumer, patience_s=self._settings.request_timeout_s)
        task = asyncio.get_running_loop().create_task(stopping)
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)

    async def identity(self) -> LogId:
        """The topic's identity: asked once, then kept up to date in the background."""
        if self.log is None:
            await self._ask_identity()
        assert self.log is not None
        return self.log

    async def close(self) -> None:
        """Leave the group at once."""
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
        """`log-unavailable`, naming the log and the topic."""
        return log_unavailable(self._settings, reason, topic=self._topic)

    def translated(self, error: KafkaError | TimeoutError) -> RootlineError:
        """An error of the library, or a missed deadline, as one of ours."""
        return error_of_group(self._settings, error)

    # a rebalance

    async def on_revoked(self, consumer: AIOKafkaConsumer) -> None:
        """Called before the consumer joins again, which waits for it; this member still sends heartbeats."""
        if not self._is_current(consumer):
            return
        if self._forget():
            await self._let_go()
        self.frontiers.forget()
        self.places.clear()
        self.generation = -1

    def on_assigned(self, consumer: AIOKafkaConsumer, partitions: Iterable[TopicPartition]) -> None:
        """Called after the consumer has joined; this member sends no heartbeats until it returns."""
        if not self._is_current(consumer):
            return
        self._unsettled = tuple(sorted(partitions))
        consumer.pause(*self._unsettled)
        for where in self._unsettled:
            consumer.seek(where, 0)  # or the library would look for the position by itself
        self.generation = membership_of(consumer)
        self._changed()

    def failed(self, error: Exception) -> None:
        """A callback failed: `advance` raises it."""

        async def fail() -> None:
            raise error

        self._tasks.stop("callback")
        self._tasks.go_on("callback", fail)

    def _is_current(self, consumer: AIOKafkaConsumer) -> bool:
        return self.consumer is consumer

    def _forget(self) -> bool:
        """Read nothing more; whether the caller of `advance` was told about partitions that this member has."""
        self._lost()
        self.frontiers.forget()
        self.is_settled = False
        self._unsettled = None
        for name in ("connect", "settle", "confirm"):
            self._tasks.stop(name)
        told: deque[FeedEvent] = deque(event for event in self._events if not isinstance(event, Assigned))
        was_told = bool(self.places) and len(told) == len(self._events)
        self._events = told
        return was_told

    async def _let_go(self) -> None:
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
        """Refuse a group or a lake that is not to be joined, then write what its first member writes."""
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
        """Only once: refuse topics that would lose records before anything is read."""
        if self._has_checked:
            return
        try:
            made = await asyncio.to_thread(complete_topics, self._settings)
            if made:
                self._logger.info("topic created", action="create-topics", topics=list(made))
            problems = await asyncio.to_thread(check_topics, self._settings)
        except Unavailable as error:  # perhaps this client has no right to ask
            self._logger.warning("topics not checked", action="check-topics", reason=error.message)
            return
        self._has_checked = True
        for problem in problems:
            self._logger.warning("topic", action="check-topics", problem=str(problem), weight=problem.weight.value)
        refused = [str(problem) for problem in problems if problem.weight is Weight.REFUSED]
        if refused:
            raise Invalid("setting-invalid", f"{self._settings.url}: {'; '.join(refused)}")

    async def _settle(self) -> None:
        """Decide where the partitions start."""
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
        recorded = await with_names_found_again(self._settings, log, recorded, facts)
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
        """The result of `read`. A rebalance does not interrupt it: it closes its own connection."""
        reading = asyncio.get_running_loop().create_task(read)
        self._retiring.add(reading)
        reading.add_done_callback(self._retired)
        return await asyncio.shield(reading)

    def _retired(self, task: asyncio.Task[Any]) -> None:
        self._retiring.discard(task)
        if not task.cancelled():
            task.exception()  # looked at, or asyncio would complain

    async def _confirm(self) -> None:
        """Check that the topic is the same, and that it contains the offsets in use."""
        consumer, is_odd = self.consumer, self._is_odd
        assert consumer is not None
        log = await self._ask_identity()
        if not is_odd:
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
        self._is_odd = False

    async def _ask_identity(self) -> LogId:
        asked_at_s = asyncio.get_running_loop().time()
        try:
            found = await asyncio.to_thread(topic_identity, self._settings, self._topic)
        except Unavailable:
            if self.consumer is not None:
                look_at_cluster(self.consumer)
            raise
        check_log(self._topic, self.log, found.log)
        self.log = found.log
        self._sure_at_s, self._partitions = max(self._sure_at_s, asked_at_s), found.partitions
        if self.consumer is not None:
            known = self.consumer.partitions_for_topic(self._topic)
            if known is not None and len(known) != found.partitions:
                look_at_cluster(self.consumer)
        return found.log

    def _needs_confirmation(self) -> bool:
        age_s = asyncio.get_running_loop().time() - self._sure_at_s
        return self._sure_at_s < self._doubted_at_s or self._is_odd or age_s > self._settings.identity_max_age_s
