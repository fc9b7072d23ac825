"""`rootline pause` and `resume`: coordinators decide no intents of a table, or of any, until they are told to go on.

Owns: arguments, and what is said. Does not own: where a pause is kept (the log), carrying it out (the coordinators).
Invariants: both only ask, and are safe to repeat; a pause of all and a pause of one table are ended each by itself;
`resume` ends with 1 if there was nothing to end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from rootline.cli.completing import tables
from rootline.cli.failure import ExitCode
from rootline.cli.options import Json, Log, Warehouse, required

if TYPE_CHECKING:
    from rootline.ports.pausing import Pause
    from rootline.schemas.identifiers import TableName

Name = Annotated[
    str | None,
    typer.Argument(metavar="TABLE", help="The table, as namespace.table.", show_default=False, autocompletion=tables),
]
Everything = Annotated[bool, typer.Option("--all", help="All tables of the lake, instead of one.")]
Why = Annotated[str, typer.Option("--why", help="What `rootline status` tells everyone who wonders.")]


def pause(
    name: Name = None,
    everything: Everything = False,
    why: Why = "",
    warehouse: Warehouse = None,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """Stop deciding the intents of a table, or of all: they wait on the log, and so do their verdicts.

    Coordinators that run do so within seconds, those that start later do so from the start, until `rootline resume`.
    """
    import asyncio

    from rootline.cli import output
    from rootline.connect import pause_table
    from rootline.ports.pausing import ALL_TABLES

    place, table = required(warehouse), _named(name, everything)
    if table != ALL_TABLES:
        _check_there(place, log, table, as_json)
    found, begun = asyncio.run(pause_table(place, log, table, why))
    what = _words(table)
    text = f"{what} paused" if begun else f"{what} paused already, since {output.moment(found.since_ms)}"
    output.line(as_json, {**_record(found), "changed": begun}, text + (f": {found.why}" if found.why else ""))
    if table == ALL_TABLES:
        output.note(as_json, "nothing is read from the log now: resume before its retention removes what waits there")
    output.note(as_json, f"coordinators that run obey within seconds; to go on: rootline resume {name or '--all'}")


def resume(
    name: Name = None,
    everything: Everything = False,
    warehouse: Warehouse = None,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """Decide the intents of a paused table again, in their order; `--all` ends what `pause --all` began."""
    import asyncio

    from rootline.cli import output
    from rootline.connect import resume_table
    from rootline.ports.pausing import ALL_TABLES

    table = _named(name, everything)
    ended, left = asyncio.run(resume_table(required(warehouse), log, table))
    if ended is not None:
        text = f"{_words(table)} resumed, after a pause since {output.moment(ended.since_ms)}"
        output.line(as_json, {**_record(ended), "changed": True}, text)
    still = [pause for pause in left if table == ALL_TABLES or pause.table == ALL_TABLES]
    for pause in still:
        how = "--all" if pause.table == ALL_TABLES else pause.table
        output.note(as_json, f"{_words(pause.table)} still paused; to go on: rootline resume {how}")
    if ended is None:
        output.note(as_json, f"{_words(table)} not paused: see `rootline status`")
        raise typer.Exit(ExitCode.NO)


def _named(name: str | None, everything: bool) -> TableName:
    from rootline.client import checks
    from rootline.ports.pausing import ALL_TABLES

    if everything == (name is not None):
        raise typer.BadParameter("give one table, or --all", param_hint="TABLE")
    return ALL_TABLES if name is None else checks.table(name)


def _check_there(warehouse: str, log: str | None, table: TableName, as_json: bool) -> None:
    """A misspelt name must not seem paused; a store that does not answer must not keep anyone from pausing."""
    from rootline.cli import output
    from rootline.cli.open_lake import any_name, lake_to_read
    from rootline.schemas.errors import Unavailable

    try:
        with lake_to_read(warehouse, log) as lake:
            any_name(lake, table)
    except Unavailable as error:
        output.note(as_json, f"whether there is a table {table} cannot be found out now: {error}")


def _words(table: TableName) -> str:
    from rootline.ports.pausing import ALL_TABLES

    return "all tables are" if table == ALL_TABLES else f"{table} is"


def _record(pause: Pause) -> dict[str, Any]:
    from rootline.cli import output

    return {"table": pause.table, "since": output.moment(pause.since_ms), "why": pause.why}
