"""Batches have about the same size in memory, however small their rows are in the file."""

from __future__ import annotations

import uuid

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.types import ListType, LongType, NestedField

from rootline.client.create_drop import build_definition
from rootline.schemas.bytes.parquet_footer import ColumnChunk
from rootline.storage.rows.arrow_types import arrow_schema_of, may_cast
from rootline.storage.rows.parquet_file import ParquetRows, open_parquet
from rootline.storage.rows.row_projection import RowProjection, find_by_name, write_default
from tests.storage.rows.test_parts_of_files import read
from tests.storage.stored_tables import StoredTable, replaced

CHARS = 8_000
BATCH_BYTES_MAX = 40_000_000
"""Of a batch: 16 MiB, or 32 MiB if the footer states the size."""


def texts(rows: int, nulls: int = 0) -> pa.Array:
    """Nulls, then two texts of 8 kB in turn, which a file has once each."""
    numbers = pa.array(np.arange(rows) % 2, pa.int8(), mask=np.arange(rows) < nulls)
    return pa.DictionaryArray.from_arrays(numbers, ["A" * CHARS, "B" * CHARS])


def file_of(rows: pa.Table, group_rows: int = 2**20) -> ParquetRows:
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, row_group_size=group_rows, store_schema=False)
    body = sink.getvalue().to_pybytes()
    assert len(body) < sum(rows.num_rows * CHARS for _ in rows.column_names) // 50
    return ParquetRows(open_parquet(body, "a"), "a", body)


@pytest.mark.parametrize("rows", [200, 12_000, 60_000])
def test_a_batch_has_as_many_long_texts_as_fit_although_the_file_is_small(rows: int) -> None:
    file = file_of(pa.table({"body": texts(rows)}))
    sizes = [(batch.num_rows, batch.nbytes) for batch in file.batches(["body"])]
    assert sum(count for count, _ in sizes) == rows
    assert max(size for _, size in sizes) < BATCH_BYTES_MAX, "12,000 rows have 96 MB"
    assert len(sizes) < 40, "most are not far smaller either"


@pytest.mark.parametrize("is_stated", [True, False])
def test_rows_that_become_larger_within_a_row_group_make_smaller_batches(
    is_stated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = file_of(pa.table({"body": texts(60_000, nulls=30_000)}))
    if is_stated:
        assert file.chunks[0][0].text_bytes == 30_000 * CHARS
    else:  # by an old writer
        monkeypatch.setattr(ParquetRows, "chunks", [[ColumnChunk()]])
    sizes = [batch.nbytes for batch in file.batches(["body"])]
    assert max(sizes) < (BATCH_BYTES_MAX if is_stated else 16_384 * CHARS), "the first batch with texts"
    assert sorted(sizes)[-3] < BATCH_BYTES_MAX


def test_rows_of_the_next_row_group_may_be_far_larger(monkeypatch: pytest.MonkeyPatch) -> None:
    file = file_of(pa.table({"body": texts(40_000, nulls=20_000)}), group_rows=20_000)
    monkeypatch.setattr(ParquetRows, "chunks", [[ColumnChunk()], [ColumnChunk()]])  # by an old writer
    sizes = [(batch.num_rows, batch.nbytes) for batch in file.batches(["body"])]
    assert sum(rows for rows, _ in sizes) == 40_000
    assert max(size for _, size in sizes) < BATCH_BYTES_MAX


def test_lists_of_equal_numbers_are_counted_as_often_as_they_occur() -> None:
    items, rows = 1_000, 20_000
    offsets = np.arange(0, (rows + 1) * items, items, dtype=np.int32)
    lists = pa.ListArray.from_arrays(offsets, pa.array(np.full(rows * items, 7)))
    sizes = [batch.nbytes for batch in file_of(pa.table({"body": lists})).batches(["body"])]
    assert sum(sizes) > 150_000_000
    assert max(sizes) < BATCH_BYTES_MAX


def test_bytes_of_a_fixed_length_are_counted_with_their_length() -> None:
    bodies = pa.array([b"A" * CHARS], pa.binary(CHARS)).take(pa.array(np.zeros(12_000, np.int32)))
    sizes = [batch.nbytes for batch in file_of(pa.table({"body": bodies})).batches(["body"])]
    assert sum(sizes) >= 12_000 * CHARS
    assert max(sizes) < BATCH_BYTES_MAX


def test_a_filter_on_a_narrow_column_does_not_make_batches_of_the_wide_ones_larger() -> None:
    rows = pa.table({"key": np.arange(20_000) % 5 * 3, "body": texts(20_000)})
    schema = pa.schema([("key", pa.int64()), ("body", pa.string())])
    table = StoredTable(build_definition(schema, table_uuid=uuid.UUID(int=3)))
    (entry,) = table.write(pa.table({"key": [0], "body": ["A"]}, arrow_schema_of(table.definition.schema)))
    body = file_of(rows).source
    assert isinstance(body, bytes)
    table.entries = [replaced(table, entry, body, rows.num_rows)]
    table.commit()
    assert max(batch.nbytes for batch in read(table, "key <> 7").to_batches()) < BATCH_BYTES_MAX
    assert read(table, "key = 3").num_rows == 4_000


def test_a_slice_of_lists_is_converted_without_the_members_of_other_rows() -> None:
    field = NestedField(1, "body", ListType(2, LongType(), element_required=False))
    given = pa.RecordBatch.from_pydict({"body": pa.array([[1] * 100] * 100 + [None, [], [3]], pa.list_(pa.int32()))})
    projection = RowProjection(find_by_name, write_default, "rows-invalid", "rows", accepts=may_cast)
    for start, count in ((0, 10), (50, 10), (95, 8), (100, 2), (102, 1), (50, 0)):
        found = projection.columns(given.slice(start, count), [field])
        found.validate(full=True)
        assert found.to_pylist() == given.slice(start, count).to_pylist()
        assert len(found.column(0).values) == sum(len(row["body"] or ()) for row in found.to_pylist())
        assert found.column(0).flatten().to_pylist() == [one for row in found.to_pylist() for one in row["body"] or ()]
