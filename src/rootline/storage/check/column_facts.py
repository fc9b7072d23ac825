"""What the rows of a file say of its columns, beside what its entry says: nulls, and values outside the bounds.

Owns: the comparison. Does not own: reading rows (`data_files`), what bounds mean (`rootline.schemas.content_entry`).
Invariants: only columns at the top level whose stored type is the table's are compared, because bounds of another type
may have been promoted since; a bound may be wider than the values, never narrower; NaN is compared with nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import NestedField, PrimitiveType

from rootline.schemas.content_entry import ContentEntry, FieldStatistics
from rootline.schemas.errors import Corrupt
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.check.findings import Fault
from rootline.storage.rows.arrow_types import arrow_type_of, storage_of
from rootline.storage.rows.field_matching import finder_for

STATISTICS_WRONG: Final = "statistics-wrong"


@dataclass(slots=True)
class _Column:
    name: str
    stated: FieldStatistics
    nulls: int = 0
    least: Any = None
    greatest: Any = None


@dataclass(slots=True)
class ColumnFacts:
    """Of one file: give it all batches, then ask for the faults."""

    _columns: list[_Column]

    @staticmethod
    def of(
        schema: pa.Schema, definition: TableDefinition, fields: Sequence[NestedField], entry: ContentEntry
    ) -> ColumnFacts:
        """Those of `fields`, the columns that are read, that the file has and `entry` has statistics of."""
        find = finder_for(schema, definition.properties)(list(schema))
        found = []
        for field in fields:
            at, kind = find(field), field.field_type
            if at is None or not isinstance(kind, PrimitiveType) or schema.field(at).type != arrow_type_of(kind):
                continue
            try:
                stated = entry.content_stats.get(field.field_id)
            except Corrupt:  # found already, as a rule that the entry breaks
                continue
            if stated is not None:
                found.append(_Column(schema.field(at).name, stated))
        return ColumnFacts(found)

    def add(self, batch: pa.RecordBatch) -> None:
        """The next rows."""
        for column in self._columns:
            values = storage_of(batch.column(column.name))
            column.nulls += values.null_count
            least, greatest = _extremes(values)
            if least is not None and (column.least is None or least < column.least):
                column.least = least
            if greatest is not None and (column.greatest is None or greatest > column.greatest):
                column.greatest = greatest

    def faults(self) -> Iterator[Fault]:
        """Where the entry is wrong."""
        for column in self._columns:
            stated = column.stated
            if stated.null_value_count is not None and stated.null_value_count != column.nulls:
                reason = f"has {column.nulls} nulls, its entry says {stated.null_value_count}"
                yield Fault(STATISTICS_WRONG, f"column {column.name!r} {reason}")
            lower: Any = stated.lower_bound
            upper: Any = stated.upper_bound
            if lower is not None and column.least is not None and column.least < lower:
                yield Fault(
                    STATISTICS_WRONG, f"column {column.name!r} holds {column.least!r}, its lower bound is {lower!r}"
                )
            if upper is not None and column.greatest is not None and column.greatest > upper:
                yield Fault(
                    STATISTICS_WRONG, f"column {column.name!r} holds {column.greatest!r}, its upper bound is {upper!r}"
                )


def _extremes(values: pa.Array) -> tuple[Any, Any]:
    if values.null_count == len(values):
        return None, None
    try:
        found = pc.min_max(values)
    except pa.ArrowNotImplementedError:
        return None, None
    return _physical(found["min"]), _physical(found["max"])


def _physical(scalar: pa.Scalar) -> Any:
    value = scalar.value if pa.types.is_temporal(scalar.type) else scalar.as_py()
    return None if value != value else value
