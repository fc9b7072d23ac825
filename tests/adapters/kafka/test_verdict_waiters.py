"""Who waits for which verdict, and how much is remembered."""

from __future__ import annotations

import asyncio

import pytest

from rootline.adapters.kafka.record_headers import VerdictRange, headers_of_verdicts, range_of
from rootline.adapters.kafka.writer_log import VerdictWaiters
from rootline.schemas.bytes.verdict_codec import encode_verdicts
from rootline.schemas.errors import Unavailable
from rootline.schemas.identifiers import LogId, LogPosition
from rootline.schemas.verdict import Verdict, VerdictKind


def place(offset: int, partition: int = 0) -> LogPosition:
    return LogPosition(LogId("cluster/topic"), partition, offset)


def verdict(at: LogPosition, version: int = 1) -> Verdict:
    return Verdict(
        intent_id="i",
        table="a.b",
        kind=VerdictKind.COMMITTED,
        log=at.log,
        partition=at.partition,
        offset=at.offset,
        version=version,
    )


def arrive(waiters: VerdictWaiters, *verdicts: Verdict) -> None:
    waiters.arrived(encode_verdicts(verdicts), range_of(headers_of_verdicts(verdicts)))


async def test_only_the_right_partition_and_offset_is_told() -> None:
    waiters = VerdictWaiters(10_000)
    waiting = asyncio.ensure_future(waiters.wait(place(5), 30))
    await asyncio.sleep(0)
    arrive(waiters, verdict(place(5, partition=1)))
    arrive(waiters, verdict(place(4)), verdict(place(6)))
    await asyncio.sleep(0)
    assert not waiting.done()

    arrive(waiters, verdict(place(5)))

    assert await waiting == verdict(place(5))
    assert await waiters.wait(place(6), 0) == verdict(place(6))


async def test_what_is_remembered_has_a_bound_and_the_oldest_goes_first() -> None:
    waiters = VerdictWaiters(10_000)
    for offset in range(1_000):
        arrive(waiters, verdict(place(offset, partition=offset % 3)))

    assert waiters.kept_bytes <= 10_000
    assert await waiters.wait(place(0), 0) is None
    assert await waiters.wait(place(999), 0) == verdict(place(999))


async def test_records_that_concern_nobody_are_not_decoded() -> None:
    waiters = VerdictWaiters(10_000)
    waiting = asyncio.ensure_future(waiters.wait(place(1_000), 30))
    await asyncio.sleep(0)

    waiters.arrived(b"not even Avro", VerdictRange("cluster/topic", 0, 0, 999))
    arrive(waiters, verdict(place(1_000)))

    assert await waiting == verdict(place(1_000))


async def test_a_wait_that_is_cancelled_leaves_the_others_waiting() -> None:
    waiters = VerdictWaiters(0)
    cancelled, waiting = (asyncio.ensure_future(waiters.wait(place(1), 30)) for _ in range(2))
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.gather(cancelled, return_exceptions=True)

    arrive(waiters, verdict(place(1)))

    assert await waiting == verdict(place(1))


async def test_who_waits_is_told_when_it_ends() -> None:
    waiters = VerdictWaiters(0)
    waiting = asyncio.ensure_future(waiters.wait(place(1), 30))
    await asyncio.sleep(0)

    waiters.fail(Unavailable("log-unavailable", "closed"))

    with pytest.raises(Unavailable):
        await waiting
