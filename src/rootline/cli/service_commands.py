"""`rootline up`, `coordinator`, `worker`, `catalog serve` and `maintenance run`: the services, and their work by hand.

Owns: arguments, and printing the outcome of maintenance. Does not own: running services (`services`,
`catalog_service`), the kinds of maintenance (`rootline.workers.kinds`), the jobs.
Invariants: the first line that a service prints states its address, and it ends with 0 after a signal. Maintenance ends
with 1 when something was due and is not committed, and a dry run writes nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
import typer.core

from rootline.cli.options import (
    DryRun,
    ExportFormat,
    Given,
    LogLevel,
    TableArgument,
    any_name,
    format_version,
)
from rootline.cli.output import ExitCode

if TYPE_CHECKING:
    from rootline.cli.services import Role
    from rootline.workers.kinds import MaintenanceKind


def _port(option: str, what: str, setting: str) -> Any:
    help_text = f"{what}, or 0 for one that the system picks. Default: the setting {setting}."
    return typer.Option(option, min=0, max=65535, help=help_text)


_OF_HTTP: Final = "Port of /healthz, /readyz and /metrics"
Port = Annotated[int | None, _port("--http-port", _OF_HTTP, "ROOTLINE_COORDINATOR__HTTP_PORT")]
WorkerPort = Annotated[int | None, _port("--http-port", _OF_HTTP, "ROOTLINE_WORKER__HTTP_PORT")]


def up(
    given: Given,
    root: Annotated[
        Path | None, typer.Option("--root", help="Folder of the lake. Default: --warehouse, else ./lake.")
    ] = None,
    http_port: Port = None,
    log_level: LogLevel = "info",
) -> None:
    """Run coordinator, worker and HTTP in one process, until SIGTERM or Ctrl-C."""
    from rootline.cli.services import Role

    where = str(root) if root is not None else given.warehouse or "lake"
    _run_services(given, where, Role.COORDINATOR | Role.WORKER, http_port, log_level)


def coordinator(
    given: Given,
    http_port: Port = None,
    log_level: LogLevel = "info",
) -> None:
    """Run the coordinator, which groups intents and commits them, until SIGTERM or Ctrl-C."""
    from rootline.cli.services import Role

    _run_services(given, given.place, Role.COORDINATOR, http_port, log_level)


def worker(
    given: Given,
    http_port: WorkerPort = None,
    log_level: LogLevel = "info",
) -> None:
    """Run the worker, which keeps metadata trees small, until SIGTERM or Ctrl-C."""
    from rootline.cli.services import Role

    _run_services(given, given.place, Role.WORKER, http_port, log_level)


def _run_services(given: Given, warehouse: str, roles: Role, http_port: int | None, level: str) -> None:
    import asyncio

    from rootline.cli.service_process import log_to_stderr
    from rootline.cli.services import run_services
    from rootline.cli.setup_commands import warn_of_unknown_settings

    log_to_stderr(level)
    warn_of_unknown_settings()
    asyncio.run(run_services(warehouse, given.log, roles, given.line, http_port=http_port))


def serve_catalog(
    given: Given,
    host: Annotated[
        str | None,
        typer.Option("--host", help="Address to listen on. Default: the setting ROOTLINE_CATALOG__HTTP_HOST."),
    ] = None,
    port: Annotated[int | None, _port("--port", "Port to listen on", "ROOTLINE_CATALOG__HTTP_PORT")] = None,
    export_format: ExportFormat = None,
    log_level: LogLevel = "info",
) -> None:
    """Serve the warehouse as an Iceberg REST catalog until SIGTERM or Ctrl-C. With --log, engines may also write."""
    import asyncio

    from rootline.cli.catalog_service import run_catalog
    from rootline.cli.service_process import log_to_stderr
    from rootline.cli.setup_commands import warn_of_unknown_settings

    place = given.place
    log_to_stderr(log_level)
    warn_of_unknown_settings()
    asyncio.run(
        run_catalog(place, given.log, given.line, host=host, port=port, default_format=format_version(export_format))
    )


class KindsInHelp(typer.core.TyperCommand):
    """A command whose help text ends with the list of maintenance kinds.

    The kinds are imported only when the help is shown.
    """

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the kinds that can be run."""
        from rootline.workers.kinds import BY_HAND

        with formatter.section("Kinds"):
            formatter.write_dl([(name, kind.by_hand or "") for name, kind in BY_HAND.items()])


def _kind(name: str) -> MaintenanceKind:
    from rootline.workers.kinds import BY_HAND

    if name not in BY_HAND:
        raise typer.BadParameter(f"there is no kind {name!r}: give one of {', '.join(BY_HAND)}", param_hint="KIND")
    return BY_HAND[name]


def run_maintenance(
    given: Given,
    what: Annotated[str, typer.Argument(metavar="KIND", help="What to do: see below.", show_default=False)],
    name: TableArgument,
    dry_run: DryRun = False,
) -> None:
    """Do what can be done now, whatever the thresholds are.

    `expire` and `sweep` also clean up after a dropped table or a view.
    """
    from rootline.client.session import Session
    from rootline.connect import connect
    from rootline.hosting.rights import rights_of
    from rootline.workers.jobs.job import JobOutcome, JobReport
    from rootline.workers.jobs.maintenance_job import OF_ANY_NAME
    from rootline.workers.kinds import maintain

    kind = _kind(what)

    async def carry_out(session: Session) -> JobReport:
        store, environment = session.store, session.environment
        async with rights_of(given.place, given.log, store) as rights:
            return await maintain(store, session.log, environment, handle.name, kind, dry_run=dry_run, rights=rights)

    with connect(given.place, log=given.log) as lake:
        if kind.name in OF_ANY_NAME:
            handle = any_name(lake, name)
        else:
            handle = lake.table(name)
            handle.head()  # raises when there is no such table
        report = lake.holder.run(carry_out)
    record: dict[str, Any] = {
        "table": name,
        "run": kind.name,
        "outcome": str(report.outcome),
        "leaves": report.leaves,
        "entries": report.entries,
        "version": report.version,
        "code": report.code,
        "objects": [removed._asdict() for removed in report.removed],
        "condemned": [condemned._asdict() for condemned in report.condemned],
        "troubles": list(report.troubles),
    }
    given.line(record, _outcome_text(name, kind.name, report.outcome, record, report.message))
    would = "would be " if dry_run else ""
    for verb, found in (("condemned", report.condemned), ("removed", report.removed)):
        for item in found:
            size = f"{item.objects:,} {item.kind}, {item.size_in_bytes:,} bytes"
            given.note(f"{name}: {would}{verb}: {size}")
    for trouble in report.troubles:
        given.note(trouble)
    fine = (JobOutcome.NOTHING_DUE, JobOutcome.PLANNED, JobOutcome.COMMITTED, JobOutcome.REMOVED)
    if report.outcome not in fine:
        raise typer.Exit(ExitCode.NO)


def _outcome_text(name: str, what: str, outcome: str, record: dict[str, Any], message: str | None) -> str:
    if what == "expire":
        return _expiry_text(name, outcome, record, message)
    if what in ("sweep", "purge") and outcome in ("planned", "committed", "removed"):
        return f"{name}: {what} {outcome}" + (f", version {record['version']}" if record["version"] else "")
    moved = f"{record['entries']} entries into {record['leaves']} leaves"
    match outcome:
        case "nothing-due":
            return f"{name}: nothing to {what}"
        case "planned":
            return f"{name}: would move {moved}, from version {record['version']} on"
        case "committed":
            return f"{name}: moved {moved}, version {record['version']}"
        case _:
            return f"{name}: {what} {outcome}: {message or 'no verdict yet; it may still be committed'}"


def _expiry_text(name: str, outcome: str, record: dict[str, Any], message: str | None) -> str:
    match outcome:
        case "nothing-due":
            return f"{name}: nothing to expire"
        case "planned":
            return f"{name}: would expire {record['entries']} versions"
        case "committed":
            return f"{name}: expired {record['entries']} versions, version {record['version']}"
        case "removed":
            return f"{name}: no version to expire"
        case _:
            return f"{name}: expiry {outcome}: {message or 'no verdict yet; it may still be committed'}"
