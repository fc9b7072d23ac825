"""Which versions are given up, by the roots' own times."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rootline.maintenance.expiry_plan import ExpiryPlan, plan_expiry
from rootline.maintenance.limits import ExpiryLimits
from rootline.maintenance.plan import IntentStamp
from rootline.schemas.bytes.root.retained_page import RETAINED_PAGES, KeptVersion, RetainedPage, RetainedVersions
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import TableName, Version
from rootline.schemas.root_header import RootHeader
from tests.schemas.entry_values import example_header
from tests.support.examples import examples
from tests.tree.tables import DEFINITION

DAY_MS = 86_400_000
START_MS = 1_700_000_000_000


def head(times: Sequence[int], *, oldest: int = 0, tags: Mapping[str, int] | None = None) -> RootHeader:
    """The header of the newest of versions that were committed at these times."""
    header = example_header(len(times) - 1)
    snapshot = dataclasses.replace(header.snapshot, timestamp_ms=times[-1])
    return dataclasses.replace(
        header, snapshot=snapshot, versions=replace(header.versions, oldest=Version(oldest)), tags=dict(tags or {})
    )


def kept_of(rows: Sequence[KeptVersion]) -> RetainedPage | None:
    return RETAINED_PAGES.encode(uuid.UUID(int=1), RetainedVersions(tuple(rows)))[0] if rows else None


class Planned:
    """A plan, and the versions that were read for it."""

    def __init__(self, times: Sequence[int], header: RootHeader, kept: RetainedPage | None, **more: object) -> None:
        self.read: list[int] = []
        limits = dataclasses.replace(ExpiryLimits(), **{key: value for key, value in more.items() if key != "now"})  # type: ignore[arg-type]
        steps = plan_expiry(header, kept, limits, now=bool(more.get("now")))
        said: KeptVersion | None = None
        self.plan: ExpiryPlan | None = None
        while True:
            try:
                wanted = next(steps) if said is None else steps.send(said)
            except StopIteration as ended:
                self.plan = ended.value
                return
            assert wanted >= header.versions.oldest
            self.read.append(wanted)
            said = KeptVersion(wanted, times[wanted], 100)


def planned(times: Sequence[int], header: RootHeader, kept: RetainedPage | None = None, **more: object) -> ExpiryPlan:
    found = Planned(times, header, kept, **more).plan
    assert found is not None
    return found


def test_nothing_is_due_before_so_many_versions_would_go() -> None:
    times = [START_MS + number for number in range(1_400)]
    found = Planned(times, head(times), None)
    assert (found.plan, len(found.read) < 15) == (None, True)
    assert Planned(times[:400], head(times[:400]), None).read == []


def test_a_look_that_comes_too_early_reads_one_root() -> None:
    times = [START_MS + number for number in range(1_400)]
    assert Planned(times, head(times), None).read == [499]
    assert Planned(times[:900], head(times[:900]), None, every_commits=50).read == [49]


def test_of_fast_commits_the_newest_thousand_stay() -> None:
    times = [START_MS + number for number in range(1_600)]
    assert planned(times, head(times)).oldest == 600


def test_of_slow_commits_those_of_ten_minutes_stay() -> None:
    times = [START_MS + 10_000 * number for number in range(1_600)]
    plan = planned(times, head(times))
    assert (plan.oldest, times[-1] - times[plan.oldest]) == (1_539, 600_000)


def test_older_ones_are_kept_once_a_minute_and_then_once_an_hour() -> None:
    times = [START_MS + 10_000 * number for number in range(12_000)]  # more than a day
    plan = planned(times, head(times))
    ages = [times[-1] - item.timestamp_ms for item in plan.kept]
    minutes = [item for item, age in zip(plan.kept, ages, strict=True) if age <= 3_600_000]
    hours = [item for item, age in zip(plan.kept, ages, strict=True) if age > 3_600_000]
    assert len({item.timestamp_ms // 60_000 for item in minutes}) == len(minutes)
    assert 49 <= len(minutes) <= 52
    assert len({item.timestamp_ms // 3_600_000 for item in hours}) == len(hours)
    assert 31 <= len(hours) <= 34


def test_nothing_is_kept_for_more_than_five_days_but_what_has_a_tag() -> None:
    times = [START_MS + 600_000 * number for number in range(2_000)]  # two weeks
    plan = planned(times, head(times, tags={"audit": 7}))
    assert plan.kept[0].version == 7
    assert all(times[-1] - item.timestamp_ms <= 5 * DAY_MS for item in plan.kept[1:])


def test_few_roots_are_read() -> None:
    times = [START_MS + 20 * number for number in range(1_000_000)]
    found = Planned(times, head(times, oldest=998_000), None)
    assert found.plan is not None
    assert len(found.read) < 60


def test_by_hand_one_version_is_enough() -> None:
    times = [START_MS + 700_000, START_MS + 700_001, START_MS + 1_400_000]
    assert Planned(times, head(times), None).plan is None
    assert planned(times, head(times), now=True).oldest == 2
    assert Planned(times, head(times, oldest=2), None, now=True).plan is None


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(st.integers(1, 400_000), min_size=3, max_size=250), st.data())
def test_expiry_after_expiry_keeps_what_one_alone_would_keep(gaps: list[int], data: st.DataObject) -> None:
    times = [START_MS]
    for gap in gaps:
        times.append(times[-1] + gap)
    tags = {f"t{number}": number for number in data.draw(st.sets(st.integers(0, len(times) - 1), max_size=3))}
    limits = {"all_s": 300, "all_versions": 20, "minutes_s": 1_200, "hours_s": 7_200, "every_commits": 5}
    oldest, kept, addressable = 0, None, set(range(len(times)))
    for newest in range(2, len(times)):
        header = head(times[: newest + 1], oldest=oldest, tags={k: v for k, v in tags.items() if v <= newest})
        plan = Planned(times, header, kept, **limits).plan
        if plan is None:
            assert newest - oldest < 5 + 20 or times[newest] - times[oldest + 5] <= 300_000
            continue
        versions = {item.version for item in plan.kept}
        assert oldest < plan.oldest <= newest
        assert versions | set(range(plan.oldest, newest + 1)) <= addressable  # nothing comes back
        assert all(item == KeptVersion(item.version, times[item.version], 100) for item in plan.kept)
        assert all(version in versions for version in header.tags.values() if version < plan.oldest)
        before = len(kept.content.versions) if kept is not None else 0
        assert plan.given_up == plan.oldest - oldest + before - len(versions)
        oldest, kept = plan.oldest, kept_of(plan.kept)
        addressable = versions | set(range(oldest, len(times)))
        recent = {v for v in range(newest + 1) if times[newest] - times[v] < 300_000 and v > newest - 20}
        assert recent <= addressable
        for version in range(oldest):  # of each whole minute that is young enough, the last version is there
            age = times[newest] - times[version]
            last = times[version + 1] // 60_000 != times[version] // 60_000
            if age <= 1_200_000 and last:
                assert version in addressable


def test_a_page_that_was_given_up_is_never_made_again_under_its_name() -> None:
    kept = (KeptVersion(Version(3), START_MS, 100),)
    stamp = IntentStamp("0" * 32, TableName("a.b"), uuid.UUID(int=1), "process/1", 0)
    plans = [ExpiryPlan(Version(made_from), Version(9), kept, 5) for made_from in (10, 10, 11)]
    names = [plan.write(stamp, DEFINITION).objects[0].location for plan in plans]
    assert names[0] == names[1] != names[2]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rootline.expire", "yes"),
        ("rootline.expire.root-retention-seconds", "599"),
        ("rootline.expire.all-versions", "0"),
        ("rootline.expire.every-commits", "-1"),
    ],
)
def test_a_property_that_cannot_be_used_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(Invalid, match=name):
        ExpiryLimits.of_properties({name: value})


def test_a_table_without_the_switch_keeps_everything() -> None:
    assert not ExpiryLimits.of_properties({}).is_on
    assert ExpiryLimits.of_properties({"rootline.expire": "true"}) == ExpiryLimits()
