"""Field ids that are written into a footer afterwards are those that a writer would have written."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rootline.schemas.bytes.parquet_footer import with_field_ids

KEY = b"PARQUET:field_id"


def column(name: str, kind: pa.DataType, field_id: int | None) -> pa.Field:
    return pa.field(name, kind, metadata=None if field_id is None else {KEY: str(field_id)})


def schema_of(ids: Iterator[int | None]) -> pa.Schema:
    """A column of each shape. Their elements in the footer end with a logical type, a precision, or only a name."""

    def number() -> int | None:
        return next(ids)

    pair = pa.struct([column("s", pa.string(), number()), column("d", pa.decimal128(9, 2), number())])
    items = pa.list_(column("element", pair, number()))
    codes = pa.map_(
        column("key", pa.string(), number()).with_nullable(False),
        column("value", pa.list_(column("element", pa.int32(), number())), number()),
    )
    return pa.schema(
        [
            column("items", items, number()),
            column("codes", codes, number()),
            column("at", pa.timestamp("us", "UTC"), number()),
            column("plain", pa.int64(), number()),
        ]
    )


ELEMENTS = (None, 5, None, 3, 1, 2, 9, None, 6, 8, None, 7, 10, 70_000)
"""The ids in the order of Parquet's elements: the root, `items` with its inner group and element, and so on."""


def file_of(schema: pa.Schema) -> bytes:
    body = pa.BufferOutputStream()
    row = {"items": [{"s": "a", "d": None}, None], "codes": [("k", [1, None])], "at": None, "plain": 1}
    pq.write_table(pa.Table.from_pylist([row] * 3, schema), body, store_schema=False)
    return body.getvalue().to_pybytes()


def with_footer(file: bytes, footer: bytes) -> bytes:
    return file[: -8 - len(footer_of(file))] + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def footer_of(file: bytes) -> bytes:
    return file[-8 - int.from_bytes(file[-8:-4], "little") : -8]


NUMBERS = (1, 2, 3, 6, 7, 8, 5, 9, 10, 70_000)
"""The ids in the order in which `schema_of` takes them."""


def test_absent_ids_are_added_and_everything_else_stays() -> None:
    full = schema_of(iter(NUMBERS))
    for absent in ((), (3, 6, 7, 8), NUMBERS):
        file = file_of(schema_of(None if field_id in absent else field_id for field_id in NUMBERS))
        made = with_footer(file, with_field_ids(footer_of(file), ELEMENTS))
        assert made[: len(file) - 8 - len(footer_of(file))] == file[: -8 - len(footer_of(file))]
        assert made == file_of(full)
        assert with_field_ids(footer_of(made), ELEMENTS) == footer_of(made)


@pytest.mark.parametrize(
    "ids", [ELEMENTS[:-1], (*ELEMENTS, 1), (*ELEMENTS[:-1], 71_000)], ids=["too few", "too many", "another id"]
)
def test_a_footer_of_other_columns_is_refused(ids: tuple[int | None, ...]) -> None:
    footer = footer_of(file_of(schema_of(iter(NUMBERS))))
    with pytest.raises(ValueError, match=r"14 elements, not 1[35]|field id 70000, not 71000"):
        with_field_ids(footer, ids)


@pytest.mark.parametrize("cut", [0, 1, 40])
def test_a_footer_that_ends_early_is_refused(cut: int) -> None:
    footer = footer_of(file_of(schema_of(iter(NUMBERS))))
    with pytest.raises(ValueError, match="it ends early"):
        with_field_ids(footer[:cut], ELEMENTS)
