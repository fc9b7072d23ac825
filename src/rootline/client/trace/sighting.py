"""One answer to "where is my data".

Owns: the value, and making it of a record, a letter, a ledger's answer. Does not own: who is asked when (`trace`).
Invariants: pure; an answer names its source; what is not known is `None`, never guessed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from rootline.client.trace.dead_letters import place_of
from rootline.client.trace.trace_query import ByIntent, ByWriter, Match, TraceQuery, name_of_undecoded
from rootline.schemas.identifiers import LogId, LogPosition
from rootline.schemas.intent import Intent
from rootline.schemas.root_header import RejectedSequence
from rootline.schemas.verdict import DeadLetter, Verdict


class Whereabouts(StrEnum):
    """Where something is; `DECIDED`: how, is kept no longer."""

    PENDING = "pending"
    COMMITTED = "committed"
    DUPLICATE = "duplicate"
    REJECTED = "rejected"
    DECIDED = "decided"
    LIVE = "live"
    REMOVED = "removed"


IN_THE_TABLE: Final = (Whereabouts.COMMITTED, Whereabouts.DUPLICATE, Whereabouts.LIVE)


@dataclass(frozen=True, slots=True)
class Sighting:
    """Moments are milliseconds since the epoch. `version` to `committed_ms` are of the commit, where there is one.

    `applied_to`: how far the table's head has applied the record's partition.
    """

    state: Whereabouts
    source: str
    table: str | None = None
    intent_id: str | None = None
    kind: str | None = None
    part: str | None = None
    writer_id: str | None = None
    writer_sequence: int | None = None
    location: str | None = None
    position: LogPosition | None = None
    appended_ms: int | None = None
    applied_to: int | None = None
    version: int | None = None
    snapshot_id: int | None = None
    sequence_number: int | None = None
    committed_ms: int | None = None
    code: str | None = None
    message: str | None = None
    dead_letter: str | None = None


def settles(sighting: Sighting, query: TraceQuery) -> bool:
    """Whether no older record can tell anything else.

    Records of one writer are decided in their order, so behind a decided one there is nothing pending, and behind a
    rejected one no commit: that would have made it a duplicate. Without a writer, a repetition is rejected for its
    files.
    """
    if sighting.state in IN_THE_TABLE:
        return True
    return (
        isinstance(query, ByIntent | ByWriter)
        and sighting.writer_id is not None
        and sighting.state is not Whereabouts.PENDING
    )


def of_record(match: Match) -> Sighting:
    """What the record itself says; its state is yet to be found."""
    record = match.record
    told = Sighting(Whereabouts.PENDING, "log", position=record.position, appended_ms=record.appended_ms)
    if match.intent is None:
        return replace(told, intent_id=name_of_undecoded(record.position))
    return replace(of_intent(told, match.intent), part=match.part)


def of_intent(told: Sighting, intent: Intent) -> Sighting:
    """`told` with what the intent says of itself."""
    return replace(
        told,
        table=intent.table,
        intent_id=intent.intent_id,
        kind=intent.kind,
        writer_id=intent.writer_id,
        writer_sequence=intent.writer_sequence,
    )


def of_letter(letter: DeadLetter, intent: Intent | None) -> Sighting:
    """A rejection of which only the dead letter is left."""
    position = LogPosition(LogId(letter.log), letter.partition, letter.offset)
    told = Sighting(Whereabouts.REJECTED, "dead letter", letter.table, letter.intent_id, position=position)
    return rejected(told if intent is None else of_intent(told, intent), "dead letter", letter, place_of(letter))


def rejected(
    told: Sighting, source: str, reason: DeadLetter | RejectedSequence | Verdict, letter: str | None = None
) -> Sighting:
    """`told`, rejected for the reason that `source` gives; `letter` names its dead letter, where that is known."""
    return replace(
        told,
        state=Whereabouts.REJECTED,
        source=source,
        code=reason.code,
        message=reason.message,
        dead_letter=letter,
    )
