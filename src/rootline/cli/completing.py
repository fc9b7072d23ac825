"""What `<TAB>` offers beyond commands and options: names of tables, error codes.

Owns: where the offers come from. Does not own: the shells' scripts and how words are matched (typer).
Invariants: a lake is only read, and only one in a folder: a bucket is not asked at a keystroke; whatever goes wrong,
there is no offer and no message.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import typer

COMPLETE_VARIABLE = "_ROOTLINE_COMPLETE"
"""The shell's script sets it when it asks for offers."""


def prepare_completion() -> None:
    """Let typer answer the shell if it is the shell that asks; typer does not by itself without options of its own."""
    if COMPLETE_VARIABLE in os.environ:
        from typer import completion

        completion.get_completion_inspect_parameters()


def script(command: object, shell: str) -> None:
    """Print what the shell must evaluate."""
    from typer import completion

    completion.get_completion_inspect_parameters()
    completion.shell_complete(command, {}, "rootline", COMPLETE_VARIABLE, f"source_{shell}")  # type: ignore[arg-type]


def tables(context: typer.Context, incomplete: str) -> Iterator[str]:
    """The tables of the lake that the words before name, or the environment."""
    from rootline.connect import connect, lake_folder
    from rootline.schemas.errors import RootlineError

    warehouse = context.params.get("warehouse") or os.environ.get("ROOTLINE_WAREHOUSE")
    with contextlib.suppress(RootlineError, OSError):
        folder = None if warehouse is None else lake_folder(warehouse)
        if folder is not None and folder.is_dir():
            with connect(warehouse, coordinator="elsewhere") as lake:
                yield from [name for name in lake.list_tables() if name.startswith(incomplete)]


def codes(incomplete: str) -> list[str]:
    """The error codes."""
    from rootline.schemas.error_codes import CODES

    return [code for code in CODES if code.startswith(incomplete)]
