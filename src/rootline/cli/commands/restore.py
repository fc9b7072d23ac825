"""`rootline restore`: take a table back to an earlier version.

Owns: what is printed. Does not own: what is changed (`rootline.client.change.restore_version`).
Invariants: a dry run publishes nothing and hosts no coordinator.
"""

from __future__ import annotations

from typing import Annotated

import typer

from rootline.cli.open_lake import lake_to_change, lake_to_read
from rootline.cli.options import DryRun, Json, Log, TableArgument, Timeout, Warehouse


def restore(
    table: TableArgument,
    to_version: Annotated[int, typer.Option("--to-version", help="The version to go back to.")],
    dry_run: DryRun = False,
    timeout_s: Timeout = 30.0,
    warehouse: Warehouse = None,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """Go back to the content of an earlier version, as a new version; the versions in between stay."""
    from rootline.cli import output
    from rootline.cli.commands import changes as change_command

    if dry_run:
        with lake_to_read(warehouse, log) as lake:
            found = lake.table(table).preview_restore(version=to_version)
        nothing = f"{table}: restoring version {to_version} would change nothing"
        change_command.show(as_json, found, empty=nothing)
        return
    with lake_to_change(warehouse, log) as lake:
        commit = lake.table(table).restore(version=to_version, timeout_s=timeout_s)
    record = {"table": table, "restored": to_version, "version": commit.version}
    output.line(as_json, record, f"version {commit.version} of {table} is what version {to_version} was")
