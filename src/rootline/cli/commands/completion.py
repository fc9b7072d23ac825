"""`rootline completion`: the script that makes a shell complete commands, options, tables and codes."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from rootline.cli import completing


def completion(
    context: typer.Context,
    shell: Annotated[
        Literal["bash", "zsh", "fish"], typer.Argument(metavar="SHELL", help="The shell: bash, zsh or fish.")
    ],
) -> None:
    """Print the completion for a shell; bash and zsh: eval "$(rootline completion bash)", fish: pipe it to source."""
    completing.script(context.find_root().command, shell)
