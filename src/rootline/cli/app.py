"""The command line's front door.

Owns: the tree of commands, and that every failure ends as one line and an exit code. Does not own: the commands.
Invariants: naming a command imports only its own module's dependencies; results go to stdout, failures to stderr.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import gc
import os
import sys
from typing import Annotated, Any, Final

import typer
import typer.core
import typer.main

from rootline.cli import completing, task_commands
from rootline.cli.commands import (
    adopt,
    catalog,
    changes,
    check,
    completion,
    config,
    demo,
    dlq,
    explain,
    look,
    maintenance,
    namespace,
    publish,
    quarantine,
    restore,
    scan,
    services,
    store,
    table,
    tag,
    topics,
    trace,
    view,
)
from rootline.cli.commands.running import pause, status
from rootline.cli.failure import describe, exit_code_of
from rootline.schemas.distribution import VERSION

_SEARCHES: Final = 50_000, 20, 1_000
"""How often to look for cycles: what a start loads has none, and searching it took an eighth of a service's start."""
GROUPS: Final = {
    "Data": ("scan", "files", "changes", "publish", "trace"),
    "Tables and views": (
        "table", "namespace", "view", "history", "tree", "tag", "restore", "check", "adopt", "export"
    ),
    "Services": ("up", "coordinator", "worker", "catalog", "maintenance"),
    "Operators": ("status", "pause", "resume", "quarantine", "dlq", "tasks", "topics", "store", "config"),
    "Help": ("demo", "explain", "completion"),
}  # fmt: skip
"""The commands as `rootline --help` lists them."""
_SENTENCE_CHARS_MAX: Final = 300


class _GroupedCommands(typer.core.TyperGroup):
    """The commands under headings, each with its whole first sentence."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for heading, names in GROUPS.items():
            found = {name: self.get_command(ctx, name) for name in names}
            with formatter.section(heading):
                formatter.write_dl(
                    [
                        (name, command.get_short_help_str(_SENTENCE_CHARS_MAX))
                        for name, command in found.items()
                        if command is not None
                    ]
                )


app = typer.Typer(
    cls=_GroupedCommands,
    name="rootline",
    help="Many writers, one table, one object per commit.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (
    demo.demo,
    services.up,
    services.coordinator,
    services.worker,
    publish.publish,
    look.history,
    look.tree,
    look.files,
    scan.scan,
    changes.changes,
    tag.tag,
    restore.restore,
    adopt.adopt,
    catalog.export,
    check.check,
    trace.trace,
    explain.explain,
    completion.completion,
    pause.pause,
    pause.resume,
    status.status,
):
    app.command(command.__name__)(command)
app.add_typer(table.app, name="table")
app.add_typer(namespace.app, name="namespace")
app.add_typer(view.app, name="view")
app.add_typer(maintenance.app, name="maintenance")
app.add_typer(catalog.app, name="catalog")
app.add_typer(store.app, name="store")
app.add_typer(topics.app, name="topics")
app.add_typer(dlq.app, name="dlq")
app.add_typer(quarantine.app, name="quarantine")
app.add_typer(task_commands.app, name="tasks")
app.add_typer(config.app, name="config")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(VERSION)
        raise typer.Exit


@app.callback()
def _root(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version of Rootline and exit."
        ),
    ] = False,
) -> None:
    """Many writers, one table, one object per commit."""


@functools.cache
def command_tree(named: str = "") -> Any:
    """All commands as click's own objects; if one of them is `named`, that one or its group alone.

    Typer reads the signature of every command for it, which takes as long as the start of Python.
    """
    found = copy.copy(app)
    found.registered_commands = [item for item in app.registered_commands if item.name == named]
    found.registered_groups = [item for item in app.registered_groups if item.name == named]
    return typer.main.get_command(found if found.registered_commands or found.registered_groups else app)


def main() -> None:
    """The `rootline` program."""
    gc.set_threshold(*_SEARCHES)
    try:
        completing.prepare_completion()
        # a shell that asks for offers gives its words elsewhere
        command_tree(sys.argv[1] if len(sys.argv) > 1 else "")(prog_name="rootline")
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # the reader of our output has gone, as `| head` does; there is no one left to print for
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except Exception as error:
        if os.environ.get("ROOTLINE_TRACEBACK"):
            raise
        sys.stderr.write(describe(error, as_json="--json" in sys.argv) + "\n")
        sys.exit(exit_code_of(error))
