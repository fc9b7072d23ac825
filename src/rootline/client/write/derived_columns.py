"""The values of a definition's expressions over some rows.

Owns: from rows to an expression's column. Does not own: the functions
(`rootline.schemas.bytes.transform_values`), the statistics that come of them (`column_statistics`), partition
values (`partition_split`).
Invariants: an expression that this version does not know, or whose column is gone, has no values here.

Source: docs/decisions/0028.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.types import PrimitiveType

from rootline.client.write.column_statistics import ColumnPath
from rootline.schemas.bytes.transform_values import expression_column
from rootline.schemas.table_definition import Expression, Function, TableDefinition


@dataclass(frozen=True, slots=True)
class DerivedColumn:
    """An expression, the columns it reads, and the type of its values."""

    expression: Expression
    sources: tuple[ColumnPath, ...]
    type: PrimitiveType

    @property
    def expr_id(self) -> int:
        """The expression's id."""
        return self.expression.expr_id

    def of(self, rows: pa.Table) -> pa.ChunkedArray:
        """The expression's physical values."""
        types, columns = [source.type for source in self.sources], [source.of(rows) for source in self.sources]
        made = expression_column(self.expression.transform, self.expression.parsed, types, columns)
        return pa.chunked_array([made])


def derived_columns(definition: TableDefinition, paths: dict[int, ColumnPath]) -> tuple[DerivedColumn, ...]:
    """The expressions of `definition` whose values follow from columns at `paths`."""
    found: list[DerivedColumn] = []
    for expression in definition.expressions:
        result = definition.result_type(expression)
        is_known = definition.function_of(expression) is not Function.UNKNOWN
        if is_known and result is not None and all(source_id in paths for source_id in expression.source_ids):
            sources = tuple(paths[source_id] for source_id in expression.source_ids)
            found.append(DerivedColumn(expression, sources, result))
    return tuple(found)
