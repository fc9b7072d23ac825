"""A verdict on one intent, and a dead letter: a rejected record with its original bytes and the reason."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from hashlib import sha256
from typing import Final

from rootline.schemas.identifiers import Headers
from rootline.schemas.intent import WireModel


class VerdictKind(StrEnum):
    """Decided one of three ways; no intent is ever dropped silently."""

    COMMITTED = "committed"
    DUPLICATE = "duplicate"
    REJECTED = "rejected"


class Verdict(WireModel):
    """`version`, `snapshot_id`, `sequence_number` of the commit (for a duplicate: of the first one, where known);
    `code` and `message` of a rejection. `log`, `partition`, `offset` name the intent's record.
    """

    intent_id: str
    table: str
    kind: VerdictKind
    log: str
    partition: int
    offset: int
    version: int | None = None
    snapshot_id: int | None = None
    sequence_number: int | None = None
    code: str | None = None
    message: str | None = None


def unread_id(log: str, partition: int, offset: int) -> str:
    """The intent's id in a verdict on a record that no coordinator could read."""
    return f"{log}/{partition}/{offset}"


def is_about(verdict: Verdict, intent_id: str) -> bool:
    """Whether this is the intent's own verdict: a log that was restored or cut off gives an offset a second time."""
    return verdict.intent_id in (intent_id, unread_id(verdict.log, verdict.partition, verdict.offset))


def lost_place(intent_id: str, found: Verdict) -> str:
    """Why nothing is known of the intent where the verdict at its record's offset is another's."""
    return (
        f"offset {found.offset} of the log, where intent {intent_id} was published, holds intent "
        f"{found.intent_id[:80]!r} by now: the log was restored from an older copy, or truncated. Publish the same "
        "intent again: it is committed once"
    )


VERDICT_FORM_HEADER: Final = "rootline-verdict"
"""The header of an intent's record by which its writer asks for its verdict in another form; `json` is the only one."""


class JsonVerdict(Verdict):
    """A verdict whose writer asked for JSON: a log that keeps bytes gets it in both forms."""


def as_asked(verdict: Verdict, headers: Headers) -> Verdict:
    """The verdict in the form that the headers of its intent's record ask for."""
    if any(name == VERDICT_FORM_HEADER and value == b"json" for name, value in headers):
        return JsonVerdict.model_construct(**dict(verdict))
    return verdict


def newest_versions(verdicts: Iterable[Verdict]) -> dict[str, int]:
    """The highest version that these verdicts name, for each table: it was confirmed before any of them was told."""
    newest: dict[str, int] = {}
    for verdict in verdicts:
        if verdict.version is not None:
            newest[verdict.table] = max(verdict.version, newest.get(verdict.table, 0))
    return newest


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
