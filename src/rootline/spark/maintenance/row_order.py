"""In which order the rows of a group are written again, and where one new file ends and the next begins.

Owns: sorting and Z-order as keys that Arrow can compare, and the cuts between files from a sample. Does not own: what a
sort field means (`rootline.client.partition_split`), reading the sample, carrying rows from task to task
(`group_tasks`).
Invariants: two rows are never equal, so cuts divide rows of equal values too; every row is in exactly one part, and the
parts follow each other in the order; the same rows and cuts give the same parts.

Theory. A row's place on the Z-curve has the bits of its columns in turn. The bits of a column are not those of its
value but of its rank in the sample, so columns of every type that can be sorted count alike, however skewed they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema

from rootline.client.column_statistics import ColumnPath, column_paths
from rootline.client.layout_terms import sort_fields
from rootline.client.partition_split import SortKeys, sort_keys
from rootline.schemas.errors import Invalid
from rootline.schemas.table_definition import SortField, TableDefinition
from rootline.storage.rows.arrow_types import arrow_schema_of

_CURVE_BITS: Final = 63
_COLUMN_BITS_MAX: Final = 16
_RANKS_MAX: Final = 4_096
_COLUMNS_MAX: Final = 8
_TASK_BITS: Final = 40
_TIE: Final = "tie"
_PLACE: Final = "place"
Places = np.ndarray[tuple[int], np.dtype[np.int64]]


class Curve(StrEnum):
    """How several columns become one order."""

    LINEAR = "one after the other"
    Z = "in turn"


@dataclass(frozen=True, slots=True)
class RowOrder:
    """`sort_order_id`: of the table's sort order that this is, if it is one."""

    fields: tuple[SortField, ...]
    curve: Curve
    sort_order_id: int | None = None

    @staticmethod
    def of(sort_by: tuple[str, ...] | None, curve: Curve, definition: TableDefinition) -> RowOrder:
        """The order of these terms; without them, the table's own.

        Raises:
            Invalid: `definition-invalid`, a term names no column, or one that cannot be sorted by; `setting-invalid`,
                there is nothing to sort by.

        """
        own = next(order for order in definition.sort_orders if order.order_id == definition.default_sort_order_id)
        fields = own.fields if sort_by is None else sort_fields(sort_by, definition.schema)
        if not fields:
            raise Invalid("setting-invalid", "there is no order to write rows in: give sort_by=[…], as in create_table")
        if curve is Curve.Z and len(fields) > _COLUMNS_MAX:
            raise Invalid("setting-invalid", f"sort_by has {len(fields)} columns: a Z-order takes {_COLUMNS_MAX}")
        known = (order.order_id for order in definition.sort_orders if order.fields == fields)
        order = RowOrder(fields, curve, next(known, None) if curve is Curve.LINEAR else None)
        empty = arrow_schema_of(definition.schema).empty_table()
        try:
            order.keys(empty, column_paths(definition.schema)).order()
        except pa.ArrowNotImplementedError as error:
            raise Invalid("definition-invalid", f"sort_by: {error}: leave that column out") from error
        return order

    def columns(self, definition: TableDefinition) -> tuple[str, ...]:
        """The top-level columns that keys are made of."""
        wanted = {field.source_id for field in self.fields}
        return tuple(field.name for field in definition.schema.fields if wanted & set(column_paths(Schema(field))))

    def keys(self, rows: pa.Table, paths: dict[int, ColumnPath], task: int = 0) -> SortKeys:
        """What rows are compared by, column after column; `task`: those of a later one come after their equals."""
        found = sort_keys(rows, self.fields, paths)
        if found is None:
            raise Invalid("definition-invalid", "sort_by: the values of a column cannot be sorted: leave it out")
        ties = pa.array(np.arange(rows.num_rows, dtype=np.int64) + (task << _TASK_BITS))
        return SortKeys(found.columns.append_column(_TIE, ties), (*found.directions, (_TIE, "ascending")))

    def on_curve(self, keys: SortKeys, cuts: Cuts) -> SortKeys:
        """`keys` as they are, or by their places on the Z-curve."""
        if self.curve is Curve.LINEAR:
            return keys
        bits = min(_COLUMN_BITS_MAX, _CURVE_BITS // len(self.fields))
        place = np.zeros(keys.columns.num_rows, dtype=np.int64)
        ranks = [_scaled(_keys_of(keys, index), cut, bits) for index, cut in enumerate(cuts.ranks)]
        for bit in reversed(range(bits)):
            for rank in ranks:
                place = (place << 1) | ((rank >> bit) & 1)
        table = pa.table({_PLACE: place, _TIE: keys.columns.column(_TIE)})
        return SortKeys(table, ((_PLACE, "ascending"), (_TIE, "ascending")))

    def cuts(self, sample: SortKeys, parts: int) -> Cuts:
        """Where the rows that `sample` was taken of are cut, so that there are about as many in each of the parts."""
        ranks: tuple[pa.Table, ...] = ()
        if self.curve is Curve.Z:
            ranks = tuple(_quantiles(_keys_of(sample, index), _RANKS_MAX) for index in range(len(self.fields)))
        return Cuts(ranks, _quantiles(self.on_curve(sample, Cuts(ranks, None)), parts))


@dataclass(frozen=True, slots=True)
class Cuts:
    """`ranks`: of each column of a Z-order; `between`: the keys of the first row of each part but the first."""

    ranks: tuple[pa.Table, ...]
    between: pa.Table | None

    def parts(self, keys: SortKeys) -> Places:
        """The number of the part that each row is in, by its keys on the curve."""
        assert self.between is not None, "cuts of a whole sample"
        return _places(self.between, keys)


def _keys_of(keys: SortKeys, index: int) -> SortKeys:
    """Those of one field."""
    directions = keys.directions[2 * index : 2 * index + 2]
    return SortKeys(keys.columns.select([name for name, _ in directions]), directions)


def _quantiles(keys: SortKeys, parts: int) -> pa.Table:
    """`parts` less one rows of `keys`, evenly spread over their order; fewer where there are fewer rows."""
    rows = keys.columns.num_rows
    cuts = min(parts, rows) - 1
    if cuts < 1:
        return keys.columns.slice(0, 0)
    at = np.arange(1, cuts + 1, dtype=np.int64) * rows // (cuts + 1)
    return keys.columns.take(keys.order().take(pa.array(at))).combine_chunks()


def _places(cuts: pa.Table, keys: SortKeys) -> Places:
    """Of each row, how many of the cuts come before it, or are its equals."""
    both = pa.concat_tables([cuts, keys.columns]).combine_chunks()
    order = SortKeys(both, keys.directions).order().to_numpy()
    is_cut = order < cuts.num_rows
    found = np.empty(keys.columns.num_rows, dtype=np.int64)
    found[(order[~is_cut] - cuts.num_rows).astype(np.int64)] = np.cumsum(is_cut)[~is_cut]
    return found


def _scaled(keys: SortKeys, cuts: pa.Table, bits: int) -> Any:
    """The rank of each row among the cuts, as a number that uses all bits."""
    return (_places(cuts, keys) << bits) // (cuts.num_rows + 1)


def in_order(rows: pa.Table, order: RowOrder, paths: dict[int, ColumnPath], cuts: Cuts | None) -> pa.Table:
    """`rows` in the order; without cuts, by ranks among themselves."""
    keys = order.keys(rows, paths)
    known = order.cuts(keys, 1) if cuts is None else cuts
    return rows.take(order.on_curve(keys, known).order())


def sampled(keys: SortKeys, share: float, seed: int) -> pa.Table:
    """About `share` of the keys."""
    chosen = np.random.default_rng(seed).random(keys.columns.num_rows) < share
    return keys.columns.filter(pa.array(chosen)).combine_chunks()
