"""`rootline changes`: what happened to a table between two versions.

Owns: how changes are printed. Does not own: what they are (`rootline.client.read.changes`).
Invariants: reads only; hosts no coordinator.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Final

import typer

from rootline.cli.options import Json, Log, TableArgument, Warehouse, required

if TYPE_CHECKING:
    from rootline.client.read.changes import TableChanges

_RANGES_SHOWN: Final = 8


def add_to(app: typer.Typer) -> None:
    """Hang the command into `app`."""
    app.command("changes")(changes)


def changes(
    table: TableArgument,
    from_version: Annotated[int, typer.Option("--from", help="What came after this version.")],
    to_version: Annotated[
        int | None, typer.Option("--to", help="Up to and with this one; the head without it.")
    ] = None,
    warehouse: Warehouse = None,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """Files added and removed, and rows deleted in files that stayed; maintenance is no change."""
    from rootline.connect import connect

    with connect(required(warehouse), log=log, coordinator="elsewhere") as lake:
        found = lake.table(table).changes(from_version=from_version, to_version=to_version)
    show(as_json, found, empty=f"{table}: nothing changed between versions {found.from_version} and {found.to_version}")


def show(as_json: bool, changes: TableChanges, *, empty: str) -> None:
    """Print changes, one a line; `empty` is said when there are none."""
    from rootline.cli import output

    records = list(changes.records())
    if not as_json:
        for record in records:
            if "positions" in record:
                record["positions"] = _shown(record["positions"])
    columns = ["change", "content", "rows", "deleted_rows", "positions", "location"]
    output.rows(as_json, records, columns, empty=empty)


def _shown(ranges: Iterable[tuple[int, int]]) -> str:
    texts = [str(first) if first == last else f"{first}-{last}" for first, last in ranges]
    rest = f",… ({len(texts) - _RANGES_SHOWN} more)" if len(texts) > _RANGES_SHOWN else ""
    return ",".join(texts[:_RANGES_SHOWN]) + rest
