"""A verdict on one intent, and a dead letter: a rejected record with its original bytes and the reason."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from hashlib import sha256
from typing import Final

from rootline.schemas.identifiers import Headers
from rootline.schemas.intent import WireModel


class VerdictKind(StrEnum):
    """The three possible decisions. No intent is ever dropped silently."""

    COMMITTED = "committed"
    DUPLICATE = "duplicate"
    REJECTED = "rejected"


class Verdict(WireModel):
    """The decision about one intent.

    `version`, `snapshot_id`, `sequence_number`: of the commit. For a duplicate, of the first commit, if known. `code`,
    `message`: of a rejection. `log`, `partition`, `offset`: the position of the intent's record.
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
    """Whether `verdict` is about this intent. It is not if the log was restored or truncated, and assigned the offset a
    second time.
    """
    return verdict.intent_id in (intent_id, unread_id(verdict.log, verdict.partition, verdict.offset))


def lost_place(intent_id: str, found: Verdict) -> str:
    """The message for an intent whose offset now belongs to another intent's verdict."""
    return (
        f"offset {found.offset} of the log, where intent {intent_id} was published, has intent "
        f"{found.intent_id[:80]!r} by now: the log was restored from an older copy, or truncated. Publish the same "
        "intent again: it is committed once"
    )


VERDICT_FORM_HEADER: Final = "rootline-verdict"
"""The header of an intent's record that requests its verdict in another form. The only form is `json`."""


class JsonVerdict(Verdict):
    """A verdict whose writer requested JSON. A log of bytes stores it in both forms."""


def as_asked(verdict: Verdict, headers: Headers) -> Verdict:
    """The verdict in the form (Avro or JSON) that the headers of the intent's record request."""
    if any(name == VERDICT_FORM_HEADER and value == b"json" for name, value in headers):
        return JsonVerdict.model_construct(**dict(verdict))
    return verdict


def newest_versions(verdicts: Iterable[Verdict]) -> dict[str, int]:
    """The highest version in these verdicts for each table. A version is in the store before its verdicts are
    published.
    """
    newest: dict[str, int] = {}
    for verdict in verdicts:
        if verdict.version is not None:
            newest[verdict.table] = max(verdict.version, newest.get(verdict.table, 0))
    return newest


_KEY_BYTES_MAX: Final = 1_024
_REASON_CHARS_MAX: Final = 2_000


class DeadLetter(WireModel):
    """A rejected record: its position (`log`, `partition`, `offset`), its bytes and the reason."""

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


def letter_of(verdict: Verdict, key: bytes | None, value: bytes, headers: Headers) -> DeadLetter:
    """The dead letter of a rejected record with these bytes."""
    return DeadLetter(
        log=verdict.log,
        partition=verdict.partition,
        offset=verdict.offset,
        intent_id=verdict.intent_id,
        table=verdict.table,
        code=verdict.code or "",
        message=verdict.message or "",
        key=key,
        value=value,
        headers=headers,
    )


def size_of(letter: DeadLetter) -> int:
    """The size of the record in the letter, in bytes."""
    headers = sum(len(name) + len(value or b"") for name, value in letter.headers)
    return len(letter.key or b"") + len(letter.value) + headers


def coordinates_only(letter: DeadLetter) -> DeadLetter:
    """`letter` without the record's value, its headers and a long key. The message describes them, with a digest."""
    digest = sha256(letter.value).hexdigest()
    short_key = letter.key if len(letter.key or b"") <= _KEY_BYTES_MAX else None
    held = f"{len(letter.value)} bytes, sha256 {digest}"
    if letter.headers:
        held += f"; and {len(letter.headers)} headers"
    if short_key != letter.key:
        held += f"; and a key of {len(letter.key or b'')} bytes"
    message = f"{letter.message[:_REASON_CHARS_MAX]} (too large for a dead letter, which is without its value: {held})"
    return letter.model_copy(update={"message": message, "key": short_key, "value": b"", "headers": ()})
