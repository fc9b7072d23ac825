"""`rootline table drop` and `rootline table restore`: a table goes, and comes back.

Owns: what is asked and printed. Does not own: the change (`rootline.client.change.drop_table`).
Invariants: what cannot be undone needs `--yes`.
"""

from __future__ import annotations

from typing import Annotated

import typer

from rootline.cli.open_lake import lake_to_change
from rootline.cli.options import Json, Log, TableArgument, Timeout, Warehouse


def drop(
    name: TableArgument,
    purge: Annotated[
        bool, typer.Option("--purge", help="Give its files up too. It does not come back; needs --yes.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do it, also what cannot be undone.")] = False,
    timeout_s: Timeout = 30.0,
    warehouse: Warehouse = None,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """Drop a table: its name is free. `rootline table restore` brings it back, unless it was purged."""
    from rootline.cli import output
    from rootline.schemas.errors import Invalid

    if purge and not yes:
        raise Invalid(
            "setting-invalid", f"a table that is purged does not come back: repeat with --yes to purge {name}"
        )
    with lake_to_change(warehouse, log) as lake:
        commit = lake.drop_table(name, purge=purge, timeout_s=timeout_s)
    done = "purged" if purge else "dropped"
    output.line(
        as_json, {"table": name, done: True, "version": commit.version}, f"{done} {name}, version {commit.version}"
    )


def restore(
    name: TableArgument,
    timeout_s: Timeout = 30.0,
    warehouse: Warehouse = None,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """Bring back a table that was dropped, as it was, while no other table has its name."""
    from rootline.cli import output

    with lake_to_change(warehouse, log) as lake:
        version = lake.restore_table(name, timeout_s=timeout_s).head().version
    output.line(as_json, {"table": name, "restored": True, "version": version}, f"restored {name}, version {version}")
