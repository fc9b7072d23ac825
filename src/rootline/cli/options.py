"""The options that several commands take.

Owns: their names, environment variables and help. Does not own: what they mean (`rootline.connect`).
Invariants: one spelling for all commands; every option says its unit, and what counts without it.
"""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from rootline.cli.completing import tables
from rootline.schemas.errors import Invalid

Warehouse = Annotated[
    str | None,
    typer.Option(
        "--warehouse", envvar="ROOTLINE_WAREHOUSE", help="Where the tables are: a path, or a file:// or s3:// URL."
    ),
]
Log = Annotated[
    str | None,
    typer.Option(
        "--log",
        envvar="ROOTLINE_LOG",
        help="The intent log: kafka://host:port or sqlite:///folder. Default: the log in the warehouse's folder.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object per line instead of text.")]
Timeout = Annotated[float, typer.Option("--timeout", min=0.0, help="Seconds to wait for a verdict.")]
Where = Annotated[
    str | None,
    typer.Option(
        "--where", help="Only what matches this filter, such as \"dep_delay > 60 and carrier = 'UA'\". Default: all."
    ),
]
AtVersion = Annotated[
    int | None, typer.Option("--version", min=0, help="Which version of the table. Default: the newest.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and change nothing.")]
TableArgument = Annotated[
    str,
    typer.Argument(metavar="TABLE", help="The table, as namespace.table.", show_default=False, autocompletion=tables),
]
LogLevel = Annotated[
    Literal["debug", "info", "warning", "error"],
    typer.Option("--log-level", help="Write log lines of this level and above to stderr."),
]


def required(warehouse: str | None) -> str:
    """The warehouse, or the usage error that says how to name one."""
    if not warehouse:
        raise Invalid("setting-invalid", "no warehouse is named: give --warehouse PATH, or set ROOTLINE_WAREHOUSE")
    return warehouse
