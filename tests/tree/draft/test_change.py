"""Laws of changes, and of the draft that takes them in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings
from pyroaring import BitMap

from rootline.schemas.bytes.root.location_pages import CONDEMNED_PAGES
from rootline.schemas.bytes.root.root_codec import Row
from rootline.schemas.content_entry import ContentEntry, ContentType, EntryPlace, Status
from rootline.schemas.errors import Internal
from rootline.schemas.identifiers import SequenceNumber, Version
from rootline.schemas.intent import IntentKind
from rootline.schemas.parts.locations import LOCATIONS, Locations
from rootline.schemas.parts.tags import TAGS
from rootline.tree.draft.batch import FetchedObjects
from rootline.tree.draft.change import (
    ORDER,
    Add,
    Change,
    Edit,
    Effect,
    Merge,
    MoveOrdinals,
    MoveRows,
    Reattach,
    Remove,
    RemoveOrdinals,
    Replace,
    ReplaceTable,
    RestoreVersion,
    SetPart,
    ShowPrior,
    StoreVector,
)
from rootline.tree.draft.draft import Draft
from rootline.tree.intents.append import append as judge_append
from rootline.tree.state.totals import Tally, totals_of
from tests.support.examples import examples
from tests.tree.drawn_plans import Draw, draws_of
from tests.tree.reference_trial import tried
from tests.tree.tables import append, data_file, new_lake

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
BASE = new_lake(append("base", *(data_file(f"base{at}") for at in range(3)))).head
CHANGES = draws_of(
    *(IntentKind.APPEND, IntentKind.ROW_DELTA) * 4,
    *(IntentKind.REWRITE, IntentKind.CONVERT_EQUALITY_DELETES) * 3,
    *(IntentKind.FLUSH, IntentKind.COMPACT_LEAVES, IntentKind.REMOVE, IntentKind.OVERWRITE),
    *(IntentKind.RESTORE, IntentKind.REPLACE, IntentKind.ALTER),
)
EDITS = st.sampled_from(
    (
        Add(()),
        Merge(()),
        MoveOrdinals("leaf", BitMap()),
        MoveRows(()),
        Reattach("leaf", None),
        Remove(()),
        RemoveOrdinals("leaf", BitMap()),
        Replace((), ()),
        ReplaceTable(1),
        RestoreVersion(Version(1)),
        SetPart(TAGS, {}),
        SetPart(LOCATIONS, Locations(), {CONDEMNED_PAGES: ()}),
        ShowPrior(()),
    )
)


@given(st.lists(EDITS, max_size=6))
def test_a_change_refuses_edits_out_of_order(edits: list[Edit]) -> None:
    ranks = [ORDER.index(type(edit)) for edit in edits]
    if all(one <= other for one, other in pairwise(ranks)):
        assert Change(Effect.NOTHING, tuple(edits)).edits == tuple(edits)
        return
    with pytest.raises(Internal, match="list its edits in the order"):
        Change(Effect.NOTHING, tuple(edits))


@given(st.integers(1, 5), st.data())
def test_what_a_batch_adds_and_removes_leaves_no_trace(files: int, data: st.DataObject) -> None:
    draft, other = Draft.on(BASE), Draft.on(BASE)
    names = [f"new{at}" for at in range(files)]
    kept = data.draw(st.lists(st.sampled_from(names), unique=True))
    add(draft, names)
    add(other, kept)
    removed = [draft.find(data_place(name)) for name in names if name not in kept]
    draft.accept(Change.of(Effect.REMOVES, Remove(tuple(live for live in removed if live is not None))))
    assert set(draft.rows.new_rows) == set(other.rows.new_rows) == {data_place(name) for name in kept}
    assert not (draft.rows.removed)
    assert not (draft.rows.rewritten_removed)
    assert not draft.rows.moved
    assert draft.counts.removed == Tally()
    assert draft.counts.added == other.counts.added
    assert draft.totals == other.totals


@settings(deadline=None, max_examples=examples(50), suppress_health_check=SLOW)
@given(st.lists(CHANGES, min_size=24, max_size=36))
def test_each_change_is_counted_as_a_recount_counts_it_and_names_all_that_arrives(sequence: list[Draw]) -> None:
    def check(before: set[str], draft: Draft, change: Change) -> None:
        assert draft.totals == totals_of(live_entries(draft))
        assert draft.counts.data_bytes == draft.totals.data_bytes
        after, arriving = live_locations(draft), set(change.arriving())
        assert arriving <= after
        assert arriving - before == after - before
        assert set(change.arriving_files()) <= arriving

    with each_change(check):
        tried(sequence)


def add(draft: Draft, names: list[str]) -> None:
    intent = append("new", *(data_file(name) for name in names))
    if names:
        change = judge_append(draft, intent, FetchedObjects())
        assert isinstance(change, Change)
        draft.accept(change)


def data_place(name: str) -> EntryPlace:
    return EntryPlace(ContentType.DATA, data_file(name).location)


@contextmanager
def each_change(check: Callable[[set[str], Draft, Change], None]) -> Iterator[None]:
    """Check the draft after each change that it accepts. `check` is given the locations that were live before."""
    accept, accept_row = Draft.accept, Draft.accept_row

    def checked(draft: Draft, change: Change) -> SequenceNumber:
        before = live_locations(draft)
        number = accept(draft, change)
        check(before, draft, change)
        return number

    def checked_row(draft: Draft, row: Row) -> SequenceNumber:
        before = live_locations(draft)
        number = accept_row(draft, row)
        check(before, draft, Change(Effect.ADDS, (Add((row,)),)))
        return number

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Draft, "accept", checked)
        patch.setattr(Draft, "accept_row", checked_row)
        yield


def live_entries(draft: Draft) -> Iterator[ContentEntry]:
    """The live entries of a draft, one by one, and its leaves."""
    yield from (live.entry for live in draft.live_rows())
    yield from draft.in_leaves.rows()
    for location in draft.in_leaves.locations():
        lookup = draft.in_leaves.lookup(location)
        assert lookup is not None
        for ordinal, entry in enumerate(lookup.leaf.entries()):
            if entry.version_info.status is not Status.DELETED and not draft.in_leaves.is_dead(location, ordinal):
                yield entry


def live_locations(draft: Draft) -> set[str]:
    """The locations of what a draft has, apart from vectors that still have no place."""
    unplaced = {vector.entry.place for vector in draft.merged.values()}
    found = {entry.location for entry in live_entries(draft) if entry.place not in unplaced}
    return found | {edit.row.entry.location for edit in draft.accepted(StoreVector)}
