"""When a rejected change is planned anew."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rootline.schemas.errors import Invalid
from rootline.storage.replanning import REPLANS_MAX, replan_delay_s

STALE = Invalid("stale-source", "data/a.parquet: another vector")


def test_a_lost_race_is_planned_anew() -> None:
    assert replan_delay_s(STALE, 0, 0.5, 30.0) is not None


def test_a_rejection_that_would_come_again_stands() -> None:
    assert replan_delay_s(Invalid("statistics-missing", "x"), 0, 0.5, 30.0) is None


def test_after_the_last_replan_the_rejection_stands() -> None:
    assert replan_delay_s(STALE, REPLANS_MAX, 0.5, 30.0) is None


def test_a_change_that_has_lost_often_is_planned_at_once() -> None:
    """Otherwise a writer that never pauses, because it wins, would win always."""
    pauses = [replan_delay_s(STALE, replans, 0.999, 30.0) or 0.0 for replans in range(REPLANS_MAX)]
    assert pauses[0] < 0.05, "one conflict is planned again soon"
    longest = pauses.index(max(pauses))
    assert pauses[longest:] == sorted(pauses[longest:], reverse=True)
    assert sum(pauses[:20]) < 2.0
    assert max(pauses[20:]) < 0.005


def test_the_rest_of_a_short_time_is_used() -> None:
    assert replan_delay_s(STALE, 2, 0.5, 0.2) == 0.1
    assert replan_delay_s(STALE, 2, 0.5, 0.0) is None


@given(replans=st.integers(0, REPLANS_MAX - 1), jitter=st.floats(0, 0.999), rest_s=st.floats(0, 60))
def test_a_wait_never_passes_the_callers_deadline(replans: int, jitter: float, rest_s: float) -> None:
    delay_s = replan_delay_s(STALE, replans, jitter, rest_s)
    assert delay_s is None or 0 < delay_s < max(rest_s, 1e-12)
