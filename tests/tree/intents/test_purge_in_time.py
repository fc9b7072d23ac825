"""Purges that workers publish: only what they saw, and only when its time is over by the log's clock."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rootline.maintenance.expiry_plan import plan_purge, purge_due_ms
from rootline.maintenance.plan import IntentStamp
from rootline.schemas.errors import Invalid
from rootline.schemas.intent import Intent, IntentKind
from rootline.schemas.root_header import Totals
from rootline.schemas.verdict import Verdict
from rootline.tree.intents.create_drop import KEPT_PROPERTY, KEPT_S_DEFAULT
from tests.tree.intents.test_drop import codes, drop, live, undrop
from tests.tree.tables import TABLE, TABLE_UUID, Lake, append, create, definition

SWEPT = {"rootline.sweep": "true"}
WEEK_MS = KEPT_S_DEFAULT * 1000


def dropped_lake(**properties: str) -> Lake:
    lake = Lake()
    lake.put(create(text=definition(SWEPT | properties).to_json().decode()))
    lake.put(append("a"))
    lake.put(drop())
    return lake


def in_time(version: int, intent_id: str = "purge") -> Intent:
    return intent_of(version, intent_id)


def intent_of(version: int, intent_id: str) -> Intent:
    return Intent(
        intent_id=intent_id, table=TABLE, table_uuid=TABLE_UUID, kind=IntentKind.PURGE, made_from_version=version
    )


def put_at(lake: Lake, now_ms: int, intent: Intent) -> list[Verdict]:
    """Apply an intent that the log took at `now_ms`."""
    [record] = lake.records([intent])
    return lake.put_records([replace(record, appended_ms=now_ms)])


def dropped_ms(lake: Lake) -> int:
    return lake.head.header.name.drops[-1].dropped_ms


def test_a_dropped_table_is_due_a_week_later_and_not_before() -> None:
    lake = dropped_lake()
    header, due_ms = lake.head.header, dropped_ms(lake) + WEEK_MS
    assert purge_due_ms(header, lake.head.definition) == due_ms
    assert plan_purge(header, lake.head.definition, due_ms - 1) is None
    plan = plan_purge(header, lake.head.definition, due_ms)
    assert plan is not None
    assert (plan.made_from_version, plan.entries, plan.data_bytes, plan.leaf_count) == (2, 1, 1000, 0)
    written = plan.write(IntentStamp("0" * 32, TABLE, TABLE_UUID, "process/w", 0), lake.head.definition)
    assert written.objects == ()
    assert codes(put_at(lake, due_ms, written.intent)) == [None]
    assert lake.head.header.totals == Totals()
    assert lake.head.header.name.drops[-1].is_purged
    assert codes(lake.put(undrop(2))) == ["table-dropped"]
    assert purge_due_ms(lake.head.header, lake.head.definition) is None


def test_a_property_says_for_how_long() -> None:
    lake = dropped_lake(**{KEPT_PROPERTY: "60"})
    assert purge_due_ms(lake.head.header, lake.head.definition) == dropped_ms(lake) + 60_000
    assert codes(put_at(lake, dropped_ms(lake) + 59_999, in_time(2, "early"))) == ["purge-stale"]
    assert codes(put_at(lake, dropped_ms(lake) + 60_000, in_time(2))) == [None]


def test_a_drop_by_a_coordinator_whose_clock_is_behind_is_as_young_as_the_log_says() -> None:
    """Else a table that was idle for a week is purged the moment after it was dropped."""
    lake = Lake()
    lake.put(create(text=definition(SWEPT).to_json().decode()))
    log_ms = lake.now_ms + 5 * WEEK_MS
    assert codes(put_at(lake, log_ms, drop())) == [None]
    assert dropped_ms(lake) == log_ms
    assert plan_purge(lake.head.header, lake.head.definition, log_ms + 1_000) is None
    assert codes(put_at(lake, log_ms + 1_000, in_time(1, "early"))) == ["purge-stale"]


@pytest.mark.parametrize("value", ["soon", "-1", "1" * 40])
def test_a_property_from_before_that_is_no_number_is_named_and_nothing_is_purged(value: str) -> None:
    lake = dropped_lake()
    wrong = {**lake.head.definition.properties, KEPT_PROPERTY: value}  # no coordinator takes it any more
    with pytest.raises(Invalid, match=KEPT_PROPERTY):
        purge_due_ms(lake.head.header, replace(lake.head.definition, properties=wrong))


def test_a_worker_with_a_wrong_clock_purges_nothing_early() -> None:
    lake = dropped_lake()
    assert codes(put_at(lake, dropped_ms(lake) + WEEK_MS - 1, in_time(2))) == ["purge-stale"]
    assert live(lake) == {"data/a.parquet"}
    assert codes(lake.put(undrop(2))) == [None]


def test_a_purge_that_was_planned_before_the_table_came_back_hits_nothing() -> None:
    lake = dropped_lake()
    late_ms = dropped_ms(lake) + 2 * WEEK_MS
    lake.put(undrop(2))
    assert codes(put_at(lake, late_ms, in_time(2, "one"))) == ["purge-stale"]
    lake.put(drop("again"))
    assert codes(put_at(lake, late_ms, in_time(2, "two"))) == ["purge-stale"]
    assert live(lake) == {"data/a.parquet"}


def test_a_purge_of_the_drop_in_the_same_batch_is_too_early() -> None:
    lake = Lake()
    lake.put(create())
    lake.put(append("a"))
    assert codes(lake.put(drop(), in_time(2))) == [None, "purge-stale"]


def test_a_table_that_is_not_swept_is_not_purged_by_itself_and_neither_is_one_that_is_there() -> None:
    lake = Lake()
    lake.put(create())
    assert purge_due_ms(lake.head.header, lake.head.definition) is None
    lake.put(drop())
    assert purge_due_ms(lake.head.header, lake.head.definition) is None
    with pytest.raises(Invalid, match=r"rootline\.sweep"):
        purge_due_ms(lake.head.header, definition({"rootline.sweep": "perhaps"}))
