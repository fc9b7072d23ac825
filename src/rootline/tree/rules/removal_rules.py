"""Rules for the files that an intent removes, and for their vectors.

Owns: the rules of `remove_files`. Does not own: the files that replace them (`append`).
Invariants: A data file is never removed without its vector. It is never removed while rows are deleted from it that the
writer did not see as deleted. A vector that a compaction moved is compared with the one that the writer saw by reading
both.

Source: protocol page, section 2, "Validation".
"""

from __future__ import annotations

from rootline.schemas.content_entry import ContentEntry, ContentType, EntryPlace
from rootline.schemas.errors import Invalid
from rootline.schemas.intent import Intent, RemovedFile, VectorReference
from rootline.schemas.intent_rules import check_location
from rootline.tree.draft.batch import FetchedObjects, Needs
from rootline.tree.draft.draft import Draft
from rootline.tree.rules.vector_merge import VectorNeed, deletes_as_seen, seen_to_compare
from rootline.tree.state.live_index import Live

_REMOVABLE = (ContentType.DATA, ContentType.EQUALITY_DELETE)


def removals(draft: Draft, intent: Intent, fetched: FetchedObjects) -> list[Live] | Needs:
    """The live entries in `remove_files`, with their vectors, or the objects that must be fetched to decide.

    Raises:
        Invalid: `location-invalid`, `intent-malformed`, `file-not-live`, `stale-source`.
    """
    removed: list[Live] = []
    needed: set[VectorNeed] = set()
    for item in intent.remove_files:
        check_location(item.location, is_live=draft.is_live)
        if item.content_type not in _REMOVABLE:
            raise Invalid(
                "intent-malformed",
                f"{item.location!r}: content type {int(item.content_type)} cannot be removed by an intent, only 0 or 2",
            )
        live = draft.find(EntryPlace(item.content_type, item.location))
        if live is None:
            raise Invalid("file-not-live", f"{item.location!r} is not part of the table")
        removed.append(live)
        vector = draft.vector_of(item.location) if item.content_type is ContentType.DATA else None
        needed |= _check_seen(draft, intent, item, vector, fetched)
        if vector is not None:
            removed.append(vector)
    return Needs.of(needed) if needed else removed


def reference_of(vector: Live | None) -> VectorReference | None:
    """The reference that writers use for a live vector."""
    return None if vector is None else reference_of_entry(vector.entry)


def reference_of_entry(entry: ContentEntry) -> VectorReference:
    """The reference that writers use for a vector's entry."""
    stored = entry.deletion_vector
    return VectorReference(location=entry.location, offset=(stored.offset if stored is not None else None) or 0)


def _check_seen(
    draft: Draft, intent: Intent, item: RemovedFile, vector: Live | None, fetched: FetchedObjects
) -> set[VectorNeed]:
    """The vectors to read, if the live vector and the one that the writer saw are in different places."""
    if reference_of(vector) == item.vector:
        return set()
    if item.vector is not None and vector is not None and not _is_newer(vector, intent):
        places = seen_to_compare(item.vector, vector.entry, draft)
        missing = {at for at in places if at not in fetched}
        if missing or (places and deletes_as_seen(item.vector, vector.entry, draft, fetched)):
            return missing
    seen = "no deletion vector" if item.vector is None else f"{item.vector.location!r} at {item.vector.offset}"
    raise Invalid(
        "stale-source",
        f"{item.location!r} now has other deleted rows than the writer saw (it saw {seen}): read the table again",
    )


def _is_newer(vector: Live, intent: Intent) -> bool:
    """Whether a vector deletes rows since the writer read. A compaction does not change a vector's sequence number."""
    read = intent.read_sequence_number
    return read is not None and (vector.entry.version_info.sequence_number or 0) > read
