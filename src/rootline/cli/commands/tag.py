"""`rootline tag`: names for versions.

Owns: what is printed. Does not own: what becomes of tags (`rootline.client.change.tags`).
Invariants: without a name it reads only, and hosts no coordinator.
"""

from __future__ import annotations

from typing import Annotated

import typer

from rootline.cli.open_lake import lake_to_change, lake_to_read
from rootline.cli.options import AtVersion, Json, Log, TableArgument, Timeout, Warehouse
from rootline.schemas.errors import Invalid


def tag(
    table: TableArgument,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="The tag. Without it, all tags are listed.")
    ] = None,
    version: AtVersion = None,
    move: Annotated[bool, typer.Option("--move", help="Move the tag when it names another version already.")] = False,
    delete: Annotated[bool, typer.Option("--delete", help="Delete the tag.")] = False,
    timeout_s: Timeout = 30.0,
    warehouse: Warehouse = None,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """List a table's tags; or let a tag name a version, move it, or delete it."""
    from rootline.cli import output

    if (name is None and (version is not None or move or delete)) or (delete and (version is not None or move)):
        raise Invalid("setting-invalid", "name the tag, and give either --delete, or --version and --move to set it")
    if name is None:
        with lake_to_read(warehouse, log) as lake:
            tags = lake.table(table).tags()
        records = [{"tag": key, "version": tags[key]} for key in sorted(tags)]
        output.rows(as_json, records, ["tag", "version"], empty=f"{table}: no tags")
        return
    with lake_to_change(warehouse, log) as lake:
        handle = lake.table(table)
        if delete:
            commit = handle.untag(name, timeout_s=timeout_s)
        else:
            commit = handle.tag(name, version=version, move=move, timeout_s=timeout_s)
        at = handle.tags().get(name)
    record = {"table": table, "tag": name, "version": at, "committed": commit.version}
    output.line(as_json, record, f"deleted {name}" if delete else f"{name} is version {at}")
