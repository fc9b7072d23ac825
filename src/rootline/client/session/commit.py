"""The result of a change that was committed, and the error of one that was not.

Owns: `Commit`, and the way from a verdict to it. Does not own: waiting for verdicts (`producer`).
Invariants: a rejection is always an exception; a duplicate is a success, named by the commit that it repeats.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rootline.schemas.errors import Invalid
from rootline.schemas.verdict import Verdict, VerdictKind


@dataclass(frozen=True, slots=True)
class Commit:
    """A change that is in the table.

    `version`: the table's version that the change made. `snapshot_id`: the same version as Iceberg names it.
    `sequence_number`: the change's own, as in the Iceberg specification; `None` only for a duplicate of a change whose
    number is not kept any more.
    `added_rows`, `deleted_rows`: rows that the call gave, and rows of the version that it was planned from; `None` if
    it does not know, because it read no file to find out, or counts no rows.
    `is_new`: whether the call made this version; an append of no rows publishes nothing, and names the newest version.
    """

    version: int
    snapshot_id: int
    sequence_number: int | None
    added_rows: int | None = field(default=None, compare=False)
    deleted_rows: int | None = field(default=None, compare=False)
    is_new: bool = field(default=True, compare=False)


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
            f"{verdict.table}: intent {verdict.intent_id} repeats a commit whose version the table does not keep any "
            "more; the change is in the table",
        )
    return Commit(verdict.version, verdict.snapshot_id, verdict.sequence_number)
