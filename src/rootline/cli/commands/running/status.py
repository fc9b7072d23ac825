"""`rootline status`: of each table its owner, head, lag, oldest pending intent, state and why.

Owns: how it is shown and refreshed. Does not own: asking store and log (`lake_status`).
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
    from rootline.coordinator.http.lake_view import TableStatus

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
    from rootline.cli.head_board import HeadCache
    from rootline.cli.lake_status import look_at_tables
    from rootline.cli.open_lake import lake_to_read
    from rootline.client import checks

    place, only = required(warehouse), None if name is None else checks.table(name)
    with lake_to_read(place, log) as lake:
        board: HeadCache | None = None

        async def look(session: Any) -> tuple[list[dict[str, Any]], list[str]]:
            nonlocal board
            board = board or HeadCache(session.store, only)
            tables, troubles = await look_at_tables(board, place, log, only)
            return [_record(status) for status in tables], troubles

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


def _record(status: TableStatus) -> dict[str, Any]:
    from rootline.cli import output

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


def _show(as_json: bool, records: Sequence[Mapping[str, Any]], troubles: Sequence[str], *, in_place: bool) -> None:
    from rootline.cli import output

    if in_place:
        sys.stdout.write(_CLEAR)
    empty = "no table is known: what follows did not answer" if troubles else "no tables"
    output.rows(as_json, records, _COLUMNS, empty=empty)
    for trouble in troubles:
        sys.stderr.write(f"{trouble}\n")
