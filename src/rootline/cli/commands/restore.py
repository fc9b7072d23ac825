"""`rootline restore`: take a table back to an earlier version.

Owns: what is printed. Does not own: what is changed (`rootline.client.change.restore_version`).
Invariants: a dry run publishes nothing and hosts no coordinator.
"""

from __future__ import annotations

from typing import Annotated

import typer

from rootline.cli.options import Json, Log, TableArgument, Timeout, Warehouse, required


def add_to(app: typer.Typer) -> None:
    """Hang the command into `app`."""
    app.command("restore")(restore)


def restore(
    table: TableArgument,
    to_version: Annotated[int, typer.Option("--to-version", help="The version to go back to.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would change, and change nothing.")] = False,
    timeout_s: Timeout = 30.0,
    warehouse: Warehouse = None,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """Make the table's content that of an earlier version, as a new version; nothing in between is lost."""
    from rootline.cli import output
    from rootline.cli.commands import changes as change_command
    from rootline.connect import connect

    if dry_run:
        with connect(required(warehouse), log=log, coordinator="elsewhere") as lake:
            found = lake.table(table).preview_restore(version=to_version)
        nothing = f"{table}: restoring version {to_version} would change nothing"
        change_command.show(as_json, found, empty=nothing)
        return
    with connect(required(warehouse), log=log) as lake:
        commit = lake.table(table).restore(version=to_version, timeout_s=timeout_s)
    record = {"table": table, "restored": to_version, "version": commit.version}
    output.line(as_json, record, f"version {commit.version} of {table} is what version {to_version} was")
