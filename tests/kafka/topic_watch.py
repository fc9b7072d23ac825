"""What is on the topics of intents and answers, and what the group remembers, seen by a client that is not ours.

Owns: reading along, and what must hold at any moment: nothing that the group has passed is undecided, unless it
is parked. Does not own: the judgement of the end (`judge`).
Invariants: an offset is compared with verdicts that were there when it was read, and no earlier; sees committed records
only.
"""

from __future__ import annotations

import json
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import cast

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from rootline.adapters.settings import KafkaSettings
from rootline.schemas.bytes.verdict_codec import decode_verdicts
from rootline.schemas.identifiers import Headers
from rootline.schemas.verdict import Verdict, VerdictKind

Place = tuple[int, int]
"""Partition and offset of an intent's record."""
_PATIENCE_S = 240.0
_JUST_MADE = ("_UNKNOWN_PARTITION", "UNKNOWN_TOPIC_OR_PART", "LEADER_NOT_AVAILABLE", "NOT_LEADER_FOR_PARTITION")
"""How the client and its broker answer for a partition that others know already."""


@dataclass(frozen=True)
class Written:
    """A record of the intents' topic."""

    key: bytes | None
    value: bytes
    headers: Headers


@dataclass(frozen=True)
class Letter:
    """A record of the dead letters' topic."""

    key: bytes | None
    value: bytes
    headers: Headers


@dataclass
class Watch:
    """`verdicts`: all that were ever published on a record; `committed`: the group's offsets, when last asked.

    `parked`: the places of all records that were seen parked. `read_to`: the end of each partition of the intents, when
    last read.
    """

    settings: KafkaSettings
    written: dict[Place, Written] = field(default_factory=dict)
    verdicts: dict[Place, list[Verdict]] = field(default_factory=lambda: defaultdict(list))
    letters: dict[Place, list[Letter]] = field(default_factory=lambda: defaultdict(list))
    parked: set[Place] = field(default_factory=set)
    committed: dict[int, int] = field(default_factory=dict)
    read_to: dict[int, int] = field(default_factory=dict)
    samples: int = 0
    _judged: dict[int, int] = field(default_factory=dict)
    _times_lost: int = 0
    _asked_after: int = 0  # the look at `committed` began after so many losses
    _reading: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        servers: dict[str, str | int | float | bool] = {"bootstrap.servers": self.settings.servers(), "log_level": 0}
        # it asks and never joins; the administrative client's question for the same brings the process down when a
        # broker goes at the wrong moment (confluentinc/librdkafka #3663, #5397)
        servers |= {"enable.auto.commit": False, "isolation.level": "read_committed"}
        self._group = Consumer({**servers, "group.id": self.settings.group_id})
        reading: dict[str, str | int | float | bool] = {
            **servers,
            "group.id": "not used",
            "fetch.wait.max.ms": 50,  # a record that comes ends the wait, which other requests share
        }
        self._consumer = Consumer({**reading, "auto.offset.reset": "error"})
        self._lot = Consumer({**reading, "auto.offset.reset": "earliest"})  # what was decided is removed there
        self._lot_places: list[TopicPartition] = []
        self._places: list[TopicPartition] = []
        self._look_for_partitions()

    def sample(self) -> None:
        """Look at the group's offsets, then whether every record before them is decided; blocks.

        Raises:
            AssertionError: it is not, or an offset went back. KafkaException: there was no answer.

        """
        with self._reading:
            self._look_for_partitions()
        asked_after = self._times_lost
        committed = self._ask_committed()
        lost_since = self._times_lost != self._asked_after  # while the look before this one was under way, too
        with self._reading:
            self._read_all()
        for partition, offset in committed.items():
            before = 0 if lost_since else self.committed.get(partition, 0)
            assert offset >= before, f"partition {partition}: the group's offset went back from {before} to {offset}"
            for number in range(self._judged.get(partition, 0), offset):
                self._assert_decided((partition, number), offset)
            self._judged[partition] = max(offset, self._judged.get(partition, 0))
        self.committed, self._asked_after = committed, asked_after
        self.samples += 1

    def forget_offsets(self) -> None:
        """The group has lost its offsets, so they may be lower next time."""
        self._times_lost += 1

    def catch_up(self) -> None:
        """Read all topics to their present ends, new partitions too; another thread may be at it."""
        with self._reading:
            self._look_for_partitions()
            self._read_all()

    def _read_all(self) -> None:
        """Parked records first: they are removed only after their verdicts."""
        self._read(self._lot, self._lot_places)
        ends = self._read(self._consumer, self._places)
        self.read_to = {number: end for (name, number), end in ends.items() if name == self.settings.intents_topic}

    def _read(self, consumer: Consumer, places: list[TopicPartition]) -> dict[tuple[str, int], int]:
        # not by `consumer`: a broker answers a connection's requests in turn, and one for records may wait for them
        ends = {
            (held.topic, held.partition): self._group.get_watermark_offsets(held, timeout=_PATIENCE_S)[1]
            for held in places
        }
        deadline_s = time.monotonic() + _PATIENCE_S
        while any(max(held.offset, 0) < ends[held.topic, held.partition] for held in consumer.position(places)):
            for message in consumer.consume(1_000, timeout=0.05):
                self._take(message)
            assert time.monotonic() < deadline_s, "the topics' ends were not reached"
        return ends

    @property
    def behind(self) -> int:
        """How many records the group's offsets are before the ends, as of the last sample."""
        return sum(end - self.committed.get(number, 0) for number, end in self.read_to.items())

    def close(self) -> None:
        """Give back connections."""
        self._consumer.close()
        self._lot.close()
        self._group.close()

    def _look_for_partitions(self) -> None:
        """Topics may have got more of them; each is read from its beginning."""
        settings = self.settings
        answers = (settings.intents_topic, settings.verdicts_topic, settings.dead_letters_topic)
        self._group.list_topics(timeout=_PATIENCE_S)
        for consumer, places, topics in (
            (self._consumer, self._places, answers),
            (self._lot, self._lot_places, (settings.parked_topic,)),
        ):
            known = consumer.list_topics(timeout=_PATIENCE_S).topics  # each client has a picture of its own
            read = {(held.topic, held.partition) for held in places}
            new = [
                TopicPartition(name, number, 0)
                for name in topics
                for number in known[name].partitions
                if (name, number) not in read
                and all(_answers(client, name, number) for client in (self._group, consumer))
            ]
            if new:
                places += new
                consumer.incremental_assign(new)

    def _ask_committed(self) -> dict[int, int]:
        asked = [held for held in self._places if held.topic == self.settings.intents_topic]
        found = self._group.committed(asked, timeout=_PATIENCE_S)
        return {held.partition: held.offset for held in found if held.offset >= 0}

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is not None:
            raise KafkaException(error)
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        key, value = message.key(), message.value() or b""
        headers: Headers = tuple((name, text) for name, text in cast("Headers", message.headers() or ()))
        assert partition is not None
        assert offset is not None
        if topic == self.settings.intents_topic:
            self.written[partition, offset] = Written(key, value, headers)
        elif topic == self.settings.verdicts_topic:
            for verdict in decode_verdicts(value):
                self.verdicts[verdict.partition, verdict.offset].append(verdict)
        elif topic == self.settings.parked_topic:
            said_of = json.loads(dict(headers)["rootline.parked"] or b"")
            self.parked.add((said_of[5], said_of[6]))
        else:
            said = dict(headers)
            of = int(said["__connect.errors.partition"] or b""), int(said["__connect.errors.offset"] or b"")
            self.letters[of].append(Letter(key, value, headers))

    def _assert_decided(self, place: Place, committed: int) -> None:
        if place not in self.written:
            return  # not a record: a transaction's end, or of one that was aborted
        verdicts = self.verdicts.get(place)
        if not verdicts and place in self.parked:
            return
        assert verdicts, f"the group's offset of partition {place[0]} is {committed}, but {place} has no verdict"
        if verdicts[0].kind is VerdictKind.REJECTED:
            assert place in self.letters, f"the group's offset passed {place}, which was rejected, without dead letter"


def _answers(consumer: Consumer, name: str, number: int) -> bool:
    """Whether a partition that is listed can be read yet; one that was just made comes with the next look."""
    try:
        consumer.get_watermark_offsets(TopicPartition(name, number), timeout=_PATIENCE_S)
    except KafkaException as error:
        if error.args[0].name() not in _JUST_MADE:
            raise
        return False
    return True
