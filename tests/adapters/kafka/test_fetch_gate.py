"""An answer that must be decompressed to be judged keeps no one waiting but those who wait for it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.protocol.fetch import FetchRequest

from rootline.adapters.kafka.record_batches import DECODED_BYTES_MAX, guard
from tests.kafka.hostile_batches import CODECS, batch_of, compressed, record_of_zeros


@pytest.mark.parametrize(("size", "turns_meanwhile"), [(1_000, False), (DECODED_BYTES_MAX + 1, True)])
async def test_the_loop_turns_while_a_batch_is_decompressed_on_trial(size: int, turns_meanwhile: bool) -> None:
    batch = batch_of(CODECS["zstd"], compressed(CODECS["zstd"], record_of_zeros(size)))
    answer = SimpleNamespace(topics=[("intents", [(0, 0, 1, 1, [], batch)])])

    async def answered(node_id: int, request: object) -> Any:
        return answer

    consumer: Any = SimpleConsumer(answered)
    guard(consumer, "intents", reads_all=False)
    turned = asyncio.Event()
    asyncio.get_running_loop().call_soon(turned.set)
    found = await consumer._client.send(1, FetchRequest(0, 1, 1, 1, [("intents", [(0, 0, 1)])]))
    assert turned.is_set() is turns_meanwhile
    [(_, [(*_, passed)])] = found.topics
    assert (passed == batch) is not turns_meanwhile, "what is too large is replaced"


class SimpleConsumer:
    """As much of the library's consumer as the gate looks at."""

    def __init__(self, send: Any) -> None:
        self._client = SimpleNamespace(send=send)
        self._fetcher = None
