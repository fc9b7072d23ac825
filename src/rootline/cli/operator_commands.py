"""`rootline status`, `pause`, `resume`, `quarantine` and `tasks`: see stopped work, and start it again.

Owns: arguments, and printing states, pauses, quarantined tables and dead tasks. Does not own: reading store and log
(`lake_status`), storing a pause or a quarantine (the log), obeying them (the coordinators), the death of a task
(`rootline.adapters.redis_task_queue`).
Invariants: `status` and the lists change nothing and host nothing. What the store or the log does not report is left
out, and that is reported. The requests of a refresh are bounded, however many tables there are. The others only store
a request that coordinators or workers carry out, and are safe to repeat. They end with 1 if there was nothing to do.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from rootline.cli import output
from rootline.cli.options import (
    DryRun,
    Given,
    OptionalTable,
    TableArgument,
    any_name,
    tables,
)
from rootline.cli.output import ExitCode, Output
from rootline.schemas.errors import Unavailable

if TYPE_CHECKING:
    from rootline.coordinator.runtime.table.table_states import TableStatus
    from rootline.ports.intent_feed import ParkedTable, Pause
    from rootline.ports.task_queue import DeadTask, DeadTasks
    from rootline.schemas.identifiers import TableName

_T = TypeVar("_T")
_STATUS_COLUMNS: Final = ("table", "state", "head", "lag", "oldest_s", "owner", "why")
_CLEAR: Final = "\x1b[H\x1b[2J"
Everything = Annotated[bool, typer.Option("--all", help="All tables of the lake, instead of one.")]
Why = Annotated[str, typer.Option("--why", help="The reason that `rootline status` shows to everyone.")]
OneKind = Annotated[
    str | None,
    typer.Option("--kind", help="Only the task of this kind: root, leaves, rows or history. Default: all."),
]


def status(
    given: Given,
    name: Annotated[
        str | None,
        typer.Argument(metavar="TABLE", help="One table. Default: all.", show_default=False, autocompletion=tables),
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Refresh until Ctrl-C.")] = False,
    every: Annotated[
        float, typer.Option("--every", min=0.5, help="With --watch: seconds between two refreshes.")
    ] = 2.0,
    times: Annotated[
        int | None, typer.Option("--times", min=1, help="With --watch: end after so many refreshes. Default: never.")
    ] = None,
) -> None:
    """Show the state of tables: owner, head, lag, oldest pending intent, and why it waits.

    On Kafka, lag and oldest intent describe the table's partition, which other tables may share. Lag counts the records
    after the group's committed offset, and the parked records. Ends with 3 if the store or the log does not answer.
    """
    from rootline.cli.lake_status import HeadCache, read_table_states
    from rootline.client import checks

    place, only = given.place, None if name is None else checks.table(name)
    with given.lake_to_read() as lake:
        heads: HeadCache | None = None

        async def refresh(session: Any) -> tuple[list[dict[str, Any]], list[str]]:
            nonlocal heads
            heads = heads or HeadCache(session.store, only)
            tables, troubles = await read_table_states(heads, place, given.log, only)
            return [_status_record(status) for status in tables], troubles

        refreshes = 0
        in_place = watch and not given.as_json and sys.stdout.isatty()
        while True:
            records, troubles = lake.holder.run(refresh)
            print_statuses(given, records, troubles, in_place=in_place)
            refreshes += 1
            if not watch or refreshes == times:
                break
            time.sleep(every)
    if troubles:
        raise typer.Exit(ExitCode.UNREACHABLE)
    if only is not None and not any(record["head"] is not None for record in records):
        raise typer.Exit(ExitCode.NO)


def _status_record(status: TableStatus) -> dict[str, Any]:
    oldest_ms = status.oldest_ms
    return {
        "table": status.table,
        "state": status.state.value,
        "head": status.head,
        "lag": status.lag,
        "oldest_s": None if oldest_ms is None else max(0.0, round(time.time() - oldest_ms / 1000, 1)),
        "owner": status.owner,
        "why": None if status.state.value == "unknown" else status.why,
        "oldest": None if oldest_ms is None else output.moment(oldest_ms),
        "parked": status.parked,
    }


def print_statuses(
    out: Output, records: Sequence[Mapping[str, Any]], troubles: Sequence[str], *, in_place: bool
) -> None:
    """Print the statuses of tables. Print on stderr the problems that occurred while they were read."""
    if in_place:
        sys.stdout.write(_CLEAR)
    empty = "no table is known, because these requests failed:" if troubles else "no tables"
    out.rows(records, _STATUS_COLUMNS, empty=empty)
    for trouble in troubles:
        sys.stderr.write(f"{trouble}\n")


def pause(
    given: Given,
    name: OptionalTable = None,
    everything: Everything = False,
    why: Why = "",
) -> None:
    """Stop deciding the intents of a table, or of all: they wait on the log, and so do their verdicts.

    Running coordinators obey within seconds, and later ones from their start, until `rootline resume`.
    """
    from rootline.connect import pause_table
    from rootline.ports.intent_feed import ALL_TABLES

    place, table = given.place, _table_named(name, everything)
    if table != ALL_TABLES:
        _check_exists(given, table)
    found, begun = asyncio.run(pause_table(place, given.log, table, why))
    what = _subject(table)
    text = f"{what} paused" if begun else f"{what} paused already, since {output.moment(found.since_ms)}"
    given.line({**_pause_record(found), "changed": begun}, text + (f": {found.why}" if found.why else ""))
    if table == ALL_TABLES:
        given.note("nothing is read from the log now: resume before its retention removes the waiting intents")
    given.note(f"running coordinators obey within seconds; to continue: rootline resume {name or '--all'}")


def resume(
    given: Given,
    name: OptionalTable = None,
    everything: Everything = False,
) -> None:
    """Decide the intents of a paused table again, in their order. `--all` ends a pause of `pause --all`."""
    from rootline.connect import resume_table
    from rootline.ports.intent_feed import ALL_TABLES

    table = _table_named(name, everything)
    ended, remaining = asyncio.run(resume_table(given.place, given.log, table))
    if ended is not None:
        text = f"{_subject(table)} resumed, after a pause since {output.moment(ended.since_ms)}"
        given.line({**_pause_record(ended), "changed": True}, text)
    still = [pause for pause in remaining if table == ALL_TABLES or pause.table == ALL_TABLES]
    for pause in still:
        how = "--all" if pause.table == ALL_TABLES else pause.table
        given.note(f"{_subject(pause.table)} still paused; to continue: rootline resume {how}")
    if ended is None:
        given.note(f"{_subject(table)} not paused: see `rootline status`")
        raise typer.Exit(ExitCode.NO)


def _table_named(name: str | None, everything: bool) -> TableName:
    from rootline.client import checks
    from rootline.ports.intent_feed import ALL_TABLES

    if everything == (name is not None):
        raise typer.BadParameter("give one table, or --all", param_hint="TABLE")
    return ALL_TABLES if name is None else checks.table(name)


def _check_exists(given: Given, table: TableName) -> None:
    """Refuse a misspelt name, which must not seem paused. A store that does not answer must not prevent a pause."""
    try:
        with given.lake_to_read() as lake:
            any_name(lake, table)
    except Unavailable as error:
        given.note(f"it is unknown whether there is a table {table}: {error}")


def _subject(table: TableName) -> str:
    from rootline.ports.intent_feed import ALL_TABLES

    return "all tables are" if table == ALL_TABLES else f"{table} is"


def _pause_record(pause: Pause) -> dict[str, Any]:
    return {"table": pause.table, "since": output.moment(pause.since_ms), "why": pause.why}


def list_quarantined(given: Given) -> None:
    """List quarantined and parked tables: reason, time, and the parked records of each.

    An embedded log keeps undecided intents, so nothing is parked on it.
    """
    from rootline.connect import known_pauses, stuck_tables
    from rootline.ports.intent_feed import pause_of

    place = _place_of_log(given)
    stuck = asyncio.run(stuck_tables(place, given.log))
    pauses = {pause.table: pause for pause in asyncio.run(known_pauses(place, given.log))} if stuck else {}
    records = [_parked_record(parked, pause_of(pauses, parked.table)) for parked in stuck]
    columns = ["table", "partition", "state", "since", "records", "bytes", "oldest", "why"]
    given.rows(records, columns, empty="no table is quarantined or parked")


def lift_quarantine(
    given: Given,
    name: TableArgument,
    without_missing: Annotated[
        bool,
        typer.Option("--without-missing", help="Continue without parked records that their topic has removed."),
    ] = False,
    dry_run: DryRun = False,
) -> None:
    """Try a quarantined table again: its parked intents are decided first, in order, then the log continues.

    Repair the table first. Coordinators may run: they find the request within seconds. Ends with 1 if there is nothing
    to lift.
    """
    from rootline.client import checks
    from rootline.connect import lift_table, stuck_tables

    place, table = _place_of_log(given), checks.table(name)
    if dry_run:
        found = [parked for parked in asyncio.run(stuck_tables(place, given.log)) if parked.table == table]
    else:
        found = list(asyncio.run(lift_table(place, given.log, table, without_missing=without_missing)))
    for parked in found:
        text = (
            f"{name}, partition {parked.partition}: {parked.records:,} parked intents ({parked.size_in_bytes:,} bytes) "
            f"are decided first, then the log continues at offset {parked.next_offset} ({parked.why})"
        )
        given.line({**_parked_record(parked), "next_offset": parked.next_offset, "lifted": not dry_run}, text)
    if not found:
        given.note(f"nothing of {name} is quarantined or parked: see `rootline quarantine list`")
        raise typer.Exit(ExitCode.NO)
    given.note(
        "nothing was changed"
        if dry_run
        else "running coordinators try it again within seconds, and the next one that starts does so in any case; "
        "a table that is not repaired is quarantined again",
    )


def _place_of_log(given: Given) -> str:
    """The warehouse. Only an embedded log needs one."""
    from rootline.connect import is_kafka

    return given.warehouse or "" if is_kafka(given.log) else given.place


def _parked_record(parked: ParkedTable, pause: Pause | None = None) -> dict[str, Any]:
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


def list_tasks(given: Given) -> None:
    """List dead tasks: the table, the kind of the task, and the number of workers that took it."""

    async def listed(tasks: DeadTasks) -> list[dict[str, Any]]:
        return [_task_record(dead) for dead in await tasks.listed()]

    columns = ["table", "kind", "version", "attempts", "since"]
    given.rows(_with_tasks(given, listed), columns, empty="no task is dead")


def retry_tasks(
    given: Given,
    name: TableArgument,
    kind: OneKind = None,
    dry_run: DryRun = False,
) -> None:
    """Queue a table's dead tasks again, each with the full number of attempts. The exit code is 1 if none is dead."""

    async def retried(tasks: DeadTasks) -> list[tuple[DeadTask, str]]:
        found = _of_table(await tasks.listed(), name, kind)
        return [(dead, "dry_run" if dry_run else (await tasks.retry(dead)).value) for dead in found]

    _print_tasks(given, name, _with_tasks(given, retried))
    given.note("nothing was changed" if dry_run else "the next free worker takes them")


def drop_tasks(
    given: Given,
    name: TableArgument,
    kind: OneKind = None,
    dry_run: DryRun = False,
) -> None:
    """Remove a table's dead tasks: workers check it again when it changes. Ends with 1 if there is none."""

    async def dropped(tasks: DeadTasks) -> list[tuple[DeadTask, str]]:
        found = _of_table(await tasks.listed(), name, kind)
        for dead in () if dry_run else found:
            await tasks.drop(dead.task.kind, dead.task.table)
        return [(dead, "dry_run" if dry_run else "dropped") for dead in found]

    _print_tasks(given, name, _with_tasks(given, dropped))
    if dry_run:
        given.note("nothing was changed")


def _with_tasks(given: Given, use: Callable[[DeadTasks], Awaitable[_T]]) -> _T:
    from rootline.connect import open_dead_tasks
    from rootline.workers.settings import worker_settings

    place = given.place
    limits = worker_settings()

    async def run() -> _T:
        async with open_dead_tasks(place, given.log, limits.tasks_max) as tasks:
            return await use(tasks)

    return asyncio.run(run())


def _of_table(found: Iterable[DeadTask], name: str, kind: str | None) -> list[DeadTask]:
    return [dead for dead in found if dead.task.table == name and kind in (None, dead.task.kind.value)]


def _print_tasks(given: Given, name: str, found: list[tuple[DeadTask, str]]) -> None:
    for dead, outcome in found:
        text = f"{name}: {dead.task.kind.value}, taken by {dead.attempts} workers: {outcome.replace('_', ' ')}"
        given.line({**_task_record(dead), "outcome": outcome}, text)
    if not found:
        given.note(f"no task of {name} is dead: see `rootline tasks list`")
        raise typer.Exit(ExitCode.NO)


def _task_record(dead: DeadTask) -> dict[str, Any]:
    return {
        "table": dead.task.table,
        "kind": dead.task.kind.value,
        "version": dead.task.noticed_version,
        "attempts": dead.attempts,
        "since": output.moment(dead.since_ms),
    }
