"""The clock and the model that the proof of constant ingest judges by."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from tests.services.constant_ingest.fast_clock import LEAP_MS, FastClock
from tests.services.constant_ingest.row_history import RowHistory


def test_a_fast_clock_says_the_same_in_every_process_and_leaps_only_for_what_comes_after(tmp_path: Path) -> None:
    made_ms = time.time() * 1000
    clock = FastClock.make(tmp_path / "clock", 60)
    other = FastClock(tmp_path / "clock")
    assert clock.at(made_ms - 5_000) == int(made_ms - 5_000)
    assert other.at(made_ms + 20_000) - other.at(made_ms + 10_000) == 600_000
    clock.leap()
    [leapt_ms] = other.leaps
    assert clock.leaps == [leapt_ms]
    assert other.at(made_ms - 5_000) == int(made_ms - 5_000)
    assert other.at(leapt_ms) - other.at(leapt_ms - 1) >= LEAP_MS
    assert other.at(leapt_ms + 10_000) - other.at(leapt_ms) == 600_000


def test_a_scan_is_judged_once_all_that_it_may_have_seen_is_decided() -> None:
    history = RowHistory()
    rows = history.mint(3)
    first = history.begin()
    history.saw(4, rows)
    history.judge()
    assert history.judged == 0
    history.note(4, came=rows)
    history.end(first)
    history.note(6, went=rows[:1])
    history.judge()
    assert (history.judged, history.wrong) == (1, [])
    for version, seen in ((5, rows), (6, rows[1:]), (3, rows[:0])):
        history.saw(version, seen)
    history.judge()
    assert history.wrong == []


def test_a_scan_that_lost_a_row_has_one_too_many_or_one_twice_is_wrong() -> None:
    history = RowHistory()
    rows = history.mint(70_000)
    history.note(1, came=rows[:-1])
    for seen in (rows[:-2], rows, np.append(rows[:-1], rows[5])):
        history.saw(1, seen)
    history.judge()
    assert len(history.wrong) == 3
    assert "lost [69998]" in history.wrong[0]
    assert "extra [69999]" in history.wrong[1]
    assert "1 twice" in history.wrong[2]
