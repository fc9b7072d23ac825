"""The entry point of the command line.

Owns: making commands of the rows of the table, and ending every failure as one line and an exit code. Does not own: the
rows (`command_table`), the commands (`*_commands`).
Invariants: naming a command loads only its own module, and listing the commands loads none. Results go to stdout,
failures to stderr.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Annotated, Any, Final

import typer
import typer.core
import typer.main

from rootline.cli.command_table import HEADINGS, Command, Group, LakeCommand
from rootline.cli.options import COMPLETE_VARIABLE, Given, Json, Log, Timeout, Warehouse
from rootline.cli.output import describe, exit_code_of
from rootline.schemas.distribution import VERSION

_SEARCHES: Final = 50_000, 20, 1_000
"""The thresholds of the search for cycles: a start makes none, and searching took an eighth of a service's start."""
_ENTRIES: Final = {entry.name: entry for entries in HEADINGS.values() for entry in entries}
_STYLE: Final[dict[str, Any]] = {
    "add_completion": False,
    "pretty_exceptions_enable": False,
    "rich_markup_mode": None,
}
_GIVEN: Final = {"warehouse": (Warehouse, None), "log": (Log, None), "as_json": (Json, False)}
"""Type and default of the options in `Given`."""


class _Commands(Mapping[str, Any]):
    """The commands by name. Each is loaded when it is asked for."""

    def __getitem__(self, name: str) -> Any:
        return command_named(name)

    def __iter__(self) -> Iterator[str]:
        return iter(_ENTRIES)

    def __len__(self) -> int:
        return len(_ENTRIES)


class _CommandsByHeading(typer.core.TyperGroup):
    """The commands under headings, each with its whole first sentence."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{**options, "commands": _Commands()})

    def list_commands(self, ctx: Any) -> list[str]:
        """The names, without loading a command."""
        return list(self.commands)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for heading, entries in HEADINGS.items():
            with formatter.section(heading):
                formatter.write_dl([(entry.name, entry.line) for entry in entries])


class _CommandsOfGroup(typer.core.TyperGroup):
    """The commands of a group, each with its whole first sentence."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.get_short_help_str(200)) for name, command in self.commands.items()])


app = typer.Typer(
    cls=_CommandsByHeading,
    name="rootline",
    help="Many writers, one table, one object per commit.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    **_STYLE,
)


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
def command_tree() -> Any:
    """All commands as click's own objects."""
    return typer.main.get_command(app)


@functools.cache
def command_named(name: str) -> Any:
    """The command or group of this name. Raises `KeyError`: there is none."""
    entry = _ENTRIES[name]
    if not isinstance(entry, Group):
        alone = typer.Typer(**_STYLE)
        _register(alone, entry)
        return typer.main.get_command(alone)
    together = typer.Typer(cls=_CommandsOfGroup, name=entry.name, help=entry.line, no_args_is_help=True, **_STYLE)
    together.callback(help=entry.line)(_group)  # without it, a group of one command would be that command
    for command in entry.commands:
        _register(together, command)
    return typer.main.get_command(together)


def _group() -> None:
    """Do nothing before the command of a group."""


def _register(group: typer.Typer, row: Command | LakeCommand) -> None:
    if isinstance(row, LakeCommand):
        takes = {**row.takes, **({"timeout_s": (Timeout, 30.0)} if row.changes else {})}
        group.command(row.name, help=row.help)(_with_given(partial(_carry_out, row), takes, ()))
        return
    function = _found(row.function)
    shown_by = _found(row.shown_by) if row.shown_by else None
    parameters = dict(inspect.signature(function, eval_str=True).parameters)
    if parameters.pop("given", None) is not None:
        takes = {name: (parameter.annotation, parameter.default) for name, parameter in parameters.items()}
        function = _with_given(function, takes, row.without)
    group.command(row.name, cls=shown_by)(function)


def _found(place: str) -> Any:
    module, _, name = place.rpartition(".")
    return getattr(importlib.import_module(f"rootline.cli.{module}"), name)


def _with_given(
    function: Callable[..., None], takes: Mapping[str, tuple[Any, Any]], without: Collection[str]
) -> Callable[..., None]:
    """`function` with the options of `Given` in place of its first parameter, and the signature that Typer reads.

    `takes`: type and default by parameter. `without`: the options of `Given` that it does not take.
    """
    common = {name: option for name, option in _GIVEN.items() if name not in without}

    def run(**options: Any) -> None:
        given = Given(**{name: options.pop(name) for name in common})
        function(given, **options)

    run.__doc__ = function.__doc__
    run.__annotations__ = {}
    run.__dict__["__signature__"] = inspect.Signature(
        [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                annotation=kind,
                default=inspect.Parameter.empty if default is ... else default,
            )
            for name, (kind, default) in {**takes, **common}.items()
        ]
    )
    return run


def _carry_out(row: LakeCommand, given: Given, **arguments: Any) -> None:
    with given.lake_to_change() if row.changes else given.lake_to_read() as lake:
        found = row.call(lake, arguments)
    if row.columns:
        given.rows(found, row.columns, empty=row.text({**arguments, "warehouse": given.place}))
    else:
        given.line(found, row.text(found))


def _prepare_completion() -> None:
    """Let Typer answer a shell that requests completions. Without this call, it does so only with its own options."""
    if COMPLETE_VARIABLE in os.environ:
        from typer import completion

        completion.get_completion_inspect_parameters()


def main() -> None:
    """Run the `rootline` program."""
    gc.set_threshold(*_SEARCHES)
    try:
        _prepare_completion()
        command_tree()(prog_name="rootline")
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # the reader of our output has closed it, as `| head` does: nobody reads what is printed now
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except Exception as error:
        if os.environ.get("ROOTLINE_TRACEBACK"):
            raise
        sys.stderr.write(describe(error, as_json="--json" in sys.argv) + "\n")
        sys.exit(exit_code_of(error))
