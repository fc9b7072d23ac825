"""Columns of a filter are decoded first, and the others only where rows match: the same rows, less work."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, LongType, NestedField, StringType, StructType

from rootline.client.create_drop import build_definition
from rootline.schemas.errors import Corrupt
from rootline.schemas.object_keys import key_of
from rootline.storage.rows.arrow_types import arrow_schema_of
from rootline.storage.rows.data_file_reader import _Following
from rootline.storage.rows.parquet_file import CachedPart, CachedParts
from rootline.storage.rows.stored_rows import PartReads
from tests.storage.rows.test_parts_of_files import IN_PARTS, PartsStore, read, stored
from tests.storage.stored_tables import TABLE, StoredTable
from tests.support.examples import examples

WHOLE = PartReads(every_column_bytes=2**40, some_columns_bytes=2**40)
GROUP_ROWS = 100_000


def table_of(rows: pa.Table, group_rows: int) -> StoredTable:
    table = StoredTable(build_definition(rows.schema, table_uuid=uuid.UUID(int=3)))
    table.entries = [stored(table, rows, group_rows)]
    table.commit()
    return table


def scattered(rows: int = 4 * GROUP_ROWS) -> pa.Table:
    """A `key` that statistics of row groups do not exclude, one row of `key = 7` at a time, and other columns."""
    key = np.arange(rows) % 5 * 3  # 0, 3, 6, 9, 12
    key[2 * GROUP_ROWS + 17] = 7
    noise = np.random.default_rng(7).integers(0, 2**62, rows)
    return pa.table({"key": key, "noise": noise, "other": noise[::-1].copy()})


def damaged(table: StoredTable, group: int, share: float) -> None:
    """Damage column `noise` of a row group at this share of its bytes, so that whoever decodes that page notices."""
    key = key_of(TABLE, table.entries[0].location)
    found = asyncio.run(table.store.get(key))
    assert found is not None
    chunk = pq.ParquetFile(pa.BufferReader(found.body)).metadata.row_group(group).column(1)
    at = chunk.data_page_offset + int(chunk.total_compressed_size * share)
    table.store.place(key, found.body[:at] + bytes([found.body[at] ^ 1]) + found.body[at + 1 :])


@pytest.mark.parametrize("part_reads", [WHOLE, IN_PARTS])
def test_only_pages_of_other_columns_with_a_match_are_decoded(part_reads: PartReads) -> None:
    table = table_of(scattered(), GROUP_ROWS)
    for group, share in ((0, 0.1), (1, 0.5), (2, 0.5), (2, 0.9), (3, 0.1)):
        damaged(table, group, share)
    found = read(table, "key = 7", ["_pos", "noise"], part_reads=part_reads)
    assert found.column("_pos").to_pylist() == [2 * GROUP_ROWS + 17]
    damaged(table, 2, 0.1)
    with pytest.raises(Corrupt, match="cannot be decoded"):
        read(table, "key = 7", ["noise"], part_reads=part_reads)


def test_other_columns_are_fetched_only_for_row_groups_with_a_match() -> None:
    rows = scattered()
    table = table_of(rows, GROUP_ROWS)
    few, every = PartsStore(table), PartsStore(table)
    assert read(table, "key = 7", store=few) == rows.slice(2 * GROUP_ROWS + 17, 1)
    assert read(table, None, store=every) == rows
    assert few.bytes_read < every.bytes_read / 3


def test_when_rows_match_the_next_row_groups_are_fetched_with_one_request() -> None:
    table = table_of(scattered(), GROUP_ROWS)
    filtered, every = PartsStore(table), PartsStore(table)
    expected = read(table, None, store=every).filter(pc.field("key") > 3)
    assert read(table, "key > 3", store=filtered) == expected
    assert len(filtered.ranges) <= len(every.ranges) + 2


FILTERS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "a = 1": lambda row: row["a"] == 1,
    "a is null": lambda row: row["a"] is None,
    "x > 0.5": lambda row: row["x"] is not None and row["x"] > 0.5,
    "x is nan": lambda row: row["x"] is not None and row["x"] != row["x"],
    "x is not nan": lambda row: row["x"] is not None and row["x"] == row["x"],
    "s.t = 'u'": lambda row: row["s"] is not None and row["s"]["t"] == "u",
    "s.n is null": lambda row: row["s"] is None or row["s"]["n"] is None,
    "born = 42 and a > 0": lambda row: row["a"] is not None and row["a"] > 0,
    "born != 42": lambda row: False,
    "added is null and a = 2": lambda row: row["a"] == 2,
    "a = 0 or s.n = 1": lambda row: row["a"] == 0 or (row["s"] is not None and row["s"]["n"] == 1),
}
"""Filter → whether a row matches. Some read columns that the files lack."""
STRUCT = StructType(NestedField(4, "t", StringType()), NestedField(5, "n", LongType()))
BEFORE = Schema(NestedField(1, "a", LongType()), NestedField(2, "x", DoubleType()), NestedField(3, "s", STRUCT))
AFTER = Schema(
    *BEFORE.fields,
    NestedField(6, "born", LongType(), required=True, initial_default=42),
    NestedField(7, "added", StringType()),
    schema_id=1,
)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "a": st.none() | st.integers(0, 2),
            "x": st.none() | st.sampled_from([0.0, 1.0, float("nan")]),
            "s": st.none()
            | st.fixed_dictionaries({"t": st.sampled_from(["u", "v", None]), "n": st.none() | st.just(1)}),
        }
    ),
    min_size=1,
    max_size=12,
)


@given(
    rows=ROWS,
    where=st.sampled_from(list(FILTERS)),
    columns=st.lists(st.sampled_from(["a", "x", "s", "born", "added", "_pos", "_deleted"]), unique=True),
    deleted=st.sets(st.integers(0, 11)),
    group_rows=st.integers(1, 12),
    part_reads=st.sampled_from([WHOLE, IN_PARTS]),
)
@settings(max_examples=examples(80), deadline=None)
def test_rows_are_those_that_a_filter_of_dictionaries_selects(
    rows: list[dict[str, Any]],
    where: str,
    columns: list[str],
    deleted: set[int],
    group_rows: int,
    part_reads: PartReads,
) -> None:
    table = StoredTable(build_definition(BEFORE, table_uuid=uuid.UUID(int=3)))
    table.entries = [stored(table, pa.Table.from_pylist(rows, arrow_schema_of(BEFORE)), group_rows)]
    gone = sorted(at for at in deleted if at < len(rows))
    if gone:
        table.entries.append(table.vector(table.entries[0], gone))
    table.definition = replace(table.definition, schemas=(BEFORE, AFTER), current_schema_id=1)
    table.commit()
    whole = [
        {**row, "born": 42, "added": None, "_pos": at, "_deleted": at in gone}
        for at, row in enumerate(rows)
        if FILTERS[where](row) and (at not in gone or "_deleted" in columns)
    ]
    found = read(table, where, ["_pos", *columns], part_reads=part_reads).to_pylist()
    expected = [{name: row[name] for name in ["_pos", *columns]} for row in whole]
    assert json.dumps(found, sort_keys=True) == json.dumps(expected, sort_keys=True)  # NaN is alike in texts


def test_batches_of_a_large_row_group_keep_their_rows_together() -> None:
    count = 400_000
    numbers = np.arange(count)
    texts = pa.array([f"{number:0>40}" for number in numbers])
    rows = pa.table({"number": numbers, "text": texts, "third": numbers % 3})
    table = table_of(rows, 250_000)
    for where, chosen in (
        ("third = 1 and number >= 200001", (numbers % 3 == 1) & (numbers >= 200_001)),
        ("third = 2 and number in (5, 131072, 399998)", np.isin(numbers, [5, 131_072, 399_998]) & (numbers % 3 == 2)),
    ):
        for part_reads in (WHOLE, IN_PARTS):
            assert read(table, where, part_reads=part_reads) == rows.filter(pa.array(chosen))


@given(sizes=st.lists(st.integers(0, 5), max_size=8), steps=st.lists(st.tuples(st.booleans(), st.integers(1, 5))))
@settings(max_examples=examples(100), deadline=None)
def test_following_rows_are_the_ones_at_their_place_however_they_are_cut(
    sizes: list[int], steps: list[tuple[bool, int]]
) -> None:
    starts = np.cumsum([0, *sizes])
    following = _Following(
        pa.RecordBatch.from_pydict({"n": pa.array(range(start, start + size), pa.int64())})
        for start, size in zip(starts.tolist(), sizes, strict=False)
    )
    at, total = 0, sum(sizes)
    for is_skipped, rows in steps:
        if at + rows > total:
            break
        if is_skipped:
            following.skip(rows)
        else:
            found = [value for part in following.next(rows) for value in part.column(0).to_pylist()]
            assert found == list(range(at, at + rows))
        at += rows


def test_parts_of_two_fetches_may_overlap() -> None:
    body = bytes(range(200))
    cached = CachedParts(200, CachedPart(190, body[190:]))
    cached.use([CachedPart(start, body[start:end]) for start, end in ((50, 60), (0, 100), (40, 55), (100, 150))])
    for start, size in ((0, 100), (55, 40), (50, 10), (99, 1), (100, 50), (190, 10)):
        cached.seek(start)
        assert cached.read(size) == body[start : start + size]
