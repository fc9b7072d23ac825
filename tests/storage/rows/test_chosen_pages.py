"""Pages without chosen rows are not decoded, and every chosen row has its values."""

from __future__ import annotations

import datetime as dt
import itertools
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rootline.schemas.bytes.parquet_footer import Physical, column_chunks
from rootline.schemas.bytes.parquet_pages import FlatColumn, with_needed_pages
from rootline.storage.rows.parquet_file import ParquetRows, open_parquet
from tests.support.examples import examples

ROWS = 120
VALUES: dict[str, tuple[pa.DataType, Any]] = {
    "flag": (pa.bool_(), lambda at: at % 3 == 0),
    "int": (pa.int32(), lambda at: at),
    "long": (pa.int64(), lambda at: at * 2**40),
    "float": (pa.float32(), lambda at: at / 2),
    "double": (pa.float64(), lambda at: float("nan") if at % 7 == 0 else at / 3),
    "text": (pa.string(), lambda at: "ä" * (at % 5)),
    "few": (pa.string(), lambda at: "ab"[at % 2]),
    "category": (pa.dictionary(pa.int32(), pa.string()), lambda at: "abc"[at % 3]),
    "blob": (pa.binary(), lambda at: bytes([at % 256]) * (at % 4)),
    "fixed": (pa.binary(5), lambda at: bytes([at % 256]) * 5),
    "money": (pa.decimal128(20, 2), lambda at: Decimal(at) / 4 * 1),
    "day": (pa.date32(), lambda at: dt.date(2013, 1, 1) + dt.timedelta(days=at)),
    "moment": (pa.timestamp("us", "UTC"), lambda at: dt.datetime(2013, 1, 1, tzinfo=dt.UTC) + dt.timedelta(at)),
    "nested": (pa.struct([("a", pa.int64()), ("b", pa.string())]), lambda at: {"a": at, "b": str(at)}),
    "many": (pa.list_(pa.int64()), lambda at: [at] * (at % 3)),
}


def rows_of(is_optional: bool) -> pa.Table:
    """Every fifth value of an optional column is null."""
    schema = pa.schema([pa.field(name, kind, nullable=is_optional) for name, (kind, _) in VALUES.items()])
    columns = [
        pa.array([None if is_optional and at % 5 == 1 else value(at) for at in range(ROWS)], kind)
        for kind, value in VALUES.values()
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def body_of(rows: pa.Table, **options: Any) -> bytes:
    """A file with pages of a few rows."""
    sink = pa.BufferOutputStream()
    small = {"write_batch_size": 4, "data_page_size": 8, "dictionary_pagesize_limit": 300}
    pq.write_table(rows, sink, **{"row_group_size": 50, "write_page_checksum": True, **small, **options})
    return sink.getvalue().to_pybytes()


OPTIONS: list[dict[str, Any]] = [
    {"compression": codec, "data_page_version": version, **encodings}
    for codec, version in itertools.product(("zstd", "snappy", "none"), ("1.0", "2.0"))
    for encodings in (
        {},
        {"use_dictionary": False},
        {"use_dictionary": False, "column_encoding": {"long": "DELTA_BINARY_PACKED", "text": "DELTA_BYTE_ARRAY"}},
    )
]
FILES = {
    (is_optional, at): (rows := rows_of(is_optional), body_of(rows, **options))
    for is_optional in (True, False)
    for at, options in enumerate(OPTIONS)
}


@given(
    file=st.sampled_from(list(FILES)),
    groups=st.sampled_from([(0,), (1,), (2,), (0, 1), (1, 2), (0, 1, 2)]),
    chosen=st.sets(st.integers(0, ROWS - 1), max_size=6),
    columns=st.lists(st.sampled_from(list(VALUES)), min_size=1, unique=True),
)
@settings(max_examples=examples(150), deadline=None)
def test_chosen_rows_have_their_values(
    file: tuple[bool, int], groups: tuple[int, ...], chosen: set[int], columns: list[str]
) -> None:
    rows, body = FILES[file]
    within = rows.slice(groups[0] * 50, sum(50 if group < 2 else 20 for group in groups))
    flags = np.isin(np.arange(within.num_rows), list(chosen))
    opened = ParquetRows(open_parquet(body, "a"), "a", body)
    sparse = opened.with_rows(groups, columns, flags)
    assert sparse is not None
    found = pa.Table.from_batches(sparse.batches_of(groups, columns)).select(columns)
    assert found.num_rows == within.num_rows
    expected = within.select(columns).filter(pa.array(flags))
    assert repr(found.filter(pa.array(flags)).to_pylist()) == repr(expected.to_pylist())


def test_damage_in_pages_is_found_where_their_rows_are_chosen() -> None:
    body = body_of(pa.table({"long": range(ROWS)}), use_dictionary=False, row_group_size=ROWS)
    chunk = column_chunks(footer_of(body))[0][0]
    damaged = bytearray(body)
    damaged[chunk.start + chunk.size - 2] ^= 1
    opened = ParquetRows(open_parquet(bytes(damaged), "a"), "a", bytes(damaged))
    rows = np.arange(ROWS)
    fine = opened.with_rows((0,), ["long"], rows == 3)
    assert fine is not None
    assert next(fine.batches_of((0,), ["long"])).column(0)[3].as_py() == 3
    bad = opened.with_rows((0,), ["long"], rows == ROWS - 1)
    assert bad is not None
    with pytest.raises(Exception, match="a: cannot be decoded"):
        list(bad.batches_of((0,), ["long"]))


def footer_of(body: bytes) -> bytes:
    return body[-8 - int.from_bytes(body[-8:-4], "little") : -8]


@given(at=st.integers(0, 400), bits=st.integers(1, 255), values=st.integers(0, 500))
@settings(max_examples=examples(200), deadline=None)
def test_hostile_headers_raise_one_kind_of_error(at: int, bits: int, values: int) -> None:
    body = body_of(pa.table({"long": range(ROWS)}), row_group_size=ROWS, compression="none")
    chunk = column_chunks(footer_of(body))[0][0]
    pages = bytearray(body[chunk.start : chunk.start + chunk.size])
    pages[at % len(pages)] ^= bits
    for column in (FlatColumn(Physical.INT64, 0, True), FlatColumn(Physical.FIXED, 2**31 - 1, False)):
        try:
            made = with_needed_pages(bytes(pages), values, column, lambda start, end: start < 90 < end)
        except ValueError:
            continue
        assert len(made) == len(pages)
