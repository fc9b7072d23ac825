"""The commit machine, event by event."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from rootline.coordinator.protocol.commit_machine import TRANSITIONS
from rootline.coordinator.protocol.machine_state import Phase, TableMachine
from rootline.coordinator.protocol.messages import (
    ArmTimer,
    Arrived,
    HeadListed,
    HeadLoaded,
    ListHead,
    LoadFailed,
    LoadHead,
    ObjectsStored,
    PublishVerdicts,
    PutRoot,
    ReadBack,
    RequestFailed,
    RootReadBack,
    StopRequested,
    TimerFired,
    VerdictsPublished,
)
from rootline.coordinator.protocol.put_rules import CONFIRMED_FOR_MS
from rootline.ports.object_store import PutStatus
from rootline.schemas.errors import Internal
from rootline.schemas.identifiers import CommitId, LogId, LogPosition, Version
from rootline.schemas.verdict import VerdictKind
from rootline.tree.draft.batch import Record
from tests.coordinator import commit_machine_diagram as diagram
from tests.coordinator.machine_driver import POLICY, TABLE, Driver, append_intent, create_intent, with_table

UNPROVEN = [PutStatus.EXISTS, PutStatus.NO_ANSWER]


def test_a_lone_append_is_one_put_and_its_verdict_comes_after_it() -> None:
    driver = with_table()
    published = len(driver.verdicts)
    driver.arrive(append_intent("one"))
    put = driver.asked(PutRoot)
    assert put.version == 1
    assert len(driver.verdicts) == published, "no verdict before the root is confirmed"
    driver.put_answers(PutStatus.CREATED)
    assert driver.phase is Phase.IDLE
    assert [verdict.version for verdict in driver.verdicts[published:]] == [1]


@pytest.mark.parametrize("answer", UNPROVEN)
def test_an_unproven_put_is_asked_about_and_ones_own_root_has_landed(answer: PutStatus) -> None:
    driver = with_table()
    driver.arrive(append_intent("one"))
    driver.put_answers(answer)
    asked = driver.asked(ReadBack)
    assert driver.verdicts[-1].version == 0
    driver.tell(RootReadBack(asked.own, 2_000, 2_000))
    assert driver.phase is Phase.IDLE
    assert driver.verdicts[-1].version == 1


@pytest.mark.parametrize("answer", UNPROVEN)
def test_a_root_that_is_not_there_yet_is_put_again_with_identical_bytes(answer: PutStatus) -> None:
    driver = with_table()
    driver.arrive(append_intent("one"))
    first = driver.asked(PutRoot)
    driver.put_answers(answer)
    driver.tell(RootReadBack(None, 2_000, None))
    assert driver.phase is Phase.WAITING
    driver.arrive(append_intent("two"))
    driver.tell(TimerFired(driver.machine.timer))
    again = driver.asked(PutRoot)
    assert (again.key, again.body) == (first.key, first.body)


def test_a_lost_race_loads_the_head_and_applies_the_batch_to_it() -> None:
    driver, rival = with_table(), with_table()
    rival.arrive(append_intent("theirs"))
    rival.put_answers(PutStatus.CREATED)
    driver.arrive(append_intent("decoy"), append_intent("mine"))
    driver.put_answers(PutStatus.EXISTS)
    driver.tell(RootReadBack(CommitId("somebody else"), 2_000, 2_000))
    driver.asked(LoadHead)
    driver.tell(HeadLoaded(rival.machine.head, 2_000))
    put = driver.asked(PutRoot)
    assert put.version == 2
    # the record at the rival's offset is answered from the head's outcomes, not applied a second time
    assert driver.verdicts[-1].version == 1
    driver.put_answers(PutStatus.CREATED)
    assert driver.verdicts[-1].version == 2


def test_a_stale_answer_proves_that_nothing_was_written() -> None:
    driver = with_table()
    driver.arrive(append_intent("one"))
    driver.put_answers(PutStatus.STALE)
    driver.asked(LoadHead)
    assert driver.phase is Phase.LOADING


def test_lost_races_are_run_again_with_growing_pauses_and_never_given_up() -> None:
    driver = with_table()
    head = driver.machine.head
    driver.arrive(append_intent("one"))
    delays = []
    for _ in range(20):
        driver.put_answers(PutStatus.STALE)
        if driver.phase is Phase.WAITING:
            delays.append(driver.asked(ArmTimer).delay_s)
            driver.tell(TimerFired(driver.machine.timer))
        driver.tell(HeadLoaded(head, 2_000))
        assert driver.phase is Phase.PUTTING
    assert delays[-1] > delays[0]
    driver.put_answers(PutStatus.CREATED)
    assert driver.verdicts[-1].kind is VerdictKind.COMMITTED


def test_a_root_that_landed_after_a_long_pause_is_confirmed_by_a_list_first() -> None:
    driver = with_table()
    driver.arrive(append_intent("one"))
    driver.answers_ms = 1_000 + CONFIRMED_FOR_MS
    driver.put_answers(PutStatus.CREATED)
    driver.asked(ListHead)
    assert driver.verdicts[-1].version == 0
    driver.tell(HeadListed(Version(1), driver.answers_ms))
    assert driver.verdicts[-1].version == 1
    assert driver.machine.base_ms == driver.answers_ms


def test_a_root_built_on_an_expired_head_is_not_acknowledged() -> None:
    driver, rival = with_table(), with_table()
    rival.arrive(append_intent("a"))
    rival.put_answers(PutStatus.CREATED)
    rival.arrive(append_intent("b"))
    rival.put_answers(PutStatus.CREATED)
    driver.offset = 3
    driver.arrive(append_intent("mine"))
    driver.answers_ms = 1_000 + 2 * CONFIRMED_FOR_MS
    driver.put_answers(PutStatus.CREATED)  # root 1 had been expired, so the PUT of another root 1 landed
    driver.tell(HeadListed(Version(2), driver.answers_ms))
    driver.asked(LoadHead)
    assert driver.verdicts[-1].version == 0
    driver.tell(HeadLoaded(rival.machine.head, driver.answers_ms))
    assert driver.asked(PutRoot).version == 3


def test_a_head_that_went_back_quarantines_the_table() -> None:
    driver = with_table()
    old = driver.machine.head
    driver.arrive(append_intent("one"))
    driver.put_answers(PutStatus.CREATED)
    driver.arrive(append_intent("two"))
    driver.put_answers(PutStatus.STALE)
    driver.tell(HeadLoaded(old, 2_000))
    assert driver.phase is Phase.QUARANTINED
    assert "version 1 was confirmed" in driver.machine.why
    driver.arrive(append_intent("three"))
    assert driver.effects == []


def test_corrupt_bytes_quarantine_the_table_and_an_absent_store_is_asked_again() -> None:
    driver = Driver()
    driver.arrive(append_intent("one"))
    driver.tell(LoadFailed(False, "503"))
    assert driver.phase is Phase.WAITING
    driver.tell(TimerFired(driver.machine.timer))
    driver.asked(LoadHead)
    driver.tell(LoadFailed(True, "root 7 is corrupt"))
    assert driver.phase is Phase.QUARANTINED


def test_without_a_table_an_intent_is_rejected_without_a_root_and_the_table_may_appear_later() -> None:
    driver = Driver()
    driver.arrive(append_intent("one"))
    driver.tell(HeadLoaded(None, 0))
    assert driver.phase is Phase.COLD
    assert driver.verdicts[-1].code == "table-unknown"
    driver.tell(VerdictsPublished(driver.asked(PublishVerdicts).up_to))
    driver.arrive(append_intent("two"))
    driver.asked(LoadHead)


def test_no_root_is_made_before_the_rejections_of_the_time_without_a_table_are_acknowledged() -> None:
    driver = Driver()
    driver.arrive(append_intent("early"))
    driver.tell(HeadLoaded(None, 0))
    rejections = driver.asked(PublishVerdicts)
    driver.arrive(create_intent())  # its root's offset would pass the rejected record, and does not record it
    assert driver.phase is Phase.HELD
    driver.tell(VerdictsPublished(rejections.up_to))
    driver.asked(LoadHead)
    driver.tell(HeadLoaded(None, 0))
    driver.tell(ObjectsStored())
    driver.put_answers(PutStatus.CREATED)
    assert [verdict.code for verdict in driver.verdicts] == ["table-unknown", None]


def test_a_stop_while_rejections_wait_to_be_acknowledged_leaves_the_rest_on_the_log() -> None:
    driver = Driver()
    driver.arrive(append_intent("early"))
    driver.tell(HeadLoaded(None, 0))
    driver.arrive(create_intent())
    driver.tell(StopRequested())
    assert driver.phase is Phase.STOPPED
    assert len(driver.verdicts) == 1


def test_outcomes_of_another_log_are_kept_until_somebody_publishes_them() -> None:
    driver = with_table()
    other = LogId("embedded/another")
    driver.tell(Arrived((Record(LogPosition(other, 0, 5), append_intent("elsewhere"), 100),)))
    driver.put_answers(PutStatus.CREATED)  # its owner dies here, before it has published the verdict
    heir = Driver(machine=TableMachine(TABLE, POLICY, head=driver.machine.head, phase=Phase.IDLE, base_ms=1_000))
    heir.offset = driver.offset
    for name in ("one", "two"):
        heir.arrive(append_intent(name))
        heir.put_answers(PutStatus.CREATED)
        heir.tell(VerdictsPublished(heir.asked(PublishVerdicts).up_to))
    assert heir.machine.head is not None
    assert other in {run.log for run in heir.machine.head.header.outcomes.newest.runs}


def test_a_root_that_cannot_be_read_back_quarantines_the_table_and_decides_nothing() -> None:
    driver = with_table()
    driver.arrive(append_intent("one"))
    driver.put_answers(PutStatus.EXISTS)
    driver.tell(LoadFailed(True, "root 1 is corrupt"))
    assert driver.phase is Phase.QUARANTINED
    assert driver.verdicts[-1].version == 0


def test_a_landed_root_whose_answer_has_no_date_is_confirmed_by_a_list() -> None:
    driver = with_table()
    driver.arrive(append_intent("one"))
    driver.answers_ms = None
    driver.put_answers(PutStatus.CREATED)
    driver.asked(ListHead)


def test_a_redelivered_record_is_answered_again_and_not_applied_again() -> None:
    driver = with_table()
    driver.arrive(append_intent("one"))
    driver.put_answers(PutStatus.CREATED)
    first = driver.verdicts[-1]
    driver.offset -= 1
    driver.arrive(append_intent("one"))
    assert driver.phase is Phase.IDLE
    assert driver.verdicts[-1] == first


def test_acknowledged_outcomes_leave_the_next_root() -> None:
    driver = with_table()
    for name in ("one", "two", "three"):
        driver.arrive(append_intent(name))
        driver.put_answers(PutStatus.CREATED)
        publish = driver.asked(PublishVerdicts)
        if name != "three":
            driver.tell(VerdictsPublished(publish.up_to))
    assert driver.machine.head is not None
    kept = driver.machine.head.header.outcomes.newest.runs
    assert [run.last_offset for run in kept] == [3]


def test_commits_pause_while_too_many_verdicts_wait_to_be_acknowledged() -> None:
    driver = with_table()
    for number in range(3):
        driver.arrive(append_intent(f"file-{number}"))
        driver.put_answers(PutStatus.CREATED)
    driver.arrive(append_intent("held"))
    assert driver.phase is Phase.HELD
    assert driver.machine.head is not None
    driver.tell(VerdictsPublished(driver.machine.head.header.log.offsets))
    assert driver.phase is Phase.PUTTING


def test_writers_in_a_closed_loop_stay_in_one_convoy() -> None:
    driver = with_table()
    driver.arrive(*(append_intent(f"a-{number}") for number in range(4)))
    driver.put_answers(PutStatus.CREATED)
    window = driver.asked(ArmTimer)
    assert driver.phase is Phase.GATHERING
    assert 0 < window.delay_s < 0.01
    for number in range(3):
        driver.arrive(append_intent(f"b-{number}"))
        assert driver.phase is Phase.GATHERING
    driver.arrive(append_intent("b-3"))
    assert len(driver.machine.batch) == 4, "the batch closes as soon as all have come back"


def test_a_window_that_ends_takes_what_has_come() -> None:
    driver = with_table()
    driver.arrive(append_intent("a"), append_intent("b"))
    driver.put_answers(PutStatus.CREATED)
    driver.arrive(append_intent("c"))
    driver.tell(TimerFired(driver.machine.timer - 1))
    assert driver.phase is Phase.GATHERING, "a timer that was replaced means nothing"
    driver.tell(TimerFired(driver.machine.timer))
    assert driver.phase is Phase.PUTTING


def test_a_stop_resolves_the_root_in_flight_and_begins_nothing_new() -> None:
    driver = with_table()
    driver.arrive(append_intent("one"))
    driver.tell(StopRequested())
    driver.arrive(append_intent("two"))
    driver.put_answers(PutStatus.NO_ANSWER)
    driver.tell(RequestFailed("503"))
    assert driver.phase is Phase.WAITING
    driver.tell(TimerFired(driver.machine.timer))
    driver.tell(RootReadBack(driver.asked(ReadBack).own, 2_000, 2_000))
    assert driver.phase is Phase.STOPPED
    assert driver.verdicts[-1].version == 1


def test_a_stop_before_the_first_put_of_a_root_does_not_wait_for_a_full_store() -> None:
    driver = Driver()
    driver.arrive(create_intent())
    driver.tell(HeadLoaded(None, 0))
    driver.tell(RequestFailed("no space left"))
    assert driver.phase is Phase.WAITING
    driver.tell(StopRequested())
    assert driver.phase is Phase.STOPPED


def test_a_stop_while_the_head_is_loaded_for_a_batch_that_lost_begins_no_root() -> None:
    driver = with_table()
    head = driver.machine.head
    driver.arrive(append_intent("one"))
    driver.put_answers(PutStatus.STALE)
    driver.tell(StopRequested())
    driver.tell(HeadLoaded(head, 2_000))
    assert driver.phase is Phase.STOPPED
    assert driver.verdicts[-1].version == 0


def test_what_the_shell_may_send_at_any_time_is_handled_in_every_phase() -> None:
    anytime = (Arrived, VerdictsPublished, TimerFired, StopRequested)
    assert {(phase, event) for phase, event in product(Phase, anytime) if (phase, event) not in TRANSITIONS} == set()


def test_an_answer_that_nobody_asked_for_is_a_bug_and_says_so() -> None:
    driver = with_table()
    with pytest.raises(Internal, match="PutReplied arrived in phase idle"):
        driver.put_answers(PutStatus.CREATED)


def test_the_diagram_in_the_docs_is_the_transition_table() -> None:
    page = Path(__file__).parents[2] / "docs" / "commit-machine.md"
    assert page.read_text() == diagram.page(), "run: python -m tests.coordinator.commit_machine_diagram"
