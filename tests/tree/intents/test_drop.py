"""Dropping a table, making one of its name again, and bringing the dropped one back."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import LogId, LogPosition
from rootline.schemas.intent import Intent, IntentKind, VersionReference
from rootline.schemas.parts.name import NameState
from rootline.schemas.root_header import Totals
from rootline.schemas.verdict import Verdict, VerdictKind
from rootline.tree.check.invariants import violations
from rootline.tree.check.verdict_roots import may_record_verdicts_only
from rootline.tree.commit.verdicts import answer
from rootline.tree.draft.batch import Record
from rootline.tree.parts.header_limits import HeaderLimits
from rootline.tree.state.addressable import check_is_table
from tests.support.state_rules import state_violations
from tests.tree.tables import DEFINITION, LOG, TABLE, TABLE_UUID, Lake, append, create, intent, removed

SECOND = uuid.UUID("4f3c3a52-0000-4000-8000-000000000002")
THIRD = uuid.UUID("4f3c3a52-0000-4000-8000-000000000003")


def another(table_uuid: uuid.UUID = SECOND, intent_id: str | None = None, **more: object) -> Intent:
    text = replace(DEFINITION, table_uuid=table_uuid).to_json().decode()
    return create(intent_id or f"create-{table_uuid.int % 10}", text, **more)


def drop(intent_id: str = "drop", **more: object) -> Intent:
    return intent(IntentKind.DROP, intent_id, **{"table_uuid": TABLE_UUID, **more})


def purge(intent_id: str = "purge", **more: object) -> Intent:
    return intent(IntentKind.PURGE, intent_id, **{"table_uuid": TABLE_UUID, **more})


def undrop(version: int, intent_id: str = "undrop", table_uuid: uuid.UUID = TABLE_UUID) -> Intent:
    ref = VersionReference(version=version)
    return intent(IntentKind.RESTORE, intent_id, ref=ref, table_uuid=table_uuid)


def codes(verdicts: list[Verdict]) -> list[str | None]:
    return [verdict.code for verdict in verdicts]


def said(verdicts: list[Verdict]) -> list[str]:
    return [verdict.code or verdict.kind.value for verdict in verdicts]


def lake_with(*intents: Intent) -> Lake:
    lake = Lake()
    lake.put(create(writer_id="w", writer_sequence=0))
    for item in intents:
        assert codes(lake.put(item)) == [None]
    return lake


def live(lake: Lake) -> set[str]:
    return {found.entry.location for found in lake.head.live.entries()}


def test_a_dropped_table_is_a_tombstone_that_says_which_one_when_and_in_which_version() -> None:
    lake = lake_with(append("a"), drop())
    header = lake.head.header
    assert header.is_tombstone
    assert header.name.drops == ((TABLE_UUID, 2, header.snapshot.timestamp_ms, False),)
    assert header.snapshot.summary["rootline.name"] == "dropped"
    assert not may_record_verdicts_only(header)
    assert live(lake) == {"data/a.parquet"}  # so that it can come back
    assert state_violations(lake.head) == []
    with pytest.raises(
        Invalid, match=r"dropped in version 2, at 1970-01-01T00:16:\d\d\+00:00: `rootline table restore"
    ):
        check_is_table(header)


@pytest.mark.parametrize(
    "late",
    [
        append("late", table_uuid=TABLE_UUID),
        intent(IntentKind.REMOVE, "late", remove_files=[removed("data/a.parquet")], table_uuid=TABLE_UUID),
        intent(IntentKind.TAG, "late", ref=VersionReference(tag="t", version=1), table_uuid=TABLE_UUID),
        intent(IntentKind.ALTER, "late", definition="[]", table_uuid=TABLE_UUID),
        drop("late"),
    ],
)
def test_nothing_changes_a_dropped_table(late: Intent) -> None:
    lake = lake_with(append("a"), drop())
    assert codes(lake.put(late)) == ["table-dropped"]
    assert lake.head.header.is_tombstone
    assert live(lake) == {"data/a.parquet"}
    assert state_violations(lake.head) == []


def test_a_drop_names_the_table_that_it_is_for() -> None:
    with pytest.raises(Invalid, match="must name table_uuid"):
        Intent(intent_id="drop", table=TABLE, kind=IntentKind.DROP)
    lake = lake_with(append("a"))
    assert codes(lake.put(drop(table_uuid=SECOND))) == ["table-uuid-mismatch"]
    assert not lake.head.header.is_tombstone


def test_a_table_that_never_was_cannot_be_dropped() -> None:
    assert codes(Lake().put(drop())) == ["table-unknown"]


def test_a_table_of_the_same_name_takes_the_next_version_and_nothing_of_the_old_one() -> None:
    lake = lake_with(
        append("a", writer_id="w", writer_sequence=1),
        intent(IntentKind.TAG, "t", ref=VersionReference(tag="t", version=1)),
        drop(),
    )
    tombstone = lake.head.header
    assert codes(lake.put(another())) == [None]
    header = lake.head.header
    assert (header.version, header.table_uuid, header.versions.oldest) == (4, SECOND, 4)
    assert (dict(header.tags), dict(header.ledger.writers), header.totals) == ({}, {}, Totals())
    assert header.snapshot.parent_id is None
    assert header.snapshot.timestamp_ms > tombstone.snapshot.timestamp_ms
    assert header.snapshot.sequence_number == tombstone.snapshot.sequence_number + 1
    assert header.log.offsets[0].next_offset == tombstone.log.offsets[0].next_offset + 1
    assert header.name.drops == tombstone.name.drops
    assert header.name.state is NameState.TABLE
    assert header.kept_bytes == 0
    assert live(lake) == set()
    assert state_violations(lake.head) == []
    assert codes(lake.put(append("a", table_uuid=SECOND))) == [None]
    assert state_violations(lake.head) == []


def test_a_replayed_intent_of_the_dropped_table_never_hears_that_it_is_a_duplicate_from_the_new_one() -> None:
    first = append("a", table_uuid=TABLE_UUID, writer_id="spark/q", writer_sequence=0)
    lake = lake_with(first, drop(), another())
    lake.put(append("b", table_uuid=SECOND, writer_id="spark/q", writer_sequence=0))
    assert said(lake.put(first)) == ["table-uuid-mismatch"]
    assert said(lake.put(first)) == ["table-uuid-mismatch"]
    assert said(lake.put(append("b", table_uuid=SECOND, writer_id="spark/q", writer_sequence=0))) == ["duplicate"]


def test_after_a_first_drop_every_intent_must_say_which_table_it_is_for() -> None:
    lake = lake_with(append("a"), drop())
    assert codes(lake.put(append("b"))) == ["table-uuid-missing"]
    lake.put(another())
    assert codes(lake.put(append("b"), append("c", writer_id="w", writer_sequence=9))) == ["table-uuid-missing"] * 2
    assert codes(lake.put(append("b", table_uuid=SECOND))) == [None]
    lake = lake_with(append("a"), drop(), undrop(2))
    assert codes(lake.put(append("b"))) == ["table-uuid-missing"]


def test_the_ledger_of_a_dropped_table_still_answers_for_it() -> None:
    first = append("a", table_uuid=TABLE_UUID, writer_id="w", writer_sequence=1)
    gone = drop(writer_id="w", writer_sequence=2)
    lake = lake_with(first, gone)
    assert said(lake.put(first, gone)) == ["duplicate", "duplicate"]
    lake.put(undrop(2))
    assert said(lake.put(first, gone)) == ["duplicate", "duplicate"]
    assert not lake.head.header.is_tombstone  # a drop that comes twice drops once


def test_a_create_that_comes_again_after_its_table_was_dropped_makes_no_table() -> None:
    made = create(writer_id="w", writer_sequence=0)
    lake = lake_with(drop())
    assert said(lake.put(made)) == ["duplicate"]
    assert said(lake.put(create("other", writer_id="v", writer_sequence=0))) == ["table-dropped"]
    lake.put(another(writer_id="w", writer_sequence=1), drop("drop-2", table_uuid=SECOND))
    assert said(lake.put(made)) == ["table-dropped"]
    assert lake.head.header.table_uuid == SECOND
    assert lake.head.header.is_tombstone


def test_a_dropped_table_comes_back_as_it_was_under_its_uuid() -> None:
    lake = lake_with(append("a", writer_id="w", writer_sequence=1), append("b"), drop())
    before = lake.head
    assert codes(lake.put(undrop(3))) == [None]
    header = lake.head.header
    assert (header.name.state, header.table_uuid, header.version) == (NameState.TABLE, TABLE_UUID, 4)
    assert header.snapshot.summary["rootline.name"] == "restored"
    assert live(lake) == live_of(before) == {"data/a.parquet", "data/b.parquet"}
    assert header.totals == before.header.totals
    assert state_violations(lake.head) == []
    again = append("a", table_uuid=TABLE_UUID, writer_id="w", writer_sequence=1)
    assert said(lake.put(again, append("c", table_uuid=TABLE_UUID))) == ["duplicate", "committed"]
    assert codes(lake.put(drop("again"))) == [None]
    assert [item.version for item in lake.head.header.name.drops] == [3, 6]


def live_of(state: object) -> set[str]:
    return {found.entry.location for found in state.live.entries()}  # type: ignore[attr-defined]


def test_a_table_is_brought_back_and_written_to_in_one_batch() -> None:
    lake = lake_with(append("a"), drop())
    gone = intent(IntentKind.REMOVE, "r", remove_files=[removed("data/a.parquet")], table_uuid=TABLE_UUID)
    more = [append(name, table_uuid=TABLE_UUID) for name in ("b", "c")]
    assert codes(lake.put(undrop(2), *more, gone, drop("again"))) == [None] * 5
    assert [state.header.is_tombstone for state in lake.states[-2:]] == [False, True]
    assert live(lake) == {"data/b.parquet", "data/c.parquet"}
    assert state_violations(lake.head) == []


def test_only_the_version_of_the_drop_brings_a_table_back() -> None:
    lake = lake_with(append("a"), drop())
    assert codes(lake.put(undrop(1), undrop(3))) == ["restore-impossible"] * 2
    assert codes(lake.put(undrop(2, table_uuid=SECOND))) == ["table-uuid-mismatch"]
    assert lake.head.header.is_tombstone


def test_a_table_that_is_there_is_not_restored_to_the_version_that_dropped_it() -> None:
    lake = lake_with(append("a"), drop(), undrop(2), append("b", table_uuid=TABLE_UUID))
    assert codes(lake.put(undrop(2, "replayed"))) == ["restore-impossible"]
    assert live(lake) == {"data/a.parquet", "data/b.parquet"}


def test_a_dropped_table_does_not_come_back_once_another_has_its_name() -> None:
    lake = lake_with(append("a"), drop(), another())
    assert codes(lake.put(undrop(2))) == ["table-uuid-mismatch"]
    assert codes(lake.put(undrop(2, table_uuid=SECOND))) == ["version-unknown"]


def test_a_purged_table_leaves_nothing_that_could_come_back() -> None:
    lake = lake_with(append("a"), append("b"), purge())
    header = lake.head.header
    assert header.is_tombstone
    assert header.name.drops[-1].is_purged
    assert (header.totals, live(lake), lake.head.root.row_count) == (Totals(), set(), 0)
    assert header.snapshot.summary["rootline.name"] == "purged"
    assert state_violations(lake.head) == []
    assert codes(lake.put(undrop(3), purge("twice"), drop("late"))) == ["table-dropped"] * 3
    with pytest.raises(Invalid, match="cannot be restored"):
        check_is_table(lake.head.header)
    assert codes(lake.put(another())) == [None]


def test_a_dropped_table_can_be_purged_later() -> None:
    lake = lake_with(append("a"), drop())
    said_then = lake.head.header.name.drops[-1]
    assert codes(lake.put(purge())) == [None]
    assert lake.head.header.name.drops == (said_then._replace(is_purged=True),)
    assert live(lake) == set()
    assert state_violations(lake.head) == []


def test_one_batch_may_drop_and_make_a_table_many_times() -> None:
    lake = lake_with(append("a"))
    verdicts = lake.put(
        append("b", table_uuid=TABLE_UUID),
        drop(),
        append("c", table_uuid=TABLE_UUID),
        another(),
        append("d", table_uuid=SECOND),
        append("e", table_uuid=TABLE_UUID),
        drop("drop-2", table_uuid=SECOND),
        purge("purge-2", table_uuid=SECOND),
        another(THIRD),
        append("f", table_uuid=THIRD),
    )
    assert codes(verdicts) == [None, None, "table-dropped", None, None, "table-uuid-mismatch", None, None, None, None]
    assert [verdict.version for verdict in verdicts if verdict.version] == [2, 2, 3, 3, 4, 5, 6, 6]
    assert live(lake) == {"data/f.parquet"}
    assert lake.head.header.table_uuid == THIRD
    for state in lake.states:
        assert state_violations(state) == []


def test_a_table_is_made_in_the_batch_that_purges_the_one_that_was_dropped_before() -> None:
    lake = lake_with(append("a"), drop())
    assert codes(lake.put(purge(), append("late", table_uuid=TABLE_UUID), another(), another(THIRD))) == [
        None,
        "table-dropped",
        None,
        "table-exists",
    ]
    assert live(lake) == set()
    assert state_violations(lake.head) == []


def test_a_first_root_may_already_be_a_tombstone() -> None:
    lake = Lake()
    assert codes(lake.put(create(), append("a"), drop(), another())) == [None] * 4
    assert [state.header.is_tombstone for state in lake.states] == [False, True, False]


def test_verdicts_of_a_dropped_table_are_repeated_as_they_were_also_by_the_next_ones_roots() -> None:
    limits = HeaderLimits(ledger_bytes=400, outcome_bytes=400)
    lake = Lake(limits=limits)
    records: list[Record] = []
    verdicts: list[Verdict] = []
    for batch in (
        [create()],
        *[[append(f"a{at}"), append(f"a{at}")] for at in range(6)],
        [drop(), append("late", table_uuid=TABLE_UUID)],
        [append("later", table_uuid=TABLE_UUID)],
        [another(), append("b", table_uuid=SECOND)],
        *[[append(f"b{at}", table_uuid=SECOND), append("unnamed")] for at in range(6)],
    ):
        some = lake.records(batch)
        records += some
        verdicts += lake.put_records(some)
    assert lake.head.header.outcomes.pages
    assert [answer(lake.head, record) for record in records] == verdicts


def test_offsets_that_are_lost_do_not_bring_a_table_twice() -> None:
    """The same records on another log, whose offsets no root knows."""
    intents = [
        create(writer_id="w", writer_sequence=0),
        append("a", table_uuid=TABLE_UUID, writer_id="w", writer_sequence=1),
        drop(writer_id="w", writer_sequence=2),
        another(writer_id="w", writer_sequence=3),
        append("b", table_uuid=SECOND, writer_id="w", writer_sequence=4),
    ]
    lake = Lake()
    assert said(lake.put(*intents)) == ["committed"] * 5
    moved = LogId("embedded/22222222-2222-4222-8222-222222222222")
    again = [Record(LogPosition(moved, 0, at), item, 500, appended_ms=lake.now_ms) for at, item in enumerate(intents)]
    verdicts = lake.put_records(again)
    assert said(verdicts) == ["table-exists", "table-uuid-mismatch", "table-uuid-mismatch", "duplicate", "duplicate"]
    assert live(lake) == {"data/b.parquet"}
    assert moved != LOG
    assert verdicts[3].kind is VerdictKind.DUPLICATE


def test_a_root_that_is_of_another_table_without_a_tombstone_before_it_breaks_a_rule() -> None:
    lake, other = lake_with(append("a")), lake_with(append("a"), drop(), another())
    assert any("the table is" in sentence for sentence in violations(lake.states[1], other.states[3]))
    tombstone, first = other.states[2], other.states[3]
    reaching = replace(first.root.header, versions=replace(first.root.header.versions, oldest=0))
    wrong = replace(first, root=replace(first.root, header=reaching))
    assert any("can reach versions" in sentence for sentence in violations(tombstone, wrong))


def test_a_name_that_is_dropped_over_and_over_remembers_the_newest_drops() -> None:
    lake = Lake()
    lake.put(create())
    for at in range(70):
        own = lake.head.header.table_uuid
        assert codes(lake.put(drop(f"d{at}", table_uuid=own), another(uuid.UUID(int=at + 10), f"c{at}"))) == [None] * 2
    assert len(lake.head.header.name.drops) == 64
    assert state_violations(lake.head) == []


def test_a_purge_gives_every_version_up_also_tagged_ones_and_those_that_a_page_keeps() -> None:
    """Else their files would stay for ever: nothing commits to a purged table, so that its expiry would come due."""
    tag = intent(IntentKind.TAG, "t", ref=VersionReference(tag="t", version=1))
    for before in ((append("a"), tag), (append("a"), tag, drop())):
        lake = lake_with(*before)
        assert codes(lake.put(purge())) == [None]
        header = lake.head.header
        assert (header.versions.oldest, dict(header.tags)) == (header.version, {})
        assert header.versions.expiry is not None
        assert (header.versions.expiry.given_up_bytes, header.versions.expiry.kept) == (header.earlier_bytes, None)
        assert header.snapshot.summary["rootline.expired-below"] == str(header.version)
        assert state_violations(lake.head) == []
        assert codes(lake.put(another())) == [None]
