"""What a sweep chooses follows from roots, dates and names; nothing that is needed is ever among it."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rootline.maintenance.limits import SweepLimits
from rootline.maintenance.orphan_sweep_plan import (
    Inventory,
    InventoryNotes,
    Stored,
    SweepPlan,
    due_deletions,
    horizon_of,
    is_due,
    plan_sweep,
)
from rootline.schemas.bytes.root.location_pages import CONDEMNED_PAGES, CondemnedLocations, CondemnedPage
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import CLOCKS_APART_MS, Version
from rootline.schemas.location_hashes import LocationHashes, location_hash
from rootline.schemas.object_keys import OwnKind, own_forms, own_kind, spark_folder
from rootline.schemas.parts.locations import Condemned
from rootline.schemas.parts.log import LogTime
from rootline.schemas.root_header import RootHeader
from tests.tree.tables import TABLE_UUID, append, new_lake

DAY_MS = 24 * 3600 * 1000
NOW_MS = 1_000 * DAY_MS
LIMITS = SweepLimits.of_properties({}, 7 * 24 * 3600)
AGE_MS = LIMITS.orphan_age_ms
TABLE = "demo.flights"


def named(number: int) -> str:
    return f"data/{uuid.UUID(int=number)}.parquet"


def header(horizon_ms: int = 0, log_ms: int = NOW_MS, root_ms: int = NOW_MS) -> RootHeader:
    known = new_lake(append("a")).head.header
    snapshot = replace(known.snapshot, timestamp_ms=root_ms)
    return replace(
        known,
        locations=replace(known.locations, horizon_ms=horizon_ms),
        snapshot=snapshot,
        log=replace(known.log, time=LogTime(log_ms)),
    )


def inventory(*objects: Stored) -> Inventory:
    notes = InventoryNotes()
    for item in objects:
        notes.add(item)
    return notes.inventory()


def condemned_page(horizon_ms: int, numbers: Iterable[int]) -> CondemnedPage:
    """The page of these numbers' locations."""
    locations = LocationHashes.of(location_hash(named(number)) for number in numbers)
    return CONDEMNED_PAGES.encode(TABLE_UUID, CondemnedLocations(horizon_ms, locations))[0]


def plan(of: RootHeader, found: Inventory, *pages: CondemnedPage, exports: bool = False) -> SweepPlan | None:
    return plan_sweep(of, pages, found, LIMITS, store_ms=NOW_MS, has_unread=exports)


def test_the_horizon_stays_behind_the_least_of_three_times_and_never_falls() -> None:
    for log_ms, root_ms, store_ms in ((0, 5, 9), (5, 0, 9), (9, 5, 0)):
        times = [NOW_MS + DAY_MS * number for number in (log_ms, root_ms, store_ms)]
        assert horizon_of(header(0, times[0], times[1]), times[2], LIMITS) == NOW_MS - AGE_MS
    assert horizon_of(header(NOW_MS), 0, LIMITS) == NOW_MS
    assert horizon_of(replace(header(), log=replace(header().log, time=None)), NOW_MS, LIMITS) == 0


def test_orphans_wait_for_the_horizon_and_what_left_does_not() -> None:
    horizon_ms = NOW_MS - AGE_MS
    old, edge = Stored(named(1), 10, horizon_ms - 2 * CLOCKS_APART_MS), Stored(named(2), 10, horizon_ms - 1)
    young, left = Stored(named(3), 10, NOW_MS), Stored(named(4), 10, NOW_MS)
    found = inventory(old, edge, young, left)
    found.reference([left.location], is_readable=False)
    chosen = plan(header(horizon_ms), found)
    assert chosen is not None
    assert chosen.condemned == LocationHashes.of(map(location_hash, [old.location, left.location]))
    assert chosen.tally.objects == {OwnKind.DATA_FILE: 2}


def test_without_a_horizon_one_is_proposed_if_something_waits_for_it() -> None:
    found = inventory(Stored(named(1), 10, NOW_MS - 2 * AGE_MS))
    chosen = plan(header(), found)
    assert chosen is not None
    assert (chosen.horizon_ms, len(chosen.condemned)) == (NOW_MS - AGE_MS, 0)
    assert plan(header(), inventory(Stored(named(1), 10, NOW_MS))) is None


def test_an_absolute_name_of_the_table_s_folder_keeps_the_object_that_it_means() -> None:
    found = inventory(Stored(named(1), 10, 0))
    found.reference([f"s3a://bucket/lake/demo/flights/{named(1)}"], is_readable=True)
    assert plan(header(NOW_MS - AGE_MS), found) is None
    assert own_forms("file:///demo/flights/x/demo/flights/y", TABLE)[1:] == ["x/demo/flights/y", "y"]
    assert own_forms("data/demo/flights/y", TABLE) == ["data/demo/flights/y"]


@pytest.mark.parametrize(
    "rest",
    [
        f"{uuid.UUID(int=2)}.parquet",
        f"partition_group=-7/{uuid.UUID(int=2)}.parquet",
        f"part-00000-{uuid.UUID(int=2)}-c000.snappy.parquet",
        f"partition_group=-7/part-00000-{uuid.UUID(int=2)}.c000.zstd.parquet",
        f"_temporary/0/_temporary/attempt_202611230758231_0001_m_000000_0/part-00000-{uuid.UUID(int=2)}-c000.parquet",
        f"_temporary/0/task_202611230758231_0001_m_000000/partition_group=7/part-0-{uuid.UUID(int=2)}.c000.parquet",
        f"__magic_job-rootline/part-00000-{uuid.UUID(int=2)}-c000.snappy.parquet.pending",
        "__magic_job-rootline/__base/_temporary/0/_temporary/attempt_2026_0001_m_0_0/partition_group=7/part-0-c0.parquet",
    ],
)
def test_what_sparks_writer_leaves_in_a_folder_of_ours_may_be_deleted(rest: str) -> None:
    """Of a job that was killed at any moment, and of one that was committed and is not needed any more."""
    assert own_kind(f"{spark_folder(uuid.UUID(int=1))}/{rest}") is OwnKind.DATA_FILE


@pytest.mark.parametrize(
    "location",
    [
        "data/part-0.parquet",
        f"data/{uuid.UUID(int=1)}.orc",
        f"export/{uuid.UUID(int=1)}.parquet",
        "metadata/roots/x-1.avro",
        f"data/../{uuid.UUID(int=1)}.parquet",
        f"data/{uuid.UUID(int=1)}.parquet\n",
        f"x/data/{uuid.UUID(int=1)}.parquet",
        "metadata/adopted/x.avro",
        f"metadata/leaves/{uuid.UUID(int=1)}.parquet",
        f"data/{uuid.UUID(int=1)}/part-00000-{uuid.UUID(int=2)}-c000.snappy.parquet",
        f"data/spark-write={uuid.UUID(int=1)}/_temporary/0/.part-00000.parquet.crc",
        "data/spark-write=mine/part-0.parquet",
        "",
    ],
)
def test_other_names_are_not_even_looked_at(location: str) -> None:
    assert own_kind(location) is None
    assert len(inventory(Stored(location, 1, 0)).hashes) == 0


def test_what_exports_may_name_stays() -> None:
    leaf = f"metadata/leaves/{uuid.UUID(int=9)}-data-{'0' * 16}.parquet"
    found = inventory(Stored(named(1), 10, 0), Stored(leaf, 10, 0))
    chosen = plan(header(NOW_MS - AGE_MS), found, exports=True)
    assert chosen is not None
    assert chosen.tally.objects == {OwnKind.LEAF: 1}


def test_a_property_never_makes_the_horizon_younger_than_the_log_allows() -> None:
    least = SweepLimits.of_properties({"rootline.sweep.orphan-age-s": "1"}, 7 * 24 * 3600)
    assert least.orphan_age_ms == 8 * DAY_MS
    assert SweepLimits.of_properties({}, 1, 0).orphan_age_ms == 8 * DAY_MS, "coordinators hold to seven days at least"
    assert SweepLimits.of_properties({}, 30 * 24 * 3600, 60 * 24 * 3600).orphan_age_ms == 91 * DAY_MS
    assert SweepLimits.of_properties({"rootline.sweep.scan-retention-s": "1"}, 0).scan_retention_ms == 600_000
    with pytest.raises(Invalid):
        SweepLimits.of_properties({"rootline.sweep.orphan-age-s": "-1"}, 0)


def test_a_condemned_object_waits_for_the_latest_date_that_is_known() -> None:
    found = inventory(Stored(named(1), 10, 0))
    page = condemned_page(0, [1])
    since_ms = NOW_MS - LIMITS.scan_retention_ms
    head = replace(
        header(),
        locations=replace(header().locations, condemned=(Condemned(page.reference, header().version, since_ms),)),
    )

    def due(dated: dict[int, int], store_ms: int = NOW_MS, *, exports: bool = False) -> list[int]:
        return due_deletions(head, [page], found, LIMITS, dated=dated, store_ms=store_ms, has_unread=exports)

    assert due({-1: 0}) == [0]
    assert due({}) == [], "the page itself is not there"
    assert due({-1: 0}, NOW_MS - 1) == []
    assert due({-1: since_ms + 1}) == []
    assert due({-1: 0, header().version: since_ms + 1}) == []
    assert due({-1: 0}, exports=True) == []
    found.reference([named(1)], is_readable=False)
    assert due({-1: 0}) == []


def test_a_page_is_due_when_the_root_that_names_it_is_a_retention_old_and_not_the_one_before_it() -> None:
    version = 7
    page = condemned_page(0, [1])
    item = Condemned(page.reference, Version(version), since_ms=NOW_MS)
    assert not is_due(item, NOW_MS, NOW_MS, LIMITS, NOW_MS, settled=version - 1)
    assert is_due(item, NOW_MS, NOW_MS, LIMITS, NOW_MS, settled=version)
    head = replace(header(), version=Version(version), locations=replace(header().locations, condemned=(item,)))
    old, young = NOW_MS - LIMITS.scan_retention_ms, NOW_MS - LIMITS.scan_retention_ms + 1

    def due(dated: dict[int, int]) -> list[int]:
        found = inventory(Stored(named(1), 10, 0))
        return due_deletions(head, [page], found, LIMITS, dated={-1: 0, **dated}, store_ms=NOW_MS, has_unread=False)

    assert due({version - 1: old, version: young}) == []
    assert due({version - 1: old, version: old}) == [0]


def test_what_exporters_store_is_condemned_at_the_age_of_a_scan_and_not_before() -> None:
    folder = f"export/v2/{'0' * 16}"
    age_ms = LIMITS.export_age_ms
    young, old = (
        Stored(f"{folder}/metadata/{version:016x}-{(1 << 63) - 1 - version}.metadata.json", 10, stored_ms)
        for version, stored_ms in ((1, NOW_MS - age_ms), (2, NOW_MS - age_ms - 1))
    )
    assert {own_kind(item.location) for item in (young, old)} == {OwnKind.EXPORT_METADATA}
    chosen = plan(header(), inventory(young, old))
    assert chosen is not None
    assert chosen.condemned == LocationHashes.of([location_hash(old.location)])


@dataclass
class Drawn:
    """Objects by number; what each root references; which roots can be read."""

    ages_ms: list[int]
    readable: list[frozenset[int]]
    expired: list[frozenset[int]]
    condemned: list[frozenset[int]]
    since_ms: list[int] = field(default_factory=list)
    horizon_ms: int = 0


numbers = st.frozensets(st.integers(0, 11), max_size=8)


@st.composite
def drawn(draw: st.DrawFn) -> Drawn:
    pages = draw(st.lists(numbers.filter(bool), max_size=3))
    return Drawn(
        draw(st.lists(st.integers(0, 3 * AGE_MS), min_size=12, max_size=12)),
        draw(st.lists(numbers, max_size=3)),
        draw(st.lists(numbers, max_size=3)),
        pages,
        draw(st.lists(st.integers(0, 3 * AGE_MS), min_size=len(pages), max_size=len(pages))),
        draw(st.integers(0, 3 * AGE_MS)),
    )


@settings(deadline=None)
@given(drawn())
def test_nothing_that_a_root_references_is_ever_chosen(case: Drawn) -> None:
    found = inventory(*(Stored(named(at), 1, NOW_MS - age) for at, age in enumerate(case.ages_ms)))
    for roots, is_readable in ((case.readable, True), (case.expired, False)):
        for root in roots:
            found.reference(map(named, root), is_readable=is_readable)
    pages = [condemned_page(at, numbers) for at, numbers in enumerate(case.condemned)]
    horizon_ms = max(0, NOW_MS - case.horizon_ms) if case.horizon_ms else 0
    base = header(horizon_ms)
    since = [NOW_MS - age for age in case.since_ms]
    condemned = tuple(Condemned(page.reference, base.version, at) for page, at in zip(pages, since, strict=True))
    head = replace(base, locations=replace(base.locations, condemned=condemned))
    readable, expired = frozenset().union(*case.readable), frozenset().union(*case.expired)
    listed = {-1 - number: 0 for number in range(len(pages))}
    due = due_deletions(head, pages, found, LIMITS, dated=listed, store_ms=NOW_MS, has_unread=False)
    deleted = {number for number in range(12) if found.holds(location_hash(named(number))) in due}
    assert not deleted & (readable | expired)
    for number in deleted:
        assert any(
            number in named_by and at + LIMITS.scan_retention_ms <= NOW_MS
            for named_by, at in zip(case.condemned, since, strict=True)
        )
    chosen = plan(head, found, *pages)
    fresh = LocationHashes() if chosen is None else chosen.condemned
    known = {number for named_by in case.condemned for number in named_by}
    condemned_now = {number for number in range(12) if location_hash(named(number)) in fresh} - known
    assert not condemned_now & readable
    for number in condemned_now - expired:
        assert NOW_MS - case.ages_ms[number] < horizon_ms - CLOCKS_APART_MS, "younger than the head's own horizon"
    if chosen is not None:
        assert chosen.horizon_ms >= horizon_ms
        for item, page in zip(condemned, pages, strict=True):
            if item.page.digest in chosen.replaces and item.since_ms > chosen.horizon_ms:
                assert all(one in chosen.condemned for one in page.content.locations), (
                    "a page is not lost before its time"
                )
