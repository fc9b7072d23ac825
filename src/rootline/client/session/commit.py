"""What a change that landed is called, and what becomes of one that did not.

Owns: `Commit`, and the way from a verdict to it. Does not own: waiting for verdicts (`producer`).
Invariants: a rejection is always an exception; a duplicate is a success, named by the commit that it repeats.
"""

from __future__ import annotations

from dataclasses import dataclass

from rootline.schemas.errors import Invalid
from rootline.schemas.verdict import Verdict, VerdictKind


@dataclass(frozen=True, slots=True)
class Commit:
    """Where a change landed. `sequence_number` is `None` only for a duplicate whose own number is not kept any more."""

    version: int
    snapshot_id: int
    sequence_number: int | None


def commit_of(verdict: Verdict) -> Commit:
    """The commit that `verdict` names.

    Raises:
        Invalid: the intent was rejected, with the verdict's own code and message.

    """
    if verdict.kind is VerdictKind.REJECTED:
        code = verdict.code or "intent-malformed"
        raise Invalid(code, verdict.message or f"{verdict.table}: intent {verdict.intent_id} was rejected ({code})")
    if verdict.version is None or verdict.snapshot_id is None:
        raise Invalid(
            "file-already-live",
            f"{verdict.table}: intent {verdict.intent_id} repeats a commit that the table does not remember any more",
        )
    return Commit(verdict.version, verdict.snapshot_id, verdict.sequence_number)
