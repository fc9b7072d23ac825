"""PyIceberg as a reader of tables that others wrote, by their metadata.json.

Owns: how a table is opened. Does not own: what the rows should be, PyIceberg's client of REST
(`tests.catalog.pyiceberg_catalog`).
"""

from __future__ import annotations

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.table import StaticTable


def pyiceberg_table(metadata_location: str) -> StaticTable:
    """The table that `metadata_location` describes."""
    return StaticTable.from_metadata(metadata_location)


def pyiceberg_rows(
    metadata_location: str,
    *,
    columns: tuple[str, ...] = ("*",),
    where: str | None = None,
    snapshot_id: int | None = None,
) -> pa.Table:
    """The rows of the table that `metadata_location` describes."""
    table = pyiceberg_table(metadata_location)
    return table.scan(where or AlwaysTrue(), selected_fields=columns, snapshot_id=snapshot_id).to_arrow()
