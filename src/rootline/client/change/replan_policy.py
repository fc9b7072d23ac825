"""Whether a rejected change is planned again.

Owns: which rejections are worth another plan, how often, how long to wait, and which say that what is known of the
table is old. Does not own: the change.
Invariants: a decision, no action; waits are jittered, so that writers that collided once do not keep colliding.
"""

from __future__ import annotations

from typing import Final

from rootline.schemas.errors import Invalid

REPLANS_MAX: Final = 8
_REPLAN_CODES: Final = {"stale-source", "isolation-conflict", "file-not-live", "row-conflict", "definition-changed"}
_MANY_REPLANS: Final = {"definition-changed": 100}
"""Of those that are cheap to plan: of many who change a definition at once, one comes through at a time."""
STALE_CODES: Final = frozenset(
    ("table-uuid-mismatch", "table-dropped", "table-uuid-missing", "table-replaced", "schema-unknown", "spec-unknown")
)
"""Rejections after which a table's definition is read again before the next change."""
_FIRST_DELAY_S: Final = 0.02
_LONGEST_DELAY_S: Final = 1.0


def replan_delay_s(error: Invalid, replans: int, jitter: float, rest_s: float) -> float | None:
    """Seconds to wait before planning again; `None`: the rejection is final.

    Args:
        error: the rejection.
        replans: how often it was planned again already.
        jitter: in [0, 1).
        rest_s: seconds until the caller's deadline.

    """
    if error.code not in _REPLAN_CODES or replans >= _MANY_REPLANS.get(error.code, REPLANS_MAX):
        return None
    delay_s: float = min(_LONGEST_DELAY_S, _FIRST_DELAY_S * 2**replans) * (0.5 + jitter)
    return delay_s if delay_s < rest_s else None
