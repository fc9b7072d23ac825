"""Scans of tables with equality deletes."""

from __future__ import annotations

import asyncio
import pickle
import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, LongType, NestedField, StringType, StructType

from rootline.client.create_drop import build_definition
from rootline.schemas.content_entry import ContentEntry, FieldStatistics
from rootline.schemas.errors import Corrupt, Invalid
from rootline.schemas.object_keys import key_of
from rootline.schemas.table_definition import PartitionSpec, TableDefinition
from rootline.storage.rows.arrow_types import FIELD_ID_KEY
from rootline.storage.rows.data_file_reader import RowsWanted
from rootline.storage.rows.scan_executor import count_rows, scan_batches
from tests.storage.stored_deletes import at, equality_delete, position_delete
from tests.storage.stored_tables import (
    FLIGHTS,
    TABLE,
    CountingStore,
    StoredTable,
    flights,
    flights_definition,
    ids_of,
    replaced,
)


@pytest.fixture
def table() -> StoredTable:
    return StoredTable(flights_definition())


def _ids(*ids: int | None) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def _written(table: StoredTable, *ids: int, sequence_number: int = 1) -> ContentEntry:
    return at(table.write(flights(*ids))[0], sequence_number)


def _scanned(table: StoredTable, where: str | None = None, columns: Sequence[str] | None = None) -> pa.Table:
    table.commit()
    return table.scan(where, columns)


async def _locations_read(table: StoredTable, where: str | None = None) -> list[str]:
    table.commit()
    store = CountingStore(table)
    wanted = RowsWanted.of(table.definition)
    async for _ in scan_batches(cast("Any", store), TABLE, (await table.plan(where)).tasks(), wanted):
        pass
    return [key.removeprefix(key_of(TABLE, "")) for key in store.read]


# equality deletes


@pytest.mark.parametrize("in_leaf", [False, True])
def test_an_equality_delete_deletes_rows_of_strictly_older_files_only(table: StoredTable, in_leaf: bool) -> None:
    older, same, newer = (_written(table, *range(4), sequence_number=number) for number in (1, 2, 3))
    delete = equality_delete(table, _ids(1, 3, 99), [1], 2)
    table.entries = [older, same, newer, table.leaf([delete]) if in_leaf else delete]
    assert ids_of(_scanned(table)) == [0, 2, 0, 1, 2, 3, 0, 1, 2, 3]
    assert asyncio.run(table.plan()).row_count() is None


def test_files_in_leaves_are_deleted_from_by_equality_too(table: StoredTable) -> None:
    data = table.leaf([_written(table, 0, 1), _written(table, 1, 2, sequence_number=2)])
    table.entries = [data, table.leaf([equality_delete(table, _ids(1), [1], 2)])]
    assert ids_of(_scanned(table)) == [0, 1, 2]
    counted = count_rows(table.store, TABLE, asyncio.run(table.plan()), RowsWanted.of(table.definition))
    assert asyncio.run(counted) == 3


def test_an_equality_delete_reaches_its_own_partition_only() -> None:
    table = StoredTable(flights_definition("carrier"))
    ua, aa = table.write(flights(*range(6)))
    table.entries = [ua, aa, equality_delete(table, _ids(0, 1, 2, 3), [1], 2, partition_of=aa)]
    assert sorted(ids_of(_scanned(table))) == [0, 2, 4, 5]


def test_null_is_a_partition_like_any_other() -> None:
    table = StoredTable(flights_definition("carrier"))
    rows = pa.table({"id": [1, 2], "carrier": [None, "AA"], "delay": [0.0, 0.0]}, FLIGHTS)
    nobody, aa = table.write(rows)
    table.entries = [nobody, aa, equality_delete(table, _ids(1, 2), [1], 2, partition_of=nobody)]
    assert ids_of(_scanned(table)) == [2]


def test_nan_is_a_partition_like_any_other() -> None:
    table = StoredTable(flights_definition("delay"))
    rows = pa.table({"id": [1, 2], "carrier": ["UA", "UA"], "delay": [float("nan"), 0.5]}, FLIGHTS)
    nowhere, half = table.write(rows)
    table.entries = [table.leaf([nowhere, half]), equality_delete(table, _ids(1, 2), [1], 2, partition_of=nowhere)]
    assert ids_of(_scanned(table)) == [2]
    table.entries[1] = equality_delete(table, _ids(1, 2), [1], 2, partition_of=half)
    assert ids_of(_scanned(table)) == [1]


def test_an_equality_delete_of_an_unpartitioned_spec_reaches_every_partition() -> None:
    definition = flights_definition("carrier")
    table = StoredTable(replace(definition, partition_specs=(*definition.partition_specs, PartitionSpec(1))))
    table.entries = [*table.write(flights(*range(6))), equality_delete(table, _ids(0, 3), [1], 2, spec_id=1)]
    assert sorted(ids_of(_scanned(table))) == [1, 2, 4, 5]


def test_a_global_delete_by_the_partition_column_reaches_all_its_values() -> None:
    definition = flights_definition("carrier")
    table = StoredTable(replace(definition, partition_specs=(*definition.partition_specs, PartitionSpec(1))))
    delete = equality_delete(table, pa.table({"carrier": ["AA", "UA"]}), [2], 2, spec_id=1)
    table.entries = [table.leaf(table.write(flights(*range(4)))), delete]
    assert ids_of(_scanned(table)) == []


def test_null_is_found_in_a_leaf_although_no_bound_shows_it(table: StoredTable) -> None:
    rows = pa.table({"id": [1, None], "carrier": ["UA", "UA"], "delay": [0.0, 0.0]}, FLIGHTS)
    table.entries = [table.leaf(table.write(rows)), equality_delete(table, _ids(99, None), [1], 2)]
    assert ids_of(_scanned(table)) == [1]


def test_a_spec_of_void_members_is_unpartitioned() -> None:
    definition = flights_definition("carrier", "bucket(4, id)")
    void = replace(definition.expressions[0], expr_id=definition.last_column_id + 1, transform="void", name="void")
    table = StoredTable(
        replace(
            definition,
            expressions=(*definition.expressions, void),
            partition_specs=(*definition.partition_specs, PartitionSpec(1, (void.expr_id,))),
            last_column_id=void.expr_id,
        )
    )
    table.entries = [*table.write(flights(*range(6))), equality_delete(table, _ids(0, 3), [1], 2, spec_id=1)]
    assert sorted(ids_of(_scanned(table))) == [1, 2, 4, 5]


def test_another_spec_with_the_same_values_is_another_partition() -> None:
    definition = flights_definition("carrier")
    table = StoredTable(replace(definition, partition_specs=(*definition.partition_specs, PartitionSpec(1, (2,)))))
    (file,) = table.write(flights(0, 2))
    elsewhere = replace(equality_delete(table, _ids(0, 2), [1], 2, partition_of=file), partition_spec_id=1)
    table.entries = [file, elsewhere]
    assert ids_of(_scanned(table)) == [0, 2]


def test_a_file_whose_partition_cannot_be_told_is_refused_where_deletes_may_apply() -> None:
    table = StoredTable(flights_definition("carrier"))
    (file,) = table.write(flights(0, 2))
    delete = equality_delete(table, _ids(0), [1], 2, partition_of=file)
    table.entries = [replace(file, content_stats={}), delete]
    with pytest.raises(Invalid, match=file.location) as caught:
        _scanned(table)
    assert caught.value.code == "equality-delete-unread"


def test_null_equals_null_and_nan_equals_nan(table: StoredTable) -> None:
    nan = float("nan")
    rows = pa.table(
        {"id": [1, 2, 3, 4, 5], "carrier": [None, "a", None, "b", "c"], "delay": [0.5, nan, None, -0.0, nan]}, FLIGHTS
    )
    table.entries = [*table.write(rows), equality_delete(table, pa.table({"carrier": pa.array([None, "b"])}), [2], 2)]
    assert ids_of(_scanned(table)) == [2, 5]
    table.entries[1] = equality_delete(table, pa.table({"delay": pa.array([nan, 0.0, 7.0])}), [3], 2)
    assert ids_of(_scanned(table)) == [1, 3]


def test_nan_is_not_pruned_by_bounds_that_do_not_show_it(table: StoredTable) -> None:
    nan = float("nan")
    rows = pa.table({"id": [1, 2], "carrier": ["a", "a"], "delay": [nan, 0.5]}, FLIGHTS)
    table.entries = [*table.write(rows), equality_delete(table, pa.table({"delay": [nan, 900.0]}), [3], 2)]
    assert ids_of(_scanned(table)) == [2]


def test_several_columns_must_be_equal_together(table: StoredTable) -> None:
    rows = pa.table({"id": [1, 1, 2, 2, None], "carrier": ["a", "b", "a", None, None], "delay": [0.0] * 5}, FLIGHTS)
    deleted = pa.table({"carrier": ["b", None, "a", "z"], "id": [1, 2, 7, 1]})
    table.entries = [*table.write(rows), equality_delete(table, deleted, [2, 1], 2)]
    assert _scanned(table, columns=["id", "carrier"]).to_pylist() == [
        {"id": 1, "carrier": "a"},
        {"id": 2, "carrier": "a"},
        {"id": None, "carrier": None},
    ]


def test_deletes_by_different_columns_add_up(table: StoredTable) -> None:
    table.entries = [
        _written(table, *range(6)),
        equality_delete(table, _ids(0), [1], 2),
        equality_delete(table, _ids(5), [1], 3),
        equality_delete(table, pa.table({"delay": [0.5]}), [3], 2),
        equality_delete(table, pa.table({"id": [4, 2], "carrier": ["UA", "AA"]}), [1, 2], 2),
    ]
    assert ids_of(_scanned(table)) == [2, 3]


def test_a_column_by_which_rows_are_deleted_is_read_although_nobody_asks_for_it(table: StoredTable) -> None:
    table.entries = [_written(table, *range(4)), equality_delete(table, _ids(1, 2), [1], 2)]
    assert _scanned(table, columns=["carrier"]).to_pydict() == {"carrier": ["UA", "AA"]}
    assert table.scan("delay > 0", ["delay"]).to_pydict() == {"delay": [1.5]}
    assert table.scan(columns=[]).num_rows == 2


def test_renamed_dropped_and_promoted_columns_still_delete() -> None:
    before = Schema(
        NestedField(1, "small", IntegerType()),
        NestedField(2, "gone", StringType()),
        NestedField(3, "pair", StructType(NestedField(4, "left", IntegerType()), NestedField(5, "r", StringType()))),
    )
    after = Schema(
        NestedField(1, "big", LongType()),
        NestedField(3, "pair", StructType(NestedField(5, "right", StringType()))),
        schema_id=1,
    )
    table = StoredTable(build_definition(before, table_uuid=uuid.UUID(int=3)))
    old = [{"small": n, "gone": "abc"[n], "pair": {"left": n, "r": str(n)}} for n in range(3)]
    (file,) = table.write(pa.Table.from_pylist(old, pa.schema([(f.name, f.type) for f in _arrow(before)])))
    narrow = equality_delete(table, pa.table({"small": pa.array([0], pa.int32())}), [1], 2)
    dropped = equality_delete(table, pa.table({"gone": ["b"]}), [2], 2)
    left = pa.field("left", pa.int32(), metadata={FIELD_ID_KEY: b"4"})
    pair = pa.field("pair", pa.struct([left]), metadata={FIELD_ID_KEY: b"3"})
    nested = pa.Table.from_pylist([{"pair": {"left": 2}}], pa.schema([pair]))
    inner = equality_delete(table, nested, [4], 2, with_statistics=False)
    table.definition = TableDefinition(
        **{**_fields_of(table.definition), "schemas": (before, after), "current_schema_id": 1}
    )
    wide = equality_delete(table, pa.table({"big": [2]}), [1], 2)
    for deletes, left_over in [([narrow], [1, 2]), ([dropped], [0, 2]), ([wide], [0, 1]), ([inner], [0, 1])]:
        table.entries = [file, *deletes]
        assert _scanned(table).column("big").to_pylist() == left_over
    table.entries = [file, narrow, wide, dropped]
    assert _scanned(table).num_rows == 0


def _arrow(schema: Schema) -> pa.Schema:
    from rootline.storage.rows.arrow_types import arrow_schema_of

    return arrow_schema_of(schema)


def _fields_of(definition: TableDefinition) -> dict[str, Any]:
    return {name: getattr(definition, name) for name in definition.__dataclass_fields__}


def test_a_column_that_a_data_file_is_older_than_reads_as_its_default(table: StoredTable) -> None:
    file = _written(table, 1, 2)
    grown = Schema(
        *table.definition.schema.fields,
        NestedField(9, "born", LongType(), initial_default=42),
        NestedField(10, "late", StringType()),
        NestedField(11, "pair", StructType(NestedField(12, "x", LongType())), initial_default={"12": 7}),
        schema_id=1,
    )
    table.definition = replace(table.definition, schemas=(table.definition.schema, grown), current_schema_id=1)
    table.entries = [file, equality_delete(table, pa.table({"born": [41]}), [9], 2)]
    assert ids_of(_scanned(table)) == [1, 2]
    table.entries = [file, equality_delete(table, pa.table({"born": [42]}), [9], 2)]
    assert ids_of(_scanned(table)) == []
    table.entries = [file, equality_delete(table, pa.table({"late": pa.array([None], pa.string())}), [10], 2)]
    assert ids_of(_scanned(table)) == []
    x = pa.field("x", pa.int64(), metadata={FIELD_ID_KEY: b"12"})
    schema = pa.schema([pa.field("pair", pa.struct([x]), metadata={FIELD_ID_KEY: b"11"})])
    for value, left in ((6, [1, 2]), (7, [])):
        rows = pa.Table.from_pylist([{"pair": {"x": value}}], schema)
        table.entries = [file, equality_delete(table, rows, [12], 2, with_statistics=False)]
        assert ids_of(_scanned(table)) == left


def test_rows_are_counted_where_more_rows_are_deleted_than_a_batch_holds(table: StoredTable) -> None:
    table.entries = [
        _written(table, *range(150_000)),
        equality_delete(table, _ids(*range(-100_000, 10)), [1], 2),
    ]
    assert asyncio.run(_counted(table)) == 149_990


async def _counted(table: StoredTable) -> int:
    table.commit()
    return await count_rows(table.store, TABLE, await table.plan(None), RowsWanted.of(table.definition, ()))


def test_an_equality_delete_file_without_its_column_is_refused(table: StoredTable) -> None:
    delete = equality_delete(table, pa.table({"carrier": ["UA"]}), [2], 2)
    table.entries = [_written(table, 0), replace(delete, equality_ids=(1,), content_stats={})]
    with pytest.raises(Invalid, match="lacks its key column id"):
        _scanned(table)


def test_a_damaged_or_missing_delete_file_never_leaves_rows_in_peace(table: StoredTable) -> None:
    delete, empty = equality_delete(table, _ids(1), [1], 2), equality_delete(table, _ids(1), [1], 2)
    for strange, reason in [
        (replace(delete, record_count=2), "has 1 rows"),
        (replace(delete, file_size_in_bytes=9), "bytes are stored"),
        (replace(delete, location="data/absent.parquet"), "does not exist"),
        (replaced(table, empty, b"", 1), "is not a Parquet file"),
    ]:
        table.entries = [_written(table, *range(3)), replace(strange, content_stats={})]
        with pytest.raises((Corrupt, Invalid), match=reason):
            _scanned(table)


def test_encrypted_delete_files_are_refused(table: StoredTable) -> None:
    delete = equality_delete(table, _ids(1), [1], 2)
    table.entries = [_written(table, *range(3)), replace(delete, key_metadata=b"k")]
    with pytest.raises(Invalid, match=delete.location) as caught:
        _scanned(table)
    assert caught.value.code == "file-unreadable"


# which delete files are read


def test_a_delete_file_of_ids_1_to_4_is_ignored_by_a_scan_for_id_9(table: StoredTable) -> None:
    file = _written(table, *range(1, 11))
    delete = equality_delete(table, _ids(1, 2, 3, 4), [1], 2)
    table.entries = [file, delete]
    assert asyncio.run(_locations_read(table, "id = 9")) == [file.location]
    assert ids_of(table.scan("id = 9")) == [9]
    assert delete.location in asyncio.run(_locations_read(table, "id = 3"))
    assert ids_of(table.scan("id = 3 or id = 9")) == [9]


def test_a_position_delete_file_with_rows_of_ids_1_to_4_is_ignored_by_a_scan_for_id_9(table: StoredTable) -> None:
    file = _written(table, *range(1, 11))
    row = pa.StructArray.from_arrays(
        [pa.array([1, 2, 3, 4])], fields=[pa.field("id", pa.int64(), metadata={FIELD_ID_KEY: b"1"})]
    )
    deletes = position_delete(table, [(file.location, n) for n in range(4)], file, 2, rows=row)
    deletes = replace(deletes, content_stats={1: FieldStatistics(1, 4, True, 4, 0)})
    table.entries = [file, table.adopted_leaf([deletes])]
    read = asyncio.run(_locations_read(table, "id = 9"))
    assert deletes.location not in read
    assert ids_of(table.scan("id = 9")) == [9]
    assert ids_of(table.scan("id < 7")) == [5, 6]


def test_other_columns_of_an_equality_delete_do_not_say_which_rows_it_deletes(table: StoredTable) -> None:
    file = _written(table, *range(4))
    delete = equality_delete(table, pa.table({"id": [1], "delay": [900.0]}), [1], 2)
    delete = replace(delete, content_stats={**delete.content_stats, 3: FieldStatistics(900.0, 900.0, True, 1, 0, 0)})
    table.entries = [file, delete]
    assert ids_of(_scanned(table, "delay < 10")) == [0, 2, 3]


def test_a_delete_file_that_shares_no_value_with_a_data_file_is_not_read_for_it(table: StoredTable) -> None:
    low, high = _written(table, *range(10)), _written(table, *range(10, 20))
    delete = equality_delete(table, _ids(3), [1], 2)
    table.entries = [low, high, delete]
    table.commit()
    first, second = asyncio.run(table.plan()).tasks()
    assert ([entry.location for entry in first.deletes.equality], second.deletes.equality) == ([delete.location], ())
    assert second.row_count() == 10


def test_a_delete_file_is_read_once_for_many_data_files(table: StoredTable) -> None:
    files = [_written(table, *range(5)) for _ in range(6)]
    delete = equality_delete(table, _ids(1), [1], 2)
    positions = position_delete(table, [(file.location, 0) for file in files], files[0], 2)
    table.entries = [*files, delete, table.adopted_leaf([positions])]
    read = asyncio.run(_locations_read(table))
    assert (read.count(delete.location), read.count(positions.location)) == (1, 1)
    assert ids_of(table.scan()) == [2, 3, 4] * 6


def test_a_task_carries_its_deletes_when_it_is_pickled() -> None:
    table = StoredTable(flights_definition("carrier"))
    files = table.write(flights(*range(8)))
    delete = equality_delete(table, _ids(0, 1), [1], 2, partition_of=files[0])
    positions = position_delete(table, [(files[0].location, 3)], files[0], 2)
    table.entries = [table.leaf(files), delete, table.adopted_leaf([positions])]
    table.commit()
    tasks = pickle.loads(pickle.dumps(list(asyncio.run(table.plan("id < 100")).tasks())))
    assert [len(task.deletes.equality) + len(task.deletes.positions) for task in tasks] == [2, 0]

    async def rows() -> list[int]:
        wanted = RowsWanted.of(table.definition, ["id"])
        found = [batch async for batch in scan_batches(table.store, TABLE, tasks, wanted)]
        return ids_of(pa.Table.from_batches(found))

    assert asyncio.run(rows()) == [2, 4, 1, 3, 5, 7]
