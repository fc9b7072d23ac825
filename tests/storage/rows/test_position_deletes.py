"""Scans of tables with position delete files, which stand in leaves of older formats."""

from __future__ import annotations

import asyncio

import pyarrow as pa
import pytest

from rootline.schemas.content_entry import ContentEntry
from rootline.schemas.errors import Corrupt
from rootline.schemas.object_keys import key_of
from tests.storage.stored_deletes import at, equality_delete, position_delete
from tests.storage.stored_tables import TABLE, StoredTable, flights, flights_definition, ids_of


@pytest.fixture
def table() -> StoredTable:
    return StoredTable(flights_definition())


def _written(table: StoredTable, *ids: int, sequence_number: int = 1) -> ContentEntry:
    return at(table.write(flights(*ids))[0], sequence_number)


def _scanned(table: StoredTable, where: str | None = None) -> pa.Table:
    table.commit()
    return table.scan(where)


def test_position_deletes_reach_files_as_old_as_themselves_or_older(table: StoredTable) -> None:
    older, same, newer = (_written(table, *range(4), sequence_number=number) for number in (1, 2, 3))
    deletes = position_delete(table, [(file.location, 1) for file in (older, same, newer)], older, 2)
    table.entries = [older, same, newer, table.adopted_leaf([deletes])]
    assert ids_of(_scanned(table)) == [0, 2, 3, 0, 2, 3, 0, 1, 2, 3]


def test_position_deletes_reach_their_own_partition_only() -> None:
    table = StoredTable(flights_definition("carrier"))
    ua, aa = table.write(flights(*range(4)))
    deletes = position_delete(table, [(ua.location, 0), (aa.location, 0)], aa, 2)
    table.entries = [ua, aa, table.adopted_leaf([deletes])]
    assert ids_of(_scanned(table)) == [0, 2, 3]


def test_position_deletes_name_files_by_their_full_uri(table: StoredTable) -> None:
    file, other = _written(table, *range(4)), _written(table, *range(4))
    uri = f"s3://bucket/warehouse/{key_of(TABLE, file.location)}"
    deletes = position_delete(table, [(uri, 0), ("s3://elsewhere/" + other.location, 1)], file, 2)
    table.entries = [file, other, table.adopted_leaf([deletes])]
    assert ids_of(_scanned(table)) == [1, 2, 3, 0, 1, 2, 3]


def test_a_position_delete_file_of_one_data_file_is_not_read_for_another(table: StoredTable) -> None:
    file, other = _written(table, *range(4)), _written(table, *range(4))
    deletes = position_delete(table, [(file.location, 2)], file, 2, referenced_file=file.location)
    table.entries = [file, other, table.adopted_leaf([deletes])]
    table.commit()
    assert [len(task.deletes.positions) for task in asyncio.run(table.plan()).tasks()] == [1, 0]
    assert ids_of(table.scan()) == [0, 1, 3, 0, 1, 2, 3]


def test_vectors_positions_and_equality_add_up(table: StoredTable) -> None:
    file = _written(table, *range(10))
    deletes = position_delete(table, [(file.location, 1), (file.location, 2)], file, 2)
    table.entries = [
        file,
        table.vector(file, [0, 1]),
        table.adopted_leaf([deletes, equality_delete(table, pa.table({"id": [2, 9]}), [1], 2)]),
    ]
    assert ids_of(_scanned(table, "id > 3")) == [4, 5, 6, 7, 8]
    assert ids_of(table.scan()) == [3, 4, 5, 6, 7, 8]


def test_positions_that_cannot_be_are_corrupt(table: StoredTable) -> None:
    file = _written(table, *range(4))
    for position in (-1, 4):
        table.entries = [file, table.adopted_leaf([position_delete(table, [(file.location, position)], file, 2)])]
        with pytest.raises(Corrupt, match=f"deletes row {position}"):
            _scanned(table)
