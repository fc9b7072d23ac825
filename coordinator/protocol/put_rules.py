"""What an answer to a conditional PUT proves, and when a head is confirmed.

Owns: the three outcomes and the 300-second rule. Does not own: the requests themselves.
Invariants: only a 200 to one's own PUT, or reading one's own commit id back, means landed; only reading another's
means lost; everything else is unknown, and an unknown outcome decides nothing.

Theory. Roots are only deleted `root_retention_s` (at least 600 s) after they are superseded. A coordinator that builds
root N on a head N-1 that was confirmed at the store's date t, and has an answer about N from before t + 300 s, knows
that no expiry can have removed a root N of another coordinator in between: so a created N is *the* N. After a longer
pause only a LIST can tell. No local clock takes part.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from rootline.ports.object_store import PutStatus
from rootline.schemas.identifiers import CommitId

CONFIRMED_FOR_MS: Final = 300_000


class Outcome(Enum):
    """What became of a PUT."""

    LANDED = "landed"
    LOST = "lost"
    UNKNOWN = "unknown"  # ask the store
    ABSENT = "absent"  # not there now; an earlier attempt may still land, so only the identical bytes may follow


def outcome_of_put(answer: PutStatus) -> Outcome:
    """409, 412, 5xx, time-outs and cancellation are all "ask"; STALE proves that nothing was written."""
    match answer:
        case PutStatus.CREATED:
            return Outcome.LANDED
        case PutStatus.STALE:
            return Outcome.LOST
        case PutStatus.EXISTS | PutStatus.NO_ANSWER:
            return Outcome.UNKNOWN


def outcome_of_read_back(found: CommitId | None, own: CommitId) -> Outcome:
    """Whose root a GET of N showed."""
    if found is None:
        return Outcome.ABSENT
    return Outcome.LANDED if found == own else Outcome.LOST


def is_confirmed(base_ms: int | None, answered_ms: int | None) -> bool:
    """Whether an answer at the store's date `answered_ms` confirms the head built on one confirmed at `base_ms`.

    A store without dates (both `None`) confirms by itself, under a lock that deletion takes too. An answer that came
    without a date from a store that has dates confirms nothing.
    """
    if base_ms is None or answered_ms is None:
        return base_ms is answered_ms
    return answered_ms - base_ms < CONFIRMED_FOR_MS
