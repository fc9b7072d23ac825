"""Whether a Parquet leaf can hold the entries of an adopted Avro manifest.

Owns: that check. Does not own: the rules of a Parquet leaf (`leaf_rules`), which leaves are due (`leaf_load`).
Invariants: pure; no loop over entries; what is DELETED or dead is not looked at, because it does not move.

Source: docs/decisions/0029; format page, "Leaf: Parquet".
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from rootline.schemas.bytes.leaf import Leaf
from rootline.schemas.bytes.leaf_columns import RULED_COLUMNS, column_violation
from rootline.schemas.content_entry import ContentEntry, Status
from rootline.schemas.table_definition import TableDefinition

_VERSION_INFO: Final = "version_info"
_LOCATION: Final = "location"


def fault_in_columns(row: ContentEntry, leaf: Leaf, dead: BitMap | None, definition: TableDefinition) -> str | None:
    """The first reason why a live entry of `leaf` cannot move to a Parquet leaf; `None`: all of them can.

    Raises:
        Corrupt: `leaf-corrupt`, a column cannot be read.
        Invalid: `spec-unknown`.

    """
    table = leaf.columns([*RULED_COLUMNS, _LOCATION])
    alive = pc.not_equal(pc.struct_field(table.column(_VERSION_INFO), "status"), int(Status.DELETED))
    ordinals = sorted(BitMap(pc.indices_nonzero(alive).to_pylist()) - (dead or BitMap()))
    if not ordinals:
        return None
    table = _as_existing(table.take(pa.array(ordinals, pa.int64())))
    violations = column_violation(table)
    if violations is not None:
        return violations
    locations = table.column(_LOCATION)
    if pc.any(pc.equal(locations, "")).as_py() or pc.count_distinct(locations).as_py() < len(locations):
        return "a location is empty, or occurs twice"
    statistics = leaf.statistics_at(ordinals)
    for member in definition.spec_by_id(row.partition_spec_id).expr_ids:
        if member not in statistics or statistics[member].null_count:
            return f"the partition value of id {member} is not known for every entry"
    return None


def _as_existing(table: pa.Table) -> pa.Table:
    at = table.column_names.index(_VERSION_INFO)
    info = table.column(at).combine_chunks()
    members = [
        pa.repeat(pa.scalar(int(Status.EXISTING), field.type), len(values)) if field.name == "status" else values
        for field, values in zip(info.type, info.flatten(), strict=True)
    ]
    return table.set_column(at, table.schema.field(at), pa.StructArray.from_arrays(members, fields=list(info.type)))
