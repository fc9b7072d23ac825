"""What must hold for a file that an intent removes, and all that leaves with it.

Owns: the rules of `remove_files`. Does not own: what replaces the files (`append`).
Invariants: a data file never leaves without its vector; nothing leaves whose deleted rows the writer did not know.

Source: protocol page, section 2, "Validation".
"""

from __future__ import annotations

from rootline.schemas.content_entry import ContentEntry, ContentType, EntryPlace
from rootline.schemas.errors import Invalid
from rootline.schemas.intent import Intent, RemovedFile, VectorReference
from rootline.schemas.location_rules import check_location
from rootline.tree.draft.draft import Draft
from rootline.tree.state.live_index import Live

_REMOVABLE = (ContentType.DATA, ContentType.EQUALITY_DELETE)


def removals(draft: Draft, intent: Intent) -> list[Live]:
    """The live entries that `remove_files` names, and the vectors that go with them.

    Raises:
        Invalid: `location-invalid`, `intent-malformed`, `file-not-live`, `stale-source`.

    """
    leaving: list[Live] = []
    for item in intent.remove_files:
        check_location(item.location, is_live=draft.is_live)
        if item.content_type not in _REMOVABLE:
            raise Invalid(
                "intent-malformed",
                f"{item.location!r}: content type {int(item.content_type)} cannot be removed by itself, only 0 or 2",
            )
        live = draft.find(EntryPlace(item.content_type, item.location))
        if live is None:
            raise Invalid("file-not-live", f"{item.location!r} is not part of the table")
        leaving.append(live)
        vector = draft.vector_of(item.location) if item.content_type is ContentType.DATA else None
        _check_seen(item, vector)
        if vector is not None:
            leaving.append(vector)
    return leaving


def reference_of(vector: Live | None) -> VectorReference | None:
    """A live vector as writers name it."""
    return None if vector is None else _reference(vector.entry)


def _reference(entry: ContentEntry) -> VectorReference:
    stored = entry.deletion_vector
    return VectorReference(location=entry.location, offset=(stored.offset if stored is not None else None) or 0)


def _check_seen(item: RemovedFile, vector: Live | None) -> None:
    current = reference_of(vector)
    if current != item.vector:
        seen = "no deletion vector" if item.vector is None else f"{item.vector.location!r} at {item.vector.offset}"
        raise Invalid(
            "stale-source",
            f"{item.location!r} has other deleted rows now than the writer saw (it saw {seen})",
        )
