"""`rootline status`: of each table its owner, head, lag, oldest pending intent, state and why.

Owns: putting together what the store and the log say, and how it is shown and refreshed. Does not own: asking them
(`head_board`, `rootline.adapters.log_state`).
Invariants: changes nothing and hosts nothing; what one of store and log does not say is left out, and said; the
requests of a refresh are bounded, however many tables there are.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rootline.cli.completing import tables
from rootline.cli.failure import ExitCode
from rootline.cli.options import Json, Log, Warehouse, required

if TYPE_CHECKING:
    from rootline.connect import LogState
    from rootline.schemas.identifiers import TableName, Version

_COLUMNS = ("table", "state", "head", "lag", "oldest_s", "owner", "why")
_CLEAR = "\x1b[H\x1b[2J"


def status(
    name: Annotated[
        str | None,
        typer.Argument(metavar="TABLE", help="One table. Default: all.", show_default=False, autocompletion=tables),
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Refresh until Ctrl-C.")] = False,
    every: Annotated[float, typer.Option("--every", min=0.5, help="With --watch: seconds between two looks.")] = 2.0,
    times: Annotated[
        int | None, typer.Option("--times", min=1, help="With --watch: end after so many looks. Default: never.")
    ] = None,
    warehouse: Warehouse = None,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """Show how tables are: owner, head, lag, oldest pending intent, state and why.

    On Kafka, lag and the oldest intent are those of the table's partition, which it may share with others; lag counts
    what the group does not know to be decided yet. Ends with 3 if the store or the log does not answer.
    """
    from rootline.cli.head_board import HeadBoard
    from rootline.cli.open_lake import lake_to_read
    from rootline.client import checks

    place, only = required(warehouse), None if name is None else checks.table(name)
    with lake_to_read(place, log) as lake:
        board: HeadBoard | None = None

        async def look(session: Any) -> tuple[list[dict[str, Any]], list[str]]:
            nonlocal board
            board = board or HeadBoard(session.store, only)
            return await _look(board, place, log, only)

        looks = 0
        in_place = watch and not as_json and sys.stdout.isatty()
        while True:
            records, troubles = lake.holder.run(look)
            _show(as_json, records, troubles, in_place=in_place)
            looks += 1
            if not watch or looks == times:
                break
            time.sleep(every)
    if troubles:
        raise typer.Exit(ExitCode.UNREACHABLE)
    if only is not None and not any(record["head"] is not None for record in records):
        raise typer.Exit(ExitCode.NO)


async def _look(
    board: Any, warehouse: str, log: str | None, only: TableName | None
) -> tuple[list[dict[str, Any]], list[str]]:
    from rootline.connect import look_at_log
    from rootline.schemas.errors import RootlineError

    troubles: list[str] = []
    state: LogState | None = None
    heads: Mapping[TableName, Version] = {}
    try:
        state = await look_at_log(warehouse, log)
    except RootlineError as error:
        troubles.append(f"the log: {error}")
    try:
        heads = await board.refresh(() if state is None else state.tables)
    except RootlineError as error:
        troubles.append(f"the store: {error}")
    names = {only} if only is not None else {*heads, *(() if state is None else _named_by(state))}
    return [_record(name, heads.get(name), state) for name in sorted(names)], troubles


def _named_by(state: LogState) -> set[TableName]:
    from rootline.ports.pausing import ALL_TABLES

    return {name for name in state.tables if name and name != ALL_TABLES}


def _record(name: TableName, head: Version | None, state: LogState | None) -> dict[str, Any]:
    from rootline.cli import output

    if state is None:
        return dict.fromkeys((*_COLUMNS, "oldest", "parked")) | {"table": name, "state": "unknown", "head": head}
    waiting, owner = state.waiting_of(name), state.owner_of(name)
    parked = [each for each in state.parked if each.table == name]
    held = sum(each.records for each in parked)
    known = [waiting.oldest_ms, *(each.oldest_ms for each in parked)]
    oldest_ms = min((found for found in known if found is not None), default=None)
    what, why = _state_of(name, state, waiting.records, owner)
    return {
        "table": name,
        "state": what,
        "head": head,
        "lag": waiting.records + held,
        "oldest_s": None if oldest_ms is None else max(0.0, round(time.time() - oldest_ms / 1000, 1)),
        "owner": owner,
        "why": why,
        "oldest": None if oldest_ms is None else output.moment(oldest_ms),
        "parked": held,
    }


def _state_of(name: TableName, state: LogState, waiting: int, owner: str | None) -> tuple[str, str]:
    from rootline.ports.pausing import pause_of

    pause = pause_of(state.pauses, name)
    if pause is not None:
        return "paused", pause.reason
    stuck = next((each.why for each in state.parked if each.table == name), None)
    if stuck is not None:
        return ("quarantined" if stuck.startswith("quarantined") else "parked"), stuck
    if owner is None:
        return "unowned", "no coordinator has it: start one with `rootline up` or `rootline coordinator`"
    if waiting:
        return "pending", "intents of its partition wait for verdicts" if state.of_partition else "intents wait"
    return "idle", ""


def _show(as_json: bool, records: Sequence[Mapping[str, Any]], troubles: Sequence[str], *, in_place: bool) -> None:
    from rootline.cli import output

    if in_place:
        sys.stdout.write(_CLEAR)
    output.rows(as_json, records, _COLUMNS, empty="no tables")
    for trouble in troubles:
        sys.stderr.write(f"{trouble}\n")
