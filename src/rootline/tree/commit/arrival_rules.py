"""Rules for the files that an intent adds: not rewritten before and, in a swept table, neither condemned nor too old.

Owns: these rules, which all kinds of intent share. Does not own: how a horizon rises and which files are condemned
(`rootline.tree.intents.sweep`), the record of removed files (`rootline.tree.parts.locations`), reading dates from the
store (`rootline.coordinator`).
Invariants:
* A location that a page of the root condemns never enters the table again, no matter which intent adds it.
* Files that are live already are checked by the rules of each kind.
* A table without a horizon has no check by date.
* Only `restore` adds back removed files, and only those of a version that can still be read.

The order follows the definitions page, section 4: offset, uuid, ledger, live locations, removed ones, condemned ones,
horizon. A committed intent is therefore answered with `duplicate`, `file-already-live` or `file-removed`. It gets
`expired` only after its files were removed so long ago that the table has forgotten them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rootline.schemas.bytes.root.location_pages import CONDEMNED_PAGES
from rootline.schemas.bytes.root.root_codec import Row
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import CLOCKS_APART_MS
from rootline.schemas.intent import Intent
from rootline.schemas.object_keys import is_absolute
from rootline.tree.draft.batch import Absent, FetchedObjects, Need, Needs, PageNeed, Record
from rootline.tree.draft.change import Change, RestoreVersion
from rootline.tree.draft.draft import Draft
from rootline.tree.parts.locations import ClosedLocations, Closure

ASKED_MAX: Final = 1_000
"""The most files of one intent for which the coordinator reads dates from the store."""


@dataclass(frozen=True, slots=True)
class DateNeed(Need[int | Absent]):
    """The date at which a file was stored (ms, epoch)."""

    location: str


def added_locations(intent: Intent, change: Row | Change) -> list[str]:
    """The locations that an intent adds: leaves, their entries, and a page."""
    if isinstance(change, Row):
        return [change.entry.location]
    if change.edits_of(RestoreVersion):
        return []
    own = {item.location for item in change.objects}
    page = [] if intent.page is None else [intent.page.location]
    return [location for location in (*page, *change.arriving()) if location not in own]


def was_committed_before(draft: Draft, intent: Intent, change: Row | Change) -> bool:
    """Whether an intent only adds files, and all of them were in the table before and have been rewritten since.

    Raises:
        Invalid: `file-removed`, an added file was removed before, or was rewritten while others of the intent are new.
    """
    if isinstance(change, Row):
        return _was_rewritten(draft.retired_locations, change.entry.location)
    if change.edits_of(RestoreVersion):
        return False
    added = list(change.arriving_files())
    retired = draft.retired_locations
    rewritten = [_was_rewritten(retired, location) for location in added]
    if change.adds_only and not intent.add_vectors and rewritten and all(rewritten):
        return True
    for location, is_known in zip(added, rewritten, strict=True):
        if is_known:
            raise _closed(Closure.REWRITTEN, location)
    return False


def _was_rewritten(retired: ClosedLocations, location: str) -> bool:
    """Whether a location was in the table and was rewritten. Raises `Invalid` (`file-removed`) if it was removed."""
    why = retired.why_closed(location)
    if why is Closure.REMOVED:
        raise _closed(why, location)
    return why is Closure.REWRITTEN


def check_arrival(draft: Draft, record: Record, change: Row | Change, fetched: FetchedObjects) -> Needs | None:
    """Check that the files that a change adds are not removed, condemned or older than the sweep's horizon.

    Returns the dates that must be read from the store for this check, or `None` if all checks passed.

    Raises:
        Invalid: `file-removed`, `expired`, `oldest-file-wrong`, `oldest-file-missing`, `file-missing`.
    """
    closed = draft.swept_locations
    stored = [item.location for item in change.objects] if isinstance(change, Change) else []
    locations = added_locations(record.intent, change)
    for location in (*stored, *locations):
        _check_open(closed, location)
    if not closed.horizon_ms:
        return None
    claimed = record.oldest_file_ms
    if claimed is not None:
        if claimed > record.appended_ms + CLOCKS_APART_MS:
            raise Invalid(
                "oldest-file-wrong",
                f"the intent dates its oldest file {claimed}, but it was published before, at {record.appended_ms}: "
                "send the store's date of the oldest upload",
            )
        if claimed < closed.horizon_ms:
            raise _expired("the intent's oldest file", claimed, closed.horizon_ms)
        return None
    page = record.intent.page
    is_read = page is not None and PageNeed(CONDEMNED_PAGES, page, draft.definition.table_uuid) in fetched
    known = page.location if page is not None and is_read else None  # it was just read, so it exists
    asked = [location for location in dict.fromkeys(locations) if not (is_absolute(location) or location == known)]
    if len(asked) > ASKED_MAX:
        raise Invalid(
            "oldest-file-missing",
            f"the intent adds {len(asked)} files without the upload date of the oldest; up to {ASKED_MAX} files are "
            "looked up: send the date",
        )
    missing = fetched.missing(map(DateNeed, asked))
    if missing:
        return missing
    for location in asked:
        stored_ms = fetched.of(DateNeed(location))
        if isinstance(stored_ms, Absent):
            raise Invalid(
                "file-missing", f"{location!r} does not exist or cannot be read: upload it, then publish again"
            )
        _check_open(closed, location, stored_ms)
    return None


def _check_open(closed: ClosedLocations, location: str, stored_ms: int | None = None) -> None:
    why = closed.why_closed(location, stored_ms)
    if why is Closure.EXPIRED and stored_ms is not None:
        raise _expired(repr(location), stored_ms, closed.horizon_ms)
    if why is not None:
        raise _closed(why, location)


def _closed(why: Closure, location: str) -> Invalid:
    if why is Closure.CONDEMNED:
        return Invalid(
            "file-removed",
            f"{location!r} was removed, or was never committed in time, and will be deleted: write it again under "
            "a new name",
        )
    return Invalid(
        "file-removed",
        f"{location!r} was removed from the table: restore a version that has it, or write the rows again under a new "
        "name",
    )


def _expired(what: str, stored_ms: int, horizon_ms: int) -> Invalid:
    return Invalid(
        "expired",
        f"{what} was uploaded at {stored_ms}, before the table's horizon, {horizon_ms}, and may be deleted by now: "
        "write the rows again",
    )
