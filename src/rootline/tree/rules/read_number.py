"""The sequence number that a writer read who replaces what is stored by something that says the same."""

from __future__ import annotations

from rootline.schemas.errors import Invalid
from rootline.schemas.intent import Intent
from rootline.tree.draft.draft import Draft


def read_number(draft: Draft, intent: Intent) -> int:
    """The sequence number that `intent` was made from.

    Raises:
        Invalid: `version-unknown`, no one can have read it; `stale-source`, a version was restored since.

    """
    read = intent.read_sequence_number
    if read is None or read > draft.read_number_max:
        raise Invalid(
            "version-unknown",
            f"read_sequence_number {read} is none that a writer can have read: the table is at {draft.read_number_max}",
        )
    if draft.restored_at > read:
        raise Invalid(
            "stale-source",
            f"an earlier version was restored at sequence number {draft.restored_at}; the writer read {read}",
        )
    return read
