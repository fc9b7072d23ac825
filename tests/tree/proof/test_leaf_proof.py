"""What is proven over columns is what the same rules say file by file."""

from __future__ import annotations

import uuid
from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from pyroaring import BitMap

from rootline.schemas.bytes.leaf_codec import Leaf, LeafContent, decode_leaf, encode_leaf
from rootline.schemas.bytes.leaf_columns import Inherited
from rootline.schemas.bytes.root.entry_codec import EntryCodec
from rootline.schemas.content_entry import (
    ContentEntry,
    ContentStats,
    ContentType,
    DeletionVector,
    FieldStatistics,
    FileFormat,
    Status,
    VersionInfo,
)
from rootline.schemas.errors import Invalid
from rootline.schemas.intent_rules import check_location
from rootline.tree.proof.file_proof import examined_statistics
from rootline.tree.proof.leaf_proof import prove_leaf
from rootline.tree.state.aggregates import tally_of_leaf
from rootline.tree.state.totals import Tally
from tests.support.examples import examples
from tests.tree.tables import CARRIER, CODEC, DEFINITION, DELAY, ID, data_file, new_entry

ROWS = 10
LENT = Inherited(7, 3, 3, 100)
counts = st.one_of(st.none(), st.integers(-1, ROWS + 2))


def statistics(bounds: st.SearchStrategy[object]) -> st.SearchStrategy[FieldStatistics]:
    return st.builds(
        FieldStatistics,
        st.one_of(st.none(), bounds),
        st.one_of(st.none(), bounds),
        st.one_of(st.none(), st.booleans()),
        counts,
        counts,
        counts,
        counts,
        counts,
    )


stats = st.fixed_dictionaries(
    {},
    optional={
        ID: statistics(st.integers(-2, 2)),
        CARRIER: statistics(st.sampled_from(["", "AA", "UA", "é"])),
        DELAY: statistics(st.sampled_from([float("nan"), -0.0, 0.0, 1.5, float("inf")])),
    },
)


def leaf_of(*entries: ContentEntry) -> Leaf:
    content = LeafContent.DATA if entries[0].content_type is ContentType.DATA else LeafContent.DELETE
    leaf = encode_leaf(entries, DEFINITION, leaf_uuid=uuid.UUID(int=1), content=content)
    return decode_leaf(leaf.body, location=leaf.location)


def refusal_of(found: ContentStats) -> Invalid | None:
    """Why an intent may not add a file with these statistics."""
    try:
        file = data_file("a", rows=ROWS, content_stats=CODEC.statistics.encode(found))
        examined_statistics(file, DEFINITION, EntryCodec.of_definition(DEFINITION))
    except Invalid as error:
        return error
    return None


@settings(deadline=None, max_examples=examples(300))
@given(stats)
def test_statistics_pass_in_a_leaf_where_they_pass_in_an_intent(found: ContentStats) -> None:
    file = replace(new_entry(data_file("a", rows=ROWS)), content_stats=found)
    sound = new_entry(data_file("b"))
    assert (prove_leaf(leaf_of(sound, file), DEFINITION).fault is None) == (refusal_of(found) is None)


few = st.one_of(st.none(), st.integers(0, ROWS + 2))
numbers = st.one_of(st.none(), st.integers(-2, 2))
no_negative_count = st.builds(FieldStatistics, numbers, numbers, st.none(), few, few, few, few, few)


@settings(deadline=None, max_examples=examples(200))
@given(no_negative_count, no_negative_count)
def test_the_same_rule_is_named_in_the_same_words(of_id: FieldStatistics, of_carrier: FieldStatistics) -> None:
    upper = None if of_carrier.upper_bound is None else "AA" if of_carrier.upper_bound >= 0 else "UA"  # type: ignore[operator]
    found = {ID: of_id, CARRIER: replace(of_carrier, lower_bound="AA", upper_bound=upper)}
    file = replace(new_entry(data_file("a", rows=ROWS)), content_stats=found)
    fault, alone = prove_leaf(leaf_of(file), DEFINITION).fault, refusal_of(found)
    assert (fault is None) == (alone is None)
    if fault is not None and alone is not None:
        assert fault.code == alone.code
        rule = fault.message.partition("): ")[2]
        assert rule
        assert rule in alone.message


@settings(deadline=None, max_examples=examples(300))
@given(
    st.text(alphabet=st.sampled_from("ab/.% \\:?#é\n~2e"), min_size=1, max_size=12),
    st.sampled_from(["", "/a/", "b:/"]),
    st.sampled_from([(), ("/a/", "b:/")]),
)
def test_locations_pass_in_a_leaf_where_they_pass_in_an_intent(
    name: str, folder: str, prefixes: tuple[str, ...]
) -> None:
    location = folder + name
    try:
        check_location(location, prefixes=prefixes)
        passes = not location.startswith(("metadata/", "export/"))
    except Invalid:
        passes = False
    leaf = leaf_of(new_entry(data_file("b")), replace(new_entry(data_file("a")), location=location))
    proof = prove_leaf(leaf, DEFINITION, prefixes)
    assert (proof.fault is None) == passes
    alone = prove_leaf(leaf, DEFINITION)
    assert not alone.is_under(DEFINITION, prefixes) or str(alone.fault) == str(proof.fault)


def counted(entries: list[ContentEntry], dead: BitMap) -> Tally:
    tally = Tally()
    for ordinal, entry in enumerate(entries):
        if ordinal not in dead and entry.version_info.status is not Status.DELETED:
            tally.count(entry)
    return tally


def mixed() -> list[ContentEntry]:
    """Data files, one of them DELETED."""
    files = [new_entry(data_file(name, rows=rows)) for name, rows in (("a", 3), ("b", 5), ("c", 7))]
    return [*files, replace(files[0], location="data/d.parquet", version_info=VersionInfo(Status.DELETED, 1, 1, 1))]


def deletes() -> list[ContentEntry]:
    vector = ContentEntry(
        ContentType.POSITION_DELETE,
        "data/v.puffin",
        FileFormat.PUFFIN,
        VersionInfo(Status.ADDED),
        0,
        4,
        200,
        DeletionVector(4, 60),
        referenced_file="data/a.parquet",
        content_stats={CARRIER: FieldStatistics("UA", "UA")},
    )
    equality = replace(new_entry(data_file("e", rows=2)), content_type=ContentType.EQUALITY_DELETE, equality_ids=(ID,))
    return [vector, equality, replace(equality, location="data/f.parquet")]


@pytest.mark.parametrize("entries", [mixed(), deletes()], ids=["data", "deletes"])
@pytest.mark.parametrize("dead", [BitMap(), BitMap([1]), BitMap([0, 1, 2])])
def test_the_tally_of_a_leaf_is_that_of_its_entries(entries: list[ContentEntry], dead: BitMap) -> None:
    assert tally_of_leaf(leaf_of(*entries), dead) == counted(entries, dead)


def test_row_ids_count_on_over_entries_without_one_and_leave_deleted_ones_out() -> None:
    explicit = replace(
        new_entry(data_file("x", rows=2)), first_row_id=5, version_info=VersionInfo(Status.EXISTING, 1, 1, 1)
    )
    leaf = leaf_of(mixed()[0], explicit, mixed()[3], *mixed()[1:3])
    ids = [entry.first_row_id for entry in leaf.inheriting(LENT).entries()]
    assert ids == [100, 5, None, 103, 108]


def test_only_added_entries_inherit_numbers_and_columns_say_the_same_as_rows() -> None:
    leaf = leaf_of(*mixed()).inheriting(LENT)
    numbers = [entry.version_info for entry in leaf.entries()]
    assert numbers == [VersionInfo(Status.ADDED, 7, 3, 3)] * 3 + [VersionInfo(Status.DELETED, 1, 1, 1)]
    columns = leaf.columns(["version_info", "first_row_id"]).to_pylist()
    assert [row["version_info"]["sequence_number"] for row in columns] == [3, 3, 3, 1]
    assert [row["first_row_id"] for row in columns] == [100, 103, 108, None]
    only = leaf.columns(["version_info.sequence_number"]).to_pylist()
    assert [row["version_info"]["sequence_number"] for row in only] == [3, 3, 3, 1]
    assert leaf.entry(1) == leaf.entries_at([1])[0] == list(leaf.entries())[1]


def test_a_leaf_under_its_row_stays_the_same_leaf() -> None:
    leaf = leaf_of(*mixed()).inheriting(LENT)
    assert leaf.inheriting(LENT) is leaf
    assert leaf.inheriting(LENT._replace(sequence_number=4)) is not leaf
