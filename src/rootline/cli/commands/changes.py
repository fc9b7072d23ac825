"""`rootline changes`: what happened to a table between two versions.

Owns: how changes are printed. Does not own: what they are (`rootline.client.read.changes`).
Invariants: reads only; hosts no coordinator.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Final

import typer

from rootline.cli.open_lake import lake_to_read
from rootline.cli.options import Json, Log, TableArgument, Warehouse

if TYPE_CHECKING:
    from rootline.client.read.changes import TableChanges

_RANGES_SHOWN: Final = 8


def changes(
    table: TableArgument,
    from_version: Annotated[int, typer.Option("--from", help="The older version: what changed after it is shown.")],
    to_version: Annotated[
        int | None, typer.Option("--to", help="The newer version, itself included. Default: the newest.")
    ] = None,
    warehouse: Warehouse = None,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """Show what changed between two versions: files added and removed, and rows deleted from files that stayed.

    Maintenance does not show: it changes no row.
    """
    with lake_to_read(warehouse, log) as lake:
        found = lake.table(table).changes(from_version=from_version, to_version=to_version)
    show(as_json, found, empty=f"{table}: nothing changed between versions {found.from_version} and {found.to_version}")


def show(as_json: bool, changes: TableChanges, *, empty: str) -> None:
    """Print changes, one per line; `empty` is printed when there are none."""
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
