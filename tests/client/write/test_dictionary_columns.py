"""Which columns of a file have a dictionary."""

from __future__ import annotations

import uuid

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rootline.client.create_drop import build_definition
from rootline.client.data_file_writer import dictionary_columns, write_files

ROWS = 40_000
NUMBERS = np.arange(ROWS)


def with_dictionary(rows: pa.Table) -> set[str]:
    """The columns of the file of `rows` that have one."""
    (written,) = write_files(rows, build_definition(rows.schema, table_uuid=uuid.UUID(int=1)), iter(uuid.uuid4, None))
    group = pq.read_metadata(pa.BufferReader(written.body)).row_group(0)
    columns = [group.column(at) for at in range(group.num_columns)]
    return {column.path_in_schema for column in columns if column.has_dictionary_page}


def test_a_column_whose_values_all_differ_has_no_dictionary_and_every_other_has_one() -> None:
    rows = pa.table(
        {
            "id": NUMBERS,
            "at": pa.array(NUMBERS * 1_000, pa.timestamp("us")),
            "delay": np.random.default_rng(1).normal(size=ROWS),
            "name": [f"N{number}" for number in NUMBERS],
            "key": pa.array([uuid.UUID(int=int(number)).bytes for number in NUMBERS], pa.uuid()),
            "carrier": np.array(["UA", "AA"])[NUMBERS % 2],
            "cycle": NUMBERS % 10_000,
            "run": NUMBERS // 4,
            "nothing": pa.nulls(ROWS, pa.int64()),
        }
    )
    assert with_dictionary(rows) == {"carrier", "cycle", "run", "nothing"}


def test_columns_in_structs_lists_and_maps_keep_theirs() -> None:
    kind = pa.struct([("x", pa.int64()), ("tags", pa.list_(pa.string())), ("map", pa.map_(pa.string(), pa.int64()))])
    rows = pa.table({"s": pa.array([{"x": 1, "tags": ["a"], "map": [("k", 1)]}] * 10, kind), "id": range(10)})
    expected = {"s.x", "s.tags.list.element", "s.map.key_value.key", "s.map.key_value.value"}
    assert with_dictionary(rows) == expected


@pytest.mark.parametrize("count", [0, 1, 2])
def test_few_rows_are_no_fault(count: int) -> None:
    assert dictionary_columns(pa.table({"id": pa.array(range(count), pa.int64())})) == (["id"] if not count else [])


def test_a_column_of_no_type_is_no_fault() -> None:
    rows = pa.table({"id": [1, 2], "unknown": pa.nulls(2)})
    assert dictionary_columns(rows) == ["unknown"]


def test_the_memory_of_the_choice_does_not_grow_with_the_width_of_the_rows() -> None:
    wide = pa.table({"different": [f"{at:05}" * 20_000 for at in range(600)], "same": ["x" * 100_000] * 600})
    before = pa.default_memory_pool()
    counted = pa.proxy_memory_pool(before)
    pa.set_memory_pool(counted)
    try:
        assert dictionary_columns(wide) == ["same"]
    finally:
        pa.set_memory_pool(before)
    assert counted.max_memory() < 20_000_000, "the column has 60 MB"
