"""`rootline publish FILE.jsonl`: intents as JSON lines, a verdict for each.

Owns: reading the lines, keeping many in flight, printing verdicts in the order of the lines. Does not own: what an
intent may hold (`rootline.schemas.intent`).
Invariants: a line that is no intent gets its rejection here and stops no other line; 1 when any was rejected, 3 when
the log went out of reach or a verdict did not come.
"""

from __future__ import annotations

import json
import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from rootline.cli.failure import ExitCode, exit_code_of
from rootline.cli.open_lake import lake_to_change
from rootline.cli.options import Json, Log, Timeout, Warehouse

if TYPE_CHECKING:
    from rootline.client.write.producer import Producer, Receipt
    from rootline.schemas.errors import RootlineError

_IN_FLIGHT: Final = 256


def publish(
    file: Annotated[
        Path, typer.Argument(metavar="FILE.jsonl", help="A file with one intent per line; `-` reads stdin.")
    ],
    timeout_s: Timeout = 30.0,
    warehouse: Warehouse = None,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """Publish intents from a file of JSON lines, and print a verdict for each line."""
    worst = ExitCode.DONE
    waiting: deque[tuple[int, Receipt | RootlineError]] = deque()
    with lake_to_change(warehouse, log) as lake, lake.producer() as producer:
        for number, text in _lines(file):
            sent = _sent(producer, text)
            waiting.append((number, sent))
            if isinstance(sent, Exception) and exit_code_of(sent) is ExitCode.UNREACHABLE:
                break  # the log is out of reach: the verdicts on what was sent are still told
            if len(waiting) >= _IN_FLIGHT:
                worst = max(worst, _told(*waiting.popleft(), timeout_s, as_json))
        while waiting:
            worst = max(worst, _told(*waiting.popleft(), timeout_s, as_json))
    raise typer.Exit(worst)


def _lines(file: Path) -> Iterator[tuple[int, str]]:
    if str(file) == "-":
        yield from ((number, line) for number, line in enumerate(sys.stdin, start=1) if line.strip())
        return
    with file.open(encoding="utf-8") as lines:
        yield from ((number, line) for number, line in enumerate(lines, start=1) if line.strip())


def _sent(producer: Producer, text: str) -> Receipt | RootlineError:
    from rootline.schemas.errors import RootlineError

    try:
        return producer.publish(_intent(text))
    except RootlineError as error:
        return error


def _intent(text: str) -> Any:
    import uuid

    from rootline.schemas.bytes.log.intent_codec import decode_intent
    from rootline.schemas.errors import Invalid

    try:
        body = json.loads(text)
        if isinstance(body, dict) and "intent_id" not in body:
            # written by hand: each reading of the line is a new intent then
            text = json.dumps({"intent_id": str(uuid.uuid4()), **body})
    except (ValueError, RecursionError) as error:
        raise Invalid("undecodable", f"not JSON: {error}") from error
    return decode_intent(text.encode(), {"content-type": b"application/json"})


def _told(number: int, sent: Receipt | RootlineError, timeout_s: float, as_json: bool) -> ExitCode:
    from rootline.cli import output
    from rootline.cli.verdict_line import told
    from rootline.schemas.errors import OutcomeUnknown, RootlineError

    record: dict[str, Any] = {"line": number}
    if isinstance(sent, RootlineError):
        is_rejected = exit_code_of(sent) is not ExitCode.UNREACHABLE
        kind = "rejected" if is_rejected else "unknown"
        record |= {"kind": kind, "code": sent.code, "message": sent.message}
        text = f"line {number}: {kind}, {'never sent' if is_rejected else 'this line and all after it'}: {sent}"
        output.line(as_json, record, text)
        return ExitCode.NO if is_rejected else ExitCode.UNREACHABLE
    try:
        verdict = sent.verdict(timeout_s)
    except OutcomeUnknown as error:
        record |= {"kind": "unknown", "intent_id": sent.intent.intent_id, "code": error.code, "message": error.message}
        output.line(as_json, record, f"line {number}: unknown: {error}")
        return ExitCode.UNREACHABLE
    return told(as_json, f"line {number}", record, verdict)
