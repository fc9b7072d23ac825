"""Data frames of pandas and Polars, which the user may have or not.

Owns: telling them by the module of their type, so that neither library is imported for a value that is none of theirs;
their columns as Arrow. Does not own: what the columns become in a table (`given_rows`, `given_schema`).
Invariants: an index with a name is a column; a frame with columns that Arrow cannot hold is refused by column.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from rootline.client import checks
from rootline.schemas.errors import Invalid


def is_pandas_frame(value: object) -> bool:
    """Whether it is a `pandas.DataFrame`."""
    return _is_named(value, "pandas", "DataFrame")


def is_polars_frame(value: object) -> bool:
    """Whether it is a `polars.DataFrame` or a `polars.LazyFrame`."""
    return _is_named(value, "polars", "DataFrame") or _is_named(value, "polars", "LazyFrame")


def pandas_columns(frame: Any, code: str) -> dict[str, Any]:
    """Name → series, levels of the index that have a name first; `code` is the error's.

    Raises:
        Invalid: two columns share a name, or a name is no text.

    """
    named = [level for level, name in enumerate(frame.index.names) if name is not None]
    if named:
        try:
            frame = frame.reset_index(level=named)
        except ValueError as error:
            reason = f"the data frame's index cannot become a column: {error}; rename one of the two"
            raise Invalid(code, reason) from error
    columns: dict[str, Any] = {}
    for at, name in enumerate(frame.columns):
        if not isinstance(name, str):
            raise Invalid(code, f"the data frame's column {name!r} has a name that is no text; rename it")
        if name in columns:
            raise Invalid(code, f"the data frame has column {name!r} more than once; rename one of them")
        columns[checks.column_name(name, code)] = frame.iloc[:, at]
    return columns


def polars_table(frame: Any, code: str) -> pa.Table:
    """Its columns as Arrow; a lazy frame is collected. Raises `Invalid` (`code`), naming the column."""
    collected = frame.collect() if _is_named(frame, "polars", "LazyFrame") else frame
    _refuse_objects(collected.schema, code)
    try:
        return collected.to_arrow()
    except (pa.ArrowException, NotImplementedError) as error:
        for name in collected.columns:
            try:
                collected.select(name).to_arrow()
            except (pa.ArrowException, NotImplementedError) as fault:
                raise _no_arrow(name, collected.schema[name], code) from fault
        raise Invalid(code, f"the data frame cannot be read as Arrow: {error}") from error


def polars_series(series: Any, name: str, code: str) -> pa.Array:
    """A Polars series as Arrow. Raises `Invalid` (`code`)."""
    return polars_table(series.to_frame(name), code).column(0)


def is_series(value: object, library: str) -> bool:
    """Whether it is a series, or an index, of `pandas` or `polars`."""
    return _is_named(value, library, "Series") or _is_named(value, library, "Index")


def _refuse_objects(schema: Mapping[str, Any], code: str) -> None:
    for name, kind in schema.items():
        if "Object" in str(kind):  # Polars hands out addresses for these
            raise _no_arrow(name, kind, code)


def _no_arrow(name: str, kind: object, code: str) -> Invalid:
    return Invalid(code, f"column {name} is a Polars {kind}, which Arrow does not have; cast it first")


def _is_named(value: object, library: str, name: str) -> bool:
    return any(kind.__name__ == name and kind.__module__.partition(".")[0] == library for kind in type(value).__mro__)
