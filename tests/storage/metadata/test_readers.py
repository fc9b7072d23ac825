"""Finding heads; reading roots, definitions, leaves and whole tables."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest
from pyroaring import BitMap64

from rootline.adapters.memory import MemoryObjectStore
from rootline.client.create_drop import build_definition
from rootline.ports.object_store import StoredObject
from rootline.schemas.bytes.vector_codec import encode_vector
from rootline.schemas.content_entry import ContentEntry, DeletionVector, Status
from rootline.schemas.errors import Corrupt
from rootline.schemas.identifiers import ObjectKey, TableName, Version
from rootline.schemas.object_keys import key_of, root_key, roots_prefix
from rootline.storage.metadata.object_reader import (
    LEAVES_AT_ONCE,
    read_leaf,
    read_leaves,
    read_manifest_vector,
    read_vector,
)
from rootline.storage.metadata.root_reader import HeadKey, find_head, read_definition, read_root
from rootline.storage.metadata.table_loader import load_to_build_on
from tests.storage.stored_tables import TABLE, StoredTable
from tests.support.loaded_tables import load_table

SCHEMA = pa.schema([("id", pa.int64())])


def new_table() -> StoredTable:
    return StoredTable(build_definition(SCHEMA, table_uuid=uuid.UUID(int=3)))


def file_of(table: StoredTable, *ids: int) -> ContentEntry:
    return table.write(pa.table({"id": ids}))[0]


def head_of(store: MemoryObjectStore) -> HeadKey | None:
    return asyncio.run(find_head(store, TABLE))


def stored(table: StoredTable, key: ObjectKey) -> bytes:
    found = asyncio.run(table.store.get(key))
    assert found is not None
    return found.body


# heads


def test_there_is_no_head_where_there_is_no_root() -> None:
    assert head_of(MemoryObjectStore()) is None


def test_the_head_is_the_newest_root_and_carries_the_stores_date() -> None:
    store = MemoryObjectStore(lambda: 1_000)
    for version in (0, 9, 10, 2):
        store.place(root_key(TABLE, Version(version)), b"root")
    assert head_of(store) == HeadKey(Version(10), 1_000)


@pytest.mark.parametrize("strangers", [1, 5, 300])
def test_foreign_objects_among_the_roots_are_passed_over(strangers: int) -> None:
    store = MemoryObjectStore()
    for number in range(strangers):
        store.place(ObjectKey(f"{roots_prefix(TABLE)}0000-{number:05}.tmp"), b"")
    assert head_of(store) is None
    store.place(root_key(TABLE, Version(4)), b"root")
    assert head_of(store) == HeadKey(Version(4), None)


def test_a_root_in_a_folder_below_the_roots_is_foreign() -> None:
    store = MemoryObjectStore()
    name = root_key(TABLE, Version(4)).rsplit("/", 1)[-1]
    store.place(ObjectKey(f"{roots_prefix(TABLE)}00/{name}"), b"root")
    assert head_of(store) is None


# roots and definitions


def test_a_root_and_its_definition_come_back() -> None:
    table = new_table()
    table.entries = [file_of(table, 1)]
    table.commit()
    root = asyncio.run(read_root(table.store, TABLE, Version(0)))
    assert [row.entry.location for row in root.rows] == [table.entries[0].location]
    assert asyncio.run(read_definition(table.store, root.header)) == table.definition


def test_a_root_under_another_version_or_table_is_corrupt() -> None:
    table = new_table()
    table.commit()
    body = stored(table, root_key(TABLE, Version(0)))
    table.store.place(root_key(TABLE, Version(1)), body)
    with pytest.raises(Corrupt, match="contains version 0"):
        asyncio.run(read_root(table.store, TABLE, Version(1)))
    other = TableName("test.other")
    table.store.place(root_key(other, Version(0)), body)
    with pytest.raises(Corrupt, match=r"of test\.rows"):
        asyncio.run(read_root(table.store, other, Version(0)))


def test_a_missing_root_is_named() -> None:
    with pytest.raises(Corrupt, match=root_key(TABLE, Version(7))) as caught:
        asyncio.run(read_root(MemoryObjectStore(), TABLE, Version(7)))
    assert caught.value.code == "object-missing"


def test_an_altered_or_missing_definition_is_corrupt() -> None:
    table = new_table()
    root = table.commit()
    key = key_of(TABLE, root.header.definition.location)
    table.store.place(key, stored(table, key).replace(b'"id"', b'"ix"'))
    with pytest.raises(Corrupt) as caught:
        asyncio.run(read_definition(table.store, root.header))
    assert caught.value.code == "definition-unreadable"
    table.store.discard(key)
    with pytest.raises(Corrupt) as caught:
        asyncio.run(read_definition(table.store, root.header))
    assert caught.value.code == "object-missing"


# leaves and vectors


def _cut(body: bytes) -> bytes:
    return body[:-1]


def _flipped(body: bytes) -> bytes:
    return body[:50] + bytes([body[50] ^ 4]) + body[51:]


@pytest.mark.parametrize("damage", [_cut, _flipped])
def test_a_damaged_leaf_is_corrupt_and_named(damage: Callable[[bytes], bytes]) -> None:
    table = new_table()
    leaf = table.leaf([file_of(table, 1)])
    assert len(asyncio.run(read_leaf(table.store, TABLE, leaf))) == 1
    key = key_of(TABLE, leaf.location)
    table.store.place(key, damage(stored(table, key)))
    with pytest.raises(Corrupt) as caught:
        asyncio.run(read_leaf(table.store, TABLE, leaf))
    assert caught.value.code == "leaf-corrupt"
    assert caught.value.message.startswith(f"{key}: ")
    assert caught.value.message.count(leaf.location) == 1


def test_a_leaf_that_disagrees_with_its_root_row_is_corrupt() -> None:
    table = new_table()
    (file,) = table.write(pa.table({"id": [1, 2]}))
    leaf = table.leaf([file])
    with pytest.raises(Corrupt, match="has 1 entries, its root row states 2"):
        asyncio.run(read_leaf(table.store, TABLE, replace(leaf, record_count=2)))
    deletes = table.leaf([table.vector(file, [0])])
    with pytest.raises(Corrupt, match="lists delete files"):
        asyncio.run(read_leaf(table.store, TABLE, replace(deletes, content_type=leaf.content_type)))


def test_known_leaves_are_not_read_again_and_one_missing_leaf_fails_all() -> None:
    table = new_table()
    first, second = (table.leaf([file_of(table, number)]) for number in (1, 2))
    known = asyncio.run(read_leaves(table.store, TABLE, [first]))
    table.store.discard(key_of(TABLE, first.location))
    both = asyncio.run(read_leaves(table.store, TABLE, [second, first], known))
    assert list(both) == [second.location, first.location]
    with pytest.raises(Corrupt, match=first.location):
        asyncio.run(read_leaves(table.store, TABLE, [second, first]))


def test_the_bytes_of_a_leaf_are_moved_before_all_leaves_are_read() -> None:
    table = new_table()
    leaves = [table.leaf([file_of(table, number)]) for number in range(LEAVES_AT_ONCE + 2)]
    read: list[str] = []
    moved_before: list[int] = []

    class Reads(MemoryObjectStore):
        async def get(self, key: ObjectKey) -> StoredObject | None:
            read.append(key)
            return await table.store.get(key)

    def keep(body: bytes) -> bytes:
        moved_before.append(len(read))
        return body

    found = asyncio.run(read_leaves(Reads(), TABLE, leaves, keep=keep))
    assert list(found) == [leaf.location for leaf in leaves]
    assert len(moved_before) == len(leaves)
    assert moved_before[0] < len(leaves)


def test_a_vector_is_read_from_its_range_and_proven() -> None:
    table = new_table()
    (file,) = table.write(pa.table({"id": list(range(9))}))
    vector = table.vector(file, [3, 5])
    assert asyncio.run(read_vector(table.store, TABLE, vector)) == BitMap64([3, 5])
    place = vector.deletion_vector
    assert place is not None
    assert place.size_in_bytes is not None
    for wrong in (
        replace(vector, record_count=3),
        replace(vector, deletion_vector=replace(place, size_in_bytes=place.size_in_bytes + 10_000)),
        replace(vector, deletion_vector=replace(place, offset=None)),
        replace(vector, deletion_vector=None),
    ):
        with pytest.raises(Corrupt, match=vector.location) as caught:
            asyncio.run(read_vector(table.store, TABLE, wrong))
        assert caught.value.code == "vector-corrupt"


def test_a_leafs_vector_is_read_inline_or_from_a_puffin_file() -> None:
    table = new_table()
    leaf = table.leaf([file_of(table, number) for number in range(4)])
    inline = table.manifest_vector(leaf, [1, 3], Status.ADDED)
    assert list(asyncio.run(read_manifest_vector(table.store, TABLE, inline))) == [1, 3]
    blob = encode_vector(BitMap64([0, 2]))
    table.store.place(key_of(TABLE, "metadata/vectors/v.puffin"), b"PFA1" + blob)
    place = DeletionVector(4, len(blob))
    in_file = replace(
        inline, location="metadata/vectors/v.puffin", file_size_in_bytes=4 + len(blob), deletion_vector=place
    )
    assert list(asyncio.run(read_manifest_vector(table.store, TABLE, in_file))) == [0, 2]
    table.entries = [leaf, in_file]
    table.commit()
    assert table.scan().column("id").to_pylist() == [1, 3]


# whole tables


def test_a_whole_table_is_loaded_at_its_head_or_at_a_version() -> None:
    table = new_table()
    assert asyncio.run(load_table(table.store, TABLE)) is None
    first = file_of(table, 1)
    table.entries = [first]
    table.commit()
    second = file_of(table, 2)
    leaf = table.leaf([first, second])
    table.entries = [leaf]
    table.commit()
    state = asyncio.run(load_table(table.store, TABLE))
    assert state is not None
    assert (state.header.version, list(state.leaves)) == (1, [leaf.location])
    assert state.find(second.place) is not None
    before = asyncio.run(load_table(table.store, TABLE, Version(0)))
    assert before is not None
    assert before.find(second.place) is None


def test_leaves_of_a_known_version_are_not_hashed_again() -> None:
    table = new_table()
    files = [file_of(table, number) for number in (1, 2, 3)]
    dropped, kept, added = (table.leaf([file]) for file in files)
    table.entries = [dropped, kept]
    table.commit()
    table.entries = [kept, added]
    table.commit()
    known = asyncio.run(load_to_build_on(table.store, TABLE, Version(0)))
    state = asyncio.run(load_to_build_on(table.store, TABLE, Version(1), known))
    at = kept.location
    assert state.live.lookups[at].keys is known.live.lookups[at].keys
    assert [state.find(file.place) is not None for file in files] == [False, True, True]


def test_a_table_with_a_missing_leaf_is_not_loaded() -> None:
    table = new_table()
    leaf = table.leaf([file_of(table, 1)])
    table.entries = [leaf]
    table.commit()
    known = asyncio.run(read_leaves(table.store, TABLE, [leaf]))
    table.store.discard(key_of(TABLE, leaf.location))
    with pytest.raises(Corrupt, match=leaf.location):
        asyncio.run(load_table(table.store, TABLE))
    assert asyncio.run(load_table(table.store, TABLE, known_leaves=known)) is not None
