"""Offsets are remembered under the membership in which the caller got them, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import CommitFailedError
from aiokafka.structs import OffsetAndMetadata

from rootline.adapters.kafka.group_offsets import Stage, commit_offsets
from rootline.schemas.identifiers import LogId

AT = TopicPartition("intents", 0)
LOG = LogId("kafka/1")


@dataclass
class Group:
    """The part of the library's group that commits: it sends under the generation that it is in by then."""

    generation: int = 3
    rebalanced_meanwhile: bool = False
    sent: list[tuple[int, Mapping[TopicPartition, OffsetAndMetadata]]] = field(default_factory=list)
    _commit_lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def ensure_coordinator_known(self) -> None:
        if self.rebalanced_meanwhile:
            self.generation += 1

    async def _do_commit_offsets(self, _: Any, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self.sent.append((self.generation, offsets))


async def commit(group: Group, *, generation: int, stage: Stage = Stage.READING) -> None:
    consumer = cast(AIOKafkaConsumer, SimpleNamespace(_coordinator=group))
    await commit_offsets(consumer, {AT: 7}, LOG, generation=generation, stage=stage)


async def test_an_offset_is_sent_with_the_logs_identity_under_the_membership_it_was_got_in() -> None:
    group = Group()
    await commit(group, generation=3)
    await commit(group, generation=3, stage=Stage.CONCLUDED)
    assert group.sent == [
        (3, {AT: OffsetAndMetadata(7, "kafka/1")}),
        (3, {AT: OffsetAndMetadata(7, "kafka/1 concluded")}),
    ]


@pytest.mark.parametrize("stale", [2, -1])
async def test_nothing_is_sent_for_a_membership_that_has_ended(stale: int) -> None:
    group = Group()
    with pytest.raises(CommitFailedError):
        await commit(group, generation=stale)
    assert group.sent == []


async def test_nothing_is_sent_when_the_group_is_rebalanced_while_its_broker_is_looked_for() -> None:
    group = Group(rebalanced_meanwhile=True)
    with pytest.raises(CommitFailedError):
        await commit(group, generation=3)
    assert group.sent == []


async def test_nothing_is_sent_when_the_group_is_rebalanced_while_another_commit_is_under_way() -> None:
    group = Group()
    async with group._commit_lock:
        waiting = asyncio.ensure_future(commit(group, generation=3))
        await asyncio.sleep(0)
        assert not waiting.done()
        group.generation = 4
    with pytest.raises(CommitFailedError):
        await waiting
    assert group.sent == []
