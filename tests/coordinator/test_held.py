"""Commits that are held: every way in has a way out, and operators see why."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from rootline.coordinator.protocol.held_rules import is_held, reason_held
from rootline.coordinator.protocol.machine_state import Phase
from rootline.coordinator.protocol.messages import (
    ArmTimer,
    EncodeLeaves,
    EncodingFailed,
    Event,
    HeadLoaded,
    LeavesEncoded,
    LoadHead,
    PublishVerdicts,
    PutRoot,
    StopRequested,
    TimerFired,
    VerdictsPublished,
)
from rootline.ports.object_store import PutStatus
from rootline.schemas.bytes.intent_codec import encode_intent
from rootline.schemas.errors import Unavailable
from rootline.schemas.verdict import VerdictKind
from rootline.testing.seeded_environment import SeededEnvironment
from rootline.testing.virtual_loop import run_virtually
from rootline.tree.intents.flush import OwnFlush
from tests.coordinator import running_service
from tests.coordinator.hooked_ports import HookedLog, nothing
from tests.coordinator.machine_driver import POLICY, Driver, append_intent, create_intent, with_table
from tests.coordinator.test_own_leaves import (
    LIMIT,
    WAYS,
    Way,
    asked_for_leaves,
    at_the_limit,
    commit,
    finish,
    leaves_of,
    live,
    loading,
    settle,
)
from tests.coordinator.test_transition_table import a_world, machines_visited

ACKNOWLEDGED = VerdictsPublished(())
MAX = POLICY.unpublished_roots_max


def almost_held(roots: int = 1) -> Driver:
    """A table at rest: so many more roots without an acknowledgement, and commits are held."""
    driver = with_table()
    while driver.machine.publishing < MAX - roots:
        commit(driver, f"file-{driver.offset}")
    return driver


def held_for_acknowledgements() -> Driver:
    driver = almost_held()
    commit(driver, "last")
    driver.arrive(append_intent("held"))
    assert driver.phase is Phase.HELD
    return driver


def far_past_the_limit() -> Driver:
    """A table at rest whose root has twice as many rows as it may, and whose leaves are being encoded."""
    driver = at_the_limit()
    for number in range(LIMIT):
        commit(driver, f"fast-{number}")
    return driver


def test_a_machine_is_held_only_while_records_wait_and_an_event_is_owed_that_may_release_them() -> None:
    visited = machines_visited(a_world())
    held = [machine for machine in visited if machine.kind is Phase.HELD]
    assert len(held) > 5
    for machine in held:
        assert machine.queue
        assert not machine.batch
        assert not machine.stopping
        assert is_held(machine)
        assert machine.publishing > 0 or machine.flush.is_encoding, "nothing would ever end it"
        assert reason_held(machine)
    for machine in visited:
        if machine.kind in (Phase.COLD, Phase.IDLE):
            assert not machine.queue, "records that wait at rest wait for ever"
        if machine.kind is Phase.GATHERING:
            assert not is_held(machine), "its window would end and nothing would follow"
        if machine.kind is not Phase.HELD:
            assert reason_held(machine) == ""


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_an_acknowledgement_that_comes_in_another_phase_counts_before_the_next_commit_is_held(way: Way) -> None:
    driver = almost_held(2)
    owed = driver.machine.publishing
    way(driver)
    phase = driver.phase
    for _ in range(owed):
        driver.tell(ACKNOWLEDGED)
        assert driver.phase is phase
    settle(driver)
    driver.arrive(append_intent("next"))
    assert driver.phase is Phase.PUTTING


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_acknowledgements_that_come_only_while_commits_are_held_release_them(way: Way) -> None:
    driver = almost_held(2)
    way(driver)
    settle(driver)
    while driver.machine.publishing < MAX:
        commit(driver, f"more-{driver.offset}")
    driver.arrive(append_intent("held"))
    assert driver.phase is Phase.HELD
    while driver.machine.publishing > MAX:
        driver.tell(ACKNOWLEDGED)
        assert driver.phase is Phase.HELD
    driver.tell(ACKNOWLEDGED)
    assert driver.phase is Phase.PUTTING


@pytest.mark.parametrize("event", [LeavesEncoded(OwnFlush()), EncodingFailed("no memory")], ids=["none", "failure"])
def test_leaves_that_fail_while_the_head_is_loaded_hold_no_later_commit(event: Event) -> None:
    driver, rival = at_the_limit(), far_past_the_limit()
    driver.offset = rival.offset
    loading(driver)
    assert driver.phase is Phase.LOADING
    driver.tell(event)
    driver.tell(HeadLoaded(rival.machine.head, 1_000))  # far past the limit
    settle(driver)
    driver.now_s += 10.0
    commit(driver, "asks again")
    assert asked_for_leaves(driver)
    commit(driver, "not held")
    assert "data/not held.parquet" in live(driver)


@pytest.mark.parametrize("answer", ["leaves", "no leaves", "failure"])
def test_an_heir_of_a_root_far_past_the_limit_is_held_once_and_goes_on_with_any_answer(answer: str) -> None:
    before = far_past_the_limit()
    heir = Driver(machine=before.machine._replace(phase=Phase.COLD, head=None, flush=Driver().machine.flush))
    heir.machine = heir.machine._replace(publishing=0)
    heir.offset = before.offset
    heir.arrive(append_intent("one"))
    heir.tell(HeadLoaded(before.machine.head, 1_000))
    assert heir.asked(EncodeLeaves).head is before.machine.head
    assert heir.phase is Phase.HELD
    assert "encoded leaves" in reason_held(heir.machine)
    answers: dict[str, Event] = {
        "leaves": LeavesEncoded(leaves_of(heir)),
        "no leaves": LeavesEncoded(OwnFlush()),
        "failure": EncodingFailed("no memory"),
    }
    heir.tell(answers[answer])
    finish(heir)
    assert "data/one.parquet" in live(heir)


def test_when_both_leaves_and_acknowledgements_are_missing_the_later_one_releases_the_commits() -> None:
    for last in (ACKNOWLEDGED, EncodingFailed("no memory")):
        driver = far_past_the_limit()
        driver.machine = driver.machine._replace(publishing=driver.machine.policy.unpublished_roots_max)
        driver.arrive(append_intent("held"))
        first = EncodingFailed("no memory") if last is ACKNOWLEDGED else ACKNOWLEDGED
        driver.tell(first)
        assert driver.phase is Phase.HELD
        driver.tell(last)
        assert driver.phase is Phase.PUTTING


@pytest.mark.parametrize("hold", [held_for_acknowledgements, far_past_the_limit], ids=["acknowledgements", "leaves"])
def test_a_stop_while_commits_are_held_is_immediate_and_what_comes_later_changes_nothing(
    hold: Callable[[], Driver],
) -> None:
    driver = hold()
    driver.arrive(append_intent("another"))
    assert driver.phase is Phase.HELD
    decided = len(driver.verdicts)
    assert driver.tell(StopRequested()) == []
    assert driver.phase is Phase.STOPPED
    for event in (ACKNOWLEDGED, LeavesEncoded(OwnFlush()), EncodingFailed("late"), TimerFired(driver.machine.timer)):
        assert driver.tell(event) == []
        assert driver.phase is Phase.STOPPED
    assert len(driver.verdicts) == decided, "the rest is still on the log"


def test_a_timer_that_was_set_before_neither_releases_held_commits_nor_closes_a_later_batch() -> None:
    driver = with_table()
    driver.tell(ACKNOWLEDGED)
    driver.arrive(append_intent("a"), append_intent("b"))
    driver.put_answers(PutStatus.CREATED)
    window = driver.asked(ArmTimer).token
    driver.arrive(append_intent("c"), append_intent("d"))  # full before the window ends
    driver.machine = driver.machine._replace(publishing=MAX - 1)
    driver.arrive(append_intent("e"))
    driver.put_answers(PutStatus.CREATED)
    assert driver.phase is Phase.HELD
    assert driver.tell(TimerFired(window)) == []
    assert driver.phase is Phase.HELD
    driver.tell(ACKNOWLEDGED)
    assert driver.phase is Phase.PUTTING
    driver.tell(ACKNOWLEDGED)
    driver.arrive(append_intent("f"), append_intent("g"))
    driver.put_answers(PutStatus.CREATED)
    assert driver.phase is Phase.GATHERING
    driver.tell(TimerFired(window))
    assert driver.phase is Phase.GATHERING, "the old timer is not that of this batch"
    driver.tell(TimerFired(driver.machine.timer))
    assert driver.phase is Phase.PUTTING


def test_with_nothing_to_commit_a_table_rests_though_its_next_commit_would_be_held() -> None:
    driver = almost_held()
    commit(driver, "last")
    assert driver.phase is Phase.IDLE
    driver.tell(ACKNOWLEDGED)
    driver.arrive(append_intent("next"))
    driver.asked(PutRoot)


def test_records_that_come_while_commits_are_held_share_the_root_that_follows() -> None:
    driver = held_for_acknowledgements()
    assert driver.arrive(append_intent("also"), append_intent("too")) == []
    driver.tell(ACKNOWLEDGED)
    assert len(driver.machine.batch) == 3


def test_a_table_that_does_not_exist_yet_is_looked_for_again_after_its_rejections_are_acknowledged() -> None:
    driver = Driver()
    driver.arrive(append_intent("early"))
    driver.tell(HeadLoaded(None, 0))
    driver.asked(PublishVerdicts)
    driver.arrive(create_intent())
    assert "rejections" in reason_held(driver.machine)
    driver.tell(ACKNOWLEDGED)
    driver.asked(LoadHead)


def test_a_held_table_says_so_to_operators_goes_on_automatically_and_survives_a_restart() -> None:
    """The log takes no verdicts for a while; then the partitions are revoked while commits are held."""

    async def main() -> None:
        log = HookedLog()
        running, table = running_service.running, running_service.TABLE

        async def failing(operation: str, key: str) -> None:
            if operation == "verdicts":
                raise Unavailable("log-unavailable", "no leader")

        async def held(service: running_service.Running) -> None:
            for number in range(3):
                intent = running_service.append_intent(f"{len(log.published)}-{number}")
                await log.publish(table.encode(), encode_intent(intent))
                await asyncio.sleep(0.1)
            [own] = service.service.own_tables()
            assert (own.state.value, own.phase) == ("held", "held"), own
            assert "2 commits" in own.why
            assert "no leader" in own.why
            await service.service.measure()
            sample = service.service.metrics.registry.get_sample_value
            assert sample("rootline_table_state", {"table": table, "state": "held"}) == 1
            assert sample("rootline_table_state", {"table": table, "state": "pending"}) == 0

        async with running(None, log, SeededEnvironment(1), unpublished_roots_max=2) as service:
            await service.create()
            log.before = failing
            await held(service)
            log.before = nothing
            [verdict] = await service.commit(running_service.append_intent("later"))
            assert verdict.kind is VerdictKind.COMMITTED
            [own] = service.service.own_tables()
            assert own.state.value == "idle"
            log.before = failing
            await held(service)
            asyncio.get_running_loop().call_later(30.0, setattr, log, "before", nothing)
        async with running(service.store, log, SeededEnvironment(2), unpublished_roots_max=2) as heir:
            [verdict] = await heir.commit(running_service.append_intent("last"))
            assert verdict.kind is VerdictKind.COMMITTED
            assert {found.kind for found in await log.verdicts() if found is not None} == {VerdictKind.COMMITTED}
            assert None not in await log.verdicts()

    run_virtually(main())
