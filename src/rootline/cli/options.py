"""The options that several commands take, and the lake that they name.

Owns: names, environment variables, help and completion of these options, opening the lake. Does not own: the meaning of
the options, the adapters of a lake (`rootline.connect`).
Invariants: one spelling for all commands. Every option states its unit and its default. A command that only reads hosts
no coordinator, and a lake that is opened for reading is never created. Completion only reads, and only a lake in a
folder: a keystroke sends no request to a bucket. A failed completion offers nothing and prints nothing.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from rootline.cli.output import Output
from rootline.schemas.errors import Corrupt, Invalid, Unavailable

if TYPE_CHECKING:
    from rootline.catalog.export_keys import FormatVersion
    from rootline.client.lake import Lake
    from rootline.client.table_handle import TableHandle
    from rootline.schemas.root_header import RootHeader

COMPLETE_VARIABLE: Final = "_ROOTLINE_COMPLETE"
"""The variable that a shell's script sets when it asks for offers."""


def tables(context: typer.Context, incomplete: str) -> Iterator[str]:
    """The tables to offer as completions, from the lake that earlier words or the environment name."""
    from rootline.connect import connect, lake_folder
    from rootline.schemas.errors import RootlineError

    warehouse = context.params.get("warehouse") or os.environ.get("ROOTLINE_WAREHOUSE")
    with contextlib.suppress(RootlineError, OSError):
        folder = None if warehouse is None else lake_folder(warehouse)
        if folder is not None and folder.is_dir():
            with connect(warehouse, coordinator="elsewhere") as lake:
                yield from [name for name in lake.list_tables() if name.startswith(incomplete)]


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
Yes = Annotated[bool, typer.Option("--yes", help="Do it. Without --yes, only show what would be done.")]
TableArgument = Annotated[
    str,
    typer.Argument(metavar="TABLE", help="The table, as namespace.table.", show_default=False, autocompletion=tables),
]
OptionalTable = Annotated[
    str | None,
    typer.Argument(metavar="TABLE", help="The table, as namespace.table.", show_default=False, autocompletion=tables),
]
NamespaceArgument = Annotated[
    str, typer.Argument(metavar="NAMESPACE", help="The namespace: a, or several levels, a.b.", show_default=False)
]
ViewArgument = Annotated[str, typer.Argument(metavar="VIEW", help="The view, as namespace.view.", show_default=False)]
Properties = Annotated[
    list[str] | None, typer.Option("--property", help="A property, as key=value. Repeat for more. Default: none.")
]
ExportFormat = Annotated[
    Literal["v2", "v3"] | None,
    typer.Option(
        "--format", help="Iceberg format version. Default: the table's property rootline.export.format, else v3."
    ),
]
LogLevel = Annotated[
    Literal["debug", "info", "warning", "error"],
    typer.Option("--log-level", help="Write log lines of this level and above to stderr."),
]


def key_values(items: Sequence[str] | None) -> dict[str, str]:
    """The properties of `--property key=value`. The last of equal keys wins. Raises `Invalid` (`setting-invalid`)."""
    pairs: dict[str, str] = {}
    for item in items or ():
        key, equals, value = item.partition("=")
        if not key or not equals:
            raise Invalid("setting-invalid", f"--property {item!r}: write key=value")
        pairs[key] = value
    return pairs


def format_version(text: Literal["v2", "v3"] | None) -> FormatVersion | None:
    """The version that `--format` names."""
    from rootline.catalog.export_keys import FormatVersion

    return None if text is None else FormatVersion(int(text[1]))


@dataclass(frozen=True, slots=True)
class Given(Output):
    """The options that almost every command takes: `--json`, `--warehouse` and `--log`."""

    warehouse: str | None = None
    log: str | None = None

    @property
    def place(self) -> str:
        """The warehouse. Raises `Invalid` (`setting-invalid`) if there is none."""
        if not self.warehouse:
            raise Invalid("setting-invalid", "no warehouse is named: give --warehouse PATH, or set ROOTLINE_WAREHOUSE")
        return self.warehouse

    def lake_to_read(self) -> Lake:
        """The lake for a command that changes nothing. Raises the errors of `rootline.connect`."""
        from rootline.connect import connect

        return connect(self.place, log=self.log, coordinator="elsewhere")

    def lake_to_change(self) -> Lake:
        """The lake for a command that publishes intents. Raises the errors of `rootline.connect`."""
        from rootline.connect import connect

        return connect(self.place, log=self.log)


def any_name(lake: Lake, name: str) -> TableHandle:
    """A handle of any name that has a root, even of a dropped table or a view. Raises `Invalid` if it has none."""
    from rootline.client import checks
    from rootline.client.table_handle import TableHandle
    from rootline.storage.metadata.root_reader import existing_head

    checked = checks.table(name)
    lake.holder.run(lambda session: existing_head(session.store, checked))
    return TableHandle(lake, checked)


def newest_header(lake: Lake, handle: TableHandle) -> RootHeader:
    """The header of the newest root, also of a tombstone or a view. Raises `Corrupt`: it cannot be read."""
    from rootline.client.session import Session
    from rootline.storage.metadata.root_reader import existing_head, newest_root

    async def operation(session: Session) -> RootHeader:
        root = await newest_root(session.store, handle.name)
        if root is None:
            await existing_head(session.store, handle.name)
            raise Corrupt("object-missing", f"{handle.name}: its newest root was removed during the read. Try again")
        return root.header

    return lake.holder.run(operation)


def check_folder(warehouse: str) -> None:
    """Refuse a folder of this machine that does not exist. Raises `Unavailable` (`store-unavailable`)."""
    from rootline.connect import lake_folder

    folder: Path | None = lake_folder(warehouse)
    if folder is not None and not folder.is_dir():
        raise Unavailable("store-unavailable", f"{folder}: there is no such folder; give another --warehouse")
