"""New values of columns: Python's values, and expressions of Arrow over the current values.

Owns: the check of a caller's mapping of columns to values, computing the values. Does not own: the casts that a table
accepts (`row_projection`), the rows that get the values (`row_updates`).
Invariants: a value is cast as in an append: it changes in no cast, or the change is refused with the column's name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema

from rootline.client import checks
from rootline.client.given_values import CODE, FAULTS, values_of
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import TableName
from rootline.storage.rows.arrow_types import may_cast, repeated
from rootline.storage.rows.row_projection import RowProjection, find_by_name, write_default

PROJECTION: Final = RowProjection(find_by_name, write_default, CODE, "rows", accepts=may_cast)
"""The conversion of rows that a user gives, found by name, to a table's columns."""


def given_assignments(given: object, name: str) -> dict[str, Any]:
    """A caller's mapping of columns to values. Raises `Invalid` (`setting-invalid`) for another
    type, or an empty one.
    """
    if not isinstance(given, Mapping) or not given:
        shown = "no column" if isinstance(given, Mapping) else f"{given!r:.80}"
        raise Invalid(
            "setting-invalid", f"{name} is {shown}: give a dict of columns and values, as in {{'seats': 100}}"
        )
    return {checks.column_name(column, "setting-invalid"): value for column, value in given.items()}


def check_assigned(table: TableName, assigned: Mapping[str, Any], schema: Schema, given: pa.Schema) -> None:
    """Check that the table has these columns, and that their values can be computed over rows of the schema `given`.

    Raises:
        Invalid: `column-unknown`; and as `assigned_columns`.
    """
    known = [field.name for field in schema.fields]
    for name in assigned:
        if name not in known:
            raise Invalid("column-unknown", f"{table}: there is no column {name!r}; there is {', '.join(known[:40])}")
    no_rows = pa.RecordBatch.from_arrays([pa.nulls(0, kind) for kind in given.types], given.names)
    assigned_columns(assigned, no_rows, schema)


def assigned_columns(assigned: Mapping[str, Any], rows: pa.RecordBatch, schema: Schema) -> dict[str, pa.Array]:
    """The new values of the columns `assigned` in `rows`, over which expressions are computed, in the table's types.

    Raises:
        Invalid: `rows-invalid`, a value cannot be computed, or does not fit. The message names the column.
    """
    found: dict[str, pa.Array] = {}
    for field in schema.fields:
        if field.name not in assigned:
            continue
        value = assigned[field.name]
        if isinstance(value, pc.Expression):
            array = _computed(field.name, value, rows)
        else:
            array = repeated(values_of(field.name, [value], field, are_rows=False), len(rows))
        try:
            found[field.name] = PROJECTION.as_values(array, field.field_type, field.name, None)
        except Invalid as error:
            step = (
                "; for an expression use pyarrow.compute, as in pc.field('seats') + 1" if isinstance(value, str) else ""
            )
            raise Invalid(CODE, f"{error.message}{step}") from error
    return found


def _computed(name: str, expression: pc.Expression, rows: pa.RecordBatch) -> pa.Array:
    from pyarrow import acero

    table = acero.TableSourceNodeOptions(pa.Table.from_batches([rows]))
    project = acero.ProjectNodeOptions([expression], [name])
    steps = [acero.Declaration("table_source", table), acero.Declaration("project", project)]
    try:
        computed = acero.Declaration.from_sequence(steps).to_table(use_threads=False).column(0)
    except FAULTS as error:
        reason = str(error).partition("\n")[0]
        known = ", ".join(rows.schema.names)
        raise Invalid(
            CODE, f"column {name}: {expression!s:.80} cannot be computed: {reason:.200}; its columns are {known:.200}"
        ) from error
    return pa.concat_arrays(computed.chunks) if computed.num_chunks else pa.nulls(0, computed.type)
