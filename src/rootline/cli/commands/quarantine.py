"""`rootline quarantine list` and `lift`: tables that cannot go on, and trying one of them again.

Owns: arguments and how parked tables are shown. Does not own: what is parked (the adapters of Kafka).
Invariants: `list` changes nothing; `lift` only asks for what coordinators then do, and says what that will be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from rootline.cli.failure import ExitCode
from rootline.cli.options import DryRun, Json, Log, TableArgument

if TYPE_CHECKING:
    from rootline.ports.parking import ParkedTable

app = typer.Typer(help="See tables that cannot go on, and try one again.", no_args_is_help=True, rich_markup_mode=None)
_EMBEDDED = (
    "an embedded log keeps what is undecided, so nothing is parked on it. A quarantined table is named in the "
    "coordinator's log, and is tried again when the process that hosts the coordinator is started again (after "
    "`head-lost`, run `rootline table accept` first)"
)


@app.command("list")
def list_parked(log: Log = None, as_json: Json = False) -> None:
    """List quarantined and parked tables: why, since when, what is parked of each, and from when."""
    from rootline.cli import output
    from rootline.connect import is_kafka, open_topics

    if not is_kafka(log):
        output.note(as_json, _EMBEDDED)
        return
    records = [_record(parked) for parked in open_topics(log).parked()]
    columns = ["table", "partition", "since", "records", "bytes", "oldest", "why"]
    output.rows(as_json, records, columns, empty="no table is quarantined or parked")


@app.command("lift")
def lift(
    name: TableArgument,
    without_missing: Annotated[
        bool,
        typer.Option("--without-missing", help="Go on without parked records that are gone from their topic."),
    ] = False,
    dry_run: DryRun = False,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """Try a quarantined table again: its parked intents are decided first, in order, then the log goes on.

    Mend the table first. Coordinators may run: they find this within seconds. Ends with 1 if there is nothing to lift.
    """
    from rootline.cli import output
    from rootline.connect import is_kafka, open_topics
    from rootline.schemas.errors import Invalid

    if not is_kafka(log):
        raise Invalid("setting-invalid", f"{name}: {_EMBEDDED}")
    topics = open_topics(log)
    if dry_run:
        found = [parked for parked in topics.parked() if parked.table == name]
    else:
        found = topics.lift(name, without_missing=without_missing)
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


def _record(parked: ParkedTable) -> dict[str, Any]:
    from rootline.cli import output

    return {
        "table": parked.table,
        "partition": parked.partition,
        "since": output.moment(parked.since_ms),
        "records": parked.records,
        "bytes": parked.size_in_bytes,
        "oldest": None if parked.oldest_ms is None else output.moment(parked.oldest_ms),
        "why": parked.why,
    }
