"""`rootline scan`: the rows of a table.

Owns: how rows are printed. Does not own: which rows (`rootline.client.read.scan`).
Invariants: rows are printed as they are read, batch by batch; CSV with a header, or JSON lines.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import Annotated

import typer

from rootline.cli.open_lake import lake_to_read
from rootline.cli.options import AtVersion, Json, Log, TableArgument, Warehouse, Where


def scan(
    table: TableArgument,
    where: Where = None,
    columns: Annotated[
        str | None,
        typer.Option(
            "--columns",
            help="Column names, separated by commas; also _file, _pos, _deleted, _spec_id, _partition, _row_id, "
            "_last_updated_sequence_number. Default: all columns of the table.",
        ),
    ] = None,
    version: AtVersion = None,
    timestamp: Annotated[
        str | None,
        typer.Option(
            "--timestamp",
            help="Read the table as it was at this moment: ISO 8601 with an offset, such as 2013-01-31T12:00:00Z, "
            "or milliseconds since 1970.",
        ),
    ] = None,
    snapshot_id: Annotated[
        int | None, typer.Option("--snapshot-id", help="Read the version with this snapshot id.")
    ] = None,
    tag: Annotated[str | None, typer.Option("--tag", help="Read the version with this tag.")] = None,
    count: Annotated[bool, typer.Option("--count", help="Print only the number of rows.")] = False,
    plan: Annotated[
        bool,
        typer.Option("--plan", help="Print what finding the files took (requests, leaves read), and read no rows."),
    ] = False,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="How many rows to print at most. Default: all.")
    ] = None,
    warehouse: Warehouse = None,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """Print a table's rows as CSV, or as JSON lines with --json.

    Give at most one of --version, --timestamp, --snapshot-id and --tag. Default: the newest version.
    """
    from rootline.cli import output

    names = [name.strip() for name in columns.split(",") if name.strip()] if columns is not None else None
    with lake_to_read(warehouse, log) as lake:
        wanted = lake.table(table).scan(
            where, names, limit=limit, version=version, timestamp=timestamp, snapshot_id=snapshot_id, tag=tag
        )
        if plan:
            output.plan(as_json, table, wanted.plan())
            return
        if count:
            rows = wanted.count()
            output.line(as_json, {"table": table, "rows": rows}, str(rows))
            return
        is_headed = as_json
        for batch in wanted.to_batches():
            if not is_headed:
                sys.stdout.write(_csv(batch.schema.names) + "\n")
                is_headed = True
            for row in batch.to_pylist():
                sys.stdout.write((output.json_text(row) if as_json else _csv(row.values())) + "\n")
        if not is_headed:
            sys.stdout.write(_csv(wanted.schema().names) + "\n")
        sys.stdout.flush()


def _csv(values: Iterable[object]) -> str:
    return ",".join(_csv_cell(value) for value in values)


def _csv_cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    text = json.dumps(value, default=str) if isinstance(value, dict | list) else str(value)
    if isinstance(value, bytes):
        text = value.hex()
    return '"' + text.replace('"', '""') + '"' if any(sign in text for sign in ',"\r\n') or text == "" else text
