"""Rejections that no root records hold for every later owner, however long the partition's offset is held back."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest
from prometheus_client import generate_latest

from rootline.coordinator.runtime.assignment import intake
from rootline.coordinator.runtime.records import Rejection, decoded
from rootline.schemas.bytes.intent_codec import encode_intent_json
from rootline.schemas.errors import Unavailable
from rootline.schemas.identifiers import LogRecord, TableName
from rootline.schemas.intent import Intent
from rootline.schemas.intent_rules import IntentLimits
from rootline.testing.virtual_loop import run_virtually
from rootline.tree.draft.batch import Record
from tests.coordinator.group_service import coordinating
from tests.coordinator.hooked_ports import HookedStore
from tests.coordinator.running_service import append_intent, create_intent
from tests.coordinator.test_parking import Damage
from tests.support import group_member
from tests.support.group_log import GroupLog

STUCK, LATE, FINE = TableName("q.q"), TableName("t.t"), TableName("f.f")


@pytest.mark.parametrize(
    ("refused", "code"),
    [
        (append_intent("x", LATE), "table-unknown"),
        (
            create_intent(LATE).model_copy(update={"intent_id": "x", "summary": {"total-own": "1"}}),
            "intent-malformed",
        ),
    ],
)
def test_behind_a_quarantined_table_a_told_rejection_holds_for_hours_and_over_a_crash(
    refused: Intent, code: str
) -> None:
    async def main() -> None:
        log, store = GroupLog(2), HookedStore()
        async with coordinating("a", log=log, store=store) as group:
            await group.create(STUCK)
            await group.until_settled()
            await group.stop("a")
            damage = Damage(store, STUCK)
            await damage.do()
            group.start("a")
            stuck = group.publish(append_intent("stuck", STUCK), partition=1)
            early = group.publish(refused, partition=1)
            [told] = await group.decided(early)
            assert told.code == code
            await asyncio.sleep(3_600)
            await group.decided(group.publish(create_intent(LATE), partition=0))
            await group.crash("a")
            group.start("c")
            await asyncio.sleep(60)
            assert await group.files(LATE) == []
            assert log.verdicts[early[0]] == told
            assert log.violations == []
            damage.mend()
            await group.stop("c")
            group.start("d")
            await group.decided(stuck)
            await group.until_settled()

    run_virtually(main())


def test_no_rejection_is_told_before_the_log_holds_it() -> None:
    async def main() -> None:
        is_refusing = True

        async def refuse(operation: str, reader: str) -> None:
            if operation == "record_rejections" and is_refusing:
                raise Unavailable("log-unavailable", "not now")

        log = GroupLog(1, before=refuse)
        async with coordinating("a", log=log) as group:
            positions = group.publish(append_intent("x", LATE))
            assert await log.wait_verdict(positions[0], timeout_s=60.0) is None
            is_refusing = False
            [told] = await group.decided(positions)
            assert told.code == "table-unknown"
            await group.until_settled()

    run_virtually(main())


def test_a_record_that_was_told_unreadable_is_not_committed_by_a_newer_version_that_can_read_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def newer(raw: LogRecord, limits: IntentLimits) -> Record | Rejection:
        return decoded(raw._replace(value=raw.value.replace(b"upsert", b"append")), limits)

    async def main() -> None:
        log, store = GroupLog(2), HookedStore()
        async with coordinating("a", log=log, store=store) as group:
            await group.create(STUCK, LATE)
            await group.until_settled()
            await group.stop("a")
            damage = Damage(store, STUCK)
            await damage.do()
            group.start("a")
            stuck = group.publish(append_intent("stuck", STUCK), partition=1)
            value = encode_intent_json(append_intent("x", LATE)).replace(b'"append"', b'"upsert"')
            early = [log.append(LATE.encode(), value, partition=1)]
            [told] = await group.decided(early)
            assert told.code == "kind-unknown"
            await group.crash("a")
            monkeypatch.setattr(intake, "decoded", newer)
            group.start("c")
            await asyncio.sleep(60)
            assert await group.files(LATE) == []
            assert log.verdicts[early[0]] == told
            assert log.violations == []
            damage.mend()
            await group.stop("c")
            group.start("d")
            await group.decided(stuck)
            await group.until_settled()

    run_virtually(main())


def test_no_unreadable_record_is_told_before_the_log_holds_it() -> None:
    async def main() -> None:
        is_refusing = True

        async def refuse(operation: str, reader: str) -> None:
            if operation == "record_rejections" and is_refusing:
                raise Unavailable("log-unavailable", "not now")

        log = GroupLog(1, before=refuse)
        async with coordinating("a", log=log) as group:
            position = log.append(b"t.t", b"garbage")
            assert await log.wait_verdict(position, timeout_s=60.0) is None
            is_refusing = False
            [told] = await group.decided([position])
            assert told.code == "undecodable"
            await group.until_settled()

    run_virtually(main())


def test_a_partition_whose_rejections_have_no_room_pauses_alone_and_goes_on_when_the_stuck_table_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(group_member, "HELD_CHARS_MAX", 1_000)

    async def main() -> None:
        is_denied = True

        async def deny(_: str, key: str) -> None:
            if is_denied and key.startswith("q/"):
                raise Unavailable("store-unavailable", "LIST AccessDenied")

        log = GroupLog(2)
        async with coordinating("a", log=log, store=HookedStore(before=deny)) as group:
            service = group.services["a"]
            await group.create(FINE)
            stuck = group.publish(create_intent(STUCK), partition=1)
            lost = []
            for number in range(40):  # what is said of neighbours differs, so that each takes room
                lost.append(log.append(None, b"garbage", partition=1))
                lost += group.publish(append_intent(f"x-{number}", LATE), partition=1)
            await group.until(lambda: bool(log.member_of("a").paused()) and (log.remembered(1) or 0) == stuck[0].offset)
            late = [log.append(None, b"garbage", partition=1) for _ in range(100)]
            fine = [append_intent(f"f-{number}", FINE) for number in range(5)]
            await group.decided(group.publish(*fine, partition=0))
            await asyncio.sleep(60)
            assert group.lag() >= len(late)
            assert group.assignment("a").frontier.next_offset((log.log_id, 1)) < late[-1].offset
            assert not service.readiness().ready
            assert "no room for more answers" in service.readiness().reason
            await service.measure()
            assert b"rootline_paused_partitions 1.0" in generate_latest(service.metrics.registry)
            is_denied = False
            await group.decided([*stuck, *lost, *late])
            await group.until_settled()
            await service.measure()
            assert b"rootline_paused_partitions 0.0" in generate_latest(service.metrics.registry)
            assert service.readiness().ready

    run_virtually(main())


@dataclass
class Stall:
    """Operations of one sort on a table's objects take until `goes_on`."""

    operation: str
    prefix: str
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    goes_on: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, operation: str, key: str) -> None:
        if operation == self.operation and key.startswith(self.prefix):
            self.begun.set()
            await self.goes_on.wait()


def test_a_coordinator_that_slept_before_it_looked_for_a_table_commits_nothing_that_another_told_rejected() -> None:
    async def main() -> None:
        stall = Stall("list", "t/")
        log = GroupLog(2)
        async with coordinating("a", log=log, store=HookedStore(before=stall)) as group:
            await group.create(FINE)
            early = group.publish(append_intent("x", LATE), partition=1)
            await stall.begun.wait()
            log.pause("a")
            group.store = HookedStore(group.store.inner)
            group.start("b")
            [told] = await group.decided(early)
            assert told.code == "table-unknown"
            await group.decided(group.publish(create_intent(LATE), partition=0))
            stall.goes_on.set()
            await asyncio.sleep(5)
            log.resume("a")
            await asyncio.sleep(60)
            assert log.violations == []
            assert await group.files(LATE) == []
            await group.decided(group.publish(append_intent("y", LATE), partition=1))
            assert await group.files(LATE) == ["data/y.parquet"]
            await group.until_settled()

    run_virtually(main())


@pytest.mark.parametrize("begins", [0, 1])
def test_the_first_root_of_a_table_takes_no_intents_of_other_partitions_that_another_may_have_told_rejected(
    begins: int,
) -> None:
    async def main() -> None:
        log, stores = GroupLog(2), [HookedStore(before=Stall("put", "t/"))]
        stores += [HookedStore(stores[0].inner, before=Stall("list", "t/")) for _ in range(2)]
        stalls = [store.before for store in stores]
        async with coordinating("a", log=log, store=stores[0]) as group:
            await group.create(FINE)
            await group.until_settled()
            group.publish(create_intent(LATE), partition=begins)
            early = group.publish(append_intent("x", LATE), partition=1 - begins)
            await stalls[0].begun.wait()  # type: ignore[attr-defined]
            log.pause("a")
            for name, store in zip("bc", stores[1:], strict=True):
                group.store = store
                group.start(name)
            await asyncio.gather(*(stall.begun.wait() for stall in stalls[1:]))  # type: ignore[attr-defined]
            [owner] = ["bc".index(name) for name in "bc" if log.owns(name) == [1 - begins]]
            stalls[1 + owner].goes_on.set()  # type: ignore[attr-defined]
            [told] = await group.decided(early)
            assert told.code == "table-unknown"
            stalls[0].goes_on.set()  # type: ignore[attr-defined]
            await asyncio.sleep(5)
            stalls[2 - owner].goes_on.set()  # type: ignore[attr-defined]
            log.resume("a")
            await group.until_settled()
            assert log.violations == []
            assert await group.files(LATE) == []
            assert log.verdicts[early[0]] == told

    run_virtually(main())
