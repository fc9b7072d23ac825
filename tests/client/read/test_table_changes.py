"""What changed between two versions of a table."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pyroaring import BitMap64

from rootline.client.table_handle import TableHandle
from rootline.client.version_history import TableChanges, position_ranges, read_changes
from rootline.schemas.errors import Invalid
from rootline.schemas.intent import IntentKind
from rootline.schemas.object_keys import key_of
from tests.client.stored_lake import CountedStore
from tests.tree.tables import TABLE, append, data_file, equality_delete, intent, new_lake, remove, removed


def put(table: TableHandle, *ids: int, carrier: str = "UA") -> int:
    """Append rows; the version that has them."""
    rows = {"id": list(ids), "carrier": [carrier] * len(ids), "delay": [float(number) for number in ids]}
    return table.append(rows).version


def words(changes: TableChanges) -> list[tuple[Any, ...]]:
    """Each change without its location."""
    return [tuple(value for name, value in record.items() if name != "location") for record in changes.records()]


def test_files_that_were_added_and_removed_are_named(flights: TableHandle) -> None:
    first = put(flights, 1, 2)
    put(flights, 3, carrier="AA")
    flights.delete_where("carrier = 'UA'")
    changes = flights.changes(from_version=first)
    assert words(changes) == [("removed", "data", 2, 0), ("added", "data", 1, 0)]
    (gone,) = changes.removed_files
    assert [task.data.location for task in flights.scan(version=first).plan()] == [gone.location]
    assert (changes.from_version, changes.to_version) == (first, first + 2)


def test_what_came_and_went_again_within_the_range_is_no_change(flights: TableHandle) -> None:
    put(flights, 1, carrier="AA")
    put(flights, 2)
    last = flights.delete_where("carrier = 'UA'")
    assert last is not None
    assert not flights.changes(from_version=1)
    assert words(flights.changes(from_version=1, to_version=2)) == [("added", "data", 1, 0)]
    assert words(flights.changes(from_version=2, to_version=3)) == [("removed", "data", 1, 0)]


def test_deleted_rows_are_told_by_their_positions_in_the_file(flights: TableHandle) -> None:
    first = put(flights, *range(10))
    flights.delete_where("id in (0, 1, 2, 7)")
    flights.delete_where("id = 9")
    changes = flights.changes(from_version=first)
    assert words(changes) == [("rows-deleted", "data", 5, [(0, 2), (7, 7), (9, 9)])]
    assert changes.rows[0].data_location == flights.scan().plan()[0].data.location
    assert words(flights.changes(from_version=first + 1)) == [("rows-deleted", "data", 1, [(9, 9)])]


def test_a_file_that_comes_or_goes_tells_the_rows_that_live(flights: TableHandle) -> None:
    start = put(flights, *range(10))
    flights.delete_where("id < 3")
    put(flights, *range(20, 24), carrier="AA")
    flights.delete_where("id = 21")
    assert words(flights.changes(from_version=start - 1)) == [("added", "data", 3, 1), ("added", "data", 7, 3)]
    flights.overwrite([])
    changes = flights.changes(from_version=start + 3)
    assert words(changes) == [("removed", "data", 3, 1), ("removed", "data", 7, 3)]
    assert words(flights.changes(from_version=start)) == [("removed", "data", 10, 0)]


def test_a_restore_that_brings_back_what_a_rewrite_replaced_shows_each_row_once(flights: TableHandle) -> None:
    put(flights, 1, 2)
    before = put(flights, 3)
    flights.rewrite()
    flights.delete_where("id = 1")
    flights.restore(before)
    assert sorted(words(flights.changes(from_version=0))) == [("added", "data", 1, 0), ("added", "data", 2, 0)]
    assert not flights.changes(from_version=before)


def test_maintenance_shows_as_nothing_and_leaves_that_did_not_change_are_not_read() -> None:
    lake = new_lake(append("a", data_file("a"), data_file("b")), append("c"))
    leaf = lake.leaf(lake.root_entries())
    lake.put(lake.flush("f", leaf))
    lake.put(append("d"))
    lake.put(remove("r", removed("data/a.parquet")))
    store = CountedStore(lake)

    def changes(first: int, last: int) -> TableChanges:
        return asyncio.run(read_changes(store, TABLE, first, last))

    assert not changes(2, 3)
    assert [file.location for file in changes(2, 4).added_files] == ["data/d.parquet"]
    assert store.keys[key_of(TABLE, leaf.location)] == 0
    assert [file.location for file in changes(3, 5).removed_files] == ["data/a.parquet"]
    assert store.keys[key_of(TABLE, leaf.location)] == 1


def test_equality_deletes_are_told_as_delete_files() -> None:
    lake = new_lake(append("a"))
    lake.put(intent(IntentKind.ROW_DELTA, "e", add_equality_deletes=[equality_delete("e", 3, "UA")]))
    changes = asyncio.run(read_changes(CountedStore(lake), TABLE, 1, None))
    assert words(changes) == [("added", "equality-deletes", 1)]
    assert [entry.location for entry in changes.added_deletes] == ["data/e.parquet"]


@pytest.mark.parametrize(
    ("first", "last", "code"),
    [(0, 9, "version-unknown"), (9, None, "version-unknown"), (-1, 1, "version-unknown"), (2, 1, "setting-invalid")],
)
def test_a_range_that_is_not_there_is_refused(flights: TableHandle, first: int, last: int | None, code: str) -> None:
    put(flights, 1)
    put(flights, 2)
    with pytest.raises(Invalid) as caught:
        flights.changes(from_version=first, to_version=last)
    assert caught.value.code == code


def test_an_empty_range_has_no_changes(flights: TableHandle) -> None:
    put(flights, 1)
    assert not flights.changes(from_version=1)
    assert list(flights.changes(from_version=1, to_version=1).records()) == []


def test_positions_are_told_as_ranges() -> None:
    assert position_ranges(BitMap64()) == []
    assert position_ranges(BitMap64([0, 1, 5, 2**33, 2**33 + 1])) == [(0, 1), (5, 5), (2**33, 2**33 + 1)]
