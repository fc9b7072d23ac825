"""`rootline publish` and `rootline dlq`: intents from a file, and rejected records with their original bytes.

Owns: reading the lines of the file, many intents in flight, choosing dead letters, printing verdicts. Does not own: the
content of an intent (`rootline.schemas.intent`), the store of dead letters (the log's archive), replaying one
(`rootline.client.dead_letters`).
Invariants: verdicts are printed in the order of the lines or of the log. A line that is not an intent is rejected by
the command, and the other lines are published. A letter that cannot be replayed does not stop the others. The exit code
of `publish` and `replay` is 1 if any intent was rejected, and 3 if the log was unavailable or a verdict did not arrive.
`list` and `show` change nothing. Bytes that are not text are shown as hexadecimal, never written raw to a terminal.
"""

from __future__ import annotations

import json
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from rootline.cli import output
from rootline.cli.options import DryRun, Given, Timeout
from rootline.cli.output import ExitCode, exit_code_of
from rootline.schemas.errors import Invalid, OutcomeUnknown, RootlineError

if TYPE_CHECKING:
    from rootline.client.dead_letters import LetterChoice, Replay
    from rootline.client.producer import Producer, Receipt
    from rootline.schemas.identifiers import Headers
    from rootline.schemas.verdict import DeadLetter

_IN_FLIGHT: Final = 256
_RECORDS_SEARCHED: Final = 100_000
_BYTES_SHOWN: Final = 4_096
_CHARS_OF_HEADER_SHOWN: Final = 200
_RECORD_HELP: Final = "A record: its PARTITION/OFFSET, or its intent id."
OneTable = Annotated[str | None, typer.Option("--table", help="Only records of this table. Default: of all.")]
OneCode = Annotated[
    str | None, typer.Option("--code", help="Only records that were rejected with this code. Default: with any.")
]
Limit = Annotated[int, typer.Option("--limit", min=1, help="How many records at most, the newest first.")]


def publish(
    given: Given,
    file: Annotated[
        Path, typer.Argument(metavar="FILE.jsonl", help="A file with one intent per line, or `-` for stdin.")
    ],
    timeout_s: Timeout = 30.0,
) -> None:
    """Publish intents from a file of JSON lines, and print a verdict for each line."""
    worst = ExitCode.DONE
    waiting: deque[tuple[int, Receipt | RootlineError]] = deque()
    with given.lake_to_change() as lake, lake.producer() as producer:
        for number, text in _lines(file):
            sent = _sent(producer, text)
            waiting.append((number, sent))
            if isinstance(sent, Exception) and exit_code_of(sent) is ExitCode.UNREACHABLE:
                break  # the log is out of reach: the verdicts on the intents that were sent are still printed
            if len(waiting) >= _IN_FLIGHT:
                worst = max(worst, _print_line(*waiting.popleft(), timeout_s, given))
        while waiting:
            worst = max(worst, _print_line(*waiting.popleft(), timeout_s, given))
    raise typer.Exit(worst)


def _lines(file: Path) -> Iterator[tuple[int, str]]:
    if str(file) == "-":
        yield from ((number, line) for number, line in enumerate(sys.stdin, start=1) if line.strip())
        return
    with file.open(encoding="utf-8") as lines:
        yield from ((number, line) for number, line in enumerate(lines, start=1) if line.strip())


def _sent(producer: Producer, text: str) -> Receipt | RootlineError:
    try:
        return producer.publish(_intent(text))
    except RootlineError as error:
        return error


def _intent(text: str) -> Any:
    import uuid

    from rootline.schemas.bytes.intent_codec import decode_intent

    try:
        body = json.loads(text)
        if isinstance(body, dict) and "intent_id" not in body:
            # written by hand: each reading of the line is a new intent then
            text = json.dumps({"intent_id": str(uuid.uuid4()), **body})
    except (ValueError, RecursionError) as error:
        raise Invalid("undecodable", f"not JSON: {error}") from error
    return decode_intent(text.encode(), {"content-type": b"application/json"})


def _print_line(number: int, sent: Receipt | RootlineError, timeout_s: float, given: Given) -> ExitCode:
    record: dict[str, Any] = {"line": number}
    if isinstance(sent, RootlineError):
        is_rejected = exit_code_of(sent) is not ExitCode.UNREACHABLE
        kind = "rejected" if is_rejected else "unknown"
        record |= {"kind": kind, "code": sent.code, "message": sent.message}
        text = f"line {number}: {kind}, {'never sent' if is_rejected else 'this line and all after it'}: {sent}"
        given.line(record, text)
        return ExitCode.NO if is_rejected else ExitCode.UNREACHABLE
    try:
        verdict = sent.verdict(timeout_s)
    except OutcomeUnknown as error:
        record |= {"kind": "unknown", "intent_id": sent.intent.intent_id, "code": error.code, "message": error.message}
        given.line(record, f"line {number}: unknown: {error}")
        return ExitCode.UNREACHABLE
    return given.verdict_line(f"line {number}", record, verdict)


def list_letters(
    given: Given,
    table: OneTable = None,
    code: OneCode = None,
    limit: Limit = 50,
) -> None:
    """List the newest rejected records, the oldest of them first."""
    from rootline.client.dead_letters import LetterChoice

    found = _letters(_archive(given), given.log, LetterChoice(table=table, code=code), limit)
    columns = ("record", "table", "code", "intent_id", "bytes", "message")
    given.rows([_summary(letter) for letter in found], columns, empty="no dead letters")


def show_letter(
    given: Given,
    record: Annotated[str, typer.Argument(metavar="RECORD", help=_RECORD_HELP)],
    raw: Annotated[bool, typer.Option("--raw", help="Write only the record's original bytes to stdout.")] = False,
) -> None:
    """Show one rejected record: the reason, and its content."""
    from rootline.client.dead_letters import LetterChoice

    choice = LetterChoice(frozenset({record}))
    letter = _all_named(choice, _letters(_archive(given), given.log, choice, 1))[0]
    if raw:
        sys.stdout.buffer.write(letter.value)
        return
    shown = _summary(letter) | {"log": letter.log, "key": _text(letter.key), **_content(letter)}
    headers = _headers(letter.headers)
    lines = [f"{name}: {'' if value is None else value}" for name, value in shown.items()]
    lines += [f"header {name}: {'' if value is None else value}" for name, value in headers]
    given.line(shown | {"headers": headers}, "\n".join(lines))


def replay_letters(
    given: Given,
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
) -> None:
    """Publish rejected intents again, once the reason for the rejection is fixed.

    Prints one verdict per line. Each intent gets a fresh intent id and keeps its writer and sequence. So it is
    committed once, however often it is replayed: the next time it is a duplicate. An intent without a writer is
    recognized by the locations of its files only: a file that is live is refused, and one that was removed meanwhile
    is added again.

    Ends with 1 when an intent was rejected again or a record contains no intent, with 3 when a verdict did not arrive.
    """
    from rootline.client.dead_letters import LetterChoice

    if not records and table is None and code is None:
        raise Invalid(
            "setting-invalid", "name what to replay: RECORD, --table or --code; `rootline dlq list` shows the records"
        )
    choice = LetterChoice(frozenset(records or ()), table, code)
    letters = _all_named(choice, _letters(given.place, given.log, choice, max(limit, len(records or ()))))
    if dry_run:
        raise typer.Exit(_preview(letters, given))
    if not records and letters and not yes:
        _confirm(len(letters))
    raise typer.Exit(_replay_all(letters, timeout_s, given))


def _confirm(count: int) -> None:
    if not sys.stdin.isatty():
        raise Invalid(
            "setting-invalid", f"{count} dead letters are chosen: give --yes to replay them, or --dry-run to see them"
        )
    typer.confirm(f"replay {count} dead letters?", abort=True, err=True)


def _archive(given: Given) -> str:
    """The warehouse. Only the log in its folder needs one."""
    return given.warehouse or "" if given.log is not None else given.place


def _letters(warehouse: str, log: str | None, choice: LetterChoice, limit: int) -> list[DeadLetter]:
    import asyncio

    from rootline.client.dead_letters import choose_letters
    from rootline.connect import open_archive

    async def read() -> list[DeadLetter]:
        archive = open_archive(log, warehouse)
        try:
            with output.progress("searching dead letters") as advance:
                return await choose_letters(
                    archive, choice, limit=limit, look_through=_RECORDS_SEARCHED, looked=advance
                )
        finally:
            await archive.close()

    return asyncio.run(read())


def _all_named(choice: LetterChoice, found: list[DeadLetter]) -> list[DeadLetter]:
    """Return `found`, or raise `Invalid` (`setting-invalid`) if it lacks a record that was named."""
    from rootline.client.dead_letters import place_of

    missing = choice.records - {name for letter in found for name in (place_of(letter), letter.intent_id)}
    if missing:
        raise Invalid(
            "setting-invalid",
            f"there is no dead letter of record {', '.join(sorted(missing))}; `rootline dlq list` shows all",
        )
    return found


def _summary(letter: DeadLetter) -> dict[str, Any]:
    from rootline.client.dead_letters import place_of

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
    from rootline.schemas.bytes.intent_codec import decode_intent, encode_intent_json
    from rootline.schemas.identifiers import by_name

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


def _preview(letters: Sequence[DeadLetter], given: Given) -> ExitCode:
    """Print the intents that a replay would publish."""
    from rootline.client.dead_letters import intent_of, place_of

    worst = ExitCode.DONE
    for letter in letters:
        place = place_of(letter)
        try:
            intent = intent_of(letter)
        except Invalid as error:
            worst = max(worst, _print_without_intent(letter, error, given))
            continue
        who = {"writer_id": intent.writer_id, "writer_sequence": intent.writer_sequence}
        record = {"record": place, "kind": "replayable", "table": intent.table, "intent_kind": str(intent.kind)}
        who_text = "no writer, so only the locations of its files show a repetition"
        if intent.writer_id is not None:
            who_text = f"writer {intent.writer_id} sequence {intent.writer_sequence}"
        given.line(
            record | who | {"rejected_with": letter.code},
            f"{place}: would publish {intent.kind} of {intent.table}, {who_text}; it was rejected with {letter.code}",
        )
    if not letters:
        given.rows([], (), empty="no dead letters")
    return worst


def _replay_all(letters: Sequence[DeadLetter], timeout_s: float, given: Given) -> ExitCode:
    """Replay `letters`, and return the worst exit code."""
    from rootline.client.dead_letters import replay

    worst = ExitCode.DONE
    if not letters:
        given.rows([], (), empty="no dead letters")
        return worst
    with given.lake_to_change() as lake:
        for one in lake.holder.iterate(lambda session: replay(session, letters, timeout_s=timeout_s)):
            worst = max(worst, _print_replay(one, given))
    return worst


def _print_without_intent(letter: DeadLetter, error: RootlineError, given: Given) -> ExitCode:
    from rootline.client.dead_letters import LeftOut, place_of

    is_left_out = isinstance(error, LeftOut)
    kind = "left-out" if is_left_out else "unreplayable"
    record = {"record": place_of(letter), "kind": kind, "code": error.code, "message": error.message}
    given.line(record, f"{place_of(letter)}: {kind}: {error.message}")
    return ExitCode.DONE if is_left_out else ExitCode.NO


def _print_replay(one: Replay, given: Given) -> ExitCode:
    from rootline.client.dead_letters import place_of

    place, error, verdict = place_of(one.letter), one.error, one.verdict
    record: dict[str, Any] = {"record": place}
    if error is not None and one.intent is None:
        return _print_without_intent(one.letter, error, given)
    if error is not None and one.intent is not None:
        code = exit_code_of(error)
        kind = "unknown" if code is ExitCode.UNREACHABLE else "unreplayable"
        record |= {"kind": kind, "code": error.code, "message": error.message, "intent_id": one.intent.intent_id}
        given.line(record, f"{place}: {kind}: {error.message}")
        return code
    assert verdict is not None
    return given.verdict_line(place, record, verdict, rejected="rejected again")
