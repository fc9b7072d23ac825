"""The check for equality deletes that a writer had not read when it rewrote rows, whose effect would be lost."""

from __future__ import annotations

from collections.abc import Iterable

from rootline.schemas.content_entry import ContentEntry
from rootline.schemas.errors import Invalid
from rootline.schemas.intent import Intent
from rootline.tree.draft.draft import Draft
from rootline.tree.scan.delete_index import may_delete_rows


def check_no_unseen_deletes(draft: Draft, intent: Intent, files: Iterable[ContentEntry], code: str) -> None:
    """Raises `Invalid` (`code`) if an equality delete that the writer did not read may delete rows of `files`."""
    read = intent.read_sequence_number
    seen = -1 if read is None else read
    deletes = draft.live_equality_deletes()
    unseen = [delete for delete in deletes if (delete.version_info.file_sequence_number or 0) > seen]
    if not unseen:
        return
    for data in files:
        for delete in unseen:
            if may_delete_rows(delete, data, draft.definition):
                known = "no read_sequence_number was sent" if read is None else f"the writer read {read}"
                raise Invalid(
                    code,
                    f"equality delete {delete.location!r} of sequence number {delete.version_info.sequence_number} "
                    f"may delete rows of {data.location!r}, but {known}: read the table again",
                )
