"""Rejections of records that are no intents: all are published, each by itself, and told of once acknowledged."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Coroutine, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest

from rootline.coordinator.runtime.assignment.frontier import Frontier
from rootline.coordinator.runtime.assignment.intake import RejectionOutbox
from rootline.coordinator.runtime.records import Rejection, decoded
from rootline.ports.intent_feed import RecordedRejection
from rootline.schemas.errors import OutcomeUnknown, Unavailable
from rootline.schemas.identifiers import LogId, LogPosition, LogRecord
from rootline.schemas.intent_rules import IntentLimits
from rootline.schemas.parts.log import PartitionOffset
from rootline.schemas.verdict import DeadLetter, Verdict
from rootline.testing.seeded_environment import SeededEnvironment
from rootline.testing.virtual_loop import run_virtually
from tests.support.group_log import GroupLog
from tests.support.group_member import GroupMember

TIMEOUT_S = 10.0
BYTES_MAX = 50_000_000


def virtually(work: Coroutine[Any, Any, None]) -> None:
    run_virtually(work)


def rejections_on(log: GroupLog, count: int, value: bytes = b"garbage") -> list[Rejection]:
    made = []
    for _ in range(count):
        position = log.append(None, value, partition=0)
        result = decoded(LogRecord(position, None, value, 0), IntentLimits())
        assert isinstance(result, tuple)
        made.append(result)
    return made


@dataclass
class Holding:
    """A reader's side of `log` that holds answers, and is told nothing that it does not hold."""

    log: GroupLog
    member: GroupMember = field(init=False)
    held: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.member = self.log.member("a")

    async def record_rejections(self, rejections: Sequence[RecordedRejection]) -> None:
        self.held.update(rejection.position.offset for rejection in rejections)

    async def publish_verdicts(self, verdicts: Sequence[Verdict], dead_letters: Sequence[DeadLetter]) -> None:
        assert self.held >= {verdict.offset for verdict in verdicts}
        await self.member.publish_verdicts(verdicts, dead_letters)


class Outbox:
    """One under test: `told` of what was published, when the log already had it."""

    def __init__(self, log: GroupLog) -> None:
        self.log = log
        self.told: list[int] = []
        self.outbox = RejectionOutbox(
            Holding(log),
            SeededEnvironment(1),
            Frontier([PartitionOffset(log.log_id, 0, 0)]),
            self._published,
            (),
            BYTES_MAX,
            TIMEOUT_S,
            retry_s=1.0,
        )

    def _published(self, verdicts: Sequence[Verdict], _: bool) -> None:
        for verdict in verdicts:
            assert self.log.is_settled(LogPosition(LogId(verdict.log), verdict.partition, verdict.offset))
            self.told.append(verdict.offset)

    def letters(self) -> list[int]:
        return [letter.offset for letter in self.log.letters]


@contextlib.asynccontextmanager
async def running(log: GroupLog) -> AsyncIterator[Outbox]:
    made = Outbox(log)
    task = asyncio.ensure_future(made.outbox.run())
    yield made
    made.outbox.request_stop()
    await task


def test_a_storm_is_published_in_order_in_few_requests_and_each_once() -> None:
    async def main() -> None:
        calls = 0

        async def count(operation: str, reader: str) -> None:
            nonlocal calls
            calls += operation == "verdicts"
            await asyncio.sleep(0.01)

        log = GroupLog(before=count)
        async with running(log) as box:
            for rejection in rejections_on(log, 3_000):
                box.outbox.reject([rejection])
        assert box.told == box.letters() == list(range(3_000))
        assert calls <= 3_000 / 256 + 1

    virtually(main())


def test_what_the_log_does_not_acknowledge_is_published_again_and_not_told_of() -> None:
    async def main() -> None:
        log = GroupLog()
        box = Outbox(log)
        troubles = iter(["unavailable", "letters", "unknown", "hangs"])
        trouble = ""

        async def before(operation: str, reader: str) -> None:
            nonlocal trouble
            if operation == "verdicts":
                assert box.told == []
                trouble = next(troubles, "")
            if trouble == "unavailable" or (trouble, operation) == ("letters", "letters"):
                raise Unavailable("log-unavailable", "the broker restarts")

        async def after(operation: str, reader: str) -> None:
            if trouble == "unknown":
                raise OutcomeUnknown("publish-unknown", "the acknowledgement was lost")
            if trouble == "hangs":
                await asyncio.sleep(1e9)

        log.hooks.before, log.hooks.after = before, after
        task = asyncio.ensure_future(box.outbox.run())
        box.outbox.reject(rejections_on(log, 2))
        box.outbox.request_stop()
        await task
        assert box.told == [0, 1]
        assert asyncio.get_running_loop().time() > TIMEOUT_S

    virtually(main())


class Refusing(Holding):
    """A sink that takes no call with one of these offsets; it answers after a while, or never."""

    def __init__(self, log: GroupLog, *offsets: int, hangs: bool = False) -> None:
        super().__init__(log)
        self.offsets = set(offsets)
        self.hangs = hangs

    async def publish_verdicts(self, verdicts: Sequence[Verdict], dead_letters: Sequence[DeadLetter]) -> None:
        if self.offsets & {letter.offset for letter in dead_letters}:
            await asyncio.sleep(1e9 if self.hangs else 0.01)
            raise Unavailable("log-unavailable", "not this one")
        await super().publish_verdicts(verdicts, dead_letters)


@pytest.mark.parametrize("hangs", [False, True], ids=["refused", "no answer"])
def test_a_letter_that_the_log_does_not_take_holds_up_no_other_one(hangs: bool) -> None:
    async def main() -> None:
        log = GroupLog()
        box = Outbox(log)
        sink = Refusing(log, 3, 700, hangs=hangs)
        box.outbox.verdicts = sink
        task = asyncio.ensure_future(box.outbox.run())
        box.outbox.reject(rejections_on(log, 1_000))
        await asyncio.sleep(10 * TIMEOUT_S)
        assert sorted(box.told) == [offset for offset in range(1_000) if offset not in (3, 700)]
        assert box.outbox.waiting == 2
        assert "not this one" in box.outbox.trouble or hangs
        box.outbox.reject(rejections_on(log, 10))
        await asyncio.sleep(0.1)
        assert sorted(box.told)[-10:] == list(range(1_000, 1_010)), "those that come later do not wait either"

        sink.offsets.clear()
        box.outbox.request_stop()
        await task
        assert sorted(box.told) == sorted(box.letters()) == list(range(1_010))
        assert (box.outbox.waiting, box.outbox.trouble, box.outbox.buffered_bytes) == (0, "", 0)

    virtually(main())


def test_no_record_alone_fills_the_room_and_a_digest_is_left_of_one_that_would() -> None:
    async def main() -> None:
        log = GroupLog()
        box = Outbox(log)
        value = bytes(BYTES_MAX + 1)
        box.outbox.reject(rejections_on(log, 1, value))
        assert not box.outbox.is_full
        box.outbox.request_stop()
        await box.outbox.run()
        [letter] = log.letters
        assert (letter.offset, letter.value, letter.code) == (0, b"", "intent-too-large")
        assert f"{len(value)} bytes, sha256 {hashlib.sha256(value).hexdigest()}" in letter.message

    virtually(main())


def test_a_stop_publishes_what_waits_and_one_with_nothing_to_say_takes_no_time() -> None:
    async def main() -> None:
        log = GroupLog()
        async with running(log) as box:
            box.outbox.reject(rejections_on(log, 300))
        assert box.told == list(range(300))
        async with running(log):
            await asyncio.sleep(0)
        assert asyncio.get_running_loop().time() == 0.0

    virtually(main())


def test_what_is_cut_off_was_not_told_of() -> None:
    async def main() -> None:
        async def hang(operation: str, reader: str) -> None:
            await asyncio.sleep(1e9)

        log = GroupLog(after=hang)
        box = Outbox(log)
        task = asyncio.ensure_future(box.outbox.run())
        box.outbox.reject(rejections_on(log, 1))
        await asyncio.sleep(1.0)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        assert box.told == []
        assert box.letters() == [0], "it was published, and nobody has said so"

    virtually(main())


def test_who_rejects_very_many_is_asked_to_read_no_more_for_a_while() -> None:
    async def main() -> None:
        log = GroupLog()
        box = Outbox(log)
        many = rejections_on(log, 5_000)
        box.outbox.reject(many[:4_000])
        assert not box.outbox.is_full
        box.outbox.reject(many[4_000:])
        assert box.outbox.is_full
        box.outbox.request_stop()
        await box.outbox.run()
        assert not box.outbox.is_full
        assert box.told == list(range(5_000))

    virtually(main())


def test_large_ones_are_published_few_at_a_time_and_count_until_they_are() -> None:
    async def main() -> None:
        sizes = []

        async def look(operation: str, reader: str) -> None:
            if operation == "letters":
                sizes.append(box.outbox.buffered_bytes)

        log = GroupLog(before=look)
        box = Outbox(log)
        many = rejections_on(log, 60, bytes(1_000_000))
        box.outbox.reject(many[:49])
        assert not box.outbox.is_full
        box.outbox.reject(many[49:])
        assert box.outbox.is_full
        box.outbox.request_stop()
        await box.outbox.run()
        assert (box.told, box.outbox.buffered_bytes) == (list(range(60)), 0)
        assert all(before - after <= 4_000_000 for before, after in pairwise(sizes))

    virtually(main())
