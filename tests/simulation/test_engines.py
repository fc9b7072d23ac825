"""Worlds whose tables are also written by engines and jobs, through REST catalogs that are killed at any await."""

from __future__ import annotations

import pytest

from rootline.catalog.client_snapshots import EARLIER_MAX
from rootline.catalog.table_metadata import VERSION
from tests.simulation.engines import Heard, oldest_with_commits
from tests.simulation.simulation import Outcome, simulate

pytestmark = pytest.mark.slow


def heard(outcome: Outcome) -> dict[Heard, int]:
    """How many appends ended in which way."""
    return {each: sum(append.heard is each for append in outcome.appends) for each in Heard}


def test_an_unlisted_commit_is_missed_only_among_those_that_an_export_has_room_for() -> None:
    newest = EARLIER_MAX + 10
    chain = [
        {"snapshot-id": 1_000 + at, "parent-snapshot-id": 999 + at, "summary": {VERSION: str(at)}}
        for at in range(5, newest + 1)
    ]
    beside = [{"snapshot-id": at, "summary": {VERSION: str(at)}} for at in range(1, newest + 1)]
    few = {"current-snapshot-id": 1_000 + newest, "snapshots": [*beside[20:], *chain]}
    full = {"current-snapshot-id": 1_000 + newest, "snapshots": [*beside[9:], *chain]}
    assert oldest_with_commits(few) == 5, "there is room, so every commit of the chain is listed"
    assert oldest_with_commits(full) == 11, "others of version 10 may be among those without room"
    assert oldest_with_commits({"current-snapshot-id": -1}) == 0


@pytest.mark.parametrize("seed", [11, 6])
def test_engines_lose_and_double_nothing_and_delete_no_file_that_a_root_names(seed: int) -> None:
    outcome = simulate(seed, 40, engines=6)
    assert heard(outcome)[Heard.DONE] >= 15
    assert outcome.catalog_kills >= 1


def test_engines_delete_no_file_of_a_table_that_is_dropped_replaced_and_brought_back_meanwhile() -> None:
    outcome = simulate(3, 40, engines=6, drops=True)
    assert heard(outcome)[Heard.DONE] >= 8
    assert outcome.drops >= 1


def test_engines_lose_nothing_while_versions_expire_and_files_are_swept_all_the_time() -> None:
    outcome = simulate(7, 40, engines=6, expires=True)
    assert heard(outcome)[Heard.DONE] >= 10
    assert outcome.expiries >= 1


@pytest.mark.parametrize("seed", [151, 152])
def test_jobs_that_die_and_come_back_commit_each_checkpoint_epoch_and_event_once(seed: int) -> None:
    outcome = simulate(seed, 60, jobs=6)
    assert heard(outcome)[Heard.DONE] >= 15
    assert heard(outcome)[Heard.UNKNOWN] >= 1


@pytest.mark.parametrize("seed", [22])
def test_a_list_of_a_stale_parent_and_one_without_its_removal_add_no_rows_but_the_engines_own(seed: int) -> None:
    outcome = simulate(seed, 60, engines=8)
    assert any(409 in append.answers for append in outcome.appends)
    assert any(append.heard is Heard.REFUSED and append.removes for append in outcome.appends)


def test_the_same_seed_gives_the_same_trace_with_engines_and_jobs() -> None:
    first, again = (simulate(5, 18, engines=3, jobs=3, keep_trace=True) for _ in range(2))
    assert first.trace_lines == again.trace_lines
