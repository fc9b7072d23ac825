"""Publishing the intents of dead letters again.

Owns: which letters hold an intent that can be published, its new id, and what became of it. Does not own: choosing
letters (`dead_letters`), the way to the log (`publish_queue`), the ledger that tells a repetition.
Invariants: writer and sequence stay, so the ledger commits the intent once, however often it is replayed; the id is
fresh, because the old one stays rejected; the order of the letters is kept.

Source: protocol page, section 2, "The ledger".
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Final

from rootline.client.session.session import Session
from rootline.client.trace.dead_letters import place_of
from rootline.client.write.intent_publisher import await_verdict
from rootline.client.write.publish_queue import PublishQueue, Queued
from rootline.schemas.bytes.intent_codec import decode_intent
from rootline.schemas.bytes.record_headers import LAKE_KEY, LAKE_MISMATCH, Lake, decode_lake, refusal_of_lake, said_in
from rootline.schemas.errors import Invalid, OutcomeUnknown
from rootline.schemas.identifiers import by_name
from rootline.schemas.intent import MAINTENANCE_KINDS, Intent, IntentKind
from rootline.schemas.verdict import DeadLetter, Verdict

_AT_ONCE: Final = 100


class LeftOut(Invalid):
    """A letter of a worker's intent: nothing is lost when it is not published again."""


@dataclass(frozen=True, slots=True)
class Replay:
    """What became of one letter: a verdict, or the `error` why there is none; `intent` is `None` if it holds none."""

    letter: DeadLetter
    intent: Intent | None
    verdict: Verdict | None = None
    error: Invalid | OutcomeUnknown | None = None


def intent_of(letter: DeadLetter) -> Intent:
    """The intent in a letter, as it was rejected.

    Raises:
        Invalid: it cannot be published as it is; the message says why and what to do instead. LeftOut: no one needs
            it; workers plan it again.

    """
    if not letter.value:
        raise Invalid(
            letter.code or "undecodable",
            f"the dead letter of record {place_of(letter)} has no bytes to publish: {letter.message}: write the intent "
            "again, in smaller parts, and `rootline publish` it",
        )
    try:
        intent = decode_intent(letter.value, by_name(letter.headers))
        if letter.key is not None and letter.key != intent.table.encode():
            raise Invalid("intent-malformed", f"its key is {letter.key[:80]!r}, its table {intent.table[:80]!r}")
    except Invalid as error:
        place = place_of(letter)
        raise Invalid(
            error.code,
            f"record {place} holds no intent that could be published: {error.message}; "
            f"`rootline dlq show {place} --raw` writes its bytes: correct them, then `rootline publish` the intent",
        ) from None
    if intent.kind in MAINTENANCE_KINDS:
        raise LeftOut(
            "flush-stale" if intent.kind is IntentKind.FLUSH else "compaction-stale",
            f"record {place_of(letter)} is a worker's {intent.kind}: workers plan it again from the newest version, so "
            "there is nothing to replay",
        )
    return intent


def check_lake(letter: DeadLetter, own: Lake | None) -> None:
    """Refuse to publish for this lake what is for another still: its files are there. Raises `Invalid`."""
    refusal = None if own is None else refusal_of_lake(letter.headers, own)
    if letter.code == LAKE_MISMATCH and refusal is not None:
        raise Invalid(
            LAKE_MISMATCH,
            f"record {place_of(letter)} was not published again, for its files are in its own lake: {refusal[1]}",
        )


async def replay(session: Session, letters: Sequence[DeadLetter], *, timeout_s: float) -> AsyncGenerator[Replay, None]:
    """Publish each letter's intent once more and wait for its verdict; in the order of the letters.

    Args:
        session: the lake.
        letters: each once.
        timeout_s: how long to wait for the verdicts on up to a hundred of them.

    Raises:
        Unavailable: `log-unavailable`; letters that were not yielded yet were not published.

    """
    queue, own = PublishQueue(), await _own_lake(session, letters)
    for start in range(0, len(letters), _AT_ONCE):
        prepared = [_prepared(session, letter, own) for letter in letters[start : start + _AT_ONCE]]
        for one in await asyncio.gather(*(_replayed(session, queue, item, timeout_s) for item in prepared)):
            yield one


@dataclass(frozen=True, slots=True)
class _Prepared:
    letter: DeadLetter
    what: Intent | Invalid


async def _own_lake(session: Session, letters: Sequence[DeadLetter]) -> Lake | None:
    """The lake of the session, if letters say that they are for another."""
    if not any(letter.code == LAKE_MISMATCH for letter in letters):
        return None
    found = await session.store.get(LAKE_KEY)
    return None if found is None else decode_lake(found.body)


def _prepared(session: Session, letter: DeadLetter, own: Lake | None) -> _Prepared:
    try:
        check_lake(letter, own)
        intent = intent_of(letter)
    except Invalid as error:
        return _Prepared(letter, error)
    return _Prepared(letter, intent.model_copy(update={"intent_id": session.environment.fresh_id()}))


async def _replayed(session: Session, queue: PublishQueue, prepared: _Prepared, timeout_s: float) -> Replay:
    letter, intent = prepared.letter, prepared.what
    if isinstance(intent, Invalid):
        return Replay(letter, None, error=intent)
    # with what it said of its content, or what was rejected for that would be called a duplicate
    queued: Queued = queue.add(
        lambda: intent, said_in(letter.headers) or ""
    )  # in the order of the letters: nothing gives way before this
    try:
        position = await queue.deliver(session, queued)
        return Replay(letter, intent, await await_verdict(session, intent, position, timeout_s=timeout_s))
    except (Invalid, OutcomeUnknown) as error:
        return Replay(letter, intent, error=error)
