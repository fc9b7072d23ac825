"""The kind `overwrite`: files leave, and others come that replace them.

Owns: what must hold between the two. Does not own: the rules of files (`file_rules`) and removals (`removal_rules`).
Invariants: no row that an equality delete has deleted comes back, because the writer had not read that delete.

Source: protocol page, section 2, "Validation".
"""

from __future__ import annotations

from rootline.schemas.content_entry import ContentEntry, ContentType
from rootline.schemas.errors import Invalid
from rootline.schemas.intent import Intent
from rootline.tree.draft.batch import FetchedObjects, Needs
from rootline.tree.draft.change import Change, Effect
from rootline.tree.draft.draft import Draft
from rootline.tree.draft.live_deletes import live_equality_deletes
from rootline.tree.rules.file_rules import added_rows
from rootline.tree.rules.removal_rules import removals
from rootline.tree.rules.writer_leaves import missing_leaves, writer_leaves
from rootline.tree.scan.equality_reach import may_delete_rows
from rootline.tree.state.live_index import Live


def overwrite(draft: Draft, intent: Intent, fetched: FetchedObjects) -> Change | Needs:
    """Files that leave and files that replace them. Raises `Invalid`."""
    needs = missing_leaves(draft, intent, fetched)
    if needs is not None:
        return needs
    leaving = removals(draft, intent)
    _check_unseen_deletes(draft, intent, leaving)
    added = added_rows(draft, intent)
    leaves = writer_leaves(draft, intent, fetched, added)
    effect = (Effect.ADDS if added or leaves else Effect.NOTHING) | (Effect.REMOVES if leaving else Effect.NOTHING)
    return Change(effect, added=tuple(added), removed=tuple(leaving), incoming=leaves)


def _check_unseen_deletes(draft: Draft, intent: Intent, leaving: list[Live]) -> None:
    """An equality delete that the writer did not read would be undone by what it wrote."""
    read = -1 if intent.read_sequence_number is None else intent.read_sequence_number
    unseen = [
        equality
        for equality in live_equality_deletes(draft)
        if (equality.version_info.file_sequence_number or 0) > read
    ]
    if not unseen:
        return
    for live in leaving:
        if live.entry.content_type is ContentType.DATA:
            _check_unreached(draft, live.entry, unseen, intent.read_sequence_number)


def _check_unreached(draft: Draft, data: ContentEntry, unseen: list[ContentEntry], read: int | None) -> None:
    for equality in unseen:
        if may_delete_rows(equality, data, draft.definition):
            known = "no read_sequence_number was sent" if read is None else f"the writer read {read}"
            raise Invalid(
                "stale-source",
                f"equality delete {equality.location!r} of sequence number {equality.version_info.sequence_number} "
                f"may delete rows of {data.location!r}; {known}",
            )
