"""Choosing among dead letters.

Owns: how a letter is named, and which ones are meant, each once. Does not own: where they are kept (the log's
archive), what is done with them (`replay`).
Invariants: of several letters on one record the newest counts; no more is in memory than was chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import aclosing
from dataclasses import dataclass

from rootline.ports.intent_log import LogArchive
from rootline.schemas.identifiers import LogPosition
from rootline.schemas.verdict import DeadLetter, Verdict


@dataclass(frozen=True, slots=True)
class LetterChoice:
    """All that fit every part that is given. `records`: as `place_of` names them, or intent ids."""

    records: frozenset[str] = frozenset()
    table: str | None = None
    code: str | None = None

    def takes(self, letter: DeadLetter) -> bool:
        """Whether `letter` is meant."""
        return (
            (not self.records or not self.records.isdisjoint((place_of(letter), letter.intent_id)))
            and self.table in (None, letter.table)
            and self.code in (None, letter.code)
        )


def place_of(record: DeadLetter | LogPosition | Verdict) -> str:
    """The record's partition and offset, as commands take them."""
    return f"{record.partition}/{record.offset}"


async def choose_letters(
    archive: LogArchive,
    choice: LetterChoice,
    *,
    limit: int,
    look_through: int,
    looked: Callable[[int], object] = lambda _: None,
) -> list[DeadLetter]:
    """The newest `limit` that `choice` takes among the newest `look_through`, in the order of the log.

    Args:
        archive: where they are.
        choice: which.
        limit: of those.
        look_through: how many are looked at.
        looked: called now and then with how many more were looked at.

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
    """Whether every record that was named is there; never for a choice that names none."""
    named = {name for letter in letters for name in (place_of(letter), letter.intent_id)}
    return bool(choice.records) and choice.records <= named
