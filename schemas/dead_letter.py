"""A dead letter: a rejected record with its original bytes and the reason.

Owns: the model; what is left of one that no log can store. Does not own: its framing (`verdict_codec`).
Invariants: all of the original bytes are kept, so that the record can be replayed after a repair; headers are the
record's own, in order. A letter that cannot be stored so keeps its coordinates, its reason and a digest.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final

from rootline.schemas.intent import WireModel
from rootline.schemas.log_position import Headers

_KEY_BYTES_MAX: Final = 1_024
_REASON_CHARS_MAX: Final = 2_000


class DeadLetter(WireModel):
    """The record at (`log`, `partition`, `offset`), and why it was rejected."""

    log: str
    partition: int
    offset: int
    intent_id: str
    table: str | None
    code: str
    message: str
    key: bytes | None
    value: bytes
    headers: Headers = ()


def size_of(letter: DeadLetter) -> int:
    """Bytes of the record in it."""
    headers = sum(len(name) + len(value or b"") for name, value in letter.headers)
    return len(letter.key or b"") + len(letter.value) + headers


def coordinates_only(letter: DeadLetter) -> DeadLetter:
    """`letter` without the record's value and headers, and without a long key; the message says so, with a digest."""
    digest = sha256(letter.value).hexdigest()
    short_key = letter.key if len(letter.key or b"") <= _KEY_BYTES_MAX else None
    held = f"{len(letter.value)} bytes, sha256 {digest}"
    if letter.headers:
        held += f"; and {len(letter.headers)} headers"
    if short_key != letter.key:
        held += f"; and a key of {len(letter.key or b'')} bytes"
    message = f"{letter.message[:_REASON_CHARS_MAX]} (too large for a dead letter, which is without its value: {held})"
    return letter.model_copy(update={"message": message, "key": short_key, "value": b"", "headers": ()})
