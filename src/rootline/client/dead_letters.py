"""Choosing among dead letters, and publishing their intents again.

Owns: a letter's name, the choice of letters, the fresh id of a replayed intent, and its outcome. Does not own: the
storage of letters (the log's archive), publishing to the log (`producer`), the ledger (the table's record of committed
sequences, which recognizes a repetition).
Invariants: of several letters on one record, the newest is used. Only chosen letters are kept in memory. Writer and
sequence are unchanged, so the ledger commits the intent once, however often it is replayed. The id is fresh, because
the old one stays rejected. So a commit of an Iceberg client is not replayed: with a fresh id, the ledger would not
recognize the refused request, whose files the client may have deleted. The order of the letters is kept.

Source: protocol page, section 2, "The ledger".
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from rootline.client.producer import PublishQueue, Queued, await_verdict
from rootline.client.session import Session
from rootline.ports.intent_log import LogArchive
from rootline.schemas.bytes.intent_codec import decode_intent
from rootline.schemas.bytes.record_headers import LAKE_KEY, LAKE_MISMATCH, Lake, decode_lake, refusal_of_lake, said_in
from rootline.schemas.client_commits import CLIENT, REFUSED
from rootline.schemas.errors import Invalid, OutcomeUnknown
from rootline.schemas.identifiers import LogPosition, by_name
from rootline.schemas.intent import MAINTENANCE_KINDS, Intent, IntentKind
from rootline.schemas.verdict import DeadLetter, Verdict


@dataclass(frozen=True, slots=True)
class LetterChoice:
    """Criteria that select dead letters. A letter must match all that are given.

    `records`: each is "partition/offset" or an intent id.
    """

    records: frozenset[str] = frozenset()
    table: str | None = None
    code: str | None = None

    def takes(self, letter: DeadLetter) -> bool:
        """Whether the choice includes `letter`."""
        return (
            (not self.records or not self.records.isdisjoint((place_of(letter), letter.intent_id)))
            and self.table in (None, letter.table)
            and self.code in (None, letter.code)
        )


def place_of(record: DeadLetter | LogPosition | Verdict) -> str:
    """The record's partition and offset, in the form that commands accept."""
    return f"{record.partition}/{record.offset}"


async def choose_letters(
    archive: LogArchive,
    choice: LetterChoice,
    *,
    limit: int,
    look_through: int,
    looked: Callable[[int], object] = lambda _: None,
) -> list[DeadLetter]:
    """The newest `limit` letters that match `choice` among the newest `look_through`, in the order of the log.

    Args:
        archive: the log's archive, which stores the letters.
        choice: the letters to choose.
        limit: the maximum number of chosen letters.
        look_through: the number of letters to read.
        looked: called after each portion with the number of letters read.

    Raises:
        Unavailable: `log-unavailable`.
    """
    found: dict[tuple[str, int, int], DeadLetter] = {}
    seen = 0
    async with aclosing(archive.dead_letters()) as portions:
        async for portion in portions:
            for letter in portion:
                if choice.takes(letter):
                    found.setdefault((letter.log, letter.partition, letter.offset), letter)
            seen += len(portion)
            looked(len(portion))
            if seen >= look_through or len(found) >= limit or _all_found(choice, found.values()):
                break
    newest = list(found.values())[:limit]
    return sorted(newest, key=lambda letter: (letter.log, letter.partition, letter.offset))


def _all_found(choice: LetterChoice, letters: Collection[DeadLetter]) -> bool:
    """Whether every named record was found. Always false for a choice without names."""
    named = {name for letter in letters for name in (place_of(letter), letter.intent_id)}
    return bool(choice.records) and choice.records <= named


_AT_ONCE: Final = 100


class LeftOut(Invalid):
    """The error for an intent of a worker or of an Iceberg client, which publishes another one."""


@dataclass(frozen=True, slots=True)
class Replay:
    """The outcome of one letter: a verdict, or the `error` that prevented one. `intent` is `None` if it cannot be
    decoded.
    """

    letter: DeadLetter
    intent: Intent | None
    verdict: Verdict | None = None
    error: Invalid | OutcomeUnknown | None = None


def intent_of(letter: DeadLetter) -> Intent:
    """The rejected intent of a letter.

    Raises:
        Invalid: the intent cannot be published unchanged. The message names the reason and the next step.
        LeftOut: it need not be published, because a worker plans its intent again from the newest version. Or it must
            not be, because the catalog has answered the Iceberg client, which may have deleted the files since.
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
            raise Invalid("intent-malformed", f"its key {letter.key[:80]!r} is not its table {intent.table[:80]!r}")
    except Invalid as error:
        place = place_of(letter)
        raise Invalid(
            error.code,
            f"record {place} contains no intent that can be published: {error.message}; "
            f"`rootline dlq show {place} --raw` writes its bytes: correct them, then `rootline publish` the intent",
        ) from None
    if intent.kind in MAINTENANCE_KINDS:
        raise LeftOut(
            "flush-stale" if intent.kind is IntentKind.FLUSH else "compaction-stale",
            f"record {place_of(letter)} is a worker's {intent.kind}: workers plan it again from the newest version, so "
            "there is nothing to replay",
        )
    if {CLIENT, REFUSED} & intent.summary.keys():
        raise LeftOut(
            "request-refused",
            f"record {place_of(letter)} is of an Iceberg client, which may have deleted its files after the catalog's "
            "answer: let the client make a new commit",
        )
    return intent


def check_lake(letter: DeadLetter, own: Lake | None) -> None:
    """Refuse to publish an intent to this lake whose files are in another lake. Raises `Invalid`."""
    refusal = None if own is None else refusal_of_lake(letter.headers, own)
    if letter.code == LAKE_MISMATCH and refusal is not None:
        raise Invalid(
            LAKE_MISMATCH,
            f"record {place_of(letter)} was not published again, because its files are in another lake: {refusal[1]}",
        )


async def replay(session: Session, letters: Sequence[DeadLetter], *, timeout_s: float) -> AsyncGenerator[Replay, None]:
    """Publish each letter's intent again and wait for its verdict, in the order of the letters.

    Args:
        session: the lake.
        letters: the letters, each once.
        timeout_s: the waiting time for each verdict, in seconds. A hundred letters are published and awaited at the
            same time.

    Raises:
        Unavailable: `log-unavailable`. Up to a hundred letters that were not yielded may have been published too.
    """
    queue, own = PublishQueue(), await _own_lake(session, letters)
    for start in range(0, len(letters), _AT_ONCE):
        prepared = [(letter, _prepared(session, letter, own)) for letter in letters[start : start + _AT_ONCE]]
        for one in await asyncio.gather(*(_replayed(session, queue, *item, timeout_s) for item in prepared)):
            yield one


async def _own_lake(session: Session, letters: Sequence[DeadLetter]) -> Lake | None:
    """The identity of the session's lake, or `None`. It is read only if a letter was rejected because its files are in
    another lake.
    """
    if not any(letter.code == LAKE_MISMATCH for letter in letters):
        return None
    found = await session.store.get(LAKE_KEY)
    return None if found is None else decode_lake(found.body)


def _prepared(session: Session, letter: DeadLetter, own: Lake | None) -> Intent | Invalid:
    try:
        check_lake(letter, own)
        intent = intent_of(letter)
    except Invalid as error:
        return error
    return intent.model_copy(update={"intent_id": session.environment.fresh_id()})


async def _replayed(
    session: Session, queue: PublishQueue, letter: DeadLetter, intent: Intent | Invalid, timeout_s: float
) -> Replay:
    if isinstance(intent, Invalid):
        return Replay(letter, None, error=intent)
    # with the content digest of its header: without it, an intent rejected for its content would count as a duplicate
    queued: Queued = queue.add(
        lambda: intent, said_in(letter.headers) or ""
    )  # keeps the order of the letters: no await before this line
    try:
        position = await queue.deliver(session, queued)
        return Replay(letter, intent, await await_verdict(session, intent, position, timeout_s=timeout_s))
    except (Invalid, OutcomeUnknown) as error:
        return Replay(letter, intent, error=error)
