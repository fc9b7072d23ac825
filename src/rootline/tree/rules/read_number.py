"""The sequence number read by a writer whose intent replaces stored content with the same content in another form."""

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
            f"read_sequence_number {read} is not one that a writer can have read: the table is at "
            f"{draft.read_number_max}",
        )
    if draft.restored_at > read:
        raise Invalid(
            "stale-source",
            f"an earlier version was restored at sequence number {draft.restored_at}, after {read}, which the writer "
            "read: read the table again",
        )
    return read
