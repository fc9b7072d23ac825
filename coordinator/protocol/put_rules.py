"""The outcome that a reply to a conditional PUT proves, and the rule that confirms a head.

Owns: the outcomes and the 300-second rule. Does not own: the requests.
Invariants: A root has landed only if its PUT was answered with 200, or if a GET returns its commit id. A race is lost
only if another root is proven to exist. Every other outcome is unknown and decides nothing.

Theory. A root is deleted only `root_retention_s` (at least 600 s) after it is superseded. Suppose that a coordinator
builds root N on head N-1, which was confirmed at the store's date t, and has an answer about N dated before t + 300 s.
Then no expiry can have removed a root N of another coordinator in between, so a created N is the only N. After a longer
time only a LIST can prove that. No local clock is used.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from rootline.ports.object_store import PutStatus
from rootline.schemas.identifiers import CommitId

CONFIRMED_FOR_MS: Final = 300_000


class Outcome(Enum):
    """The outcome of a PUT."""

    LANDED = "landed"
    LOST = "lost"
    UNKNOWN = "unknown"  # the root must be read back
    ABSENT = "absent"  # the PUT may still land, so only the identical bytes may be put again


def outcome_of_put(answer: PutStatus) -> Outcome:
    """The outcome that the reply to a PUT proves.

    409, 412, 5xx, timeouts and cancellation are all unknown. STALE proves that nothing was written.
    """
    match answer:
        case PutStatus.CREATED:
            return Outcome.LANDED
        case PutStatus.STALE:
            return Outcome.LOST
        case PutStatus.EXISTS | PutStatus.NO_ANSWER:
            return Outcome.UNKNOWN


def outcome_of_read_back(found: CommitId | None, own: CommitId) -> Outcome:
    """The outcome, judged by the commit id that a GET of the root returned (`None` if there is no root)."""
    if found is None:
        return Outcome.ABSENT
    return Outcome.LANDED if found == own else Outcome.LOST


def is_confirmed(base_ms: int | None, answered_ms: int | None) -> bool:
    """Whether an answer with the store's date `answered_ms` confirms a root built on a head confirmed at `base_ms`.

    In a store without dates (both `None`) a root is confirmed immediately, because commits and deletions take the same
    lock. If only one date is missing, the root is not confirmed.
    """
    if base_ms is None or answered_ms is None:
        return base_ms is answered_ms
    return answered_ms - base_ms < CONFIRMED_FOR_MS
