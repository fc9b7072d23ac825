"""The kind `sweep`: raise the horizon, and condemn locations that nothing references.

Owns: the rules for a proposed page, and the condemned pages of the next root. Does not own: the proposal
(`rootline.maintenance.orphan_sweep_plan`), the effect of a condemned location on an intent
(`rootline.tree.commit.arrival_rules`), deletion (`rootline.workers.jobs.sweep_job`).
Invariants: The horizon never decreases, and is older than the log's time, whatever a single clock reads. A location
that became live is not condemned. A page is dropped only when the horizon has passed it, or when a newer page contains
all of its locations.

Source: definitions page, section 4. Decision 0063.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from rootline.schemas.bytes.root.location_pages import CONDEMNED_PAGES, CondemnedPage
from rootline.schemas.bytes.root.retained_page import RETAINED_PAGES
from rootline.schemas.content_entry import VersionInfo
from rootline.schemas.errors import Invalid
from rootline.schemas.intent import Intent
from rootline.schemas.intent_rules import check_location
from rootline.schemas.location_hashes import location_hash
from rootline.schemas.object_keys import own_forms
from rootline.schemas.parts.definition import DEFINITION
from rootline.schemas.parts.locations import LOCATIONS, Condemned
from rootline.tree.draft.batch import Absent, FetchedObjects, Needs, PageNeed
from rootline.tree.draft.change import Change, Effect, SetPart
from rootline.tree.draft.draft import Draft
from rootline.tree.parts.locations import orphan_age_s
from rootline.tree.parts.log import counted_ms
from rootline.tree.state.table_state import NO_PAGES, PAGE_KINDS, PendingObject, pending_page

PAGES_PREFIX: Final = "metadata/pages/"
PAGES_MAX: Final = 16
LOCATIONS_MAX: Final = 4_000_000
"""The most locations in all pages together: sixteen bytes each in the memory of every coordinator of the table."""


def sweep(draft: Draft, intent: Intent, fetched: FetchedObjects) -> Change | Needs:
    """Raise the horizon and condemn locations. Raises `Invalid`: `location-invalid`, `page-invalid`, `sweep-stale`,
    `horizon-wrong`.
    """
    named = intent.page
    if named is None:
        raise Invalid("intent-malformed", "kind sweep needs the field page")
    check_location(named.location)
    if not named.location.startswith(PAGES_PREFIX):
        raise Invalid("location-invalid", f"page {named.location[:80]!r} is not in {PAGES_PREFIX}")
    need = PageNeed(CONDEMNED_PAGES, named, draft.definition.table_uuid)
    if need not in fetched:
        return Needs.of([need])
    proposed = fetched.of(need)
    if isinstance(proposed, Absent) or proposed.reference.digest != named.digest:
        raise Invalid("page-invalid", f"page {named.location!r} is absent, or is not the page that the intent names")
    _check_horizon(draft, proposed)
    locations = draft.parts.of(LOCATIONS)
    horizon_ms = max(locations.horizon_ms, proposed.content.horizon_ms)
    kept = _kept(draft, proposed, horizon_ms)
    since, table = live_since(draft, intent.read_sequence_number or 0), draft.addressable.table
    live = [location_hash(form) for location in since for form in own_forms(location, table)]
    known = [
        page.content.locations
        for page in draft.pages.of(CONDEMNED_PAGES)
        if page.reference.digest in proposed.content.replaces
    ]
    page, objects = _without(proposed, [item for item in live if not any(item in one for one in known)], draft)
    new_pages = (page,) if len(page.content.locations) else ()
    pages = (*(page for _, page in kept), *new_pages)
    if len(pages) > PAGES_MAX or sum(len(item.content.locations) for item in pages) > LOCATIONS_MAX:
        raise Invalid(
            "page-invalid",
            f"the table would have more than {PAGES_MAX} pages or {LOCATIONS_MAX} locations: sweep less in one intent",
        )
    condemned = tuple(item for item, _ in kept)
    condemned += tuple(Condemned(page.reference, draft.version, draft.appended_ms) for page in new_pages)
    after = replace(locations, horizon_ms=horizon_ms, condemned=condemned)
    if not new_pages and after == locations:
        raise Invalid("sweep-stale", "the horizon is already there, and every location to condemn is live")
    return Change(
        Effect.MAINTAINS, (SetPart(LOCATIONS, after, {CONDEMNED_PAGES: pages}),), objects if new_pages else ()
    )


def live_since(draft: Draft, sequence_number: int) -> Iterator[str]:
    """Locations that became live after a sequence number, and every object that the root references besides its
    entries.

    A leaf added since then yields all of its entries, whether they are new or not.
    """
    for live in draft.live_rows():
        if _is_since(live.entry.version_info, sequence_number):
            yield live.entry.location
    leaves = [(row, draft.live.lookups[name]) for name, row in draft.live.leaf_rows.items()]
    leaves += [(leaf.row, leaf.lookup) for leaf in draft.in_leaves.incoming.values()]
    for row, lookup in leaves:
        if _is_since(row.entry.version_info, sequence_number):
            yield row.entry.location
            yield from lookup.leaf.columns(["location"]).column(0).to_pylist()
    for rows in draft.live.manifest_vector_rows.values():
        yield from (row.entry.location for row in rows)
    yield from (vector.row.entry.location for vector in draft.stored_vectors().values())
    yield draft.parts.of(DEFINITION).location
    pages = NO_PAGES if draft.parent is None else draft.parent.pages
    named = pages.having(RETAINED_PAGES, draft.pages.of(RETAINED_PAGES))  # of the parent, except pages that expired
    yield from (page.reference.location for kind in PAGE_KINDS for page in named.of(kind))


def _check_horizon(draft: Draft, page: CondemnedPage) -> None:
    known_ms = 0 if draft.parent is None else counted_ms(draft.parent.header.log.time)
    age_ms = 1000 * orphan_age_s(draft.definition.properties, draft.log_retention_s)
    youngest_ms = min(draft.appended_ms, known_ms) - age_ms
    if page.content.horizon_ms > youngest_ms:
        raise Invalid(
            "horizon-wrong",
            f"the horizon {page.content.horizon_ms} is too young: by the log's time it may be at most {youngest_ms}",
        )


def _kept(draft: Draft, proposed: CondemnedPage, horizon_ms: int) -> list[tuple[Condemned, CondemnedPage]]:
    """The pages that the table keeps. Raises `Invalid` (`sweep-stale`, `page-invalid`)."""
    known = [*zip(draft.parts.of(LOCATIONS).condemned, draft.pages.of(CONDEMNED_PAGES), strict=True)]
    named = {item.page.digest for item, _ in known}
    absent = [digest for digest in proposed.content.replaces if digest not in named]
    if absent:
        raise Invalid(
            "sweep-stale", f"page {absent[0].hex()[:32]}, to be replaced, is not a page of the table any more"
        )
    kept = []
    for item, page in known:
        if item.page.digest not in proposed.content.replaces:
            kept.append((item, page))
        elif item.since_ms > horizon_ms and any(
            one not in proposed.content.locations for one in page.content.locations
        ):
            raise Invalid(
                "page-invalid",
                f"page {item.page.location} must stay: the new page lacks some of its locations, and the horizon has "
                "not passed it",
            )
    return kept


def _without(
    proposed: CondemnedPage, live: list[bytes], draft: Draft
) -> tuple[CondemnedPage, tuple[PendingObject, ...]]:
    """The page without live locations, and the object to store if any location was removed from it."""
    content = proposed.content
    locations = content.locations.without(live)
    if locations is content.locations:
        return proposed, ()
    page, pending = pending_page(
        CONDEMNED_PAGES, draft.definition.table_uuid, replace(content, locations=locations), draft.salt
    )
    return page, (pending,)


def _is_since(info: VersionInfo, sequence_number: int) -> bool:
    number = info.file_sequence_number if info.file_sequence_number is not None else info.sequence_number
    return number is None or number > sequence_number
