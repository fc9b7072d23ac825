"""`rootline scan`, `files` and `trace`: the rows of a table, its files, and the place of data.

Owns: arguments and printing. Does not own: reading (`rootline.client.scan`), finding data (`rootline.client.trace`).
Invariants: reads only, and hosts no coordinator. Rows are printed as they are read, batch by batch, as CSV with a
header or as JSON lines. `trace` ends with 0 when the data is in the table or on its way, with 1 when it is not.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from rootline.cli import output
from rootline.cli.options import AtVersion, Given, TableArgument, Where
from rootline.cli.output import ExitCode
from rootline.schemas.errors import Invalid

if TYPE_CHECKING:
    import pyarrow as pa

    from rootline.client.trace import Search
    from rootline.client.trace_query import Sighting, TraceQuery

_QUOTED: Final = re.compile('[,"\r\n]')
_NEVER_QUOTED: Final = ("int", "uint", "halffloat", "float", "double", "decimal", "date", "time")
"""Types of Arrow whose values have text without a sign that CSV quotes."""
_SECONDS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


def scan(
    given: Given,
    table: TableArgument,
    where: Where = None,
    columns: Annotated[
        str | None,
        typer.Option(
            "--columns",
            help="Column names, separated by commas. Also _file, _pos, _deleted, _spec_id, _partition, _row_id, "
            "_last_updated_sequence_number. Default: all columns of the table.",
        ),
    ] = None,
    version: AtVersion = None,
    timestamp: Annotated[
        str | None,
        typer.Option(
            "--timestamp",
            help="Read the table as it was at this moment: ISO 8601 with an offset, such as 2013-01-31T12:00:00Z, "
            "or milliseconds since 1970.",
        ),
    ] = None,
    snapshot_id: Annotated[
        int | None, typer.Option("--snapshot-id", help="Read the version with this snapshot id.")
    ] = None,
    tag: Annotated[str | None, typer.Option("--tag", help="Read the version with this tag.")] = None,
    count: Annotated[bool, typer.Option("--count", help="Print only the number of rows.")] = False,
    plan: Annotated[
        bool,
        typer.Option("--plan", help="Print what finding the files took (requests, leaves read), and read no rows."),
    ] = False,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="How many rows to print at most. Default: all.")
    ] = None,
) -> None:
    """Print a table's rows as CSV, or as JSON lines with --json.

    Give at most one of --version, --timestamp, --snapshot-id and --tag. Default: the newest version.
    """
    names = [name.strip() for name in columns.split(",") if name.strip()] if columns is not None else None
    with given.lake_to_read() as lake:
        wanted = lake.table(table).scan(
            where, names, limit=limit, version=version, timestamp=timestamp, snapshot_id=snapshot_id, tag=tag
        )
        if plan:
            given.plan(table, wanted.plan())
            return
        if count:
            rows = wanted.count()
            given.line({"table": table, "rows": rows}, str(rows))
            return
        is_headed = given.as_json
        for batch in wanted.to_batches():
            if not is_headed:
                sys.stdout.write(",".join(map(_csv_cell, batch.schema.names)) + "\n")
                is_headed = True
            lines = map(output.json_text, batch.to_pylist()) if given.as_json else _csv_lines(batch)
            sys.stdout.writelines(f"{line}\n" for line in lines)
        if not is_headed:
            sys.stdout.write(",".join(map(_csv_cell, wanted.schema().names)) + "\n")
        sys.stdout.flush()


def _csv_lines(batch: pa.RecordBatch) -> Iterator[str]:
    """The lines of a batch, made column by column: most types need no check for quotes."""
    return map(",".join, zip(*map(_csv_cells, batch.columns), strict=True))


def _csv_cells(column: pa.Array) -> list[str]:
    if str(column.type).startswith(_NEVER_QUOTED):
        return ["" if value is None else str(value) for value in column.to_pylist()]
    return [_csv_cell(value) for value in column.to_pylist()]


def _csv_cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    text = json.dumps(value, default=str) if isinstance(value, dict | list) else str(value)
    if isinstance(value, bytes):
        text = value.hex()
    return '"' + text.replace('"', '""') + '"' if text == "" or _QUOTED.search(text) else text


def files(
    given: Given,
    table: TableArgument,
    where: Where = None,
    version: AtVersion = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Print what finding the files took (requests, leaves read), not the files.")
    ] = False,
) -> None:
    """List the live data files, or with --where only those that may contain matching rows."""
    with given.lake_to_read() as lake:
        tasks = lake.table(table).scan(where=where, version=version).plan()
    if plan:
        given.plan(table, tasks)
        return
    records = [
        {
            "location": task.data.location,
            "format": str(task.data.file_format),
            "rows": task.data.record_count,
            "deleted_rows": sum(vector.record_count for vector in task.vectors),
            "bytes": task.data.file_size_in_bytes,
            "sequence_number": task.data.version_info.sequence_number,
            "delete_files": len(task.deletes.equality) + len(task.deletes.positions),
            "residual": None if task.residual is None else task.residual.text,
        }
        for task in tasks
    ]
    columns = ["rows", "deleted_rows", "bytes", "sequence_number", "location"]
    given.rows(records, columns, empty=f"{table}: no files")


def trace(
    given: Given,
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
        str | None, typer.Option("--writer", help="Look for the data of this writer. Needs --sequence and --table.")
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
) -> None:
    """Find out where data is: pending on the log, committed in a version, a duplicate of it, or rejected, and why.

    Give --intent, --file, or --writer. The table is searched first (its ledger of writers, its live files), then the
    log from its newest record backwards, with verdicts and dead letters.

    Ends with 0 when the data is in the table or on its way, with 1 when it is not.
    """
    import asyncio

    query = _query(intent, file, writer, sequence, table)
    found, search = asyncio.run(_sightings(given, query, _milliseconds(since), limit))
    if not found:
        reach = "the whole log" if search.whole else f"the newest {search.records_read} records"
        record = {"state": "nowhere", "records_searched": search.records_read, "whole_log": search.whole}
        hint = "" if search.whole else "; raise --limit or set --since earlier to search further"
        given.line(record, f"no trace of {query} in the tables and {reach}{hint}")
    raise typer.Exit(ExitCode.DONE if any(map(_arrives, found)) else ExitCode.NO)


async def _sightings(given: Given, query: TraceQuery, since_ms: int, limit: int) -> tuple[list[Sighting], Search]:
    from contextlib import aclosing

    from rootline.client.trace import Search, Trace
    from rootline.connect import open_archive, open_warehouse

    found: list[Sighting] = []
    archive, store = open_archive(given.log, given.place), open_warehouse(given.place)
    try:
        with output.progress("searching the log", total=limit) as advance:
            search = Search(since_ms, limit, advance)
            async with aclosing(Trace(store, archive, query, search).sightings()) as sightings:
                async for sighting in sightings:
                    found.append(sighting)
                    given.line(_sighting_record(sighting), _sighting_text(sighting))
    finally:
        await archive.close()
        await store.close()
    return found, search


def _query(
    intent: str | None, file: str | None, writer: str | None, sequence: int | None, table: str | None
) -> TraceQuery:
    from rootline.client.trace_query import ByFile, ByIntent, ByWriter
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

    from rootline.client.time_travel import milliseconds

    if since is None:
        return 0
    age = re.fullmatch(r"(\d+)([smhd])", since.strip())
    if age is None:
        return milliseconds(since)
    return max(0, time.time_ns() // 1_000_000 - int(age[1]) * _SECONDS[age[2]] * 1_000)


def _arrives(sighting: Sighting) -> bool:
    from rootline.client.trace_query import IN_THE_TABLE, Whereabouts

    return sighting.state in IN_THE_TABLE or sighting.state is Whereabouts.PENDING


def _sighting_record(sighting: Sighting) -> dict[str, Any]:
    from dataclasses import asdict

    record = {name: value for name, value in asdict(sighting).items() if value is not None}
    position = record.pop("position", None)
    if position is not None:
        record |= {"log": position[0], "partition": position[1], "offset": position[2]}
    for name in ("appended", "committed"):
        if f"{name}_ms" in record:
            record[f"{name}_at"] = output.moment(record.pop(f"{name}_ms"))
    return record


def _sighting_text(sighting: Sighting) -> str:
    from rootline.client.dead_letters import place_of

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
        parts.append(f"its table has decided this partition before offset {sighting.applied_to}")
    if sighting.state == "decided":
        parts.append("the decision is no longer kept")
    return "; ".join(parts) + f" (source: {sighting.source})"
