"""The kind `expire`: older versions can no longer be read, but for those that a page names.

Owns: its rules, what a root says of it, and what must hold from root to root. Does not own: which versions a table
keeps (`rootline.maintenance.expiry_plan`), removing roots (`rootline.workers`), which versions may be read
(`addressable`).
Invariants: the oldest addressable version only goes up; what is kept below it could be read before; a version that has
a tag is kept; a root that gives versions up says so in its summary.

Source: definitions page, section 4; decision 0062.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from rootline.schemas.bytes.root.kept_page import RetainedPage
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import Version
from rootline.schemas.intent import Intent, StoredPage
from rootline.schemas.object_keys import page_location
from rootline.schemas.root_header import Expiry, RootHeader
from rootline.tree.draft.batch import FetchedObjects, Needs
from rootline.tree.draft.change import Change, Effect
from rootline.tree.draft.draft import Draft
from rootline.tree.intents.drop import purges

EXPIRED_BELOW: Final = "rootline.expired-below"
"""In a snapshot's summary: the oldest addressable version, where its intents changed what can be read."""


def expire(draft: Draft, intent: Intent, fetched: FetchedObjects) -> Change | Needs:
    """Give up the versions below the one that the intent names, but for those of its page.

    Raises:
        Invalid: `version-unknown`, the table has no such version, or the page names one that cannot be read any more;
            `expiry-stale`, another expiry has gone further; `version-tagged`, a tag's version would go; `page-invalid`,
            the page cannot be read, or says what the roots do not.

    """
    wanted = Version(0 if intent.ref is None else intent.ref.version or 0)
    carried, table = draft.carried, draft.addressable.table
    if wanted < carried.oldest_version:
        raise Invalid(
            "expiry-stale",
            f"{table}: versions below {carried.oldest_version} have expired already, the intent names {wanted}",
        )
    draft.addressable.check(wanted)
    named = intent.page
    if wanted == carried.oldest_version and _digest_of(carried.expiry) == (None if named is None else named.digest):
        return Change(Effect.NOTHING)
    if named is not None and named.location != page_location(named.digest.hex()):
        raise Invalid("page-invalid", f"{named.location[:200]!r} is not where a page with this digest is stored")
    needs = Needs(
        versions=frozenset({wanted}) - fetched.roots.keys(),
        kept={} if named is None or named in fetched.kept else {named: draft.definition.table_uuid},
    )
    if needs:
        return needs
    root = fetched.roots[wanted]
    if root is None or root.header.table_uuid != draft.definition.table_uuid:
        raise Invalid("version-unknown", f"{table}: root {wanted} is absent, cannot be read, or is of another table")
    page = None if named is None else _page(draft, root.header, named, fetched)
    _check_tags(draft, wanted, page)
    given_up = root.header.earlier_bytes - (0 if page is None else page.size_in_bytes)
    if given_up < (0 if carried.expiry is None else carried.expiry.given_up_bytes):
        raise Invalid("page-invalid", f"{table}: the kept versions cannot be as long as their page says")
    expiry = Expiry(given_up, None if page is None else page.reference)
    return Change(
        Effect.NOTHING, carried=replace(carried, oldest_version=wanted, expiry=expiry), kept=(page,) if page else ()
    )


def summary_of_expiry(before: RootHeader | None, draft: Draft) -> dict[str, str]:
    """What a root's summary says of versions that were given up."""
    if draft.carried.expiry == (None if before is None else before.expiry):
        return {}
    return {EXPIRED_BELOW: str(draft.carried.oldest_version)}


def expiry_violations(before: RootHeader, after: RootHeader) -> Iterator[str]:
    """What is wrong with what a root gave up, given the root before it, in words."""
    stated = after.snapshot.summary.get(EXPIRED_BELOW)
    if stated is None:
        if (after.oldest_version, after.expiry) != (before.oldest_version, before.expiry):
            yield "which versions can be read changed, and its summary does not say so"
        return
    if after.expiry is None or stated != str(after.oldest_version):
        yield f"its summary gives up versions below {stated}, its header those below {after.oldest_version}"
        return
    newest = after.version if purges(before, after) else before.version  # a purge gives up all that came before
    if not before.oldest_version <= after.oldest_version <= newest:
        yield f"versions below {after.oldest_version} are given up, of {before.oldest_version} to {before.version}"
    given_up = 0 if before.expiry is None else before.expiry.given_up_bytes
    if not given_up <= after.expiry.given_up_bytes <= after.earlier_bytes:
        yield f"{after.expiry.given_up_bytes} bytes are given up after {given_up}, of {after.earlier_bytes}"


def _digest_of(expiry: Expiry | None) -> bytes | None:
    return None if expiry is None or expiry.kept is None else expiry.kept.digest


def _page(draft: Draft, oldest: RootHeader, named: StoredPage, fetched: FetchedObjects) -> RetainedPage:
    """The page, none of whose rows contradicts what is known. Raises `Invalid`."""
    page = fetched.kept[named]
    if page is None:
        raise Invalid("page-invalid", f"page {named.location} is absent, or is not what the intent says")
    known = draft.kept
    for kept in page.versions:
        before = None if known is None else known.find(kept.version)
        if before is not None and before != kept:
            raise Invalid("page-invalid", f"page {named.location} says of version {kept.version} what is not so")
        if not draft.addressable.has(kept.version):
            raise Invalid("version-unknown", f"version {kept.version}, which the page keeps, has expired already")
    last = page.versions[-1]
    if last.version >= oldest.version or last.timestamp_ms >= oldest.snapshot.timestamp_ms:
        raise Invalid("page-invalid", f"page {named.location} keeps version {last.version}, which is not an older one")
    return page


def _check_tags(draft: Draft, oldest: Version, page: RetainedPage | None) -> None:
    for name, version in draft.carried.tags.items():
        if version < oldest and (page is None or page.find(version) is None):
            raise Invalid("version-tagged", f"version {version} has tag {name!r}, and a tag's version is kept")
