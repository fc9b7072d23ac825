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


def add_to(app: typer.Typer) -> None:
    """Hang the command into `app`."""
    app.command("trace")(trace)


def trace(
    intent: Annotated[str | None, typer.Option("--intent", metavar="ID", help="An intent's id.")] = None,
    file: Annotated[
        str | None, typer.Option("--file", metavar="LOCATION", help="A file: as an intent names it, or its key or URL.")
    ] = None,
    writer: Annotated[str | None, typer.Option("--writer", help="A writer's id, with --sequence and --table.")] = None,
    sequence: Annotated[int | None, typer.Option("--sequence", min=0, help="The writer's number.")] = None,
    table: Annotated[str | None, typer.Option("--table", help="Only this table; searching is quicker then.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Search at most so many records of the log.")] = 100_000,
    since: Annotated[
        str | None, typer.Option("--since", help="Search no further back: 90m, 2h, 3d, or 2013-01-31T12:00:00Z.")
    ] = None,
    warehouse: Warehouse = None,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """Where is my data: pending on the log, committed in a version, a duplicate of it, or rejected, and why.

    Asks the table first (its ledger of writers, its live files), then the log from its newest record backwards, with
    verdicts and dead letters.
    """
    import asyncio

    from rootline.cli import output

    query = _query(intent, file, writer, sequence, table)
    place = required(warehouse)
    found, search = asyncio.run(_sightings(place, log, query, _milliseconds(since), limit, as_json))
    if not found:
        reach = "the whole log" if search.whole else f"the newest {search.looked} records"
        record = {"state": "nowhere", "records_searched": search.looked, "whole_log": search.whole}
        hint = "" if search.whole else "; --limit and --since search further"
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
        raise Invalid("setting-invalid", "name one thing to trace: --intent, --file, or --writer with --sequence")
    if intent is not None:
        return ByIntent(intent, name)
    if file is not None:
        return ByFile(file, name)
    if writer is None or sequence is None or name is None:
        raise Invalid("setting-invalid", "a writer counts per table: give --table with --writer and --sequence")
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

    told = {name: value for name, value in asdict(sighting).items() if value is not None}
    position = told.pop("position", None)
    if position is not None:
        told |= {"log": position[0], "partition": position[1], "offset": position[2]}
    for name in ("appended", "committed"):
        if f"{name}_ms" in told:
            told[f"{name}_at"] = _moment(told.pop(f"{name}_ms"))
    return told


def _text(sighting: Sighting) -> str:
    parts = [f"{sighting.state}: {sighting.table or 'no table'}"]
    if sighting.location is not None:
        parts.append(sighting.location)
    if sighting.version is not None:
        parts.append(f"version {sighting.version}, snapshot {sighting.snapshot_id}")
    if sighting.sequence_number is not None:
        parts.append(f"sequence number {sighting.sequence_number}")
    if sighting.committed_ms is not None:
        parts.append(f"at {_moment(sighting.committed_ms)}")
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
        place = f"record {sighting.position.partition}/{sighting.position.offset}"
        appended = "" if sighting.appended_ms is None else f" of {_moment(sighting.appended_ms)}"
        parts.append(place + appended)
    if sighting.applied_to is not None:
        parts.append(f"its table has applied this partition up to {sighting.applied_to}")
    if sighting.state == "decided":
        parts.append("how, is kept no longer")
    return "; ".join(parts) + f" (says: {sighting.source})"


def _moment(milliseconds: int) -> str:
    import datetime as dt

    return dt.datetime.fromtimestamp(milliseconds / 1000, dt.UTC).isoformat(timespec="milliseconds")
