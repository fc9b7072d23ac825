"""`rootline maintenance run`: a flush or a compaction by hand.

Owns: arguments, and how what came of it is shown. Does not own: the jobs (`rootline.workers`).
Invariants: ends with 1 when something was due and is not committed; a dry run writes nothing.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from rootline.cli.options import Json, Log, TableArgument, Warehouse, required

app = typer.Typer(help="Maintenance by hand.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def _maintenance() -> None:
    """Maintenance by hand; `rootline worker` does it all day, past a table's thresholds."""


@app.command("run")
def run(
    what: Annotated[
        Literal["flush", "compact"],
        typer.Argument(help="flush: the root's rows go to leaves; compact: few leaves, nothing dead in them."),
    ],
    name: TableArgument,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")] = False,
    warehouse: Warehouse = None,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """Do what can be done now, whatever the thresholds are."""
    from rootline.cli import output
    from rootline.client.session.session import Session
    from rootline.connect import connect
    from rootline.workers.by_hand import ByHand, maintain
    from rootline.workers.jobs.maintenance_job import JobOutcome, JobReport

    async def carried_out(session: Session) -> JobReport:
        table = handle.name
        return await maintain(session.store, session.log, session.environment, table, ByHand(what), dry_run=dry_run)

    with connect(required(warehouse), log=log) as lake:
        handle = lake.table(name)
        handle.head()  # there is no such table: say so
        report = lake.holder.run(carried_out)
    record: dict[str, Any] = {
        "table": name,
        "run": what,
        "outcome": str(report.outcome),
        "leaves": report.leaves,
        "entries": report.entries,
        "version": report.version,
        "code": report.code,
    }
    output.line(as_json, record, _told(name, what, report.outcome, record, report.message))
    if report.outcome not in (JobOutcome.NOTHING_DUE, JobOutcome.PLANNED, JobOutcome.COMMITTED):
        raise typer.Exit(1)


def _told(name: str, what: str, outcome: str, record: dict[str, Any], message: str | None) -> str:
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
