"""One index over all leaves of a table finds what every leaf holds, and follows the leaves."""

from __future__ import annotations

import uuid
from collections.abc import Iterable

import hypothesis.strategies as st
import pyarrow as pa
from hypothesis import given, settings

from rootline.maintenance.file_leaves import leaf_columns
from rootline.schemas.bytes.leaf import place_key
from rootline.schemas.bytes.leaf_codec import LeafContent, decode_leaf, encode_columns
from rootline.schemas.content_entry import ContentType, EntryPlace
from rootline.tree.state.leaf_lookup import HashedKeys, LeafLookup, LocationIndex
from tests.maintenance.table_builder import TableBuilder, definition_of
from tests.support.examples import examples

NAMES = [f"data/{number}.parquet" for number in range(12)]
choices = st.lists(st.sets(st.sampled_from(NAMES), min_size=1), min_size=1, max_size=6)


def leaf_of(number: int, locations: Iterable[str]) -> LeafLookup:
    names = sorted(locations)
    files = pa.table({"location": names, "record_count": [1] * len(names), "file_size_in_bytes": [9] * len(names)})
    columns = leaf_columns(files, definition_of(uuid.UUID(int=1)), 0)
    encoded = encode_columns(columns, leaf_uuid=uuid.UUID(int=number), content=LeafContent.DATA)
    return LeafLookup(decode_leaf(encoded.body, location=encoded.location))


def holders(index: LocationIndex, name: str) -> set[str]:
    return set(index.leaves_of(place_key(EntryPlace(ContentType.DATA, name))))


def check(index: LocationIndex, lookups: dict[str, LeafLookup], held: dict[str, set[str]]) -> None:
    for name in [*NAMES, "data/none.parquet"]:
        expected = {leaf for leaf, names in held.items() if name in names}
        assert holders(index, name) == expected
        for leaf, lookup in lookups.items():
            at = lookup.keys.find(EntryPlace(ContentType.DATA, name))
            assert (at is not None) == (name in held[leaf])
            assert at == lookup.ordinal_of(EntryPlace(ContentType.DATA, name))
    some = ["data/none.parquet", *NAMES]
    assert {some[at] for at in index.among(some)} == set().union(*held.values())


@settings(max_examples=examples(40), deadline=None)
@given(choices, choices, st.data())
def test_an_index_that_followed_its_leaves_is_one_made_anew(
    first: list[set[str]], then: list[set[str]], data: st.DataObject
) -> None:
    before = {lookup.location: (lookup, names) for at, names in enumerate(first) for lookup in [leaf_of(at, names)]}
    index = LocationIndex({leaf: lookup for leaf, (lookup, _) in before.items()})
    if data.draw(st.booleans()):  # else it is built only when its successor asks
        check(index, {leaf: each[0] for leaf, each in before.items()}, {leaf: each[1] for leaf, each in before.items()})
    stays = data.draw(st.sets(st.sampled_from(sorted(before))))
    after = {leaf: each for leaf, each in before.items() if leaf in stays}
    after |= {lookup.location: (lookup, names) for at, names in enumerate(then) for lookup in [leaf_of(50 + at, names)]}
    lookups, held = ({leaf: each[at] for leaf, each in after.items()} for at in (0, 1))
    check(index.advanced(lookups), lookups, held)
    check(index, {leaf: each[0] for leaf, each in before.items()}, {leaf: each[1] for leaf, each in before.items()})


def test_the_same_leaves_have_the_same_index() -> None:
    lookup = leaf_of(1, NAMES)
    index = LocationIndex({lookup.location: lookup})
    assert index.advanced({lookup.location: lookup}) is index


def test_keys_of_one_hash_are_all_candidates() -> None:
    keys = HashedKeys([-1, "x", -2], [5, 6, 7])  # Python's own hashes of -1 and -2 are the same
    assert keys.candidates(-1) == keys.candidates(-2) == [5, 7]
    assert keys.candidates("x") == [6]
    assert keys.candidates("y") == []


async def test_a_table_finds_files_and_vectors_wherever_they_went() -> None:
    table = TableBuilder()
    await table.create()
    await table.append(*range(6))
    await table.delete_rows({1: [0, 5], 4: [7]})
    await table.flush()
    await table.append(*range(6, 9))
    await table.remove(2)
    for number in range(9):
        found = table.state.find(EntryPlace(ContentType.DATA, f"data/{number:06d}.parquet"))
        assert (found is None) == (number == 2)
        assert found is None or (found.leaf is not None) == (number < 6)
        vector = table.state.vector_of(f"data/{number:06d}.parquet")
        assert (vector is not None) == (number in {1, 4})
