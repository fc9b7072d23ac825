"""Between a consumer of the client library and its brokers: answers are judged before the library decompresses them.

Owns: the one place where we reach into the library for that, and how much a consumer may hold decompressed. Does not
own: which batches pass (`record_batches`).
Invariants: the library decompresses no batch over `DECODED_BYTES_MAX`; large batches that it holds and has not handed
out are no more than that together, whatever the number of partitions; what is left out is asked for again; what must
be decompressed on trial is, on a thread, so that commits go on meanwhile.

The library decompresses with its own codecs when a record is taken, and has no limit for it. It asks brokers through
`client.send`, so a consumer gets a `send` whose answers went through here (decision 0044).
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, Final
from weakref import WeakKeyDictionary

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.protocol.fetch import FetchRequest

from rootline.adapters.kafka.fetching.decoded_size import TrialNeeded
from rootline.adapters.kafka.fetching.record_batches import judged

DECODED_BYTES_MAX: Final = 32 * 1024 * 1024
"""A constant, not a setting: all coordinators of a group must give the same verdict on a batch."""
_LETTER_BYTES_MAX: Final = DECODED_BYTES_MAX + (1 << 20)
"""A dead letter is its record with headers of ours."""
_HELD_BACK_S: Final = 0.1
_SUSPECTS: Final[WeakKeyDictionary[AIOKafkaConsumer, set[TopicPartition]]] = WeakKeyDictionary()


def guard(consumer: AIOKafkaConsumer, intents_topic: str, *, reads_all: bool) -> None:
    """Judge every answer that `consumer` gets. `reads_all`: each batch is read on trial first."""
    gate = _FetchGate(consumer, intents_topic, reads_all)
    _SUSPECTS[consumer] = gate.suspects
    consumer._client.send = gate.send


def suspect(consumer: AIOKafkaConsumer, at: TopicPartition) -> None:
    """The library could not read from `at`: read its next answer on trial, and replace what cannot be read."""
    _SUSPECTS[consumer].add(at)


class _FetchGate:
    def __init__(self, consumer: AIOKafkaConsumer, intents_topic: str, reads_all: bool) -> None:
        self.suspects: set[TopicPartition] = set()
        self._consumer = consumer
        self._intents_topic = intents_topic
        self._reads_all = reads_all
        self._heavy: dict[TopicPartition, int] = {}
        self._send = consumer._client.send
        self._judging = asyncio.Lock()

    async def send(self, node_id: Any, request: Any, **options: Any) -> Any:
        """As the library's client."""
        answer = await self._send(node_id, request, **options)
        if not isinstance(request, FetchRequest):
            return answer
        async with self._judging:  # one at a time: what is held is counted
            is_held_back = await self._judge(request, answer)
        if is_held_back:
            await asyncio.sleep(_HELD_BACK_S)  # else it would be asked for again at once, until records are taken
        return answer

    async def _judge(self, request: FetchRequest, answer: Any) -> bool:
        """Replace what `answer` holds; whether something was held back, and nothing is left."""
        asked = {
            TopicPartition(topic, number): offset for topic, parts in request.topics for number, offset, _ in parts
        }
        self._forget_taken()
        is_cut = has_some = False
        topics = []
        for topic, parts in answer.topics:
            kept = []
            for number, *told, message_set in parts:
                passed = message_set
                if message_set:
                    at = TopicPartition(topic, number)
                    passed, was_cut = await self._passed(at, message_set, asked[at])
                    is_cut, has_some = is_cut or was_cut, has_some or bool(passed)
                kept.append((number, *told, passed))
            topics.append((topic, kept))
        answer.topics = topics
        return is_cut and not has_some

    async def _passed(self, at: TopicPartition, message_set: bytes, next_offset: int) -> tuple[bytes, bool]:
        self._heavy.pop(at, None)
        bytes_max = DECODED_BYTES_MAX if at.topic == self._intents_topic else _LETTER_BYTES_MAX
        reads_all = self._reads_all or at in self.suspects
        self.suspects.discard(at)
        judge = partial(
            judged,
            message_set,
            next_offset,
            batch_bytes_max=bytes_max,
            room_bytes=max(0, bytes_max - sum(self._heavy.values())),
            reads_all=reads_all,
        )
        try:
            found = judge(tries=False)
        except TrialNeeded:
            found = await asyncio.to_thread(judge)
        if found.heavy_bytes:
            self._heavy[at] = found.heavy_bytes
        return found.message_set, found.is_cut

    def _forget_taken(self) -> None:
        """Of large batches, what the library has handed out whole, or dropped."""
        if self._heavy:
            fetcher = self._consumer._fetcher
            held = () if fetcher is None else fetcher._records
            self._heavy = {at: size for at, size in self._heavy.items() if at in held}
