"""What a sweep condemned stays condemned when a table is dropped and its name is taken again."""

from __future__ import annotations

from rootline.schemas.bytes.root.location_pages import CONDEMNED_PAGES
from rootline.schemas.intent import IntentKind, VersionReference
from rootline.schemas.location_hashes import location_hash
from rootline.schemas.verdict import Verdict
from tests.support.state_rules import state_violations
from tests.tree.intents.test_drop import SECOND, another, drop, purge
from tests.tree.sweeps import SweptLake, swept_lake
from tests.tree.tables import TABLE_UUID, append, intent, remove, removed


def codes(verdicts: list[Verdict]) -> list[str | None]:
    return [verdict.code for verdict in verdicts]


def with_something_condemned() -> SweptLake:
    lake = swept_lake(append("a"))
    lake.days_pass(1)
    swept = lake.sweep("s", ["data/x.parquet"], horizon_ms=lake.youngest_ms)
    assert codes(lake.put(swept)) == [None]
    return lake


def test_what_was_condemned_and_the_horizon_go_on_in_the_next_table_of_the_name() -> None:
    lake = with_something_condemned()
    before = lake.head.header
    assert codes(lake.put(drop(), another())) == [None, None]
    header = lake.head.header
    assert header.locations.horizon_ms == before.locations.horizon_ms
    assert [item[1:] for item in header.locations.condemned] == [item[1:] for item in before.locations.condemned]
    [item] = header.locations.condemned
    body = lake.objects[item.page.location]
    read = CONDEMNED_PAGES.decode(body, item.page, SECOND, name="page")
    assert location_hash("data/x.parquet") in read.content.locations
    fresh_ms = lake.now_ms
    assert codes(lake.put_claiming(fresh_ms, append("x", table_uuid=SECOND))) == ["file-removed"]
    assert codes(lake.put_claiming(fresh_ms, append("y", table_uuid=SECOND))) == [None]
    assert codes(lake.put_claiming(header.locations.horizon_ms - 1, append("z", table_uuid=SECOND))) == ["expired"]
    assert state_violations(lake.head) == []


def test_a_dropped_table_is_still_swept_and_expired_and_comes_back_then() -> None:
    lake = with_something_condemned()
    lake.put(drop())
    dropped_in = lake.head.header.version
    lake.now_ms += 1_000
    swept = lake.sweep(
        "again", ["data/w.parquet"], horizon_ms=lake.head.header.locations.horizon_ms, table_uuid=TABLE_UUID
    )
    assert codes(lake.put(swept)) == [None]
    ref = VersionReference(version=dropped_in)
    expiry = intent(IntentKind.EXPIRE, "e", ref=ref, made_from_version=dropped_in, table_uuid=TABLE_UUID)
    assert codes(lake.put(expiry)) == [None]
    header = lake.head.header
    assert (header.is_tombstone, header.versions.oldest, len(header.locations.condemned)) == (True, dropped_in, 2)
    assert codes(lake.put(intent(IntentKind.RESTORE, "u", ref=ref, table_uuid=TABLE_UUID))) == [None]
    assert "data/a.parquet" in {found.entry.location for found in lake.head.live.entries()}
    assert state_violations(lake.head) == []


def test_a_sweep_of_a_dropped_table_leaves_its_dead_leaves_alone() -> None:
    """The tombstone's totals are those that the table comes back with; its dead leaves leave after that."""
    lake = with_something_condemned()
    leaf = lake.leaf(lake.root_entries())
    lake.dates[leaf.location] = lake.now_ms
    assert codes(lake.put(lake.flush("f", leaf))) == [None]
    files = sorted(place.location for place in lake.live())
    assert codes(lake.put(remove("r", *(removed(location) for location in files)))) == [None]
    assert codes(lake.put(drop())) == [None]
    dropped_in, totals = lake.head.header.version, lake.head.header.totals
    assert totals.data_manifests == 1
    swept = lake.sweep(
        "again", ["data/w.parquet"], horizon_ms=lake.head.header.locations.horizon_ms, table_uuid=TABLE_UUID
    )
    assert codes(lake.put(swept)) == [None]
    assert lake.head.header.totals == totals
    ref = VersionReference(version=dropped_in)
    assert codes(lake.put(intent(IntentKind.RESTORE, "u", ref=ref, table_uuid=TABLE_UUID))) == [None]
    swept = lake.sweep(
        "after", ["data/v.parquet"], horizon_ms=lake.head.header.locations.horizon_ms, table_uuid=TABLE_UUID
    )
    assert codes(lake.put(swept)) == [None]
    assert lake.head.header.totals.data_manifests == 0
    assert state_violations(lake.head) == []


def test_what_a_purged_table_held_can_be_condemned() -> None:
    lake = with_something_condemned()
    assert codes(lake.put(purge())) == [None]
    made = lake.sweep("gone", ["data/a.parquet"], horizon_ms=lake.head.header.locations.horizon_ms)
    assert codes(lake.put(made.model_copy(update={"table_uuid": TABLE_UUID}))) == [None]
    assert lake.is_condemned("data/a.parquet")
    assert state_violations(lake.head) == []
