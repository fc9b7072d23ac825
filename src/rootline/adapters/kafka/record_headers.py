"""The headers of verdict records and of dead letters on Kafka, so that readers need not decode the records.

Owns: their names, the order in which they are cut when they do not all fit, and reading them back. Does not own: keys
and values (`coordinator_log`).
Invariants: Names are on the wire and never change. In a dead letter, the record's own headers are first, unchanged.
Ours are last, so that the last header of a name is ours when a record that was a dead letter before is rejected again.
A header that did not fit is named.

Kafka Connect's names (`__connect.errors.*`) are for tools that know them, `rootline.*` is for the others. The number
of leading headers that are the record's own is in `rootline.headers`, because names alone do not distinguish them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rootline.schemas.bytes.intent_codec import CONTENT_TYPE_HEADER, JSON_CONTENT_TYPE
from rootline.schemas.error_codes import CODES
from rootline.schemas.identifiers import Headers
from rootline.schemas.verdict import DeadLetter, Verdict

LOG: Final = "rootline.log"
PARTITION: Final = "rootline.partition"
FIRST_OFFSET: Final = "rootline.first-offset"
LAST_OFFSET: Final = "rootline.last-offset"


@dataclass(frozen=True, slots=True)
class VerdictRange:
    """The offsets of a verdict record. It has verdicts on all or some of the intents from `first` to `last`."""

    log: str
    partition: int
    first: int
    last: int


def headers_of_verdicts(verdicts: Sequence[Verdict]) -> Headers:
    """The headers of a record with verdicts on one partition of one log."""
    offsets = [verdict.offset for verdict in verdicts]
    return (
        (LOG, verdicts[0].log.encode()),
        (PARTITION, str(verdicts[0].partition).encode()),
        (FIRST_OFFSET, str(min(offsets)).encode()),
        (LAST_OFFSET, str(max(offsets)).encode()),
    )


def headers_of_json_verdict(verdict: Verdict) -> Headers:
    """The headers of a record with one verdict as JSON: the verdict's position, and the content type."""
    return ((CONTENT_TYPE_HEADER, JSON_CONTENT_TYPE), *headers_of_verdicts([verdict]))


def is_json(headers: Sequence[tuple[str, bytes | None]]) -> bool:
    """Whether a verdict record is the JSON form of verdicts in another record."""
    return (CONTENT_TYPE_HEADER, JSON_CONTENT_TYPE) in headers


def range_of(headers: Sequence[tuple[str, bytes | None]]) -> VerdictRange | None:
    """The range in the headers of a verdict record, or `None` for a record without them."""
    held = {name: value or b"" for name, value in headers}
    try:
        return VerdictRange(held[LOG].decode(), int(held[PARTITION]), int(held[FIRST_OFFSET]), int(held[LAST_OFFSET]))
    except (KeyError, ValueError):
        return None


CONNECT: Final = "__connect.errors."
OURS: Final = "rootline."
MESSAGE: Final = f"{CONNECT}exception.message"
CODE: Final = f"{OURS}code"
INTENT_ID: Final = f"{OURS}intent-id"
TABLE: Final = f"{OURS}table"
KEPT: Final = f"{OURS}headers"
LEFT_OUT: Final = f"{OURS}headers-left-out"
_MESSAGE_CHARS_MAX: Final = 8_192  # the largest intent leaves 64 KiB for it
_MESSAGE_BYTES_MIN: Final = 400
_NAME_CHARS_MAX: Final = 1_024
_LEFT_OUT_BYTES_MAX: Final = 400
_LENGTHS_BYTES: Final = 10
"""More than the lengths of a header's name and value take."""
_UNDECODED: Final = {"undecodable", "intent-malformed", "kind-unknown", "intent-too-large", "batch-unreadable"}


def headers_of_dead_letter(letter: DeadLetter, *, topic: str, connector: str, bytes_max: int) -> Headers:
    """The headers of a dead letter whose record is from `topic`, in `bytes_max` bytes if possible.

    If they do not fit, Rootline's message is cut first, then the record's own headers are omitted. Rootline's other
    headers are kept.
    """
    message = letter.message[:_MESSAGE_CHARS_MAX]
    ours = _ours(letter, topic, connector, message)
    over = _size(letter.headers) + _size(ours) - bytes_max
    if over <= 0:
        return (*letter.headers, *ours)
    message = _cut(message, max(_MESSAGE_BYTES_MIN, len(message.encode("utf-8", "replace")) - over))
    ours = _ours(letter, topic, connector, message)
    if _size(letter.headers) + _size(ours) <= bytes_max:
        return (*letter.headers, *ours)
    kept, left = _fitting(letter.headers, bytes_max - _size(ours) - _LEFT_OUT_BYTES_MAX)
    return (*kept, *_ours(letter, topic, connector, message, left))


def dead_letter_of(key: bytes | None, value: bytes, headers: Sequence[tuple[str, bytes | None]]) -> DeadLetter:
    """Decode a dead letter from a record of the dead letters' topic, even if another program wrote it.

    Missing or unreadable headers give default values: offset and partition -1, empty texts.
    """
    held = {name: text.decode("utf-8", "replace") for name, text in headers if text is not None}
    message = held.get(MESSAGE, "")
    if LEFT_OUT in held:
        message = f"{message} (the dead letter is without {held[LEFT_OUT]})".lstrip()
    return DeadLetter(
        log=held.get(LOG, ""),
        partition=_number(held, f"{CONNECT}partition"),
        offset=_number(held, f"{CONNECT}offset"),
        intent_id=held.get(INTENT_ID, ""),
        table=held.get(TABLE) or None,
        code=held.get(CODE, ""),
        message=message,
        key=key,
        value=value,
        headers=_own(headers, _number(held, KEPT)),
    )


def _ours(letter: DeadLetter, topic: str, connector: str, message: str, left: Headers = ()) -> Headers:
    code = CODES.get(letter.code)
    said = {
        f"{CONNECT}topic": topic,
        f"{CONNECT}partition": str(letter.partition),
        f"{CONNECT}offset": str(letter.offset),
        f"{CONNECT}connector.name": connector,
        f"{CONNECT}stage": "VALUE_CONVERTER" if letter.code in _UNDECODED else "TASK_PUT",
        f"{CONNECT}exception.class.name": f"rootline.schemas.errors.{code.category if code else 'RootlineError'}",
        MESSAGE: message,
        CODE: letter.code,
        INTENT_ID: letter.intent_id[:_NAME_CHARS_MAX],
        LOG: letter.log,
        TABLE: (letter.table or "")[:_NAME_CHARS_MAX],
        KEPT: str(len(letter.headers) - len(left)),
    }
    if left:
        said[LEFT_OUT] = _left_out(left, len(letter.headers))
    return tuple((name, text.encode("utf-8", "replace")) for name, text in said.items())


def _left_out(left: Headers, count: int) -> str:
    size = sum(len(name.encode()) + len(value or b"") for name, value in left)
    names = ", ".join(dict.fromkeys(name for name, _ in left))
    said = f"{len(left)} of {count} headers, {size} bytes, for want of room: {names}"
    return _cut(said, _LEFT_OUT_BYTES_MAX - len(LEFT_OUT) - _LENGTHS_BYTES)


def _fitting(headers: Headers, bytes_max: int) -> tuple[Headers, Headers]:
    """The headers that fit, the first ones preferred, and the others."""
    kept: list[tuple[str, bytes | None]] = []
    left: list[tuple[str, bytes | None]] = []
    for header in headers:
        size = _size((header,))
        fits = size <= bytes_max
        (kept if fits else left).append(header)
        bytes_max -= size if fits else 0
    return tuple(kept), tuple(left)


def _own(headers: Sequence[tuple[str, bytes | None]], kept: int) -> Headers:
    if kept >= 0:
        return tuple((name, value) for name, value in headers[:kept])
    # written before dead letters kept headers, or by another program
    return tuple((name, value) for name, value in headers if not name.startswith((CONNECT, OURS)))


def _size(headers: Iterable[tuple[str, bytes | None]]) -> int:
    return sum(len(name.encode()) + len(value or b"") + _LENGTHS_BYTES for name, value in headers)


def _cut(text: str, bytes_max: int) -> str:
    encoded = text.encode("utf-8", "replace")
    return text if len(encoded) <= bytes_max else encoded[: max(bytes_max, 0)].decode("utf-8", "ignore")


def _number(held: Mapping[str, str], name: str) -> int:
    text = held.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else -1
