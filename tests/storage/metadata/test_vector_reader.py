"""The manifest vectors of a root that are in Puffin files: each file read once, every row proven."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import pytest
from pyroaring import BitMap, BitMap64

from rootline.adapters.memory import MemoryObjectStore
from rootline.ports.object_store import ObjectStore, StoredObject
from rootline.schemas.bytes.vector_codec import encode_vector
from rootline.schemas.content_entry import ContentEntry, DeletionVector, Status
from rootline.schemas.errors import Corrupt
from rootline.schemas.identifiers import ObjectKey
from rootline.schemas.object_keys import key_of
from rootline.storage.metadata.object_reader import read_stored_manifest_vectors
from rootline.storage.metadata.scan_loader import read_root_vectors as read_live
from rootline.storage.metadata.table_loader import read_manifest_vectors
from tests.storage.metadata.test_readers import file_of, new_table
from tests.storage.stored_tables import TABLE, StoredTable

FILE: Final = "metadata/vectors/v.puffin"
FIRST, SECOND = encode_vector(BitMap64([0, 2])), encode_vector(BitMap64([1]))


class CountingStore(MemoryObjectStore):
    """A store whose reads are counted."""

    def __init__(self) -> None:
        super().__init__()
        self.keys: list[str] = []

    async def get(self, key: ObjectKey) -> StoredObject | None:
        self.keys.append(key)
        return await super().get(key)


def in_one_file(table: StoredTable) -> tuple[list[ContentEntry], list[ContentEntry]]:
    """(leaves, the rows of their vectors, all in one Puffin file)."""
    leaves = [table.leaf([file_of(table, 10 * leaf + number) for number in range(4)]) for leaf in range(3)]
    body = b"PFA1" + FIRST + SECOND
    table.store.place(key_of(TABLE, FILE), body)
    rows = [
        replace(
            table.manifest_vector(leaf, ordinals, Status.ADDED),
            location=FILE,
            file_size_in_bytes=len(body),
            deletion_vector=place,
        )
        for leaf, ordinals, place in (
            (leaves[0], [0, 2], DeletionVector(4, len(FIRST))),
            (leaves[1], [1], DeletionVector(4 + len(FIRST), len(SECOND))),
        )
    ]
    return leaves, [*rows, table.manifest_vector(leaves[2], [3], Status.ADDED)]


def read(store: ObjectStore, rows: Sequence[ContentEntry]) -> dict[tuple[str, int], BitMap]:
    return asyncio.run(read_stored_manifest_vectors(store, TABLE, rows))


def test_vectors_of_one_file_cost_one_read_and_inline_ones_none() -> None:
    table, counting = new_table(), CountingStore()
    table.store = counting
    _, rows = in_one_file(table)
    found = read(counting, rows)
    assert found == {(FILE, 4): BitMap([0, 2]), (FILE, 4 + len(FIRST)): BitMap([1])}
    assert counting.keys == [key_of(TABLE, FILE)]


def test_what_changed_counts_dropped_vectors_and_what_is_live_does_not() -> None:
    table = new_table()
    leaves, rows = in_one_file(table)
    dropped = replace(rows[1], version_info=replace(rows[1].version_info, status=Status.DELETED))
    table.entries = [*leaves, rows[0], dropped]
    root = table.commit()
    everything = asyncio.run(read_manifest_vectors(table.store, root))
    assert everything == {(FILE, 4): BitMap([0, 2]), (FILE, 4 + len(FIRST)): BitMap([1])}
    assert asyncio.run(read_live(table.store, root)) == {(FILE, 4): BitMap([0, 2])}


def test_each_row_is_held_to_the_length_of_the_file_that_it_states() -> None:
    table = new_table()
    _, rows = in_one_file(table)
    wrong = replace(rows[1], file_size_in_bytes=7)
    with pytest.raises(Corrupt, match="its entry states 7") as caught:
        read(table.store, [rows[0], wrong])
    assert caught.value.code == "vector-corrupt"


def test_a_file_that_is_missing_or_holds_an_ordinal_beyond_any_leaf_is_corrupt() -> None:
    table = new_table()
    _, rows = in_one_file(table)
    wide = encode_vector(BitMap64([2**32]))
    table.store.place(key_of(TABLE, "metadata/vectors/w.puffin"), wide)
    beyond = replace(
        rows[1],
        location="metadata/vectors/w.puffin",
        file_size_in_bytes=len(wide),
        deletion_vector=DeletionVector(0, len(wide)),
    )
    with pytest.raises(Corrupt, match="no leaf has so many"):
        read(table.store, [beyond])
    table.store.discard(key_of(TABLE, FILE))
    with pytest.raises(Corrupt, match=FILE) as caught:
        read(table.store, rows)
    assert caught.value.code == "object-missing"
