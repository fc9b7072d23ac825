"""`rootline tag`: names for versions.

Owns: what is printed. Does not own: what becomes of tags (`rootline.client.change.tags`).
Invariants: without a name it reads only, and hosts no coordinator.
"""

from __future__ import annotations

from typing import Annotated

import typer

from rootline.cli.options import AtVersion, Json, Log, TableArgument, Timeout, Warehouse, required
from rootline.schemas.errors import Invalid


def add_to(app: typer.Typer) -> None:
    """Hang the command into `app`."""
    app.command("tag")(tag)


def tag(
    table: TableArgument,
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="The tag; without it, all are listed.")] = None,
    version: AtVersion = None,
    move: Annotated[bool, typer.Option("--move", help="Move the tag if it is at another version.")] = False,
    delete: Annotated[bool, typer.Option("--delete", help="Delete the tag.")] = False,
    timeout_s: Timeout = 30.0,
    warehouse: Warehouse = None,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """List a table's tags; or set one at a version (the head's unless --version says another), move or delete it."""
    from rootline.cli import output
    from rootline.connect import connect

    if (name is None and (version is not None or move or delete)) or (delete and (version is not None or move)):
        raise Invalid("setting-invalid", "name the tag, and either --delete it or set it with --version and --move")
    if name is None:
        with connect(required(warehouse), log=log, coordinator="elsewhere") as lake:
            tags = lake.table(table).tags()
        records = [{"tag": key, "version": tags[key]} for key in sorted(tags)]
        output.rows(as_json, records, ["tag", "version"], empty=f"{table}: no tags")
        return
    with connect(required(warehouse), log=log) as lake:
        handle = lake.table(table)
        if delete:
            commit = handle.untag(name, timeout_s=timeout_s)
        else:
            commit = handle.tag(name, version=version, move=move, timeout_s=timeout_s)
        at = handle.tags().get(name)
    record = {"table": table, "tag": name, "version": at, "committed": commit.version}
    output.line(as_json, record, f"deleted {name}" if delete else f"{name} is version {at}")
