"""The headers of what a coordinator publishes on Kafka.

Owns: their names, and reading them back. Does not own: keys and values (`kafka_verdict_sink`).
Invariants: names are on the wire and never change; a dead letter carries Kafka Connect's headers, so that tools which
know those know ours, and `rootline.*` beside them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rootline.schemas.dead_letter import DeadLetter
from rootline.schemas.error_codes import CODES
from rootline.schemas.verdict import Verdict

Headers = tuple[tuple[str, bytes], ...]
CONNECT: Final = "__connect.errors."
CODE: Final = "rootline.code"
INTENT_ID: Final = "rootline.intent-id"
LOG: Final = "rootline.log"
TABLE: Final = "rootline.table"
PARTITION: Final = "rootline.partition"
FIRST_OFFSET: Final = "rootline.first-offset"
LAST_OFFSET: Final = "rootline.last-offset"
_MESSAGE_CHARS_MAX: Final = 8_192  # the room beside the largest intent is 64 KiB
_NAME_CHARS_MAX: Final = 1_024
_UNDECODED: Final = {"undecodable", "intent-malformed", "kind-unknown", "intent-too-large"}


@dataclass(frozen=True, slots=True)
class VerdictRange:
    """Which intents a verdict record is about: all between two offsets, or some of them."""

    log: str
    partition: int
    first: int
    last: int


def headers_of_verdicts(verdicts: Sequence[Verdict]) -> Headers:
    """Headers of a record with verdicts on one partition of one log."""
    offsets = [verdict.offset for verdict in verdicts]
    return (
        (LOG, verdicts[0].log.encode()),
        (PARTITION, str(verdicts[0].partition).encode()),
        (FIRST_OFFSET, str(min(offsets)).encode()),
        (LAST_OFFSET, str(max(offsets)).encode()),
    )


def range_of(headers: Sequence[tuple[str, bytes]]) -> VerdictRange | None:
    """What `headers_of_verdicts` said; `None` when a record does not say it."""
    held = dict(headers)
    try:
        return VerdictRange(held[LOG].decode(), int(held[PARTITION]), int(held[FIRST_OFFSET]), int(held[LAST_OFFSET]))
    except (KeyError, ValueError):
        return None


def headers_of_dead_letter(letter: DeadLetter, *, topic: str, connector: str) -> Headers:
    """Headers of a dead letter whose record came from `topic`."""
    code = CODES.get(letter.code)
    kind = f"rootline.schemas.errors.{code.category if code else 'RootlineError'}"
    said = {
        f"{CONNECT}topic": topic,
        f"{CONNECT}partition": str(letter.partition),
        f"{CONNECT}offset": str(letter.offset),
        f"{CONNECT}connector.name": connector,
        f"{CONNECT}stage": "VALUE_CONVERTER" if letter.code in _UNDECODED else "TASK_PUT",
        f"{CONNECT}exception.class.name": kind,
        f"{CONNECT}exception.message": letter.message[:_MESSAGE_CHARS_MAX],
        CODE: letter.code,
        INTENT_ID: letter.intent_id[:_NAME_CHARS_MAX],
        LOG: letter.log,
        TABLE: (letter.table or "")[:_NAME_CHARS_MAX],
    }
    return tuple((name, text.encode("utf-8", "replace")) for name, text in said.items())


def dead_letter_of(key: bytes | None, value: bytes, headers: Sequence[tuple[str, bytes]]) -> DeadLetter:
    """The dead letter in a record of the dead-letter topic, somebody else's as well.

    Headers that are missing or unreadable leave gaps: offset and partition -1, empty texts.
    """
    held = {name: text.decode("utf-8", "replace") for name, text in headers if text is not None}
    return DeadLetter(
        log=held.get(LOG, ""),
        partition=_number(held, f"{CONNECT}partition"),
        offset=_number(held, f"{CONNECT}offset"),
        intent_id=held.get(INTENT_ID, ""),
        table=held.get(TABLE) or None,
        code=held.get(CODE, ""),
        message=held.get(f"{CONNECT}exception.message", ""),
        key=key,
        value=value,
    )


def _number(held: Mapping[str, str], name: str) -> int:
    text = held.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else -1
