"""Whole worlds in virtual time: what must hold, holds; and what is broken on purpose is found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from rootline.client import lake_names as namespaces
from rootline.coordinator.protocol import commit
from rootline.coordinator.protocol.put_rules import Outcome, outcome_of_put
from rootline.coordinator.runtime.assignment.frontier import Frontier
from rootline.maintenance.expiry_plan import Steps, plan_expiry
from rootline.maintenance.limits import ExpiryLimits, SweepLimits
from rootline.ports.intent_feed import Reread
from rootline.ports.object_store import ObjectStore, PutStatus
from rootline.schemas.bytes.root.retained_page import RetainedPage
from rootline.schemas.identifiers import CommitId, NamespaceName
from rootline.schemas.intent import Intent
from rootline.schemas.intent_rules import BEGINNING_KINDS
from rootline.schemas.parts.log import PartitionOffset
from rootline.schemas.root_header import RootHeader
from rootline.storage.metadata import namespaces as namespace_chain
from rootline.storage.metadata.namespaces import NamespaceState
from rootline.tree.commit import decide
from rootline.tree.draft import version_difference
from rootline.tree.draft.draft import Draft
from rootline.tree.parts.header_limits import HeaderLimits
from rootline.workers.jobs import expiry_job
from tests.simulation.simulation import simulate
from tests.support.group_member import GroupMember

pytestmark = pytest.mark.slow
SOMETHING_BROKE = "committed|deleted|live files|twice|order|Finding|liveness|Deadlock|offset|verdict"


@pytest.mark.parametrize("seed", [4, 11])
def test_nothing_is_lost_or_doubled_whatever_fails(seed: int) -> None:
    outcome = simulate(seed, 120)
    assert outcome.committed >= 60
    assert outcome.duplicates > 0, "no writer had to publish again: the world was too calm"


@pytest.mark.parametrize("seed", [4, 21])
def test_nothing_is_lost_or_doubled_when_ledger_and_outcomes_hardly_fit_into_the_header(seed: int) -> None:
    outcome = simulate(seed, 120, limits=HeaderLimits(ledger_bytes=300, outcome_bytes=300))
    assert outcome.committed >= 60
    assert outcome.pages >= 10


@pytest.mark.parametrize("seed", [61, 62])
def test_nothing_is_lost_or_doubled_when_tables_are_parked_and_the_log_forgets_what_the_group_has_passed(
    seed: int,
) -> None:
    outcome = simulate(seed, 120, patience_s=0.5)
    assert outcome.parked > 0
    assert outcome.kills > 0


def test_a_worker_that_compacts_leaves_beside_the_writers_loses_and_doubles_nothing() -> None:
    outcomes = [simulate(seed, 150) for seed in (31, 105)]
    assert sum(outcome.compactions for outcome in outcomes) >= 2
    assert sum(outcome.vector_compactions for outcome in outcomes) >= 1
    assert sum(outcome.encoded for outcome in outcomes) >= 2, "no coordinator had to write leaves itself"
    assert all(outcome.leaves > 0 for outcome in outcomes)


@pytest.mark.parametrize("many", [version_difference.MANY, 2])
def test_tables_that_are_taken_back_beside_writers_and_workers_are_what_the_accepted_intents_make_them(
    many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(version_difference, "MANY", many)  # entries of a leaf that come back in a leaf of their own
    outcome = simulate(1004, 150)
    assert outcome.restores >= 2
    assert outcome.rewrites >= 1
    assert outcome.conversions >= 1
    assert outcome.leaves > 0


def test_versions_that_expire_all_the_time_take_nothing_away_that_anyone_may_read() -> None:
    outcomes = [simulate(seed, 150, expires=True, tags=True) for seed in (1, 4)]
    assert all(outcome.committed >= 60 for outcome in outcomes)
    assert sum(outcome.expiries for outcome in outcomes) >= 6
    assert sum(outcome.tags for outcome in outcomes) >= 10
    assert sum(outcome.removed for outcome in outcomes) >= 20
    assert sum(outcome.read for outcome in outcomes) >= 60, "no reader was in anyone's way"


def test_tables_that_are_dropped_made_again_and_brought_back_are_what_the_accepted_intents_make_them() -> None:
    """Names that become views and tables again among them; some while columns, partitions and orders change."""
    outcomes = [simulate(seed, 150, drops=True) for seed in (8, 9, 10)]
    outcomes += [simulate(5, 150, drops=True, expires=True, evolves=True)]
    outcomes += [simulate(5, 120, drops=True, limits=HeaderLimits(ledger_bytes=300, outcome_bytes=300))]
    assert all(outcome.committed >= 40 for outcome in outcomes)
    assert sum(outcome.drops for outcome in outcomes) >= 10
    assert sum(outcome.creates for outcome in outcomes) - 3 * len(outcomes) >= 3, "no name was used twice"
    assert sum(outcome.restores for outcome in outcomes) >= 5
    assert sum(outcome.replaces for outcome in outcomes) >= 10
    assert sum(outcome.views for outcome in outcomes) >= 5
    assert sum(outcome.view_changes for outcome in outcomes) >= 5
    assert outcomes[3].changes >= 10


def test_jobs_of_clients_never_go_back_and_each_snapshot_of_a_client_is_in_one_root() -> None:
    outcomes = [simulate(1, 120, clients=True), simulate(2, 150, clients=True, drops=True)]
    outcomes += [simulate(3, 100, clients=True, limits=HeaderLimits(ledger_bytes=300, outcome_bytes=300))]
    assert sum(outcome.clients for outcome in outcomes) >= 40
    assert sum(outcome.moved for outcome in outcomes) >= 10
    assert all(outcome.kills > 0 for outcome in outcomes)


def test_a_coordinator_that_lets_a_job_go_back_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decide, "check_progress", lambda *_: None)
    with pytest.raises(AssertionError, match="unseen by"):
        simulate(2, 120, clients=True)


def test_rewrites_beside_writers_never_share_a_root_with_them() -> None:
    """The coordinators check each root before its PUT, and `judge` checks all that are left."""
    outcomes = [simulate(seed, 100) for seed in (3, 12, 17)]
    assert sum(outcome.rewrites for outcome in outcomes) >= 3
    assert all(outcome.committed >= 50 for outcome in outcomes)


def test_tables_whose_columns_partitions_and_orders_change_are_what_the_accepted_changes_make_them() -> None:
    outcome = simulate(2, 150, evolves=True)
    assert outcome.changes >= 15
    assert outcome.specs >= 3
    assert outcome.compactions >= 1
    assert outcome.conversions >= 1
    assert outcome.rewrites >= 1
    assert outcome.restores >= 1


def test_what_is_swept_all_the_time_was_needed_by_no_one() -> None:
    """Behind kills, late removals and cut-off readers: `judge` reads all that is left."""
    outcome = simulate(24, 200, expires=True)
    assert outcome.committed >= 120
    assert outcome.sweeps >= 3
    assert outcome.swept >= 3


def test_namespaces_that_change_while_tables_come_and_go_in_them_are_what_their_clients_made_of_them() -> None:
    outcome = simulate(11, 120, drops=True, namespaces=True)
    assert outcome.drops >= 1
    assert outcome.namespaces >= 10


def test_the_same_seed_gives_the_same_trace_even_if_roots_and_leaves_are_decoded_once() -> None:
    once, always = simulate(31, 60, keep_trace=True), simulate(31, 60, keep_trace=True, decode_once=False)
    assert once.trace_lines == always.trace_lines
    assert once.trace_digest == always.trace_digest
    assert once.leaves == always.leaves > 0
    assert simulate(6, 20).trace_digest != simulate(5, 20).trace_digest


def test_a_coordinator_that_takes_409_for_its_own_success_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(answer: PutStatus) -> Outcome:
        return Outcome.LANDED if answer is PutStatus.EXISTS else outcome_of_put(answer)

    monkeypatch.setattr(commit, "outcome_of_put", wrong)
    with pytest.raises(BaseException, match=SOMETHING_BROKE):
        _until_it_fails()


def test_a_coordinator_that_takes_any_root_it_reads_back_for_its_own_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(found: CommitId | None, own: CommitId) -> Outcome:
        return Outcome.ABSENT if found is None else Outcome.LANDED

    monkeypatch.setattr(commit, "outcome_of_read_back", wrong)
    with pytest.raises(BaseException, match=SOMETHING_BROKE):
        _until_it_fails()


def test_a_coordinator_that_has_the_group_remember_what_it_has_read_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgets(*_: object) -> None:
        """What tables have in hand."""

    monkeypatch.setattr(Frontier, "handed_over", forgets)
    with pytest.raises(BaseException, match="no acknowledged verdict"):
        _until_it_fails()


def test_a_reader_of_a_table_that_is_behind_and_stops_one_record_early_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right = GroupMember.read_again

    async def skips(self: GroupMember, reader: str, start: PartitionOffset, *, limit: int) -> Reread:
        found = await right(self, reader, start, limit=limit)
        return Reread(found.records[:-1], found.next_offset) if len(found.records) > 1 else found

    monkeypatch.setattr(GroupMember, "read_again", skips)
    with pytest.raises(BaseException, match=SOMETHING_BROKE):
        _until_it_fails()


def test_a_sweep_that_does_not_wait_for_scans_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = SweepLimits.of_properties

    def wrong(properties: Mapping[str, str], records_s: int, dead_letters_s: int = 0) -> SweepLimits:
        return replace(right(properties, records_s, dead_letters_s), scan_retention_ms=0)

    monkeypatch.setattr(SweepLimits, "of_properties", wrong)
    with pytest.raises(AssertionError, match="after a reader could plan to read it"):
        simulate(29, 150, expires=True)


def test_a_worker_that_removes_roots_at_once_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = ExpiryLimits.of_properties

    def wrong(properties: Mapping[str, str], *, every_commits: int = 500) -> ExpiryLimits:
        return replace(right(properties, every_commits=every_commits), root_retention_s=0)

    monkeypatch.setattr(ExpiryLimits, "of_properties", wrong)
    with pytest.raises(AssertionError, match="after a reader could plan to read it"):
        simulate(8, 150, expires=True)


def test_a_worker_that_lets_versions_go_that_have_a_tag_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(header: RootHeader, kept: RetainedPage | None, limits: ExpiryLimits, **more: Any) -> Steps:
        return plan_expiry(replace(header, tags={}), kept, limits, **more)

    monkeypatch.setattr(expiry_job, "plan_expiry", wrong)
    with pytest.raises(AssertionError, match="have these tags"):
        simulate(1, 150, expires=True, tags=True)


def test_a_client_that_drops_a_namespace_with_a_table_in_it_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def wrong(_store: ObjectStore, _namespace: NamespaceName) -> None:
        """There is nothing in it."""

    monkeypatch.setattr(namespaces, "name_inside", wrong)
    with pytest.raises(AssertionError, match="were in it all the time"):
        simulate(11, 60, namespaces=True)


def test_a_client_that_loses_what_others_have_changed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = namespace_chain.read_namespace

    async def wrong(store: ObjectStore, namespace: NamespaceName) -> NamespaceState:
        return replace(await right(store, namespace), properties={})

    monkeypatch.setattr(namespace_chain, "read_namespace", wrong)
    with pytest.raises(AssertionError, match="a change of properties was lost"):
        simulate(11, 60, namespaces=True)


def test_a_table_that_takes_what_was_meant_for_one_that_was_dropped_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = decide.ledger_applies

    def wrong(draft: Draft, intent: Intent) -> bool:
        return right(draft, intent) if intent.kind in BEGINNING_KINDS else True

    monkeypatch.setattr(decide, "ledger_applies", wrong)
    with pytest.raises(AssertionError, match="took it"):
        simulate(9, 150, drops=True)


def test_a_table_that_takes_what_was_made_before_it_was_replaced_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(_draft: Draft, _intent: Intent) -> None:
        """Any schema will do."""

    monkeypatch.setattr(decide, "check_made_for_schema", wrong)
    with pytest.raises(AssertionError, match="before the table was replaced"):
        simulate(7, 150, drops=True)


def _until_it_fails() -> None:
    for seed in range(1, 13):
        simulate(seed, 80)
