"""What a coordinator remembers of what it did is bounded, and numbered."""

from __future__ import annotations

from collections import Counter

from rootline.coordinator.protocol.messages import Noted, Report
from rootline.coordinator.runtime.observing import (
    EVENTS_MAX,
    REJECTIONS_AT_ONCE_MAX,
    REJECTIONS_MAX,
    SAMPLES_MAX,
    EventKind,
    RecentEvents,
)
from rootline.schemas.identifiers import TableName, Version
from rootline.schemas.verdict import Verdict, VerdictKind

TABLE = TableName("a.b")


def landed(recent: RecentEvents, version: int) -> None:
    recent.landed(TABLE, Report(Noted.ROOT_LANDED, "3", Version(version), 0.01), 1_000 + version)


def rejected(number: int, message: str = "no") -> Verdict:
    return Verdict(
        intent_id=f"i{number}",
        table=TABLE,
        kind=VerdictKind.REJECTED,
        log="log",
        partition=0,
        offset=number,
        code="file-missing",
        message=message,
    )


def told(recent: RecentEvents, verdicts: list[Verdict], again: bool = False) -> None:
    counts = Counter((verdict.kind, verdict.code or "") for verdict in verdicts)
    recent.on_published(verdicts, counts, again, 5_000)


def test_events_come_once_in_their_order_and_only_those_after_what_a_reader_has() -> None:
    recent = RecentEvents()
    landed(recent, 1)
    told(recent, [rejected(1)])
    first = recent.events_after(0)
    assert [event.kind for event in first] == [EventKind.COMMIT, EventKind.VERDICTS, EventKind.REJECTION]
    assert [event.number for event in first] == [1, 2, 3]
    assert recent.events_after(recent.number) == []
    landed(recent, 2)
    assert [(event.kind, event.version, event.intents) for event in recent.events_after(3)] == [
        (EventKind.COMMIT, 2, 3)
    ]


def test_a_flood_of_commits_takes_no_more_memory_and_pushes_no_rejection_out() -> None:
    recent = RecentEvents()
    told(recent, [rejected(1)])
    for version in range(10 * EVENTS_MAX):
        landed(recent, version)
    kept = recent.events_after(0)
    assert len(kept) == EVENTS_MAX + 1
    assert [event.intent_id for event in kept if event.kind is EventKind.REJECTION] == ["i1"]
    assert recent.commits == 10 * EVENTS_MAX


def test_a_flood_of_rejections_is_counted_whole_and_kept_in_part_with_short_texts() -> None:
    recent = RecentEvents()
    for _ in range(50):
        told(recent, [rejected(number, "x" * 100_000) for number in range(100)])
    kept = [event for event in recent.events_after(0) if event.kind is EventKind.REJECTION]
    assert len(kept) == REJECTIONS_MAX
    assert max(len(event.reason) for event in kept) == 1_000
    assert recent.rejections == 5_000
    assert [(item.code, item.count) for item in recent.codes()] == [("file-missing", 5_000)]
    assert len({event.at_ms for event in kept}) == 1
    assert REJECTIONS_AT_ONCE_MAX < 100


def test_what_is_told_again_is_no_new_rejection() -> None:
    recent = RecentEvents()
    told(recent, [rejected(1)], again=True)
    assert recent.rejections == 0
    assert recent.codes() == []
    assert all(event.told_again for event in recent.events_after(0))


def test_samples_are_those_of_the_last_hour_and_only_later_ones_are_handed_out() -> None:
    recent = RecentEvents()
    for number in range(2 * SAMPLES_MAX):
        recent.sample(number, None if number % 2 else number, 0.5)
    assert len(recent.samples_after(-1)) == SAMPLES_MAX
    [newest] = recent.samples_after(2 * SAMPLES_MAX - 2)
    assert (newest.at_ms, newest.lag) == (2 * SAMPLES_MAX - 1, None)


def test_rejections_of_one_table_are_found_the_newest_first() -> None:
    recent = RecentEvents()
    told(recent, [rejected(1), rejected(2)])
    assert [event.intent_id for event in recent.rejections_of(TABLE)] == ["i2", "i1"]
    assert recent.rejections_of("c.d") == []
