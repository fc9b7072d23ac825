"""Leaves of the coordinator's own are encoded beside the commits: late, stale, failed, or not at all."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest

from rootline.client.create_drop import build_definition
from rootline.coordinator.protocol.machine_state import Phase, TableMachine
from rootline.coordinator.protocol.messages import (
    ArmTimer,
    EncodeLeaves,
    EncodingFailed,
    Fetch,
    Fetched,
    HeadListed,
    HeadLoaded,
    LeavesEncoded,
    LoadFailed,
    LoadHead,
    Noted,
    ObjectsStored,
    PutRoot,
    Report,
    RequestFailed,
    RootReadBack,
    StopRequested,
    TimerFired,
)
from rootline.coordinator.protocol.put_rules import CONFIRMED_FOR_MS
from rootline.ports.object_store import PutStatus
from rootline.ports.retry_policy import RetryPolicy
from rootline.schemas.content_entry import ContentType
from rootline.schemas.intent import Intent, IntentKind, RemovedFile, VersionReference
from rootline.tree.draft.batch import ABSENT, FetchedObjects
from rootline.tree.intents.flush import OwnFlush
from rootline.tree.intents.restore import RootNeed
from rootline.tree.rules.leaf_rules import LeafNeed
from tests.coordinator.machine_driver import POLICY, TABLE, Driver, append_intent
from tests.coordinator.test_transition_table import LEAF, of_a_leaf
from tests.support.own_flush import own_flush

LIMIT = 3


def at_the_limit() -> Driver:
    """A table at rest whose root has just become too long: its leaves are asked for."""
    schema = pa.schema([pa.field("id", pa.int64())])
    properties = {"rootline.flush.hard-entries": str(LIMIT)}
    text = build_definition(schema, table_uuid=uuid.UUID(int=7), properties=properties).to_json().decode()
    driver = Driver(TableMachine(TABLE, replace(POLICY, unpublished_roots_max=1_000, retry=RetryPolicy(0.1, 5.0, 8))))
    driver.arrive(Intent(intent_id="create", table=TABLE, kind=IntentKind.CREATE, definition=text))
    driver.tell(HeadLoaded(None, 0))
    driver.tell(ObjectsStored())
    driver.put_answers(PutStatus.CREATED)
    for number in range(LIMIT):
        assert not asked_for_leaves(driver)
        commit(driver, f"old-{number}")
    assert driver.asked(EncodeLeaves).head is driver.machine.head
    return driver


def asked_for_leaves(driver: Driver) -> bool:
    return any(isinstance(effect, EncodeLeaves) for effect in driver.effects)


def commit(driver: Driver, name: str) -> None:
    """A root of one file, its leaves stored before it if it has any."""
    driver.arrive(append_intent(name))
    finish(driver)


def finish(driver: Driver) -> None:
    if driver.phase is Phase.STAGING:
        driver.tell(ObjectsStored())
    driver.put_answers(PutStatus.CREATED)


def leaves_of(driver: Driver) -> OwnFlush:
    assert driver.machine.head is not None
    return own_flush(driver.machine.head)


def rows(driver: Driver) -> int:
    assert driver.machine.head is not None
    return len(driver.machine.head.live.rows)


def live(driver: Driver) -> set[str]:
    assert driver.machine.head is not None
    return {item.entry.location for item in driver.machine.head.live.entries()}


def test_commits_go_on_while_leaves_are_encoded_and_a_later_root_takes_them_over() -> None:
    driver = at_the_limit()
    leaves = leaves_of(driver)
    commit(driver, "meanwhile")
    assert not asked_for_leaves(driver), "they are asked for once"
    driver.tell(LeavesEncoded(leaves))
    commit(driver, "after")
    assert rows(driver) == 2
    assert live(driver) == {f"data/{name}.parquet" for name in ("old-0", "old-1", "old-2", "meanwhile", "after")}
    commit(driver, "last")
    assert asked_for_leaves(driver), "the root has grown again"


def test_what_is_removed_while_leaves_are_encoded_does_not_come_back() -> None:
    driver = at_the_limit()
    leaves = leaves_of(driver)
    removed = (RemovedFile(location="data/old-1.parquet"),)
    driver.arrive(Intent(intent_id="remove", table=TABLE, kind=IntentKind.REMOVE, remove_files=removed))
    finish(driver)
    commit(driver, "old-1-anew")
    driver.tell(LeavesEncoded(leaves))
    commit(driver, "after")
    assert live(driver) == {f"data/{name}.parquet" for name in ("old-0", "old-2", "old-1-anew", "after")}
    again = append_intent("old-1").add_data_files
    driver.arrive(Intent(intent_id="again", table=TABLE, kind=IntentKind.APPEND, add_data_files=again))
    finish(driver)
    assert "data/old-1.parquet" in live(driver)


def test_a_file_that_left_and_came_back_while_leaves_were_encoded_stays_in_the_root() -> None:
    driver = at_the_limit()
    leaves = leaves_of(driver)
    assert driver.machine.head is not None
    full = driver.machine.head.root
    ref = VersionReference(version=full.header.version)
    restore = Intent(intent_id="restore", table=TABLE, kind=IntentKind.RESTORE, ref=ref)
    removed = (RemovedFile(location="data/old-1.parquet"),)
    driver.arrive(Intent(intent_id="remove", table=TABLE, kind=IntentKind.REMOVE, remove_files=removed))
    finish(driver)
    driver.arrive(restore)
    need = RootNeed(full.header.version)
    assert set(driver.asked(Fetch).needs) == {need}
    driver.tell(Fetched(FetchedObjects({need: full})))
    finish(driver)
    driver.tell(LeavesEncoded(leaves))
    commit(driver, "after")
    assert live(driver) == {f"data/{name}.parquet" for name in ("old-0", "old-1", "old-2", "after")}
    assert rows(driver) == 2, "the one that came back, and the new one"


Way = Callable[[Driver], None]


def putting(driver: Driver) -> None:
    driver.arrive(append_intent("in-flight"))


def reading_back(driver: Driver) -> None:
    putting(driver)
    driver.put_answers(PutStatus.NO_ANSWER)


def confirming(driver: Driver) -> None:
    putting(driver)
    driver.answers_ms = 1_000 + 2 * CONFIRMED_FOR_MS
    driver.put_answers(PutStatus.CREATED)


def waiting(driver: Driver) -> None:
    reading_back(driver)
    driver.tell(RequestFailed("503"))


def loading(driver: Driver) -> None:
    putting(driver)
    driver.put_answers(PutStatus.STALE)


def fetching(driver: Driver) -> None:
    driver.arrive(of_a_leaf(driver.offset))


def gathering(driver: Driver) -> None:
    driver.arrive(append_intent("a"), append_intent("b"))
    driver.put_answers(PutStatus.CREATED)
    driver.asked(ArmTimer)


def idle(driver: Driver) -> None:
    pass


WAYS: list[Way] = [idle, gathering, fetching, putting, reading_back, confirming, waiting, loading]


def settle(driver: Driver) -> None:
    """To rest, whatever is in flight."""
    head = driver.machine.head
    for _ in range(20):
        if driver.phase is Phase.IDLE:
            return
        match driver.phase:
            case Phase.LOADING:
                driver.tell(HeadLoaded(head, 1_000))
            case Phase.FETCHING:
                driver.tell(Fetched(FetchedObjects({LeafNeed(LEAF): ABSENT})))
            case Phase.STAGING:
                driver.tell(ObjectsStored())
            case Phase.READING_BACK:
                assert driver.attempt is not None
                driver.tell(RootReadBack(driver.attempt.commit_id, 1_000, 1_000))
            case Phase.CONFIRMING:
                assert driver.attempt is not None
                driver.tell(HeadListed(driver.attempt.version, driver.answers_ms))
            case Phase.PUTTING:
                driver.put_answers(PutStatus.CREATED)
            case _:
                driver.tell(TimerFired(driver.machine.timer))
    raise AssertionError(f"still {driver.phase}")


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_leaves_that_come_in_any_phase_wait_for_the_next_root(way: Way) -> None:
    driver = at_the_limit()
    leaves = leaves_of(driver)
    way(driver)
    phase = driver.phase
    driver.tell(LeavesEncoded(leaves))
    assert driver.phase is phase
    settle(driver)
    if driver.machine.flush.ready is not None:
        commit(driver, "next")
    assert driver.machine.head is not None
    assert sum(leaf.length for leaf in driver.machine.head.leaves.values()) == LIMIT
    assert {f"data/old-{number}.parquet" for number in range(LIMIT)} <= live(driver)
    assert driver.machine.flush.ready is None


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_when_encoding_fails_in_any_phase_commits_go_on_and_it_is_tried_again_later(way: Way) -> None:
    driver = at_the_limit()
    way(driver)
    driver.tell(EncodingFailed("no memory"))
    note = driver.asked(Report)
    assert (note.noted, note.detail) == (Noted.ENCODING_FAILED, "no memory")
    settle(driver)
    driver.now_s += 10.0
    commit(driver, "later")
    assert asked_for_leaves(driver)


def test_after_failures_leaves_are_asked_for_with_growing_pauses() -> None:
    driver = at_the_limit()
    pauses = []
    for _ in range(5):
        driver.tell(EncodingFailed("no memory"))
        failed_s = driver.now_s
        tries = 0
        while not asked_for_leaves(driver) and tries < 500:
            commit(driver, f"file-{driver.offset}")
            tries += 1
        pauses.append(driver.now_s - failed_s)
    assert pauses[-1] > 2 * pauses[0]


def test_a_root_that_no_leaf_can_shorten_is_not_planned_for_every_commit() -> None:
    driver = at_the_limit()
    driver.tell(LeavesEncoded(OwnFlush()))
    commit(driver, "at once")
    assert not asked_for_leaves(driver)


@pytest.mark.parametrize("answer", ["leaves", "failure"])
def test_a_root_of_twice_the_limit_waits_for_its_leaves_and_no_longer(answer: str) -> None:
    driver = at_the_limit()
    leaves = leaves_of(driver)
    for number in range(LIMIT):
        commit(driver, f"fast-{number}")
    driver.arrive(append_intent("held"))
    assert driver.phase is Phase.HELD
    assert rows(driver) == 2 * LIMIT
    driver.tell(TimerFired(driver.machine.timer))
    assert driver.phase is Phase.HELD
    driver.tell(LeavesEncoded(leaves) if answer == "leaves" else EncodingFailed("no memory"))
    finish(driver)
    assert rows(driver) == (LIMIT + 1 if answer == "leaves" else 2 * LIMIT + 1)
    assert "data/held.parquet" in live(driver)


def test_after_a_failure_no_commit_waits_for_the_next_try() -> None:
    driver = at_the_limit()
    for number in range(LIMIT):
        commit(driver, f"fast-{number}")
    driver.tell(EncodingFailed("it took too long"))
    driver.now_s += 10.0
    commit(driver, "asks again")
    assert asked_for_leaves(driver)
    leaves = leaves_of(driver)
    commit(driver, "not held")
    assert "data/not held.parquet" in live(driver)
    driver.tell(LeavesEncoded(leaves))
    commit(driver, "takes over")
    assert rows(driver) == 2


def test_a_lost_race_keeps_the_leaves_and_what_the_winner_moved_is_not_moved_again() -> None:
    driver, rival = at_the_limit(), at_the_limit()
    leaves = leaves_of(driver)
    rival.tell(LeavesEncoded(leaves))
    commit(rival, "theirs")
    driver.tell(LeavesEncoded(leaves))
    driver.offset += 1
    driver.arrive(append_intent("mine"))
    driver.tell(ObjectsStored())
    driver.put_answers(PutStatus.STALE)
    driver.asked(LoadHead)
    driver.tell(HeadLoaded(rival.machine.head, 1_000))
    assert driver.asked(PutRoot).version == LIMIT + 2
    finish(driver)
    assert driver.machine.head is not None
    assert len(driver.machine.head.leaves) == 1
    assert driver.machine.head.header.totals.data_files == LIMIT + 2


def test_a_lost_race_against_a_root_without_leaves_takes_them_over_all_the_same() -> None:
    driver, rival = at_the_limit(), at_the_limit()
    commit(rival, "theirs")
    driver.tell(LeavesEncoded(leaves_of(driver)))
    driver.offset += 1
    driver.arrive(append_intent("mine"))
    driver.tell(ObjectsStored())
    driver.put_answers(PutStatus.STALE)
    driver.tell(HeadLoaded(rival.machine.head, 1_000))
    finish(driver)
    assert rows(driver) == 2
    assert len(live(driver)) == LIMIT + 2


@pytest.mark.parametrize("is_stopped", [True, False], ids=["stopped", "quarantined"])
def test_leaves_that_come_after_the_end_are_nobodys(is_stopped: bool) -> None:
    driver = at_the_limit()
    if is_stopped:
        driver.tell(StopRequested())
    else:
        loading(driver)
        driver.tell(LoadFailed(True, "corrupt"))
    phase = driver.phase
    assert driver.tell(LeavesEncoded(OwnFlush())) == []
    assert driver.tell(EncodingFailed("no memory")) == []
    assert driver.phase is phase


def test_a_data_leaf_is_what_the_rows_become() -> None:
    driver = at_the_limit()
    driver.tell(LeavesEncoded(leaves_of(driver)))
    commit(driver, "after")
    assert driver.machine.head is not None
    kinds = [row.entry.content_type for row in driver.machine.head.root.rows]
    assert sorted(kinds) == [ContentType.DATA, ContentType.DATA_MANIFEST]
