"""Rewrites among appends: each batch ends before and after them, whatever the coordinators live through."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rootline.coordinator.protocol.group_window import BatchLimits
from rootline.coordinator.protocol.machine_state import Phase, TableMachine
from rootline.coordinator.protocol.messages import HeadLoaded, PutRoot, RootReadBack
from rootline.ports.object_store import PutStatus
from rootline.schemas.identifiers import CommitId
from rootline.schemas.intent import Intent, IntentKind, RemovedFile
from tests.coordinator.machine_driver import POLICY, TABLE, Driver, append_intent, create_intent, with_table
from tests.coordinator.test_drops import Told, finish, head_of, live, succeed

OLD = tuple(append_intent(f"old-{number}") for number in range(4))
READ = 5
"""The sequence number of the last of these: the table has the first."""


def rewrite(source: str, target: str) -> Intent:
    return Intent(
        intent_id=f"rewrite-{source}",
        table=TABLE,
        kind=IntentKind.REWRITE,
        remove_files=(RemovedFile(location=f"data/{source}.parquet"),),
        add_data_files=append_intent(target).add_data_files,
        read_sequence_number=READ,
    )


STORY = (
    append_intent("a"),
    append_intent("b"),
    rewrite("old-0", "new-0"),
    rewrite("old-1", "new-1"),
    append_intent("c"),
    rewrite("gone", "new-x"),
    append_intent("d"),
    rewrite("old-2", "new-2"),
)
VERSIONS = [2, 2, 3, 3, 4, None, 5, 6]
LIVE = {f"data/{name}.parquet" for name in ("a", "b", "c", "d", "new-0", "new-1", "new-2", "old-3")}


def with_files() -> Driver:
    """A driver whose table has the old files in version 1."""
    driver = with_table()
    driver.arrive(*OLD)
    finish(driver)
    assert head_of(driver).header.snapshot.sequence_number == READ
    driver.verdicts.clear()
    return driver


def test_one_batch_becomes_a_root_for_each_run_of_rewrites_and_of_others() -> None:
    driver = with_files()
    driver.arrive(*STORY)
    assert driver.asked(PutRoot).version == 2
    assert driver.verdicts == [], "no verdict before its root is confirmed"
    finish(driver)
    assert [verdict.intent_id for verdict in driver.verdicts] == [intent.intent_id for intent in STORY]
    assert [verdict.version for verdict in driver.verdicts] == VERSIONS
    assert live(driver) == LIVE


def test_a_rewrite_in_the_last_place_of_a_full_batch_is_the_first_of_the_next() -> None:
    limits = BatchLimits(3, POLICY.limits.bytes_max, POLICY.limits.age_s_max)
    driver = with_files()
    driver.machine = driver.machine._replace(policy=replace(POLICY, limits=limits))
    driver.arrive(append_intent("a"), append_intent("b"), rewrite("old-0", "new-0"), append_intent("c"))
    finish(driver)
    assert [verdict.version for verdict in driver.verdicts] == [2, 2, 3, 4]


def test_a_log_of_rewrites_only_is_one_root() -> None:
    driver = with_files()
    driver.arrive(*(rewrite(f"old-{number}", f"new-{number}") for number in range(4)))
    finish(driver)
    assert [verdict.version for verdict in driver.verdicts] == [2] * 4


def test_records_that_arrive_behind_a_rewrite_keep_the_order_of_the_log() -> None:
    driver = with_files()
    driver.arrive(append_intent("a"), rewrite("old-0", "new-0"), append_intent("b"))
    driver.arrive(append_intent("c"))
    finish(driver)
    assert [verdict.intent_id for verdict in driver.verdicts] == ["append-a", "rewrite-old-0", "append-b", "append-c"]
    assert [verdict.version for verdict in driver.verdicts] == [2, 3, 4, 4]


def test_a_batch_that_lost_its_race_is_cut_again_on_the_other_head() -> None:
    """The rival took the same append; on its head the rewrite is the first record."""
    driver, rival = with_files(), with_files()
    rival.arrive(append_intent("a"))
    finish(rival)
    driver.arrive(append_intent("a"), rewrite("old-0", "new-0"), append_intent("b"))
    driver.put_answers(PutStatus.EXISTS)
    driver.tell(RootReadBack(CommitId("somebody else"), 2_000, 2_000))
    driver.tell(HeadLoaded(rival.machine.head, 2_000))
    finish(driver)
    assert [verdict.version for verdict in driver.verdicts] == [2, 3, 4]


@pytest.mark.parametrize("landed", [False, True])
@pytest.mark.parametrize("steps", range(0, 14, 2))
def test_a_coordinator_that_dies_between_these_roots_leaves_one_story(steps: int, landed: bool) -> None:
    """After `steps` answers it dies; the next one hears everything again, in other batches."""
    driver = with_files()
    driver.arrive(*STORY)
    for _ in range(steps):
        if driver.phase is Phase.IDLE:
            break
        succeed(driver)
    stored, attempt = head_of(driver), driver.attempt
    if landed and driver.phase is Phase.PUTTING and attempt is not None:
        stored = attempt.applied.state
    told = {verdict.position_key: verdict for verdict in map(Told, driver.verdicts)}
    limits = BatchLimits(4, POLICY.limits.bytes_max, POLICY.limits.age_s_max)
    successor = Driver(TableMachine(TABLE, replace(POLICY, limits=limits)))
    successor.arrive(create_intent(), *OLD, *STORY)
    successor.tell(HeadLoaded(stored, 0))
    finish(successor)
    said = {verdict.position_key: verdict for verdict in map(Told, successor.verdicts)}
    for place, first in told.items():
        assert place not in said or said[place].verdict == first.verdict
    everything = {**said, **told}
    codes = [everything[at].verdict.code for at in sorted(everything)][-len(STORY) :]
    assert codes == [None, None, None, None, None, "stale-source", None, None]
    assert live(successor) == LIVE
