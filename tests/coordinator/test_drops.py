"""Tables that are dropped and made again, by coordinators that race, crash and hear everything twice."""

from __future__ import annotations

import uuid

import pyarrow as pa
import pytest

from rootline.client.create_drop import build_definition
from rootline.coordinator.protocol.machine_state import Phase
from rootline.coordinator.protocol.messages import (
    EncodingFailed,
    HeadLoaded,
    ObjectsStored,
    PutRoot,
    RootReadBack,
    TimerFired,
    VerdictsPublished,
)
from rootline.ports.object_store import PutStatus
from rootline.schemas.identifiers import CommitId
from rootline.schemas.intent import Intent, IntentKind, VersionReference
from rootline.schemas.verdict import Verdict
from rootline.tree.state.table_state import TableState
from tests.coordinator.machine_driver import TABLE, Driver, append_intent, create_intent, with_table

FIRST, SECOND = uuid.UUID(int=7), uuid.UUID(int=8)


def of(table_uuid: uuid.UUID, intent: Intent) -> Intent:
    return intent.model_copy(update={"table_uuid": table_uuid})


def drop(table_uuid: uuid.UUID = FIRST, name: str = "drop") -> Intent:
    return Intent(intent_id=name, table=TABLE, kind=IntentKind.DROP, table_uuid=table_uuid)


def create(table_uuid: uuid.UUID = SECOND) -> Intent:
    text = build_definition(pa.schema([pa.field("id", pa.int64())]), table_uuid=table_uuid).to_json().decode()
    return Intent(intent_id=f"create-{table_uuid.int}", table=TABLE, kind=IntentKind.CREATE, definition=text)


def undrop(version: int) -> Intent:
    ref = VersionReference(version=version)
    return Intent(intent_id="undrop", table=TABLE, kind=IntentKind.RESTORE, table_uuid=FIRST, ref=ref)


def succeed(driver: Driver) -> None:
    """What the machine waits for happens."""
    if driver.machine.publishing:
        driver.tell(VerdictsPublished(()))
        return
    match driver.phase:
        case Phase.STAGING:
            driver.tell(ObjectsStored())
        case Phase.PUTTING:
            driver.put_answers(PutStatus.CREATED)
        case Phase.GATHERING | Phase.WAITING:
            driver.tell(TimerFired(driver.machine.timer))
        case other:
            raise AssertionError(other)


def finish(driver: Driver) -> None:
    """Everything succeeds until nothing is left to do."""
    for _ in range(100):
        if driver.phase is Phase.IDLE:
            return
        succeed(driver)
    raise AssertionError(f"still {driver.phase}")


def head_of(driver: Driver) -> TableState:
    assert driver.machine.head is not None
    return driver.machine.head


def live(driver: Driver) -> set[str]:
    return {found.entry.location for found in head_of(driver).live.entries()}


def codes(driver: Driver) -> dict[str, str | None]:
    return {verdict.intent_id: verdict.code for verdict in driver.verdicts}


STORY = (
    of(FIRST, append_intent("a")),
    drop(),
    of(FIRST, append_intent("late")),
    create(),
    of(SECOND, append_intent("b")),
    of(FIRST, append_intent("later")),
    drop(SECOND, "drop-2"),
)
TOLD = (None, None, "table-dropped", None, None, "table-uuid-mismatch", None)


def test_one_batch_becomes_as_many_roots_as_it_changes_what_the_name_is() -> None:
    driver = with_table()
    driver.arrive(*STORY)
    put = driver.asked(PutRoot)
    assert put.version == 1
    assert len(driver.verdicts) == 1, "no verdict before its root is confirmed"
    finish(driver)
    assert [verdict.code for verdict in driver.verdicts[1:]] == list(TOLD)
    assert [verdict.version for verdict in driver.verdicts[1:]] == [1, 1, None, 2, 2, None, 3]
    assert head_of(driver).header.is_tombstone
    assert [item.version for item in head_of(driver).header.name.drops] == [1, 3]


def test_a_coordinator_that_holds_the_head_of_a_dropped_table_commits_nothing_to_it() -> None:
    driver, rival = with_table(), with_table()
    rival.arrive(drop(), create(), of(SECOND, append_intent("theirs")))
    finish(rival)
    driver.offset = rival.offset
    driver.arrive(of(FIRST, append_intent("mine")), append_intent("unnamed"))
    driver.put_answers(PutStatus.EXISTS)
    driver.tell(RootReadBack(CommitId("somebody else"), 2_000, 2_000))
    driver.tell(HeadLoaded(rival.machine.head, 2_000))
    finish(driver)
    assert codes(driver) | {"create": None} == {
        "create": None,
        "append-mine": "table-uuid-mismatch",
        "append-unnamed": "table-uuid-missing",
    }
    assert live(driver) == {"data/theirs.parquet"}


def test_a_batch_that_is_taken_to_another_head_is_cut_where_that_head_says() -> None:
    """It was one root on a table that was there; on a tombstone it is two."""
    driver, rival = with_table(), with_table()
    rival.arrive(drop())
    finish(rival)
    driver.offset = rival.offset
    driver.arrive(create(), of(SECOND, append_intent("b")), drop(SECOND, "drop-2"))
    assert driver.asked(PutRoot).version == 1
    driver.put_answers(PutStatus.EXISTS)
    driver.tell(RootReadBack(CommitId("somebody else"), 2_000, 2_000))
    driver.tell(HeadLoaded(rival.machine.head, 2_000))
    finish(driver)
    assert [verdict.code for verdict in driver.verdicts[1:]] == [None, None, None]
    assert [verdict.version for verdict in driver.verdicts[1:]] == [2, 2, 3]


@pytest.mark.parametrize("landed", [False, True])
@pytest.mark.parametrize("steps", range(12))
def test_a_coordinator_that_dies_anywhere_in_between_leaves_one_story(steps: int, landed: bool) -> None:
    """After `steps` answers it dies; whether its last PUT landed is open. The next one hears everything again."""
    driver = with_table()
    driver.arrive(*STORY)
    stored = head_of(driver)
    for _ in range(steps):
        if driver.phase is Phase.IDLE:
            break
        succeed(driver)
        stored = head_of(driver)
    attempt = driver.attempt
    if landed and driver.phase is Phase.PUTTING and attempt is not None:
        stored = attempt.applied.state
    told = {verdict.position_key: verdict for verdict in map(Told, driver.verdicts)}
    successor = Driver()
    successor.arrive(create_intent(), *STORY)
    successor.tell(HeadLoaded(stored, 0))
    finish(successor)
    said = {verdict.position_key: verdict for verdict in map(Told, successor.verdicts)}
    for place, first in told.items():
        assert place not in said or said[place].verdict == first.verdict
    everything = {**said, **told}
    assert [everything[at].verdict.code for at in sorted(everything)] == [None, *TOLD]
    assert head_of(successor).header.is_tombstone
    assert live(successor) == {"data/b.parquet"}


class Told:
    def __init__(self, verdict: Verdict) -> None:
        self.verdict = verdict
        self.position_key = (verdict.log, verdict.partition, verdict.offset)


def test_a_tombstone_with_a_long_root_is_not_flushed_and_takes_what_it_must() -> None:
    driver = Driver()
    text = build_definition(
        pa.schema([pa.field("id", pa.int64())]), table_uuid=FIRST, properties={"rootline.flush.hard-entries": "3"}
    )
    made = Intent(intent_id="create", table=TABLE, kind=IntentKind.CREATE, definition=text.to_json().decode())
    driver.arrive(made, *(append_intent(str(at)) for at in range(20)), drop())
    driver.tell(HeadLoaded(None, 0))
    for _ in range(10):
        assert driver.phase in (Phase.STAGING, Phase.PUTTING, Phase.HELD), driver.phase
        if driver.phase is Phase.HELD:
            break  # it waits for leaves of the first root
        driver.tell(ObjectsStored()) if driver.phase is Phase.STAGING else driver.put_answers(PutStatus.CREATED)
    assert not head_of(driver).header.is_tombstone
    driver.tell(EncodingFailed("no"))
    finish(driver)
    assert head_of(driver).header.is_tombstone
    driver.arrive(of(FIRST, append_intent("late")))
    finish(driver)
    driver.arrive(undrop(head_of(driver).header.name.drops[0].version))
    finish(driver)
    assert codes(driver)["append-late"] == "table-dropped"
    assert len(live(driver)) == 20
    assert driver.machine.why == ""
