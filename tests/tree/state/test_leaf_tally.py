"""Counting a leaf by its columns is counting its entries one by one."""

from __future__ import annotations

import uuid
from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from pyroaring import BitMap

from rootline.schemas.bytes.leaf_codec import Leaf, LeafContent, decode_leaf, encode_leaf
from rootline.schemas.content_entry import ContentEntry, ContentType, DeletionVector, Status, VersionInfo
from rootline.schemas.root_header import Totals
from rootline.tree.state.aggregates import tally_of_leaf
from rootline.tree.state.totals import Tally, totals_after
from tests.schemas.test_entry_rules import DATA, EQUALITY, LEAF, VECTOR
from tests.support.examples import examples
from tests.tree.tables import DEFINITION

counts = st.integers(1, 5) | st.just(2**62)
infos = st.sampled_from(Status).map(lambda status: VersionInfo(status, 1, 2, 2))


@st.composite
def entries(draw: st.DrawFn) -> list[ContentEntry]:
    """Entries of a data leaf or of a delete leaf, some DELETED, some so great that their sum leaves 64 bits."""
    kinds = draw(st.sampled_from([[DATA], [VECTOR, EQUALITY]]))
    found = []
    for entry in draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=5)):
        change = {"version_info": draw(infos), "record_count": draw(counts), "file_size_in_bytes": draw(counts)}
        if entry is VECTOR:
            change["deletion_vector"] = DeletionVector(4, draw(counts))
        found.append(replace(entry, **change))
    return found


def leaf_of(found: list[ContentEntry]) -> Leaf:
    content = LeafContent.DATA if found[0].content_type is ContentType.DATA else LeafContent.DELETE
    encoded = encode_leaf(found, DEFINITION, leaf_uuid=uuid.UUID(int=1), content=content)
    return decode_leaf(encoded.body, location=encoded.location)


@settings(max_examples=examples(150), deadline=None)
@given(entries(), st.sets(st.integers(0, 5)))
def test_the_tally_of_columns_is_the_tally_of_entries(found: list[ContentEntry], dead: set[int]) -> None:
    one_by_one = Tally()
    for ordinal, entry in enumerate(found):
        if ordinal not in dead and entry.version_info.status is not Status.DELETED:
            one_by_one.count(entry)
    assert tally_of_leaf(leaf_of(found), BitMap(dead)) == one_by_one


@pytest.mark.parametrize("found", [[DATA], [DATA, DATA], [VECTOR, EQUALITY]])
def test_a_leaf_that_is_dead_as_a_whole_counts_for_nothing(found: list[ContentEntry]) -> None:
    leaf = leaf_of(found)
    assert tally_of_leaf(leaf, BitMap(range(len(found)))) == Tally()
    assert tally_of_leaf(leaf.of_row(LEAF), BitMap(range(len(found)))) == Tally()


def test_what_is_taken_away_again_leaves_nothing() -> None:
    some, all_of_it = Tally(), Tally()
    for entry in (DATA, VECTOR, EQUALITY, LEAF):
        some.count(entry)
    all_of_it.take(some)
    assert (all_of_it.data_files, all_of_it.rows, all_of_it.data_bytes) == (1, 10, 100)
    assert (all_of_it.vectors, all_of_it.deleted_rows, all_of_it.equality_rows) == (1, 2, 1)
    assert all_of_it.delete_bytes == 140  # the vector's own 40 bytes, not those of its Puffin file
    all_of_it.take(some, -1)
    assert totals_after(Totals(), all_of_it, Tally()) == Totals()
