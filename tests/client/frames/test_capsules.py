"""Rows, columns and schemas from whatever exports Arrow, whichever library it is of."""

from __future__ import annotations

import uuid
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from rootline.client.create_drop import build_definition
from rootline.client.data_file_writer import checked_rows
from rootline.client.given_rows import GivenRows
from rootline.client.given_schema import given_schema
from rootline.schemas.errors import Invalid

TEXTS = ["UA", None, "a text that is too long for a view to hold"]
ROWS = [{"id": at, "carrier": text} for at, text in enumerate(TEXTS)]


class Exported:
    """Nothing but `__arrow_c_array__`, as a batch or an array of another library has it."""

    def __init__(self, array: pa.Array | pa.RecordBatch) -> None:
        self._array = array

    def __arrow_c_array__(self, requested_schema: object = None) -> object:
        return self._array.__arrow_c_array__(requested_schema)


class Streamed:
    """Nothing but `__arrow_c_stream__`."""

    def __init__(self, chunks: pa.ChunkedArray) -> None:
        self._chunks = chunks

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._chunks.__arrow_c_stream__(requested_schema)


def kept(data: Any, **columns: Any) -> list[dict[str, Any]]:
    definition = build_definition(given_schema(columns), table_uuid=uuid.UUID(int=1))
    return list(checked_rows(GivenRows.of(data).for_schema(definition.schema), definition).to_pylist())


@pytest.mark.parametrize(
    "data",
    [
        Exported(pa.RecordBatch.from_pylist(ROWS)),
        [Exported(pa.RecordBatch.from_pylist(ROWS[:1])), pa.table(pa.RecordBatch.from_pylist(ROWS[1:]))],
        [pl.DataFrame(ROWS[:2], schema={"id": pl.Int64, "carrier": pl.String}), pl.DataFrame(ROWS[2:])],
        {"id": Exported(pa.array([0, 1, 2])), "carrier": Streamed(pa.chunked_array([TEXTS[:1], TEXTS[1:]]))},
        {"id": [0, 1, 2], "carrier": pl.Series(TEXTS, dtype=pl.Categorical)},
    ],
    ids=["batch", "batches", "frames", "columns", "categories"],
)
def test_what_exports_arrow_is_taken_as_rows_and_as_a_column(data: Any) -> None:
    assert kept(data, id="long", carrier="string") == ROWS


def test_an_exported_batch_is_a_schema() -> None:
    schema = given_schema(Exported(pa.RecordBatch.from_pylist(ROWS)))
    assert [(field.name, str(field.field_type)) for field in schema.fields] == [("id", "long"), ("carrier", "string")]


def test_categories_of_views_are_taken_at_every_depth_and_without_rows() -> None:
    frame = pl.DataFrame({"x": [["a", None], None, []]}, schema={"x": pl.List(pl.Categorical)})
    nested = frame.select(pl.col("x"), pl.struct(pl.col("x").list.first().alias("m")).alias("s"))
    found = [{"x": ["a", None], "s": {"m": "a"}}, {"x": None, "s": {"m": None}}, {"x": [], "s": {"m": None}}]
    columns = {"x": "list<string>", "s": {"m": "string"}}
    assert kept(nested, **columns) == found
    assert kept(nested[1:], **columns) == found[1:]
    assert kept(nested[:0], **columns) == []


def test_a_reader_without_batches_still_has_its_columns() -> None:
    given = GivenRows.of(pa.RecordBatchReader.from_batches(pa.schema([("id", pa.int64())]), []))
    assert (given.num_rows, given.names) == (0, ["id"])


class Broken:
    """A struct whose member is shorter than itself, as faulty exporters make it."""

    def __arrow_c_array__(self, requested_schema: object = None) -> object:
        whole = pa.StructArray.from_buffers(pa.struct([("x", pa.int64())]), 3, [None], children=[pa.array([1])])
        return whole.__arrow_c_array__(requested_schema)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (Broken(), "a Broken cannot be read as rows: "),
        ({"x": Broken()}, "column x: a Broken cannot be read as Arrow: "),
        (Exported(pa.array([1])), "a Exported cannot be read as rows: "),
        ([Exported(pa.RecordBatch.from_pylist(ROWS)), pl.DataFrame({"other": [1]})], "the batches differ"),
        ({"x": pa.table({"x": [1]})}, "column x: a Table is not a column"),
        ({"x": pa.table({"x": [1]}).to_reader()}, "column x: a RecordBatchReader is not a column"),
        ({"x": pl.Series([object()])}, "column x is a Polars Object, which Arrow does not have; cast it first"),
        (pl.DataFrame({"a": [1], "x": [1]}, schema_overrides={"x": pl.Int128}), "column x is a Polars Int128"),
    ],
)
def test_an_export_that_holds_no_sound_rows_is_refused(data: Any, reason: str) -> None:
    with pytest.raises(Invalid, match=reason) as caught:
        GivenRows.of(data)
    assert caught.value.code == "rows-invalid"
