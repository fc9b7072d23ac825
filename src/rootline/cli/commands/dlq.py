"""`rootline dlq list`, `show` and `replay`: rejected records with their original bytes.

Owns: how they are named on the command line and shown. Does not own: where they are kept (the log's archive), what a
replay does (`rootline.client.trace.replay`), how it is told (`dlq_replay`).
Invariants: looking changes nothing; what is not text is shown as hexadecimal and never written to a terminal as it is.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from rootline.cli.options import DryRun, Json, Log, Timeout, Warehouse, required

if TYPE_CHECKING:
    from rootline.client.trace.dead_letters import LetterChoice
    from rootline.schemas.dead_letter import DeadLetter
    from rootline.schemas.log_position import Headers

app = typer.Typer(
    help="Look at rejected records (dead letters), and publish them again.", no_args_is_help=True, rich_markup_mode=None
)
_LOOKED_THROUGH: Final = 100_000
_BYTES_SHOWN: Final = 4_096
_CHARS_OF_HEADER_SHOWN: Final = 200
OneTable = Annotated[str | None, typer.Option("--table", help="Only records of this table. Default: of all.")]
OneCode = Annotated[
    str | None, typer.Option("--code", help="Only records that were rejected with this code. Default: with any.")
]
Limit = Annotated[int, typer.Option("--limit", min=1, help="How many records at most, the newest first.")]
_RECORD_HELP: Final = "A record: its PARTITION/OFFSET, or its intent id."


@app.command("list")
def list_letters(
    table: OneTable = None,
    code: OneCode = None,
    limit: Limit = 50,
    warehouse: Warehouse = None,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """List the newest rejected records, the oldest of them first."""
    from rootline.cli import output
    from rootline.client.trace.dead_letters import LetterChoice

    found = _letters(warehouse, log, LetterChoice(table=table, code=code), limit)
    columns = ("record", "table", "code", "intent_id", "bytes", "message")
    output.rows(as_json, [_summary(letter) for letter in found], columns, empty="no dead letters")


@app.command("show")
def show(
    record: Annotated[str, typer.Argument(metavar="RECORD", help=_RECORD_HELP)],
    raw: Annotated[bool, typer.Option("--raw", help="Write only the record's original bytes to stdout.")] = False,
    warehouse: Warehouse = None,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """Show one rejected record: why it was rejected, and what it holds."""
    from rootline.cli import output
    from rootline.client.trace.dead_letters import LetterChoice

    choice = LetterChoice(frozenset({record}))
    letter = _all_named(choice, _letters(warehouse, log, choice, 1))[0]
    if raw:
        sys.stdout.buffer.write(letter.value)
        return
    shown = _summary(letter) | {"log": letter.log, "key": _text(letter.key), **_content(letter)}
    headers = _headers(letter.headers)
    lines = [f"{name}: {'' if value is None else value}" for name, value in shown.items()]
    lines += [f"header {name}: {'' if value is None else value}" for name, value in headers]
    output.line(as_json, shown | {"headers": headers}, "\n".join(lines))


@app.command("replay")
def replay(
    records: Annotated[
        list[str] | None, typer.Argument(metavar="RECORD", help=_RECORD_HELP, show_default=False)
    ] = None,
    table: OneTable = None,
    code: OneCode = None,
    limit: Limit = 1_000,
    dry_run: DryRun = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Do not ask before replaying all records of a table or code.")
    ] = False,
    timeout_s: Timeout = 60.0,
    warehouse: Warehouse = None,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """Publish rejected intents again, once the reason for the rejection is fixed; prints one verdict per line.

    Each intent gets a fresh intent id and keeps its writer and sequence. So it is committed once, however often it is
    replayed: the next time it is a duplicate. An intent without a writer is recognized by the locations of its files
    only: a file that is live is refused, and one that was removed meanwhile is added again.

    Ends with 1 when an intent was rejected again or a record holds no intent, with 3 when a verdict did not come.
    """
    from rootline.cli.dlq_replay import preview, replay_all
    from rootline.client.trace.dead_letters import LetterChoice
    from rootline.schemas.errors import Invalid

    if not records and table is None and code is None:
        raise Invalid(
            "setting-invalid", "name what to replay: RECORD, --table or --code; `rootline dlq list` shows the records"
        )
    choice = LetterChoice(frozenset(records or ()), table, code)
    place = required(warehouse)
    letters = _all_named(choice, _letters(place, log, choice, max(limit, len(records or ()))))
    if dry_run:
        raise typer.Exit(preview(letters, as_json))
    if not records and letters and not yes:
        _confirm(len(letters))
    raise typer.Exit(replay_all(place, log, letters, timeout_s, as_json))


def _confirm(count: int) -> None:
    from rootline.schemas.errors import Invalid

    if not sys.stdin.isatty():
        raise Invalid(
            "setting-invalid", f"{count} dead letters are chosen: give --yes to replay them, or --dry-run to see them"
        )
    typer.confirm(f"replay {count} dead letters?", abort=True, err=True)


def _letters(warehouse: str | None, log: str | None, choice: LetterChoice, limit: int) -> list[DeadLetter]:
    import asyncio

    from rootline.cli import output
    from rootline.client.trace.dead_letters import choose_letters
    from rootline.connect import open_archive

    async def read() -> list[DeadLetter]:
        archive = open_archive(log, warehouse or "" if log is not None else required(warehouse))
        try:
            with output.progress("looking through dead letters") as looked:
                return await choose_letters(archive, choice, limit=limit, look_through=_LOOKED_THROUGH, looked=looked)
        finally:
            await archive.close()

    return asyncio.run(read())


def _all_named(choice: LetterChoice, found: list[DeadLetter]) -> list[DeadLetter]:
    """`found`, unless a record that was named is not among them."""
    from rootline.client.trace.dead_letters import place_of
    from rootline.schemas.errors import Invalid

    missing = choice.records - {name for letter in found for name in (place_of(letter), letter.intent_id)}
    if missing:
        raise Invalid(
            "setting-invalid",
            f"there is no dead letter of record {', '.join(sorted(missing))}; `rootline dlq list` shows all",
        )
    return found


def _summary(letter: DeadLetter) -> dict[str, Any]:
    from rootline.client.trace.dead_letters import place_of

    return {
        "record": place_of(letter),
        "table": letter.table,
        "code": letter.code,
        "intent_id": letter.intent_id,
        "bytes": len(letter.value),
        "message": letter.message,
    }


def _content(letter: DeadLetter) -> dict[str, Any]:
    """The intent when it can be read, else the beginning of its bytes."""
    from rootline.schemas.bytes.log.intent_codec import decode_intent, encode_intent_json
    from rootline.schemas.errors import Invalid
    from rootline.schemas.log_position import by_name

    try:
        return {"intent": encode_intent_json(decode_intent(letter.value, by_name(letter.headers))).decode()}
    except Invalid as error:
        return {"unreadable": error.message, "value": letter.value[:_BYTES_SHOWN].hex()}


def _headers(headers: Headers) -> list[tuple[str, str | None]]:
    shown = [(_text(name.encode()), _text(value)) for name, value in headers]
    return [(name or "", None if text is None else text[:_CHARS_OF_HEADER_SHOWN]) for name, text in shown]


def _text(value: bytes | None) -> str | None:
    if value is None:
        return None
    text = value.decode("utf-8", "replace")
    return text if text.isprintable() and "\ufffd" not in text else value.hex()
