"""`rootline table replace`: empty a table, and give it other columns and rows.

Owns: the options. Does not own: the change (`rootline.client.change.replace_table`).
Invariants: one call is one commit.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rootline.cli.open_lake import lake_to_change
from rootline.cli.options import Json, Log, TableArgument, Timeout, Warehouse


def replace(
    name: TableArgument,
    schema: Annotated[
        Path | None,
        typer.Option("--schema", help="JSON file with the new columns, as for `table create`. Default: they stay."),
    ] = None,
    rows: Annotated[
        Path | None, typer.Option("--rows", help="Parquet file with the new rows. Default: the table is empty.")
    ] = None,
    partition_by: Annotated[
        list[str] | None,
        typer.Option("--partition-by", help="Partition by month(ts), …; '' for not; repeat. Default: as it is."),
    ] = None,
    sort_by: Annotated[
        str | None,
        typer.Option("--sort-by", help="How rows are sorted, as 'city, -ts'; '' for not. Default: as it is."),
    ] = None,
    timeout_s: Timeout = 30.0,
    warehouse: Warehouse = None,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """Empty a table, and give it other columns and rows, in one commit.

    Its history stays, and `rootline restore` goes back.
    """
    from rootline.cli import output
    from rootline.cli.schema_file import read_schema
    from rootline.client.write.sort_terms import split_terms

    columns = None if schema is None else read_schema(schema)
    data = None if rows is None else _rows_of(rows)
    terms = None if partition_by is None else [term for term in partition_by if term.strip()]
    with lake_to_change(warehouse, log) as lake:
        commit = lake.table(name).replace(
            data,
            schema=columns,
            partition_by=terms,
            sort_by=None if sort_by is None else split_terms(sort_by),
            timeout_s=timeout_s,
        )
    output.line(
        as_json,
        {"table": name, "replaced": True, "version": commit.version},
        f"replaced {name}, version {commit.version}",
    )


def _rows_of(path: Path) -> object:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from rootline.schemas.errors import Invalid

    try:
        return pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise Invalid("rows-invalid", f"--rows {path}: it cannot be read as Parquet: {error!s:.200}") from error
