"""The order of plans and publications of one change, blocking and awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator

import pytest

from rootline.schemas.errors import OutcomeUnknown
from rootline.schemas.verdict import Verdict, VerdictKind
from rootline.storage.replanning import (
    LEAST_WAIT_S,
    DelayOf,
    Done,
    Patience,
    Publish,
    Replan,
    drive,
    drive_async,
    no_jitter,
    steps,
)

Run = Callable[[Callable[[], "str | None"], Callable[[str], str], DelayOf[str]], "str | None"]


def awaited(plan: Callable[[], str | None], publish: Callable[[str], str], delay_of: DelayOf[str]) -> str | None:
    async def plan_async() -> str | None:
        return plan()

    async def publish_async(planned: str) -> str:
        return publish(planned)

    return asyncio.run(drive_async(plan_async, publish_async, delay_of))


@pytest.fixture(params=[drive, awaited], ids=["blocking", "awaited"])
def run(request: pytest.FixtureRequest) -> Run:
    found: Run = request.param
    return found


def again_while_lost(outcome: str, replans: int) -> float | None:
    return 0.0 if outcome.startswith("lost") else None


def from_list(given: Iterable[str | None]) -> Callable[[], str | None]:
    plans: Iterator[str | None] = iter(given)
    return lambda: next(plans)


def test_a_change_that_lost_is_planned_again_and_its_last_outcome_is_the_answer(run: Run) -> None:
    published: list[str] = []

    def publish(planned: str) -> str:
        published.append(planned)
        return "committed" if planned == "third" else f"lost {planned}"

    assert run(from_list(["first", "second", "third", "fourth"]), publish, again_while_lost) == "committed"
    assert published == ["first", "second", "third"]


def test_nothing_is_published_once_a_plan_finds_nothing_to_change(run: Run) -> None:
    published: list[str] = []

    def publish(planned: str) -> str:
        published.append(planned)
        return "lost"

    assert run(from_list(["first", None, "third"]), publish, again_while_lost) is None
    assert published == ["first"]


def test_after_an_unknown_outcome_no_second_intent_is_planned(run: Run) -> None:
    plans = ["first", "second"]

    def publish(planned: str) -> str:
        raise OutcomeUnknown("verdict-timeout", f"{planned}: no verdict")

    with pytest.raises(OutcomeUnknown, match="first: no verdict"):
        run(lambda: plans.pop(0), publish, again_while_lost)
    assert plans == ["second"]


def test_a_pause_comes_before_the_next_plan_and_counts_the_plans_before_it() -> None:
    driven = steps(lambda outcome, replans: None if outcome == "committed" else 0.5 + replans)
    assert driven.send(None) == Replan(0.0)
    assert driven.send("first") == Publish("first")
    assert driven.send("lost") == Replan(0.5)
    assert driven.send("second") == Publish("second")
    assert driven.send("lost") == Replan(1.5)
    assert driven.send("third") == Publish("third")
    assert driven.send("committed") == Done("committed")


def rejected(code: str) -> Verdict:
    return Verdict(intent_id="a", table="demo.t", kind=VerdictKind.REJECTED, log="x", partition=0, offset=0, code=code)


def test_patience_ends_at_the_deadline_but_a_verdict_is_still_waited_for() -> None:
    now_s = 100.0
    patience = Patience.of(30.0, lambda: now_s, no_jitter)
    assert patience.verdict_wait_s == 30.0
    assert patience.delay_of(rejected("stale-source"), 0) is not None
    assert patience.delay_of(rejected("statistics-missing"), 0) is None
    now_s = 130.0
    assert patience.verdict_wait_s == LEAST_WAIT_S
    assert patience.delay_of(rejected("stale-source"), 0) is None


def test_a_duplicate_is_never_planned_again() -> None:
    patience = Patience(lambda: 0.0, no_jitter)
    duplicate = rejected("stale-source").model_copy(update={"kind": VerdictKind.DUPLICATE})
    assert patience.delay_of(duplicate, 0) is None
