"""Where each partition is read from, or why it must not be read any further.

Owns: the decision, and its message for an operator. Does not own: asking for the facts (`membership`), changing the
remembered offsets (`accept`).
Invariants: never the log's end by default; offsets of one log are never used for another; records that were removed
before they were decided are named, never skipped silently.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rootline.adapters.kafka.group_offsets import Committed, Stage
from rootline.schemas.errors import Fenced
from rootline.schemas.identifiers import LogId

_ACCEPT: Final = "stop the coordinators, run `rootline topics accept`, and start them again"


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """What is known of a partition: the group's memory, and the offsets that the log holds (`end` exclusive).

    `recorded`: the offset of its record in the frontiers' topic, which outlives what the group remembers.
    """

    partition: int
    committed: Committed | None
    begin: int
    end: int
    recorded: int | None = None


def replaced(topic: str, known: LogId, found: LogId) -> Fenced:
    """The error for a topic that is not the one that was read."""
    return Fenced(
        "log-replaced",
        f"topic {topic} was created again: the group remembers offsets of {known}, but now it is {found}; records of "
        f"the old topic without a verdict are gone. To go on with the new one from its beginning, {_ACCEPT}",
    )


def check_log(topic: str, known: LogId | None, found: LogId) -> None:
    """Raise `Fenced` (`log-replaced`) when `found` is not the log that was `known`."""
    if known is not None and known != found:
        raise replaced(topic, known, found)


def starts_of(topic: str, log: LogId, bookmark: LogId | None, facts: Sequence[PartitionFacts]) -> dict[int, int]:
    """The offset from which each partition is read.

    Raises:
        Fenced: `log-replaced`, `log-behind-root`, `offset-out-of-range`.

    """
    for known in (bookmark, *(held.committed.log for held in facts if held.committed is not None)):
        check_log(topic, known, log)
    check_known(topic, facts)
    check_ranges(topic, log, [(held.partition, start_of(held), held.begin, held.end) for held in facts])
    return {held.partition: start_of(held) for held in facts}


def known_offset(facts: PartitionFacts) -> int | None:
    """The offset before which everything is decided, as far as the group or the frontiers' topic knows."""
    remembered = None if facts.committed is None else facts.committed.offset
    return max((known for known in (remembered, facts.recorded) if known is not None), default=None)


def start_of(facts: PartitionFacts) -> int:
    """The offset from which a partition is read; its beginning if nothing is known of it."""
    known = known_offset(facts)
    return facts.begin if known is None else known


def is_lost(facts: PartitionFacts) -> bool:
    """Whether records were removed, and nothing says that they were decided."""
    return known_offset(facts) is None and facts.begin > 0


def is_being_read(committed: Committed | None) -> bool:
    """Whether a coordinator has marked that it reads here, and not that it ended."""
    return committed is not None and committed.log is not None and committed.stage is Stage.READING


def poison_candidates_of(facts: Sequence[PartitionFacts]) -> dict[int, int]:
    """Where the last reader crashed: partition → the offset after the records that it may have been decoding."""
    return {held.partition: held.end for held in facts if is_being_read(held.committed) and start_of(held) < held.end}


def check_known(topic: str, facts: Sequence[PartitionFacts]) -> None:
    """Raise `Fenced` (`offset-out-of-range`) if the records of a partition may have been removed undecided."""
    lost = "; ".join(f"partition {held.partition} begins at {held.begin}" for held in facts if is_lost(held))
    if lost:
        raise Fenced(
            "offset-out-of-range",
            f"topic {topic}: {lost}, and neither the group nor the frontiers' topic knows how far it was decided: the "
            f"records before may have been removed undecided. Ask writers without a verdict to publish again. To go on "
            f"with what is left, {_ACCEPT}",
        )


def check_ranges(topic: str, log: LogId, ranges: Sequence[tuple[int, int, int, int]]) -> None:
    """Raise unless each (partition, offset, begin, end) holds the offset.

    Raises:
        Fenced: `log-behind-root`, `offset-out-of-range`.

    """
    for partition, offset, _, end in ranges:
        if offset > end:
            raise Fenced(
                "log-behind-root",
                f"topic {topic}, partition {partition}: offset {offset} was decided, but the log {log} ends at {end}: "
                "it was truncated or restored from a backup. Restore the log, or create the topic again",
            )
    removed = [held for held in ranges if held[1] < held[2]]
    if removed:
        lost = "; ".join(
            f"partition {partition} lost offsets {offset} to {begin - 1} ({begin - offset})"
            for partition, offset, begin, _ in removed
        )
        raise Fenced(
            "offset-out-of-range",
            f"topic {topic}: retention removed records that may be undecided: {lost}. A table that could not go on "
            "held the offset back (others may have decided theirs); `rootline quarantine list` may name it. Ask "
            f"writers without a verdict to publish again. To go on with what is left, {_ACCEPT}",
        )
