"""`rootline quarantine list` and `lift`: tables that cannot go on, and trying one of them again.

Owns: arguments and how such tables are shown. Does not own: which they are (the coordinators write it to the log).
Invariants: `list` changes nothing; `lift` only asks for what coordinators then do, and says what that will be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from rootline.cli.failure import ExitCode
from rootline.cli.options import DryRun, Json, Log, TableArgument, Warehouse

if TYPE_CHECKING:
    from rootline.ports.parking import ParkedTable
    from rootline.ports.pausing import Pause

app = typer.Typer(help="See tables that cannot go on, and try one again.", no_args_is_help=True, rich_markup_mode=None)


@app.command("list")
def list_parked(warehouse: Warehouse = None, log: Log = None, as_json: Json = False) -> None:
    """List quarantined and parked tables: why, since when, what is parked of each, and from when.

    An embedded log keeps what is undecided, so nothing is parked on it.
    """
    import asyncio

    from rootline.cli import output
    from rootline.connect import known_pauses, stuck_tables
    from rootline.ports.pausing import pause_of

    place = _place(warehouse, log)
    stuck = asyncio.run(stuck_tables(place, log))
    pauses = {pause.table: pause for pause in asyncio.run(known_pauses(place, log))} if stuck else {}
    records = [_record(parked, pause_of(pauses, parked.table)) for parked in stuck]
    columns = ["table", "partition", "state", "since", "records", "bytes", "oldest", "why"]
    output.rows(as_json, records, columns, empty="no table is quarantined or parked")


@app.command("lift")
def lift(
    name: TableArgument,
    without_missing: Annotated[
        bool,
        typer.Option("--without-missing", help="Go on without parked records that are gone from their topic."),
    ] = False,
    dry_run: DryRun = False,
    warehouse: Warehouse = None,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """Try a quarantined table again: its parked intents are decided first, in order, then the log goes on.

    Mend the table first. Coordinators may run: they find this within seconds. Ends with 1 if there is nothing to lift.
    """
    import asyncio

    from rootline.cli import output
    from rootline.client import checks
    from rootline.connect import lift_table, stuck_tables

    place, table = _place(warehouse, log), checks.table(name)
    if dry_run:
        found = [parked for parked in asyncio.run(stuck_tables(place, log)) if parked.table == table]
    else:
        found = list(asyncio.run(lift_table(place, log, table, without_missing=without_missing)))
    for parked in found:
        text = (
            f"{name}, partition {parked.partition}: {parked.records:,} parked intents ({parked.size_in_bytes:,} bytes) "
            f"are decided first, then the log goes on at offset {parked.next_offset} ({parked.why})"
        )
        output.line(as_json, {**_record(parked), "next_offset": parked.next_offset, "lifted": not dry_run}, text)
    if not found:
        output.note(as_json, f"nothing of {name} is quarantined or parked: see `rootline quarantine list`")
        raise typer.Exit(ExitCode.NO)
    output.note(
        as_json,
        "nothing was changed"
        if dry_run
        else "coordinators that run try it again within seconds, and the next one that starts does so in any case; "
        "a table that is not mended is quarantined again",
    )


def _place(warehouse: str | None, log: str | None) -> str:
    """The warehouse, which only an embedded log needs."""
    from rootline.cli.options import required
    from rootline.connect import is_kafka

    return warehouse or "" if is_kafka(log) else required(warehouse)


def _record(parked: ParkedTable, pause: Pause | None = None) -> dict[str, Any]:
    from rootline.cli import output
    from rootline.cli.lake_status import facts_of_log
    from rootline.coordinator.runtime.table.table_states import state_of

    state, _ = state_of(facts_of_log(pause, [parked]))
    return {
        "table": parked.table,
        "partition": parked.partition,
        "state": state.value,
        "since": output.moment(parked.since_ms),
        "records": parked.records,
        "bytes": parked.size_in_bytes,
        "oldest": None if parked.oldest_ms is None else output.moment(parked.oldest_ms),
        "why": parked.why,
    }
