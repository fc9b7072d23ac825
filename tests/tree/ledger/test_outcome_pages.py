"""Outcomes beyond the header's limit: every verdict is repeated as it was, and pages go when all is acknowledged."""

from __future__ import annotations

from rootline.schemas.bytes.root.header_codec import encode_header
from rootline.schemas.bytes.root.outcome_page import OUTCOME_PAGES
from rootline.schemas.identifiers import LogId, LogPosition
from rootline.schemas.parts.page_reference import CoveredOffset
from rootline.schemas.verdict import Verdict
from rootline.tree.commit.verdicts import answer
from rootline.tree.draft.batch import Record
from rootline.tree.parts.header_limits import HEADER_BYTES_MAX, HeaderLimits
from tests.tree.tables import LOG, Lake, append, new_lake, remove, removed

OTHER = LogId("cluster/topic")


def rejections(lake: Lake, count: int, name: str) -> tuple[list[Record], list[Verdict]]:
    """One batch of `count` rejections with long reasons; its records and verdicts."""
    records = lake.records(remove(f"{name}-{number}", removed(f"data/{'x' * 280}.parquet")) for number in range(count))
    return records, lake.put_records(records)


def answers(lake: Lake, records: list[Record]) -> list[Verdict | None]:
    return [answer(lake.head, record) for record in records]


def outcome_bytes(lake: Lake) -> int:
    return len(encode_header(lake.head.header)["rootline.outcomes"])


def test_512_rejections_are_answered_as_before_from_memory_and_from_bytes() -> None:
    lake = new_lake()
    records, verdicts = rejections(lake, 512, "r")
    assert outcome_bytes(lake) <= HEADER_BYTES_MAX
    assert len(lake.head.header.outcomes.pages) == 1
    assert answers(lake, records) == verdicts
    assert answers(lake.reloaded_lake(), records) == verdicts


def test_the_oldest_outcomes_move_and_the_newest_stay() -> None:
    lake = new_lake()
    lake.limits = HeaderLimits(outcome_bytes=2_000)
    first, _ = rejections(lake, 3, "a")
    rejections(lake, 4, "b")
    [page] = lake.head.pages.of(OUTCOME_PAGES)
    moved = {item.offset for item in page.content.outcomes.exceptions}
    stayed = {item.offset for item in lake.head.header.outcomes.newest.exceptions}
    assert max(moved) < min(stayed)
    assert {record.position.offset for record in first} <= moved
    assert page.reference.covers == (CoveredOffset(LOG, 0, max(moved)),)


def test_a_page_stays_until_the_last_of_it_is_acknowledged_and_no_longer() -> None:
    lake = new_lake()
    records, verdicts = rejections(lake, 100, "r")
    last = lake.head.header.outcomes.pages[0].covers[0].last_offset
    lake.put(append("b"), acknowledged={(LOG, 0): last})
    assert answers(lake, records)[last - records[0].position.offset] is not None
    assert len(lake.head.header.outcomes.pages) == 1
    lake.put(append("c"), acknowledged={(LOG, 0): last + 1})
    assert lake.head.header.outcomes.pages == ()
    after = last + 1 - records[0].position.offset
    assert answers(lake, records) == [None] * after + verdicts[after:]


def test_outcomes_of_a_log_that_nobody_acknowledges_keep_their_page() -> None:
    lake = new_lake()
    lake.limits = HeaderLimits(outcome_bytes=300)
    records = [Record(LogPosition(OTHER, 2, offset), append("a"), 1) for offset in range(5)]
    verdicts = lake.put_records(records)
    rejections(lake, 5, "r")
    lake.put(append("b"), acknowledged={(LOG, 0): lake.offset})
    assert answers(lake, records) == verdicts
    lake.put(append("c"), acknowledged={(LOG, 0): lake.offset, (OTHER, 2): 5})
    assert lake.head.header.outcomes.pages == ()


def test_pages_of_many_unacknowledged_roots_stay_few_and_whole() -> None:
    lake = new_lake()
    lake.limits = HeaderLimits(outcome_bytes=3_000)
    sent: list[tuple[list[Record], list[Verdict]]] = []
    pages_most = 0
    for number in range(64):
        sent.append(rejections(lake, 1 + number % 9, f"r{number}"))
        pages_most = max(pages_most, len(lake.head.header.outcomes.pages))
    assert pages_most <= 6
    assert len({name for name in lake.objects if "/pages/" in name}) < 64
    for records, verdicts in sent:
        assert answers(lake, records) == verdicts
        assert answers(lake.reloaded_lake(), records) == verdicts


def test_what_is_acknowledged_is_left_out_when_pages_are_merged() -> None:
    lake = new_lake()
    lake.limits = HeaderLimits(outcome_bytes=1_500)
    rejections(lake, 10, "a")
    middle = lake.offset
    rejections(lake, 10, "b")
    records = lake.records([remove(f"c-{number}", removed("data/none.parquet")) for number in range(30)])
    lake.put_records(records, acknowledged={(LOG, 0): middle})
    lowest = min(item.offset for page in lake.head.pages.of(OUTCOME_PAGES) for item in page.content.outcomes.exceptions)
    assert lowest >= middle


def test_small_commits_whose_verdicts_wait_seldom_write_a_page() -> None:
    lake = new_lake()
    for number in range(600):
        lake.put(append(f"a{number}"), remove(f"r{number}", removed("data/none.parquet")))
    pages = [name for name in lake.objects if "/pages/" in name]
    assert 2 < len(pages) < 20
    assert outcome_bytes(lake) <= HEADER_BYTES_MAX
