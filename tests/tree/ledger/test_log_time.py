"""Idle time is counted in the log's append times: no coordinator's clock and no jump of the log's forgets a writer."""

from __future__ import annotations

import dataclasses
from dataclasses import replace

import pytest

from rootline.schemas.intent import Intent
from rootline.schemas.parts.log import ClockJump, LogTime
from rootline.tree.commit.apply import WRITER_RETENTION_S
from rootline.tree.draft.batch import Record
from rootline.tree.parts.log import clocks_apart, log_time_after, oldest_seen_ms
from tests.tree.tables import Lake, append, codes, kinds, new_lake

DAY_MS = 24 * 3600 * 1000
RETENTION_MS = WRITER_RETENTION_S * 1000
START_MS = 1_700_000_000_000


def receipt() -> Intent:
    return append("mine", writer_id="process/abc", writer_sequence=0)


def put(lake: Lake, intent: Intent, at_ms: int) -> list[str]:
    """Decide an intent that the log got at `at_ms`."""
    records = [dataclasses.replace(record, appended_ms=at_ms) for record in lake.records([intent])]
    return [kind.value for kind in kinds(lake.put_records(records))]


def knows(lake: Lake) -> bool:
    return "process/abc" in lake.head.header.ledger.writers


@pytest.fixture
def lake() -> Lake:
    lake = new_lake()
    lake.now_ms = START_MS
    assert put(lake, receipt(), START_MS) == ["committed"]
    return lake


def test_a_coordinator_whose_clock_is_eight_days_ahead_forgets_no_writer(lake: Lake) -> None:
    lake.now_ms += 8 * DAY_MS
    put(lake, append("other"), START_MS + 1_000)
    lake.now_ms -= 8 * DAY_MS
    assert put(lake, receipt(), START_MS + 2_000) == ["duplicate"]


def test_a_log_that_jumps_eight_days_ahead_forgets_no_writer(lake: Lake) -> None:
    for number in range(50):
        put(lake, append(f"ahead{number}"), START_MS + 8 * DAY_MS + number * 1_000)
    assert put(lake, receipt(), START_MS + 60_000) == ["duplicate"]


def test_a_log_that_jumps_to_and_fro_between_two_brokers_forgets_no_writer(lake: Lake) -> None:
    for number in range(50):
        put(lake, append(f"i{number}"), START_MS + (8 * DAY_MS if number % 2 else 0) + number * 1_000)
    assert put(lake, receipt(), START_MS + 60_000) == ["duplicate"]


def test_a_writer_idle_for_the_whole_retention_is_forgotten_when_the_log_says_so(lake: Lake) -> None:
    for day in range(1, 8):
        put(lake, append(f"i{day}"), START_MS + day * DAY_MS)
        assert knows(lake)
    put(lake, append("later"), START_MS + 7 * DAY_MS + 1)
    assert not knows(lake)


def test_after_a_jump_a_writer_seen_before_it_stays_for_what_is_left_of_the_retention(lake: Lake) -> None:
    ahead_ms = START_MS + 30 * DAY_MS
    put(lake, append("ahead"), ahead_ms)
    for day in range(1, 7):
        put(lake, append(f"i{day}"), ahead_ms + day * DAY_MS)
        assert knows(lake)
    put(lake, append("later"), ahead_ms + 6 * DAY_MS + 1)
    assert not knows(lake)
    assert lake.head.header.log.time is not None
    put(lake, append("even later"), ahead_ms + 7 * DAY_MS)
    assert lake.head.header.log.time == LogTime(ahead_ms + 7 * DAY_MS)


def test_many_jumps_are_few_to_remember() -> None:
    time = LogTime(START_MS)
    for number in range(1, 100):
        time = log_time_after(time, START_MS + number * 3 * DAY_MS, RETENTION_MS)
        assert len(time.jumps) <= 8
    assert oldest_seen_ms(time, RETENTION_MS) == START_MS + (99 - 7) * 3 * DAY_MS


def test_a_log_without_times_forgets_no_one() -> None:
    time = log_time_after(LogTime(0), 0, RETENTION_MS)
    assert oldest_seen_ms(time, RETENTION_MS) <= 0


def test_the_first_time_is_no_jump_and_time_never_goes_back() -> None:
    first = log_time_after(LogTime(0), START_MS, RETENTION_MS)
    assert first == LogTime(START_MS)
    assert log_time_after(first, START_MS - 5, RETENTION_MS) == first
    jumped = log_time_after(first, START_MS + 9 * DAY_MS, RETENTION_MS)
    assert jumped == LogTime(START_MS + 9 * DAY_MS, (ClockJump(START_MS, 8 * DAY_MS),))


def test_a_root_that_does_not_know_the_time_gives_it_by_when_its_writers_were_seen(lake: Lake) -> None:
    header = dataclasses.replace(lake.head.header, log=replace(lake.head.header.log, time=None))
    lake.state = dataclasses.replace(lake.head, root=dataclasses.replace(lake.head.root, header=header))
    put(lake, append("ahead"), START_MS + 20 * DAY_MS)
    assert knows(lake)


def test_clocks_that_disagree_are_reported_and_a_quiet_table_is_not(lake: Lake) -> None:
    quiet = lake.head.header
    lake.now_ms += 20 * DAY_MS
    put(lake, append("a"), START_MS + 20 * DAY_MS)
    woken = lake.head.header
    assert clocks_apart(quiet, woken) is None
    put(lake, append("b"), START_MS + 28 * DAY_MS)
    assert "append times" in (clocks_apart(woken, lake.head.header) or "")
    log_ahead = lake.head.header
    lake.now_ms += 9 * DAY_MS
    put(lake, append("c"), START_MS + 28 * DAY_MS + 1)
    assert "wall clock" in (clocks_apart(log_ahead, lake.head.header) or "")


def test_the_time_survives_the_bytes_of_a_root(lake: Lake) -> None:
    put(lake, append("ahead"), START_MS + 20 * DAY_MS)
    assert lake.reloaded().header.log.time == lake.head.header.log.time
    assert codes(lake.put(append("x"))) == [None]


def test_records_of_one_batch_count_by_the_newest(lake: Lake) -> None:
    records: list[Record] = lake.records([append("a"), append("b")])
    timed = [dataclasses.replace(record, appended_ms=START_MS + 5 - n) for n, record in enumerate(records)]
    lake.put_records(timed)
    assert lake.head.header.log.time is not None
    assert lake.head.header.log.time.newest_ms == START_MS + 5


def test_the_writer_of_a_client_leaves_with_the_first_root_of_a_minute_after_an_hour() -> None:
    lake, hour_ms, minute_ms = new_lake(), 3_600_000, 60_000
    start_ms = START_MS - START_MS % minute_ms
    client = append("theirs", writer_id="rest/7", writer_sequence=0)
    assert put(lake, client, start_ms) == ["committed"]
    assert put(lake, append("a"), start_ms + hour_ms) == ["committed"]
    assert put(lake, client, start_ms + hour_ms) == ["duplicate"]
    assert put(lake, append("b"), start_ms + 2 * hour_ms + 59_999) == ["committed"]
    assert "rest/7" not in lake.head.header.ledger.writers
    assert put(lake, client, start_ms + 2 * hour_ms + 59_999) == ["rejected"], "its file is live"


def test_idle_writers_of_clients_are_searched_once_a_minute() -> None:
    lake, hour_ms = new_lake(), 3_600_000
    start_ms = START_MS - START_MS % 60_000
    put(lake, append("theirs", writer_id="rest/7", writer_sequence=0), start_ms + 30_000)
    put(lake, append("a"), start_ms + hour_ms + 29_999)
    put(lake, append("b"), start_ms + hour_ms + 30_001)
    assert "rest/7" in lake.head.header.ledger.writers, "no other minute has begun since the last root"
    put(lake, append("c"), start_ms + hour_ms + 60_000)
    assert "rest/7" not in lake.head.header.ledger.writers
