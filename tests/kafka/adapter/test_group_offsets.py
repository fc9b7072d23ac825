"""A member that was away while the group was rebalanced moves no offset of the partitions that others read now."""

from __future__ import annotations

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from rootline.adapters.kafka.group_offsets import commit_offsets, membership_of
from rootline.adapters.kafka.membership import KafkaMembership
from rootline.adapters.settings import KafkaSettings
from tests.kafka.feeding import append, committed, member_of, numbered
from tests.support.feed_driver import together

pytestmark = pytest.mark.services


async def test_a_commit_under_an_ended_membership_is_refused_and_changes_nothing(settings: KafkaSettings) -> None:
    for partition in range(4):
        append(settings, partition, numbered(0, 10))
    async with member_of(settings) as member, member_of(settings) as other:
        await member.until(lambda: len(member.records) == 40)
        await member.decided(0, 3)
        membership: KafkaMembership = member.feed._membership
        assert membership.consumer is not None
        stale = membership_of(membership.consumer)
        await together(member, other, done=lambda: len(member.starts) == len(other.starts) == 2)
        assert membership_of(membership.consumer) > stale

        offsets = {TopicPartition(settings.intents_topic, partition): 9 for partition in range(4)}
        with pytest.raises(KafkaError):
            await commit_offsets(membership.consumer, offsets, member.log, generation=stale)

        assert [committed(settings, partition) for partition in range(4)] == [3, 0, 0, 0]
