"""What is asked of all that an intent brings: it was not rewritten before; and in a table that is swept, it was not
condemned, and is not too old.

Owns: these rules, which all kinds share. Does not own: how a horizon rises and what is condemned
(`rootline.tree.intents.sweep`), what left (`rootline.tree.draft.left`), asking the store for dates
(`rootline.coordinator`).
Invariants: a location that a page of the root condemns never comes into the table again, whoever names it; what is live
already is for the kind's own rules to say; without a horizon nothing is asked; `restore` alone brings back what a
version that can still be read holds.

The order is that of the definitions page, section 4: offset, uuid, ledger, live locations, those that left, condemned
ones, horizon. So what was committed hears `duplicate`, `file-already-live` or `file-removed`, and `expired` only where
it left so long ago that it is forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from rootline.schemas.content_entry import ContentType
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import CLOCKS_APART_MS
from rootline.schemas.intent import Intent
from rootline.schemas.object_keys import is_absolute
from rootline.tree.draft.batch import FetchedObjects, Needs, Record
from rootline.tree.draft.change import Change
from rootline.tree.draft.draft import Draft
from rootline.tree.draft.left import Retirement, restored_through

ASKED_MAX: Final = 1_000
"""Files of one intent whose dates the coordinator asks for itself."""


def brought_by(intent: Intent, change: Change) -> list[str]:
    """The locations that an intent's change brings into the table: leaves and their entries, and a page included."""
    if change.restored is not None:
        return []
    own = {item.location for item in change.objects}
    found = [] if intent.page is None else [intent.page.location]
    found += [row.entry.location for rows in (change.added, change.rewritten) for row in rows]
    for leaf in change.incoming:
        if leaf.row.entry.location in own:
            continue
        found.append(leaf.row.entry.location)
        if leaf.added_tally is not None:
            found += leaf.lookup.leaf.columns(["location"]).column(0).to_pylist()
    found += [vector.row.entry.location for vector in change.stored_vectors.values()]
    return [location for location in found if location not in own]


def was_committed_before(draft: Draft, intent: Intent, change: Change) -> bool:
    """Whether an intent adds files only, and all of them have been in the table and were rewritten since.

    Raises:
        Invalid: `file-removed`, a file that it brings was removed; or was rewritten, and it brings others too.

    """
    if not draft.left or change.restored is not None:
        return False
    rows = [row.entry for rows in (change.added, change.rewritten) for row in rows]
    brought = [entry.location for entry in rows if entry.content_type is not ContentType.POSITION_DELETE]
    for leaf in change.incoming:
        if leaf.added_tally is not None and leaf.lookup.holds(ContentType.DATA):
            brought += leaf.lookup.leaf.columns(["location"]).column(0).to_pylist()
        elif leaf.added_tally is not None:
            brought += [entry.location for _, entry in leaf.lookup.equality_deletes]
    left = [retirement_of(draft, location) for location in brought]
    adds_only = not (intent.remove_files or intent.add_vectors or change.removed or change.replaced or change.merged)
    if adds_only and change.definition is None and left and all(left):
        return True
    for location, is_known in zip(brought, left, strict=True):
        if is_known:
            raise _removed(location)
    return False


def retirement_of(draft: Draft, location: str) -> bool:
    """Whether a location was in the table and was rewritten. Raises `Invalid` (`file-removed`): it was removed."""
    how = draft.left.find(location, restored_through(draft.carried))
    if how is Retirement.REMOVED:
        raise _removed(location)
    return how is Retirement.REWRITTEN


def check_arrival(draft: Draft, record: Record, locations: Sequence[str], fetched: FetchedObjects) -> Needs | None:
    """What must be asked of the store before `locations` may come in.

    Raises:
        Invalid: `file-removed`, `expired`, `oldest-file-wrong`, `oldest-file-missing`, `file-missing`.

    """
    check_not_condemned(draft, locations)
    horizon_ms = draft.carried.horizon_ms
    if not horizon_ms:
        return None
    claimed = record.oldest_file_ms
    if claimed is not None:
        if claimed > record.appended_ms + CLOCKS_APART_MS:
            raise Invalid(
                "oldest-file-wrong",
                f"the intent says that its oldest file is of {claimed}, which is after it was published, "
                f"{record.appended_ms}",
            )
        _check_age(claimed, horizon_ms, "the intent's oldest file")
        return None
    known = fetched.condemned  # pages that were read a moment ago
    asked = [location for location in dict.fromkeys(locations) if not (is_absolute(location) or location in known)]
    if len(asked) > ASKED_MAX:
        raise Invalid(
            "oldest-file-missing",
            f"the intent brings {len(asked)} files and does not say when the oldest was uploaded; up to {ASKED_MAX} "
            "are looked up",
        )
    absent = frozenset(location for location in asked if location not in fetched.dates)
    if absent:
        return Needs(dates=absent)
    for location in asked:
        stored_ms = fetched.dates[location]
        if stored_ms is None:
            raise Invalid("file-missing", f"{location!r} does not exist, or cannot be read: upload it, then publish")
        _check_age(stored_ms, horizon_ms, repr(location))
    return None


def check_not_condemned(draft: Draft, locations: Iterable[str]) -> None:
    """Raises `Invalid` (`file-removed`) when a page of the root condemns one of them."""
    if not draft.condemned:
        return
    for location in locations:
        if draft.is_condemned(location):
            raise Invalid(
                "file-removed",
                f"{location!r} was removed, or was never committed in time, and is about to be deleted: write it again "
                "under a new name",
            )


def _removed(location: str) -> Invalid:
    return Invalid(
        "file-removed",
        f"{location!r} was part of the table and left it: restore a version that has it, or write the rows again under "
        "a new name",
    )


def _check_age(stored_ms: int, horizon_ms: int, what: str) -> None:
    if stored_ms < horizon_ms:
        raise Invalid(
            "expired",
            f"{what} was uploaded at {stored_ms}, before the table's horizon, {horizon_ms}: it may be gone; write the "
            "rows again",
        )
