"""`rootline trace`: where is my data.

Owns: how the question is asked on the command line, and what is printed of each answer. Does not own: finding answers
(`rootline.client.trace.trace`).
Invariants: reads only; hosts no coordinator; 0 when it is in the table or on its way, 1 when it is not.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from rootline.cli.failure import ExitCode
from rootline.cli.options import Json, Log, Warehouse, required

if TYPE_CHECKING:
    from rootline.client.trace.sighting import Sighting
    from rootline.client.trace.trace import Search
    from rootline.client.trace.trace_query import TraceQuery

_SECONDS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


def trace(
    intent: Annotated[
        str | None, typer.Option("--intent", metavar="ID", help="Look for the intent with this id.")
    ] = None,
    file: Annotated[
        str | None,
        typer.Option(
            "--file",
            metavar="LOCATION",
            help="Look for this file: its location as an intent names it, its key in the store, or its URL.",
        ),
    ] = None,
    writer: Annotated[
        str | None, typer.Option("--writer", help="Look for what this writer wrote; needs --sequence and --table.")
    ] = None,
    sequence: Annotated[int | None, typer.Option("--sequence", min=0, help="The writer's sequence number.")] = None,
    table: Annotated[
        str | None, typer.Option("--table", help="Search only this table, which is quicker. Default: all tables.")
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", min=1, help="How many records of the log to search at most, the newest first.")
    ] = 100_000,
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            help="How far back to search: an age such as 30s, 90m, 2h or 3d, or a moment such as 2013-01-31T12:00:00Z. "
            "Default: the log's beginning.",
        ),
    ] = None,
    warehouse: Warehouse = None,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """Find out where data is: pending on the log, committed in a version, a duplicate of it, or rejected, and why.

    Give --intent, --file, or --writer. The table is asked first (its ledger of writers, its live files), then the log
    from its newest record backwards, with verdicts and dead letters.

    Ends with 0 when the data is in the table or on its way, with 1 when it is not.
    """
    import asyncio

    from rootline.cli import output

    query = _query(intent, file, writer, sequence, table)
    place = required(warehouse)
    found, search = asyncio.run(_sightings(place, log, query, _milliseconds(since), limit, as_json))
    if not found:
        reach = "the whole log" if search.whole else f"the newest {search.looked} records"
        record = {"state": "nowhere", "records_searched": search.looked, "whole_log": search.whole}
        hint = "" if search.whole else "; raise --limit or set --since earlier to search further"
        output.line(as_json, record, f"no trace of {query} in the tables and {reach}{hint}")
    raise typer.Exit(ExitCode.DONE if any(map(_is_or_will_be_there, found)) else ExitCode.NO)


async def _sightings(
    warehouse: str, log: str | None, query: TraceQuery, since_ms: int, limit: int, as_json: bool
) -> tuple[list[Sighting], Search]:
    from contextlib import aclosing

    from rootline.cli import output
    from rootline.client.trace.trace import Search, Trace
    from rootline.connect import open_archive, open_warehouse

    found: list[Sighting] = []
    archive, store = open_archive(log, warehouse), open_warehouse(warehouse)
    try:
        with output.progress("searching the log", total=limit) as told:
            search = Search(since_ms, limit, told)
            async with aclosing(Trace(store, archive, query, search).sightings()) as sightings:
                async for sighting in sightings:
                    found.append(sighting)
                    output.line(as_json, _record(sighting), _text(sighting))
    finally:
        await archive.close()
        await store.close()
    return found, search


def _query(
    intent: str | None, file: str | None, writer: str | None, sequence: int | None, table: str | None
) -> TraceQuery:
    from rootline.client.trace.trace_query import ByFile, ByIntent, ByWriter
    from rootline.schemas.errors import Invalid
    from rootline.schemas.identifiers import table_name

    name = None if table is None else table_name(table)
    if sum(one is not None for one in (intent, file, writer)) != 1 or (writer is None) != (sequence is None):
        raise Invalid(
            "setting-invalid", "name one thing to trace: --intent, --file, or --writer with --sequence and --table"
        )
    if intent is not None:
        return ByIntent(intent, name)
    if file is not None:
        return ByFile(file, name)
    if writer is None or sequence is None or name is None:
        raise Invalid(
            "setting-invalid", "a writer numbers its intents per table: give --table with --writer and --sequence"
        )
    return ByWriter(name, writer, sequence)


def _milliseconds(since: str | None) -> int:
    import time

    from rootline.client.read.time_travel import milliseconds

    if since is None:
        return 0
    age = re.fullmatch(r"(\d+)([smhd])", since.strip())
    if age is None:
        return milliseconds(since)
    return max(0, time.time_ns() // 1_000_000 - int(age[1]) * _SECONDS[age[2]] * 1_000)


def _is_or_will_be_there(sighting: Sighting) -> bool:
    from rootline.client.trace.sighting import IN_THE_TABLE, Whereabouts

    return sighting.state in IN_THE_TABLE or sighting.state is Whereabouts.PENDING


def _record(sighting: Sighting) -> dict[str, Any]:
    from dataclasses import asdict

    from rootline.cli import output

    told = {name: value for name, value in asdict(sighting).items() if value is not None}
    position = told.pop("position", None)
    if position is not None:
        told |= {"log": position[0], "partition": position[1], "offset": position[2]}
    for name in ("appended", "committed"):
        if f"{name}_ms" in told:
            told[f"{name}_at"] = output.moment(told.pop(f"{name}_ms"))
    return told


def _text(sighting: Sighting) -> str:
    from rootline.cli import output
    from rootline.client.trace.dead_letters import place_of

    parts = [f"{sighting.state}: {sighting.table or 'no table'}"]
    if sighting.location is not None:
        parts.append(sighting.location)
    if sighting.version is not None:
        parts.append(f"version {sighting.version}, snapshot {sighting.snapshot_id}")
    if sighting.sequence_number is not None:
        parts.append(f"sequence number {sighting.sequence_number}")
    if sighting.committed_ms is not None:
        parts.append(f"at {output.moment(sighting.committed_ms)}")
    if sighting.code is not None:
        parts.append(f"{sighting.message} [{sighting.code}]")
    if sighting.dead_letter is not None:
        parts.append(f"`rootline dlq show {sighting.dead_letter}`")
    if sighting.intent_id is not None:
        what = "" if sighting.part in (None, "is it") else f" {sighting.part}"
        parts.append(f"intent {sighting.intent_id}{what}")
    if sighting.writer_id is not None:
        parts.append(f"writer {sighting.writer_id} sequence {sighting.writer_sequence}")
    if sighting.position is not None:
        appended = "" if sighting.appended_ms is None else f" of {output.moment(sighting.appended_ms)}"
        parts.append(f"record {place_of(sighting.position)}{appended}")
    if sighting.applied_to is not None:
        parts.append(f"its table has applied this partition up to {sighting.applied_to}")
    if sighting.state == "decided":
        parts.append("how it was decided is not kept any more")
    return "; ".join(parts) + f" (source: {sighting.source})"
