"""The options that every command takes.

Owns: their names, environment variables and help. Does not own: what they mean (`rootline.connect`).
Invariants: one spelling for all commands.
"""

from __future__ import annotations

from typing import Annotated

import typer

from rootline.schemas.errors import Invalid

Warehouse = Annotated[
    str | None,
    typer.Option(
        "--warehouse", envvar="ROOTLINE_WAREHOUSE", help="Where the tables are: a path, file:// or s3:// URL."
    ),
]
Log = Annotated[
    str | None,
    typer.Option(
        "--log", envvar="ROOTLINE_LOG", help="The intent log: kafka://host:port, sqlite:///dir; none: in the warehouse."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object a line.")]
Timeout = Annotated[float, typer.Option("--timeout", min=0.0, help="Seconds to wait for verdicts.")]
Where = Annotated[str | None, typer.Option("--where", help="A filter, such as \"dep_delay > 60 and carrier = 'UA'\".")]
AtVersion = Annotated[int | None, typer.Option("--version", min=0, help="The table as it was in this version.")]
TableArgument = Annotated[str, typer.Argument(metavar="TABLE", help="namespace.table", show_default=False)]


def required(warehouse: str | None) -> str:
    """The warehouse, or the usage error that says how to name one."""
    if not warehouse:
        raise Invalid("setting-invalid", "no warehouse is named: give --warehouse PATH, or set ROOTLINE_WAREHOUSE")
    return warehouse
