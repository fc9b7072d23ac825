"""Random sequences of every kind, in random batches, against the model; and against themselves one by one."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from rootline.maintenance.expiry_plan import Steps, plan_expiry
from rootline.maintenance.limits import ExpiryLimits
from rootline.schemas.bytes.root.retained_page import RetainedPage
from rootline.schemas.root_header import RootHeader
from rootline.tree.commit import decide
from rootline.tree.intents import versions as expiry
from tests.support.examples import examples
from tests.tree import kept_pages
from tests.tree.drawn_plans import Draw, draws, late_readers, of_clients, of_names, of_tags
from tests.tree.range_changes import check_every_range
from tests.tree.reference_trial import tried
from tests.tree.tables import Lake

EXAMPLES = examples(200)
"""Of about sixteen intents each."""


SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]


@settings(deadline=None, max_examples=EXAMPLES, suppress_health_check=SLOW)
@given(st.lists(of_names, min_size=12, max_size=26))
def test_names_that_are_dropped_taken_again_and_replaced_do_what_the_model_does(sequence: list[Draw]) -> None:
    try_all(sequence)


@settings(deadline=None, max_examples=EXAMPLES, suppress_health_check=SLOW)
@given(st.lists(draws, min_size=4, max_size=30))
def test_batches_do_what_the_model_does_and_what_their_intents_do_one_by_one(sequence: list[Draw]) -> None:
    try_all(sequence)


def no_rule(*_: object) -> None:
    """Whatever the intent is."""


def try_all(sequence: list[Draw]) -> None:
    trial = tried(sequence)
    check_every_range(trial.batched)
    if trial.batched.bodies:
        assert live_places(trial.batched.reloaded_lake()) == live_places(trial.batched)


@settings(deadline=None, max_examples=examples(150), suppress_health_check=SLOW)
@given(st.lists(late_readers, min_size=12, max_size=24))
def test_serializable_intents_see_what_came_and_what_left_since_they_read(sequence: list[Draw]) -> None:
    tried(sequence)


@settings(deadline=None, max_examples=examples(100), suppress_health_check=SLOW)
@given(st.lists(of_tags, min_size=10, max_size=24))
def test_versions_that_have_a_tag_can_be_read_whatever_expires(sequence: list[Draw]) -> None:
    tried(sequence)


@settings(deadline=None, max_examples=examples(100), suppress_health_check=SLOW)
@given(st.lists(of_clients, min_size=8, max_size=20))
def test_jobs_of_clients_move_as_in_the_model_whatever_becomes_of_the_table(sequence: list[Draw]) -> None:
    tried(sequence)


@pytest.mark.parametrize(("name", "broken"), [("check_progress", no_rule), ("refusal_of", no_rule)])
def test_a_job_that_moves_behind_its_client_and_a_refused_request_that_is_committed_are_found(
    monkeypatch: pytest.MonkeyPatch, name: str, broken: object
) -> None:
    monkeypatch.setattr(decide, name, broken)

    @settings(deadline=None, max_examples=60, derandomize=True, database=None, phases=[Phase.generate])
    @given(st.lists(of_clients, min_size=8, max_size=20))
    def until_it_fails(sequence: list[Draw]) -> None:
        tried(sequence)

    with pytest.raises((AssertionError, ExceptionGroup)):
        until_it_fails()


def lets_tags_go(header: RootHeader, kept: RetainedPage | None, limits: ExpiryLimits, *, now: bool) -> Steps:
    """A plan of a worker who does not look at tags."""
    return plan_expiry(replace(header, tags={}), kept, limits, now=now)


@pytest.mark.parametrize(
    ("module", "name", "broken"), [(kept_pages, "plan_expiry", lets_tags_go), (expiry, "_check_tags", no_rule)]
)
def test_an_expiry_that_lets_versions_go_that_have_a_tag_is_found(
    module: ModuleType, name: str, broken: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, name, broken)

    @settings(deadline=None, max_examples=30, derandomize=True, database=None, phases=[Phase.generate])
    @given(st.lists(of_tags, min_size=10, max_size=24))
    def until_it_fails(sequence: list[Draw]) -> None:
        tried(sequence)

    with pytest.raises((AssertionError, ExceptionGroup)):
        until_it_fails()


def live_places(lake: Lake) -> set[object]:
    return set(lake.live())
