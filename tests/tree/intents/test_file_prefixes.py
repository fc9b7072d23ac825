"""Data files outside the warehouse, below the prefixes that a coordinator allows."""

from __future__ import annotations

import pytest

from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import CommitId
from rootline.schemas.intent import Intent, IntentKind
from rootline.schemas.intent_rules import check_location
from rootline.tree.commit.apply import apply_batch
from rootline.tree.draft.batch import Applied, FetchedObjects, NoTable, Stamp
from tests.support.state_rules import state_violations
from tests.tree.tables import TABLE, Lake, append, codes, create, data_file, equality_delete, intent, new_lake

PREFIXES = ("/path/to/", "s3://landing/events/")
INSIDE = ("/path/to/a.parquet", "s3://landing/events/at=2026/b c.parquet")


def decided(lake: Lake, *intents: Intent, prefixes: tuple[str, ...] = PREFIXES) -> list[str | None]:
    stamp = Stamp(CommitId(f"{7:032x}"), "coordinator-1", lake.now_ms)
    made = apply_batch(lake.state, TABLE, lake.records(intents), FetchedObjects(), stamp, file_prefixes=prefixes)
    assert isinstance(made, Applied | NoTable)
    if isinstance(made, Applied):
        lake.state = made.state
        assert state_violations(made.state) == []
    return codes(made.verdicts)


def at(*locations: str) -> tuple[Intent, ...]:
    return tuple(append(f"i{number}", data_file("a", location=name)) for number, name in enumerate(locations))


def test_a_file_below_a_prefix_is_added_and_keeps_its_location() -> None:
    lake = new_lake()
    assert decided(lake, *at(*INSIDE)) == [None, None]
    assert [entry.location for entry in lake.root_entries()] == list(INSIDE)
    assert decided(lake, append("again", data_file("a", location=INSIDE[0]))) == ["file-already-live"]


def test_a_create_may_bring_one() -> None:
    lake = Lake()
    made = create("ctas", add_data_files=(data_file("a", location=INSIDE[0]),))
    assert decided(lake, made, prefixes=()) == ["location-invalid"]
    assert decided(lake, made) == [None]


def test_without_prefixes_every_new_absolute_location_is_refused() -> None:
    assert decided(new_lake(), *at(*INSIDE), prefixes=()) == ["location-invalid"] * 2


@pytest.mark.parametrize(
    "location",
    [
        "/path/to",
        "/path/to/",
        "/path/tomorrow/a.parquet",
        "/path/to//a.parquet",
        "/path/to/../warehouse/a.parquet",
        "/path/to/%2e%2e/warehouse/a.parquet",
        "/path/to/%252e%252e/a.parquet",
        "/path/to/x/%2F..%2F../a.parquet",
        "/path/to/./a.parquet",
        "/path/to/\uff0e\uff0e/a.parquet",
        "/path/to/s3://other/a.parquet",
        "/path/to/a?b",
        "/path/to/a\\..\\b",
        "/PATH/to/a.parquet",
        "//path/to/a.parquet",
        "/path//to/a.parquet",
        "/path/./to/a.parquet",
        "file:/path/to/a.parquet",
        "file:///path/to/a.parquet",
        "s3a://landing/events/a.parquet",
        "S3://landing/events/a.parquet",
        "s3://landing//events/a.parquet",
        "s3://landing/events-2/a.parquet",
        "s3://landing/a.parquet",
    ],
)
def test_every_other_spelling_and_place_is_refused(location: str) -> None:
    with pytest.raises(Invalid) as caught:
        check_location(location, prefixes=PREFIXES)
    assert caught.value.code == "location-invalid"
    assert decided(new_lake(), *at(location)) == ["location-invalid"]


def test_deletes_stay_below_the_table() -> None:
    lake = new_lake()
    delete = equality_delete("e", 1, "UA").model_copy(update={"location": INSIDE[0]})
    assert decided(lake, intent(IntentKind.ROW_DELTA, "d", add_equality_deletes=(delete,))) == ["location-invalid"]
