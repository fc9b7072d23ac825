"""What an answer to a conditional PUT proves."""

from __future__ import annotations

import pytest

from rootline.coordinator.protocol.put_rules import (
    CONFIRMED_FOR_MS,
    Outcome,
    is_confirmed,
    outcome_of_put,
    outcome_of_read_back,
)
from rootline.maintenance.limits import ROOT_RETENTION_S_MIN
from rootline.ports.object_store import PutStatus
from rootline.schemas.identifiers import CommitId


def test_only_a_created_answer_means_landed() -> None:
    outcomes = {answer: outcome_of_put(answer) for answer in PutStatus}
    assert outcomes == {
        PutStatus.CREATED: Outcome.LANDED,
        PutStatus.EXISTS: Outcome.UNKNOWN,
        PutStatus.NO_ANSWER: Outcome.UNKNOWN,
        PutStatus.STALE: Outcome.LOST,
    }


@pytest.mark.parametrize(
    ("found", "outcome"),
    [("own", Outcome.LANDED), ("another's", Outcome.LOST), (None, Outcome.ABSENT)],
)
def test_reading_back_tells_whose_root_it_is(found: str | None, outcome: Outcome) -> None:
    assert outcome_of_read_back(None if found is None else CommitId(found), CommitId("own")) is outcome


def test_an_answer_confirms_only_while_no_expiry_can_have_come_in_between() -> None:
    assert is_confirmed(1_000, 1_000 + CONFIRMED_FOR_MS - 1)
    assert not is_confirmed(1_000, 1_000 + CONFIRMED_FOR_MS)
    assert not is_confirmed(None, 5)


def test_a_head_is_confirmed_for_half_of_the_shortest_time_that_a_root_is_kept() -> None:
    """The other half is for what a coordinator does between the answer and the next PUT."""
    assert CONFIRMED_FOR_MS == 300_000
    assert 2 * CONFIRMED_FOR_MS <= ROOT_RETENTION_S_MIN * 1000


def test_a_store_without_dates_confirms_by_itself() -> None:
    assert is_confirmed(None, None)


def test_an_answer_without_a_date_from_a_store_that_has_dates_confirms_nothing() -> None:
    assert not is_confirmed(7, None)
