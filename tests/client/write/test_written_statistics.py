"""Statistics of written files: exact, and sound for every filter."""

from __future__ import annotations

import datetime as dt
import math
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings

from rootline.client import data_file
from rootline.client.create_drop import build_definition
from rootline.client.data_file_writer import write_files
from rootline.schemas.bytes.root.entry_codec import EntryCodec
from rootline.schemas.content_entry import (
    ContentEntry,
    ContentStats,
    ContentType,
    FieldStatistics,
    FileFormat,
    Status,
    VersionInfo,
)
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.rows.data_file_reader import RowsWanted, read_rows
from rootline.storage.rows.parquet_file import open_parquet
from rootline.storage.rows.row_deletes import RowDeletes
from rootline.tree.filter.pruning import PruningFilter, may_match, must_match
from tests.storage.stored_tables import uuids
from tests.support.examples import examples

SCHEMA = pa.schema(
    [
        pa.field("number", pa.int32()),
        pa.field("ratio", pa.float64()),
        pa.field("text", pa.string()),
        pa.field("day", pa.date32()),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("price", pa.decimal128(6, 2)),
        pa.field("pair", pa.struct([pa.field("left", pa.int64()), pa.field("right", pa.string())])),
    ]
)


def definition_of(*partition_by: str) -> TableDefinition:
    return build_definition(SCHEMA, partition_by=partition_by, table_uuid=uuid.UUID(int=3))


def statistics_in(content_stats: bytes | None, definition: TableDefinition) -> ContentStats:
    assert content_stats is not None
    return EntryCodec.of_definition(definition).statistics.decode(content_stats)[0]


def only_statistics(rows: list[dict[str, Any]], *partition_by: str) -> dict[str, FieldStatistics]:
    definition = definition_of(*partition_by)
    (written,) = write_files(pa.Table.from_pylist(rows, SCHEMA), definition, uuids())
    stats = statistics_in(written.data_file.content_stats, definition)
    return {field.name: stats[field.tracked_id] for field in definition.tracked_fields if field.tracked_id in stats}


PIECES: list[dict[str, Any]] = [
    {"number": 3, "text": "", "ratio": 0.0, "price": Decimal("1.50")},
    {"number": -(2**31), "text": "\U0010ffff" * 17, "ratio": -0.0, "pair": {"left": 1, "right": "b" * 20}},
    {"text": "a" * 40, "ratio": math.nan, "day": dt.date(1969, 12, 31), "pair": {"left": None, "right": ""}},
    {"number": 2**31 - 1, "ratio": math.nan, "at": dt.datetime(1, 1, 1, tzinfo=dt.UTC), "price": Decimal("-0.01")},
    {"text": "\ud7ff" * 16, "ratio": -2.5, "pair": {"left": -1, "right": None}},
    {},
]


@dataclass(frozen=True)
class RowByRow:
    """A Parquet file that is decoded a row at a time."""

    file: pq.ParquetFile

    def iter_batches(self, _rows: int, **chosen: Any) -> Iterator[pa.RecordBatch]:
        yield from self.file.iter_batches(1, **chosen)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)


def test_counts_and_bounds_are_exact() -> None:
    stats = only_statistics([{"number": 3, "text": "b"}, {"number": -4, "text": "éa"}, {"number": None, "text": None}])
    assert stats["number"] == FieldStatistics(-4, 3, True, 3, 1)
    assert stats["text"] == FieldStatistics("b", "éa", True, 3, 1, None, 2, 3)
    assert stats["price"] == FieldStatistics(None, None, None, 3, 3)


def test_nan_is_counted_and_is_no_bound() -> None:
    stats = only_statistics([{"ratio": math.nan}, {"ratio": 2.5}, {"ratio": None}])
    assert stats["ratio"] == FieldStatistics(2.5, 2.5, True, 3, 1, 1)
    assert only_statistics([{"ratio": math.nan}])["ratio"] == FieldStatistics(None, None, None, 1, 0, 1)


@settings(max_examples=examples(30))
@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=5), st.booleans())
def test_what_is_gathered_piece_by_piece_is_what_is_gathered_at_once(
    rows: list[dict[str, Any]], is_partitioned: bool
) -> None:
    """Pieces of one row each: zeros of both signs, NaN, nulls, texts that are truncated, a partition of NaN."""
    definition = definition_of(*(["ratio"] if is_partitioned else []))
    rows = [{**row, "ratio": rows[0].get("ratio")} if is_partitioned else row for row in rows]
    (written,) = write_files(pa.Table.from_pylist(rows, SCHEMA), definition, uuids())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data_file, "_PIECE_BYTES", 1)
        patch.setattr(data_file, "open_parquet", lambda source, name: RowByRow(open_parquet(source, name)))
        described = data_file.DataFile.from_parquet("data/x.parquet", definition, source=written.body)
    assert described.content_stats == written.data_file.content_stats
    assert described.record_count == len(rows)


@pytest.mark.parametrize("zeros", [(0.0,), (-0.0,), (0.0, -0.0)])
def test_the_lower_zero_is_negative_and_the_upper_one_positive(zeros: tuple[float, ...]) -> None:
    stats = only_statistics([{"ratio": zero} for zero in zeros])["ratio"]
    assert math.copysign(1, stats.lower_bound) == -1  # type: ignore[arg-type]
    assert math.copysign(1, stats.upper_bound) == 1  # type: ignore[arg-type]


def test_long_text_is_truncated_and_still_contained() -> None:
    stats = only_statistics([{"text": "abcdefghijklmnopqrst"}])["text"]
    assert (stats.lower_bound, stats.upper_bound, stats.tight_bounds) == ("abcdefghijklmnop", "abcdefghijklmnoq", False)
    assert only_statistics([{"text": "a" * 15 + "\U0010ffff" * 5}])["text"].upper_bound == "a" * 14 + "b"
    assert only_statistics([{"text": "a" * 15 + "\ud7ff" * 5}])["text"].upper_bound == "a" * 15 + "\ue000"
    assert only_statistics([{"text": "\U0010ffff" * 17}])["text"].upper_bound is None


def test_a_partition_value_is_never_truncated() -> None:
    stats = only_statistics([{"text": "abcdefghijklmnopqrst"}], "text")["text"]
    assert (stats.lower_bound, stats.upper_bound, stats.tight_bounds) == ("abcdefghijklmnopqrst",) * 2 + (True,)


def test_expressions_of_the_spec_carry_the_partition_value() -> None:
    stats = only_statistics(
        [{"day": dt.date(1970, 3, 4)}, {"day": dt.date(1970, 3, 9)}], "month(day)", "truncate(2, text)"
    )
    assert stats["day_month"] == FieldStatistics(2, 2, True, 2, 0)
    assert stats["text_truncate"] == FieldStatistics(None, None, None, 2, 2)


def test_members_of_structs_have_statistics_and_count_null_structs_as_null() -> None:
    stats = only_statistics([{"pair": {"left": 4, "right": None}}, {"pair": None}])
    assert stats["pair.left"] == FieldStatistics(4, 4, True, 2, 1)
    assert stats["pair.right"] == FieldStatistics(None, None, None, 2, 2)


EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
ROWS = st.fixed_dictionaries(
    {
        "number": st.none() | st.integers(-3, 3),
        "ratio": st.none() | st.sampled_from([-1.5, -0.0, 0.0, 2.5, math.nan, math.inf]),
        "text": st.none() | st.text("ab", max_size=3) | st.text("a", min_size=15, max_size=18),
        "day": st.none() | st.integers(-60, 90).map(lambda days: dt.date(1970, 1, 1) + dt.timedelta(days)),
        "at": st.none() | st.integers(-90, 90).map(lambda hours: EPOCH + dt.timedelta(hours=hours)),
        "price": st.none() | st.integers(-300, 300).map(lambda cents: Decimal(cents) / 100),
        "pair": st.none() | st.fixed_dictionaries({"left": st.none() | st.integers(0, 3)}),
    }
)  # fmt: skip
COMPARISON = st.sampled_from(["=", "!=", "<", "<=", ">", ">="])
TESTS = st.one_of(
    st.builds("number {} {}".format, COMPARISON, st.integers(-3, 3)),
    st.builds("ratio {} {}".format, COMPARISON, st.sampled_from([-1.5, 0.0, 2.5])),
    st.builds("text {} '{}'".format, COMPARISON, st.text("ab", max_size=3)),
    st.builds("text {} '{}%'".format, st.sampled_from(["like", "not like"]), st.text("ab", min_size=1, max_size=3)),
    st.builds("day {} '1970-0{}-15'".format, COMPARISON, st.integers(1, 3)),
    st.builds("at {} '1970-01-0{}T05:00:00Z'".format, COMPARISON, st.integers(1, 4)),
    st.builds("price {} {}.25".format, COMPARISON, st.integers(-2, 2)),
    st.builds("pair.left {} {}".format, COMPARISON, st.integers(0, 3)),
    st.builds("number {} (1, 2, 3)".format, st.sampled_from(["in", "not in"])),
    st.builds("text {} ('', 'a', 'b')".format, st.sampled_from(["in", "not in"])),
    st.builds("ratio {} (0.0, 2.5)".format, st.sampled_from(["in", "not in"])),
    st.builds(
        "{} {}".format,
        st.sampled_from(["number", "ratio", "text", "day", "at", "price", "pair.left", "pair"]),
        st.sampled_from(["is null", "is not null"]),
    ),
    st.sampled_from(["ratio is nan", "ratio is not nan"]),
)
FILTERS = TESTS | st.builds("not ({} and {})".format, TESTS, TESTS) | st.builds("{} or {}".format, TESTS, TESTS)
PARTITIONING = st.lists(
    st.sampled_from(
        ["number", "ratio", "text", "price", "day", "bucket(3, number)", "truncate(2, text)", "truncate(50, price)",
         "month(day)", "day(at)", "hour(at)", "year(day)", "bucket(2, text)", "truncate(2, number)"]
    ),
    max_size=2,
    unique=True,
)  # fmt: skip


@st.composite
def tables(draw: Callable[..., Any]) -> pa.Table:
    return pa.Table.from_pylist(draw(st.lists(ROWS, min_size=1, max_size=8)), SCHEMA)


@settings(deadline=None, max_examples=examples(150))
@given(tables(), PARTITIONING, FILTERS)
def test_no_filter_is_answered_wrongly_from_statistics(rows: pa.Table, partition_by: list[str], where: str) -> None:
    definition = definition_of(*partition_by)
    pruning = PruningFilter.of(where, definition)
    wanted = RowsWanted.of(definition, ["number"])
    written = write_files(rows, definition, uuids())
    assert sum(file.data_file.record_count for file in written) == rows.num_rows
    for file in written:
        stats, count = statistics_in(file.data_file.content_stats, definition), file.data_file.record_count
        info = VersionInfo(Status.EXISTING, 1, 1, 1)
        entry = ContentEntry(ContentType.DATA, "x", FileFormat.PARQUET, info, 0, count)
        matching = sum(batch.num_rows for batch in read_rows(file.body, entry, wanted, RowDeletes(), pruning.bound))
        if matching:
            assert may_match(pruning, stats, count, 0), "rows match in a file that would be pruned"
        if must_match(pruning, stats, count, 0):
            assert matching == count, "not every row matches, but the statistics said so"
