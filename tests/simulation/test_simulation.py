"""Whole worlds in virtual time: what must hold, holds; and what is broken on purpose is found."""

from __future__ import annotations

import pytest

from rootline.coordinator.protocol import machine_handlers
from rootline.coordinator.protocol.put_rules import Outcome, outcome_of_put
from rootline.ports.object_store import PutAnswer
from rootline.schemas.identifiers import CommitId
from tests.simulation.simulation import simulate

pytestmark = pytest.mark.slow
SOMETHING_BROKE = "committed|deleted|live files|twice|order|Finding|liveness|Deadlock|offset"


@pytest.mark.parametrize("seed", [4, 11, 12, 13])
def test_nothing_is_lost_or_doubled_whatever_fails(seed: int) -> None:
    outcome = simulate(seed, 120)
    assert outcome.committed >= 60
    assert outcome.duplicates > 0, "no writer had to publish again: the world was too calm"


def test_the_same_seed_gives_the_same_trace() -> None:
    first, second = simulate(5, 60, keep_trace=True), simulate(5, 60, keep_trace=True)
    assert first.trace_lines == second.trace_lines
    assert first.trace_digest == second.trace_digest
    assert simulate(6, 60).trace_digest != first.trace_digest


def test_a_coordinator_that_takes_409_for_its_own_success_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(answer: PutAnswer) -> Outcome:
        return Outcome.LANDED if answer is PutAnswer.EXISTS else outcome_of_put(answer)

    monkeypatch.setattr(machine_handlers, "outcome_of_put", wrong)
    with pytest.raises(BaseException, match=SOMETHING_BROKE):
        _until_it_fails()


def test_a_coordinator_that_takes_any_root_it_reads_back_for_its_own_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(found: CommitId | None, own: CommitId) -> Outcome:
        return Outcome.ABSENT if found is None else Outcome.LANDED

    monkeypatch.setattr(machine_handlers, "outcome_of_read_back", wrong)
    with pytest.raises(BaseException, match=SOMETHING_BROKE):
        _until_it_fails()


def _until_it_fails() -> None:
    for seed in range(1, 6):
        simulate(seed, 80)
