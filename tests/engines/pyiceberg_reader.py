"""PyIceberg as a reader of tables that others wrote.

Owns: how a table is opened. Does not own: what the rows should be.
"""

from __future__ import annotations

import pyarrow as pa
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.table import StaticTable, Table


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
    return rows_of(pyiceberg_table(metadata_location), columns=columns, where=where, snapshot_id=snapshot_id)


def rows_of(
    table: Table,
    *,
    columns: tuple[str, ...] = ("*",),
    where: str | None = None,
    snapshot_id: int | None = None,
) -> pa.Table:
    """The rows of an open table."""
    return table.scan(where or AlwaysTrue(), selected_fields=columns, snapshot_id=snapshot_id).to_arrow()


def pyiceberg_rest(address: str, **options: str) -> RestCatalog:
    """The catalog that answers at `address`."""
    return RestCatalog("rootline", uri=address, **options)
