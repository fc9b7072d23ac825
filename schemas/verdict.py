"""A verdict: what became of one intent.

Owns: the model. Does not own: when it is published (`rootline.coordinator`).
Invariants: published only after the root that decides it is confirmed; the same intent gets the same verdict again.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

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


def newest_versions(verdicts: Iterable[Verdict]) -> dict[str, int]:
    """The highest version that these verdicts name, for each table: it was confirmed before any of them was told."""
    newest: dict[str, int] = {}
    for verdict in verdicts:
        if verdict.version is not None:
            newest[verdict.table] = max(verdict.version, newest.get(verdict.table, 0))
    return newest
