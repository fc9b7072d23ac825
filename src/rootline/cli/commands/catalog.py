"""`rootline catalog serve` and `rootline export`: what other engines read.

Owns: their arguments and what is printed. Does not own: the service (`catalog_service`), exports (`rootline.catalog`).
Invariants: need no log and no coordinator; change nothing but add exports to the warehouse.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from rootline.cli.open_lake import lake_to_read
from rootline.cli.options import AtVersion, Json, LogLevel, TableArgument, Warehouse, required

if TYPE_CHECKING:
    from rootline.catalog.manifest.format_version import FormatVersion

app = typer.Typer(help="Serve tables to other engines.", no_args_is_help=True, rich_markup_mode=None)
Format = Annotated[
    Literal["v2", "v3"] | None,
    typer.Option(
        "--format", help="Iceberg format version. Default: the table's property rootline.export.format, else v3."
    ),
]


@app.callback()
def _root() -> None:
    """Serve tables to other engines."""


@app.command("serve")
def serve(
    host: Annotated[
        str | None,
        typer.Option("--host", help="Address to listen on. Default: the setting ROOTLINE_CATALOG__HTTP_HOST."),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            min=0,
            max=65535,
            help="Port to listen on; 0 lets the system pick one. Default: the setting ROOTLINE_CATALOG__HTTP_PORT.",
        ),
    ] = None,
    export_format: Format = None,
    log_level: LogLevel = "info",
    warehouse: Warehouse = None,
    as_json: Json = False,
) -> None:
    """Serve the warehouse as a read-only Iceberg REST catalog, without a coordinator, until SIGTERM or Ctrl-C."""
    import asyncio
    from functools import partial

    from rootline.cli import output
    from rootline.cli.catalog_service import run_catalog
    from rootline.cli.services import log_to_stderr

    place = required(warehouse)
    log_to_stderr(log_level)
    announce = partial(output.line, as_json)
    asyncio.run(run_catalog(place, announce, host=host, port=port, default_format=_format(export_format)))


def export(
    table: TableArgument,
    export_format: Format = None,
    version: AtVersion = None,
    warehouse: Warehouse = None,
    as_json: Json = False,
) -> None:
    """Write Iceberg metadata of a version of a table, and print where its metadata.json is."""
    import json
    import time

    from rootline.cli import output

    with lake_to_read(warehouse) as lake:
        handle = lake.table(table)
        began = time.monotonic()
        exported = handle.export(_format(export_format), version)
        elapsed_s = time.monotonic() - began
    cost = exported.cost
    record = {
        "table": table,
        "location": exported.metadata_location,
        "format_version": int(exported.format_version),
        "version": exported.version,
        "snapshot_id": json.loads(exported.metadata)["current-snapshot-id"],
        "requests": cost.lists + cost.gets + cost.puts,
        "lists": cost.lists,
        "gets": cost.gets,
        "puts": cost.puts,
        "bytes": cost.bytes_written,
        "seconds": round(elapsed_s, 3),
    }
    output.line(as_json, record, exported.metadata_location)


def _format(text: Literal["v2", "v3"] | None) -> FormatVersion | None:
    from rootline.catalog.manifest.format_version import FormatVersion

    return None if text is None else FormatVersion(int(text[1]))
