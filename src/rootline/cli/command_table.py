"""Every command of the program, by heading, as `rootline --help` lists them.

Owns: the names, the place of each function, and the commands that are nothing but one call of a lake. Does not own: the
functions written by hand (`*_commands`), how a row becomes a command (`app`).
Invariants: this module loads no other one of the commands. A row's line is the first sentence of its command's help.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from rootline.cli import output
from rootline.cli.options import NamespaceArgument, TableArgument, ViewArgument

if TYPE_CHECKING:
    from rootline.client.lake import Lake

Arguments = Mapping[str, Any]
"""The arguments and options that a person gave, by parameter."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command written by hand."""

    name: str
    function: str
    """The function, as `module.name` of this folder. It is loaded when the command is named."""
    line: str = ""
    """The line in `rootline --help`. Empty inside a group, which lists the docstrings of its functions."""
    shown_by: str = ""
    """The class of the command, where its help has an extra part."""
    without: tuple[str, ...] = ()
    """The options of `Given` that it does not take."""


@dataclass(frozen=True, slots=True)
class LakeCommand:
    """A command that opens the lake, calls one function on it, and prints rows or one object."""

    name: str
    help: str
    takes: Mapping[str, tuple[Any, Any]]
    """Type and default by parameter, `...` for a required one. Every row has `--warehouse`, `--log` and `--json`."""
    call: Callable[[Lake, Arguments], Any]
    """Returns the records of `columns`, or one record."""
    text: Callable[[Mapping[str, Any]], str]
    """The text of the one record; or of the arguments, when there are no rows."""
    columns: tuple[str, ...] = ()
    changes: bool = False
    """Whether it publishes an intent, and so takes `--timeout` too."""


@dataclass(frozen=True, slots=True)
class Group:
    """Commands that share their first word."""

    name: str
    line: str
    commands: tuple[Command | LakeCommand, ...]


OF_TABLE: Final = {"name": (TableArgument, ...)}
OF_NAMESPACE: Final = {"name": (NamespaceArgument, ...)}
OF_VIEW: Final = {"name": (ViewArgument, ...)}
IN_NAMESPACE: Final = {
    "namespace": (
        Annotated[str | None, typer.Option("--namespace", help="Only the views of this namespace. Default: all.")],
        None,
    )
}
TO_VERSION: Final = {
    "version": (
        Annotated[int, typer.Option("--version", min=1, help="The version to make current.", show_default=False)],
        ...,
    )
}


def _restore_table(lake: Lake, given: Arguments) -> dict[str, Any]:
    handle = lake.restore_table(given["name"], timeout_s=given["timeout_s"])
    return {"table": given["name"], "restored": True, "version": handle.head().version}


def _drop_namespace(lake: Lake, given: Arguments) -> dict[str, Any]:
    lake.drop_namespace(given["name"], timeout_s=given["timeout_s"])
    return {"namespace": given["name"], "dropped": True}


def _properties_text(found: Mapping[str, Any]) -> str:
    lines = "".join(f"\n  {key}={value}" for key, value in sorted(found["properties"].items()))
    return f"{found['namespace']}:{lines or ' no properties'}"


def _view_versions(lake: Lake, given: Arguments) -> list[dict[str, Any]]:
    view = lake.view(given["name"]).metadata()
    return [
        {
            "from": output.moment(entry.timestamp_ms),
            "version": entry.version_id,
            "dialects": ",".join(text.dialect for text in view.version_by_id(entry.version_id).sql_texts),
        }
        for entry in view.version_log
    ]


def _roll_back_view(lake: Lake, given: Arguments) -> dict[str, Any]:
    lake.view(given["name"]).rollback(given["version"], timeout_s=given["timeout_s"])
    return {"view": given["name"], "version": given["version"]}


def _drop_view(lake: Lake, given: Arguments) -> dict[str, Any]:
    lake.view(given["name"]).drop(timeout_s=given["timeout_s"])
    return {"view": given["name"], "dropped": True}


TABLES: Final = Group(
    "table",
    "Create, change, list and describe tables.",
    (
        Command("alter", "table_commands.alter"),
        Command("drop", "table_commands.drop"),
        LakeCommand(
            "restore",
            "Bring back a table that was dropped, unchanged, while no other table has its name.",
            OF_TABLE,
            _restore_table,
            "restored {table}, version {version}".format_map,
            changes=True,
        ),
        Command("replace", "table_commands.replace"),
        Command("create", "table_commands.create"),
        LakeCommand(
            "list",
            "List the tables of the warehouse.",
            {},
            lambda lake, _: [{"table": name} for name in lake.list_tables()],
            "no tables in {warehouse}; `rootline table create` creates one, `rootline adopt` adopts one".format_map,
            columns=("table",),
        ),
        Command("describe", "table_commands.describe"),
        Command("accept", "table_commands.accept"),
    ),
)
NAMESPACES: Final = Group(
    "namespace",
    "Create, list, describe, change and drop namespaces.",
    (
        Command("create", "catalog_commands.create_namespace"),
        LakeCommand(
            "list",
            "List the namespaces of the warehouse: those that were created, and those that have a table.",
            {},
            lambda lake, _: [{"namespace": name} for name in lake.namespaces()],
            "no namespaces; `rootline namespace create` makes one".format_map,
            columns=("namespace",),
        ),
        LakeCommand(
            "describe",
            "Show the properties of a namespace.",
            OF_NAMESPACE,
            lambda lake, given: {
                "namespace": given["name"],
                "properties": lake.namespace_properties(given["name"]),
            },
            _properties_text,
        ),
        Command("set", "catalog_commands.set_properties"),
        LakeCommand(
            "drop",
            "Drop a namespace that is empty.",
            OF_NAMESPACE,
            _drop_namespace,
            "dropped {namespace}".format_map,
            changes=True,
        ),
    ),
)
VIEWS: Final = Group(
    "view",
    "Create, change, list and show views.",
    (
        Command("create", "catalog_commands.create_view"),
        Command("replace", "catalog_commands.replace_view"),
        LakeCommand(
            "rollback",
            "Make an earlier version of a view current again.",
            OF_VIEW | TO_VERSION,
            _roll_back_view,
            "{view} is at version {version}".format_map,
            changes=True,
        ),
        Command("show", "catalog_commands.show_view"),
        LakeCommand(
            "history",
            "Show the versions of a view, and since when each was current.",
            OF_VIEW,
            _view_versions,
            "{name}: no history".format_map,
            columns=("from", "version", "dialects"),
        ),
        LakeCommand(
            "list",
            "List the views of the warehouse.",
            IN_NAMESPACE,
            lambda lake, given: [{"view": name} for name in lake.views(given["namespace"])],
            "no views; `rootline view create` makes one".format_map,
            columns=("view",),
        ),
        LakeCommand(
            "drop",
            "Drop a view, so that its name is free.",
            OF_VIEW,
            _drop_view,
            "dropped {view}".format_map,
            changes=True,
        ),
    ),
)
HEADINGS: Final[Mapping[str, tuple[Command | Group, ...]]] = {
    "Data": (
        Command("scan", "read_commands.scan", "Print a table's rows as CSV, or as JSON lines with --json."),
        Command(
            "files",
            "read_commands.files",
            "List the live data files, or with --where only those that may contain matching rows.",
        ),
        Command(
            "changes",
            "version_commands.changes",
            "Show what changed between two versions: files added and removed, and rows deleted from files that stayed.",
        ),
        Command(
            "publish",
            "intent_commands.publish",
            "Publish intents from a file of JSON lines, and print a verdict for each line.",
        ),
        Command(
            "trace",
            "read_commands.trace",
            "Find out where data is: pending on the log, committed in a version, a duplicate of it, or rejected, and "
            "why.",
        ),
    ),
    "Tables and views": (
        TABLES,
        NAMESPACES,
        VIEWS,
        Command("history", "version_commands.history", "List the newest versions of a table."),
        Command(
            "tree",
            "version_commands.tree",
            "Show the metadata tree: the root's rows, the leaves below them, the vectors beside them.",
        ),
        Command(
            "tag", "version_commands.tag", "List a table's tags, or let a tag name a version, move it, or delete it."
        ),
        Command(
            "restore",
            "version_commands.restore",
            "Go back to the content of an earlier version, as a new version.",
        ),
        Command(
            "check",
            "version_commands.check",
            "Read every version of a table and verify all that stored bytes can show.",
        ),
        Command(
            "adopt",
            "catalog_commands.adopt",
            "Make an Iceberg table (V1 to V3) a table of this lake, without rewriting a file.",
        ),
        Command(
            "export",
            "catalog_commands.export",
            "Write Iceberg metadata of a version of a table, and print where its metadata.json is.",
            without=("log",),
        ),
    ),
    "Services": (
        Command(
            "up",
            "service_commands.up",
            "Run coordinator, worker and HTTP in one process, until SIGTERM or Ctrl-C.",
        ),
        Command(
            "coordinator",
            "service_commands.coordinator",
            "Run the coordinator, which groups intents and commits them, until SIGTERM or Ctrl-C.",
        ),
        Command(
            "worker",
            "service_commands.worker",
            "Run the worker, which keeps metadata trees small, until SIGTERM or Ctrl-C.",
        ),
        Group("catalog", "Serve tables to other engines.", (Command("serve", "service_commands.serve_catalog"),)),
        Group(
            "maintenance",
            "Maintenance by hand.",
            (Command("run", "service_commands.run_maintenance", shown_by="service_commands.KindsInHelp"),),
        ),
    ),
    "Operators": (
        Command(
            "status",
            "operator_commands.status",
            "Show the state of tables: owner, head, lag, oldest pending intent, and why it waits.",
        ),
        Command(
            "pause",
            "operator_commands.pause",
            "Stop deciding the intents of a table, or of all: they wait on the log, and so do their verdicts.",
        ),
        Command(
            "resume",
            "operator_commands.resume",
            "Decide the intents of a paused table again, in their order.",
        ),
        Group(
            "quarantine",
            "List tables that cannot continue, and try one again.",
            (
                Command("list", "operator_commands.list_quarantined"),
                Command("lift", "operator_commands.lift_quarantine"),
            ),
        ),
        Group(
            "dlq",
            "Look at rejected records (dead letters), and publish them again.",
            (
                Command("list", "intent_commands.list_letters"),
                Command("show", "intent_commands.show_letter"),
                Command("replay", "intent_commands.replay_letters"),
            ),
        ),
        Group(
            "tasks",
            "See maintenance tasks that workers took and never ended, and try them again.",
            (
                Command("list", "operator_commands.list_tasks"),
                Command("retry", "operator_commands.retry_tasks"),
                Command("drop", "operator_commands.drop_tasks"),
            ),
        ),
        Group(
            "topics",
            "Check and create the Kafka topics of a log.",
            (
                Command("check", "setup_commands.check_topics", without=("warehouse",)),
                Command("create", "setup_commands.create_topics", without=("warehouse",)),
                Command("accept", "setup_commands.accept_topics", without=("warehouse",)),
            ),
        ),
        Group("store", "Check object stores.", (Command("probe", "setup_commands.probe_store"),)),
        Group(
            "config",
            "Show and check settings.",
            (
                Command("print", "setup_commands.print_settings"),
                Command("check", "setup_commands.check_settings"),
            ),
        ),
    ),
    "Help": (
        Command(
            "demo",
            "setup_commands.demo",
            "Try Rootline on flights of New York: append, delete, overwrite, flush, scan.",
        ),
        Command(
            "explain", "setup_commands.explain", "Explain an error code: what it means, what to do, what not to do."
        ),
        Command("completion", "setup_commands.completion", "Print the completion for a shell."),
    ),
}
