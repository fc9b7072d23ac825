"""Plans of scans: what is live, what is read, what is counted."""

from __future__ import annotations

import asyncio
import pickle
from dataclasses import replace
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rootline.schemas.bytes.leaf_codec import Leaf
from rootline.schemas.content_entry import FieldStatistics, ManifestStats, Status
from rootline.schemas.errors import Corrupt
from rootline.schemas.object_keys import key_of
from rootline.storage.metadata.object_reader import read_leaves
from rootline.storage.metadata.scan_loader import plan_scan
from rootline.storage.rows.data_file_reader import RowsWanted
from rootline.storage.rows.scan_executor import count_rows
from rootline.tree.filter.pruning import PruningFilter
from rootline.tree.scan.scan_plan import leaves_to_read, manifest_vectors, plan
from tests.storage.stored_tables import (
    TABLE,
    CountingStore,
    StoredTable,
    deleted,
    flights,
    flights_definition,
    ids_of,
    replaced,
)


@pytest.fixture
def table() -> StoredTable:
    return StoredTable(flights_definition())


# what is live


def test_files_in_the_root_and_in_leaves_are_read_in_order(table: StoredTable) -> None:
    first, second, third = (table.write(flights(number))[0] for number in (1, 2, 3))
    table.entries = [table.leaf([second, third]), first]
    table.commit()
    assert ids_of(table.scan()) == [1, 2, 3]


def test_an_empty_table_yields_no_rows_but_its_columns(table: StoredTable) -> None:
    table.commit()
    assert table.scan().schema.names == ["id", "carrier", "delay"]
    assert len(asyncio.run(table.plan())) == 0


def test_deleted_rows_of_the_root_are_not_live(table: StoredTable) -> None:
    kept, gone = table.write(flights(1))[0], table.write(flights(2))[0]
    table.entries = [kept, deleted(gone)]
    table.commit()
    assert ids_of(table.scan()) == [1]


@pytest.mark.parametrize("vectors", [[(0, 1)], [(0,), (1,)], [(0, 1), (1,)]])
def test_a_leaf_without_live_entries_is_not_read(table: StoredTable, vectors: list[tuple[int, ...]]) -> None:
    first, second, third = (table.write(flights(number))[0] for number in (1, 2, 3))
    emptied = table.leaf([first, second])
    statuses = (Status.EXISTING, Status.ADDED)
    dead = [
        table.manifest_vector(emptied, ordinals, status) for ordinals, status in zip(vectors, statuses, strict=False)
    ]
    table.entries = [emptied, *dead, table.leaf([third])]
    root = table.commit()
    found = asyncio.run(table.plan())
    assert ids_of(table.scan()) == [3]
    assert (found.leaves_read, found.leaves_pruned) == (1, 1)
    wanted = leaves_to_read(root, PruningFilter.of(None, table.definition))
    assert [row.location for row in wanted.pruned] == [emptied.location]


def test_a_leaf_with_one_live_entry_is_read_although_its_vectors_count_as_many(table: StoredTable) -> None:
    first, second = (table.write(flights(number))[0] for number in (1, 2))
    leaf = table.leaf([first, second])
    overlapping = [table.manifest_vector(leaf, [0], status) for status in (Status.EXISTING, Status.ADDED)]
    table.entries = [leaf, *overlapping]
    table.commit()
    assert ids_of(table.scan()) == [2]


def test_entries_in_the_vectors_of_their_leaf_are_dead(table: StoredTable) -> None:
    files = [table.write(flights(number))[0] for number in range(6)]
    leaf = table.leaf(files)
    table.entries = [
        leaf,
        table.manifest_vector(leaf, [0, 2], Status.EXISTING),
        table.manifest_vector(leaf, [5], Status.ADDED),
    ]
    table.commit()
    assert ids_of(table.scan()) == [1, 3, 4]


def test_a_vector_in_the_root_deletes_rows_of_a_file_in_a_leaf(table: StoredTable) -> None:
    (file,) = table.write(flights(*range(10)))
    table.entries = [table.leaf([file]), table.vector(file, [0, 9])]
    table.commit()
    assert ids_of(table.scan()) == list(range(1, 9))


def test_a_vector_in_a_delete_leaf_counts_only_while_it_is_live(table: StoredTable) -> None:
    (file,) = table.write(flights(*range(10)))
    old, new = table.vector(file, [1]), table.vector(file, [1, 2])
    leaf = table.leaf([old])
    table.entries = [file, leaf]
    table.commit()
    assert ids_of(table.scan()) == [0, *range(2, 10)]
    table.entries = [file, leaf, table.manifest_vector(leaf, [0], Status.ADDED), new]
    table.commit()
    assert ids_of(table.scan()) == [0, *range(3, 10)]


def test_two_vectors_of_one_file_are_united(table: StoredTable) -> None:
    (file,) = table.write(flights(*range(10)))
    table.entries = [file, table.vector(file, [1, 2]), table.vector(file, [2, 3])]
    table.commit()
    assert ids_of(table.scan()) == [0, *range(4, 10)]
    assert asyncio.run(table.plan()).row_count() is None


def test_positions_are_row_numbers_of_the_file_across_row_groups_and_filters(table: StoredTable) -> None:
    rows = flights(*range(150_000))
    body = pa.BufferOutputStream()
    pq.write_table(rows, body, row_group_size=40_000)
    (small,) = table.write(flights(1))
    file = replaced(table, small, body.getvalue().to_pybytes(), rows.num_rows)
    positions = [0, 39_999, 40_000, 65_535, 65_536, 149_999]
    table.entries = [file, table.vector(file, positions)]
    table.commit()
    assert ids_of(table.scan()) == sorted(set(range(150_000)) - set(positions))
    assert ids_of(table.scan("id >= 65534 and id < 65539")) == [65_534, 65_537, 65_538]


# what is read


def test_leaves_that_cannot_match_are_not_read_nor_are_their_delete_leaves(table: StoredTable) -> None:
    low, high = table.write(flights(*range(10)))[0], table.write(flights(*range(10, 20)))[0]
    low_leaf = table.leaf([low], {1: FieldStatistics(0, 9, True, 10, 0)})
    high_leaf = table.leaf([high], {1: FieldStatistics(10, 19, True, 10, 0)})
    low_deletes = table.leaf([table.vector(low, [0])], referenced_file=low_leaf.location)
    high_deletes = table.leaf([table.vector(high, [0])], referenced_file=high_leaf.location)
    table.entries = [low_leaf, high_leaf, low_deletes, high_deletes]
    root = table.commit()
    store = CountingStore(table)
    pruning = PruningFilter.of("id < 5", table.definition)
    found = asyncio.run(plan_scan(cast("Any", store), root, table.definition, pruning))
    assert sorted(store.read) == sorted(key_of(TABLE, leaf.location) for leaf in (low_leaf, low_deletes))
    assert [task.location for task in found.tasks()] == [low.location]
    assert (found.leaves_read, found.leaves_pruned) == (1, 1)
    assert ids_of(table.scan("id < 5")) == [1, 2, 3, 4]
    assert ids_of(table.scan()) == [*range(1, 10), *range(11, 20)]


def test_a_data_leaf_and_its_delete_leaf_are_read_at_once(table: StoredTable) -> None:
    (file,) = table.write(flights(1, 5))
    data = table.leaf([file])
    affiliated = table.leaf([table.vector(file, [0])], referenced_file=data.location)
    table.entries = [data, affiliated]
    root = table.commit()
    store = CountingStore(table)
    pruning = PruningFilter.of("id > 5", table.definition)
    assert len(asyncio.run(plan_scan(cast("Any", store), root, table.definition, pruning))) == 0
    assert sorted(store.read) == sorted(key_of(TABLE, leaf.location) for leaf in (data, affiliated))
    assert store.most_at_once == 2


def test_an_unaffiliated_delete_leaf_is_always_read(table: StoredTable) -> None:
    (file,) = table.write(flights(*range(4)))
    table.entries = [file, table.leaf([table.vector(file, [3])])]
    table.commit()
    assert ids_of(table.scan("id > 1")) == [2]


def test_an_unaffiliated_delete_leaf_of_partitions_that_cannot_match_is_not_read() -> None:
    table = StoredTable(flights_definition("carrier"))
    ua, aa = table.write(flights(*range(4)))
    vectors = [table.vector(file, [0]) for file in (ua, aa)]
    of_partition = [{2: FieldStatistics(name, name)} for name in ("UA", "AA")]
    leaves = [table.leaf([vector], stats) for vector, stats in zip(vectors, of_partition, strict=True)]
    table.entries = [ua, aa, *leaves]
    root = table.commit()
    pruning = PruningFilter.of("carrier = 'AA' and id > 0", table.definition)
    assert [leaf.location for leaf in leaves_to_read(root, pruning).delete] == [leaves[1].location]
    assert ids_of(table.scan("carrier = 'AA'")) == [3]
    assert sorted(ids_of(table.scan())) == [2, 3]


def test_a_kept_leaf_must_be_what_the_root_says_of_it(table: StoredTable) -> None:
    leaf = table.leaf([table.write(flights(1))[0], table.write(flights(2))[0]])
    table.entries = [leaf]
    table.commit()
    assert ids_of(table.scan()) == [1, 2]
    table.entries = [replace(leaf, record_count=1, manifest_stats=ManifestStats(0, 1, 0, 0, 1, 0, 1))]
    table.commit()
    with pytest.raises(Corrupt, match="contains 2 entries, its root row says 1"):
        table.scan()


def test_a_plan_from_leaves_at_hand_is_the_same_plan(table: StoredTable) -> None:
    files = [table.write(flights(number))[0] for number in range(4)]
    data = table.leaf(files)
    table.entries = [data, table.leaf([table.vector(files[2], [0])], referenced_file=data.location)]
    root = table.commit()
    pruning = PruningFilter.of("id > 0", table.definition)
    wanted = leaves_to_read(root, pruning)
    rows = [*wanted.data, *wanted.delete]
    leaves: dict[str, Leaf] = asyncio.run(read_leaves(table.store, TABLE, rows))
    direct = plan(root, table.definition, leaves, pruning, manifest_vectors(root))
    assert list(direct.tasks()) == list(asyncio.run(table.plan("id > 0")).tasks())
    assert [len(task.vectors) for task in direct.tasks()] == [0, 1, 0]


def test_the_tasks_of_some_files_are_those_of_the_whole_plan(table: StoredTable) -> None:
    files = [table.write(flights(number))[0] for number in range(6)]
    data, empty = table.leaf(files[1:5]), table.leaf(files[5:], {1: FieldStatistics(5, 5, True, 1, 0)})
    vectors = [table.vector(files[3], [0]), table.leaf([table.vector(files[4], [0])], referenced_file=data.location)]
    table.entries = [files[0], data, empty, *vectors]
    table.commit()
    found = asyncio.run(table.plan("id != 2"))
    whole = list(found.tasks())
    assert list(found.locations()) == [task.location for task in whole]
    wanted = {files[at].location for at in (0, 2, 4, 5)} | {"data/elsewhere.parquet"}
    some = list(found.tasks_at(wanted))
    assert some == [task for task in whole if task.location in wanted]
    assert [task.location for task in some] == [files[at].location for at in (0, 4, 5)]
    assert [len(task.vectors) for task in some] == [0, 1, 0]
    assert list(found.tasks_at(set())) == []


def test_a_file_all_of_whose_rows_match_has_no_residual() -> None:
    table = StoredTable(flights_definition("carrier"))
    table.entries = table.write(flights(*range(10)))
    table.entries = [table.leaf(table.entries)]
    table.commit()
    (task,) = asyncio.run(table.plan("carrier = 'UA'")).tasks()
    assert task.residual is None
    (task,) = asyncio.run(table.plan("carrier = 'UA' and id > 3")).tasks()
    assert task.residual is not None
    assert ids_of(table.scan("carrier = 'UA' and id > 3")) == [4, 6, 8]


def test_a_task_survives_pickling(table: StoredTable) -> None:
    (file,) = table.write(flights(*range(4)))
    table.entries = [table.leaf([file]), table.vector(file, [1])]
    table.commit()
    (task,) = asyncio.run(table.plan("id > 1")).tasks()
    copy = pickle.loads(pickle.dumps(task))
    assert (copy.location, copy.record_count, copy.residual) == (task.location, task.record_count, task.residual)
    assert [vector.location for vector in copy.vectors] == [vector.location for vector in task.vectors]


# counting


@pytest.mark.parametrize("in_leaf", [False, True])
def test_rows_are_counted_from_entries_alone_where_they_say(in_leaf: bool) -> None:
    table = StoredTable(flights_definition("carrier"))
    files = table.write(flights(*range(10)))
    vector = table.vector(files[0], [0, 1])
    table.entries = [table.leaf(files), table.leaf([vector])] if in_leaf else [*files, vector]
    root = table.commit()
    assert asyncio.run(table.plan()).row_count() == 8
    assert asyncio.run(table.plan("carrier = 'AA'")).row_count() == 5
    partly = asyncio.run(table.plan("id < 4"))
    assert partly.row_count() is None
    wanted = RowsWanted.of(table.definition)
    assert asyncio.run(count_rows(table.store, root.header.table, partly, wanted)) == table.scan("id < 4").num_rows == 2
