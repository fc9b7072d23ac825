"""`rootline maintenance run`: one kind of maintenance, by hand.

Owns: arguments, and how the outcome is shown. Does not own: which kinds there are (`rootline.workers.kinds`), the jobs.
Invariants: ends with 1 when something was due and is not committed; a dry run writes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.core

from rootline.cli.options import Json, Log, TableArgument, Warehouse, required

if TYPE_CHECKING:
    from rootline.workers.kinds import MaintenanceKind

app = typer.Typer(help="Maintenance by hand.", no_args_is_help=True, rich_markup_mode=None)


class _ListsKinds(typer.core.TyperCommand):
    """Help that ends with the kinds, which are imported only when help is asked for."""

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """The kinds that can be run."""
        from rootline.workers.by_hand import BY_HAND

        with formatter.section("Kinds"):
            formatter.write_dl([(name, kind.by_hand or "") for name, kind in BY_HAND.items()])


def _kind(name: str) -> MaintenanceKind:
    from rootline.workers.by_hand import BY_HAND

    if name not in BY_HAND:
        raise typer.BadParameter(f"there is no kind {name!r}: give one of {', '.join(BY_HAND)}", param_hint="KIND")
    return BY_HAND[name]


@app.callback()
def _maintenance() -> None:
    """Maintenance by hand; `rootline worker` does it all day, when a table's thresholds are reached."""


@app.command("run", cls=_ListsKinds)
def run(
    what: Annotated[str, typer.Argument(metavar="KIND", help="What to do: see below.", show_default=False)],
    name: TableArgument,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")] = False,
    warehouse: Warehouse = None,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """Do what can be done now, whatever the thresholds are.

    `expire` and `sweep` also look after what a dropped table, or a view, has left.
    """
    from rootline.cli import output
    from rootline.cli.open_lake import any_name
    from rootline.client.session.session import Session
    from rootline.connect import connect
    from rootline.hosting.rights import rights_of
    from rootline.workers.by_hand import maintain
    from rootline.workers.jobs.job import JobOutcome, JobReport
    from rootline.workers.jobs.maintenance_job import OF_ANY_NAME

    kind = _kind(what)

    async def carried_out(session: Session) -> JobReport:
        store, environment = session.store, session.environment
        async with rights_of(required(warehouse), log, store) as rights:
            return await maintain(store, session.log, environment, handle.name, kind, dry_run=dry_run, rights=rights)

    with connect(required(warehouse), log=log) as lake:
        if kind.name in OF_ANY_NAME:
            handle = any_name(lake, name)
        else:
            handle = lake.table(name)
            handle.head()  # there is no such table: say so
        report = lake.holder.run(carried_out)
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
    output.line(as_json, record, _told(name, kind.name, report.outcome, record, report.message))
    would = "would be " if dry_run else ""
    for verb, found in (("condemned", report.condemned), ("removed", report.removed)):
        for item in found:
            size = f"{item.objects:,} {item.kind}, {item.size_in_bytes:,} bytes"
            output.note(as_json, f"{name}: {would}{verb}: {size}")
    for trouble in report.troubles:
        output.note(as_json, trouble)
    fine = (JobOutcome.NOTHING_DUE, JobOutcome.PLANNED, JobOutcome.COMMITTED, JobOutcome.REMOVED)
    if report.outcome not in fine:
        raise typer.Exit(1)


def _told(name: str, what: str, outcome: str, record: dict[str, Any], message: str | None) -> str:
    if what == "expire":
        return _told_of_expiry(name, outcome, record, message)
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


def _told_of_expiry(name: str, outcome: str, record: dict[str, Any], message: str | None) -> str:
    match outcome:
        case "nothing-due":
            return f"{name}: nothing to expire"
        case "planned":
            return f"{name}: would give up {record['entries']} versions"
        case "committed":
            return f"{name}: gave up {record['entries']} versions, version {record['version']}"
        case "removed":
            return f"{name}: no version to give up"
        case _:
            return f"{name}: expiry {outcome}: {message or 'no verdict yet; it may still be committed'}"
