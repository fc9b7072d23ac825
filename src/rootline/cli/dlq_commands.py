"""`rootline dlq list` and `show`: rejected records with their original bytes.

Owns: how they are shown. Does not own: where they are kept (the log's adapters), replay.
Invariants: looking changes nothing; what is not text is shown as hexadecimal and never written to a terminal as it is.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from rootline.cli.options import Json, Log, Warehouse

if TYPE_CHECKING:
    from rootline.schemas.dead_letter import DeadLetter

app = typer.Typer(help="Rejected records (dead letters).", no_args_is_help=True, rich_markup_mode=None)
_LOOKED_THROUGH: Final = 10_000
_BYTES_SHOWN: Final = 4_096
OneTable = Annotated[str | None, typer.Option("--table", help="Only this table's.")]
OneCode = Annotated[str | None, typer.Option("--code", help="Only those rejected with this code.")]
Limit = Annotated[int, typer.Option("--limit", min=1, help="The newest so many.")]


@app.command("list")
def list_letters(
    table: OneTable = None,
    code: OneCode = None,
    limit: Limit = 50,
    warehouse: Warehouse = None,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """The newest rejected records, oldest first."""
    from rootline.cli import output

    found = [
        letter
        for letter in _letters(warehouse, log, limit if table is None and code is None else _LOOKED_THROUGH)
        if table in (None, letter.table) and code in (None, letter.code)
    ][-limit:]
    columns = ("record", "table", "code", "intent_id", "bytes", "message")
    output.rows(as_json, [_summary(letter) for letter in found], columns, empty="no dead letters")


@app.command("show")
def show(
    record: Annotated[str, typer.Argument(metavar="RECORD", help="PARTITION/OFFSET of the record, or its intent id.")],
    raw: Annotated[bool, typer.Option("--raw", help="Write the original bytes to stdout, nothing else.")] = False,
    warehouse: Warehouse = None,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """One rejected record whole: why, and what it said."""
    from rootline.cli import output
    from rootline.schemas.errors import Invalid

    found = [
        letter for letter in _letters(warehouse, log, _LOOKED_THROUGH) if record in (_place(letter), letter.intent_id)
    ]
    if not found:
        raise Invalid("setting-invalid", f"no dead letter is of record {record}; `rootline dlq list` shows them")
    letter = found[-1]
    if raw:
        sys.stdout.buffer.write(letter.value)
        return
    shown = _summary(letter) | {"log": letter.log, "key": _text(letter.key), **_content(letter.value)}
    output.line(as_json, shown, "\n".join(f"{name}: {'' if value is None else value}" for name, value in shown.items()))


def _letters(warehouse: str | None, log: str | None, limit: int) -> list[DeadLetter]:
    import asyncio

    from rootline.cli.options import required
    from rootline.connect import open_dead_letters

    async def read() -> list[DeadLetter]:
        place = warehouse or "" if log is not None else required(warehouse)
        reader = open_dead_letters(log, place)
        try:
            return await reader.dead_letters(limit=limit)
        finally:
            await reader.close()

    return asyncio.run(read())


def _summary(letter: DeadLetter) -> dict[str, Any]:
    return {
        "record": _place(letter),
        "table": letter.table,
        "code": letter.code,
        "intent_id": letter.intent_id,
        "bytes": len(letter.value),
        "message": letter.message,
    }


def _place(letter: DeadLetter) -> str:
    return f"{letter.partition}/{letter.offset}"


def _content(value: bytes) -> dict[str, Any]:
    """The intent when it can be read, else the beginning of its bytes."""
    from rootline.schemas.errors import Invalid
    from rootline.schemas.intent_codec import decode_intent, encode_intent_json

    try:
        return {"intent": encode_intent_json(decode_intent(value)).decode()}
    except Invalid as error:
        return {"unreadable": error.message, "value": value[:_BYTES_SHOWN].hex()}


def _text(key: bytes | None) -> str | None:
    if key is None:
        return None
    text = key.decode("utf-8", "replace")
    return text if text.isprintable() and "\ufffd" not in text else key.hex()
