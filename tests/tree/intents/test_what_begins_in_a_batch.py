"""A purge, or what is made after a drop, takes nothing over from intents of the same batch: they get a root before."""

from __future__ import annotations

import pytest

from rootline.schemas.intent import Intent, IntentKind, VersionReference
from rootline.schemas.root_header import Totals
from rootline.tree.evolution.changes import SetProperties
from tests.support.state_rules import state_violations
from tests.tree.intents.test_alter import alter
from tests.tree.intents.test_drop import SECOND, another, codes, drop, lake_with, purge, said, undrop
from tests.tree.intents.test_drop_and_sweep import with_something_condemned
from tests.tree.intents.test_view import create_view, replace_view
from tests.tree.tables import TABLE, TABLE_UUID, Lake, append, create, data_file, intent, removed

BEFORE_A_PURGE = {
    "alter": alter("x", SetProperties({"a": "1"})),
    "append": append("b"),
    "expire": intent(IntentKind.EXPIRE, "x", ref=VersionReference(version=1), made_from_version=1),
    "overwrite": intent(
        IntentKind.OVERWRITE, "x", add_data_files=(data_file("q"),), remove_files=(removed("data/a.parquet"),)
    ),
    "restore": intent(IntentKind.RESTORE, "x", ref=VersionReference(version=0)),
    "tag": intent(IntentKind.TAG, "x", ref=VersionReference(tag="t", version=1)),
    "drop": drop("x"),
}


@pytest.mark.parametrize("before", BEFORE_A_PURGE.values(), ids=BEFORE_A_PURGE)
def test_whatever_comes_before_a_purge_in_its_batch_gets_a_root_of_its_own(before: Intent) -> None:
    lake = lake_with(append("a"))
    assert codes(lake.put(before, purge())) == [None, None]
    header = lake.head.header
    assert (header.version, header.is_tombstone, header.totals) == (3, True, Totals())
    assert state_violations(lake.head) == []


def test_what_a_sweep_condemns_is_in_a_root_before_the_next_table_begins() -> None:
    lake = with_something_condemned()
    assert codes(lake.put(drop())) == [None]
    lake.now_ms += 1_000
    swept = lake.sweep(
        "s2", ["data/w.parquet"], horizon_ms=lake.head.header.locations.horizon_ms, table_uuid=TABLE_UUID
    )
    assert codes(lake.put(swept, another())) == [None, None]
    assert len(lake.head.header.locations.condemned) == 2
    assert codes(lake.put_claiming(lake.now_ms, append("w", table_uuid=SECOND))) == ["file-removed"]
    assert state_violations(lake.head) == []


def test_what_expires_is_in_a_root_before_a_view_begins_and_after_a_purge() -> None:
    lake = lake_with(append("a"), drop())
    expiry = intent(IntentKind.EXPIRE, "e", ref=VersionReference(version=2), made_from_version=2, table_uuid=TABLE_UUID)
    assert codes(lake.put(expiry, create_view())) == [None, None]
    assert lake.states[-2].header.snapshot.summary["rootline.expired-below"] == "2"
    lake = lake_with(append("a"))
    again = expiry.model_copy(update={"made_from_version": 1})
    assert codes(lake.put(purge(), again)) == [None, None]
    assert lake.head.header.versions.oldest == 2


def test_rejections_and_duplicates_before_a_purge_share_its_root() -> None:
    lake = lake_with(append("a", writer_id="w", writer_sequence=1))
    batch = (append("a"), append("again", writer_id="w", writer_sequence=1), purge(), undrop(2), append("late"))
    assert said(lake.put(*batch)) == [
        "file-already-live",
        "duplicate",
        "committed",
        "table-dropped",
        "table-uuid-missing",
    ]
    assert state_violations(lake.head) == []


def test_what_is_refused_in_the_batch_that_makes_the_table_names_the_table() -> None:
    verdicts = [*Lake().put(create(), another(), append("x", table_uuid=SECOND))]
    verdicts += Lake().put(create_view(), create(), replace_view(current_version_id=9))
    refused = [verdict for verdict in verdicts if verdict.code]
    assert codes(refused) == ["table-exists", "table-uuid-mismatch", "view-exists", "view-version-unknown"]
    assert all((verdict.message or "").startswith(TABLE) for verdict in refused), refused
