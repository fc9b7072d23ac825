"""The kinds `tag` and `expire`: names for versions, and versions that can no longer be read.

Owns: their rules. Does not own: their summaries and the rules from root to root (`rootline.tree.parts`), which versions
a table retains (`rootline.maintenance.expiry_plan`), removing roots (`rootline.workers`), which versions may be read
(`addressable`).
Invariants:
* A tag names a version that was addressable when it was set. Only an intent of kind `tag` changes it. Every other
  commit carries tags forward.
* The oldest addressable version never decreases. A version retained below it was readable before, and one with a tag is
  retained.
* A root that changes tags or expires versions states it in its summary.

Source: protocol page, sections 1 and 2, `tag`. Definitions page, section 4. Decision 0062.
"""

from __future__ import annotations

import re
from typing import Final

from rootline.schemas.bytes.root.retained_page import RETAINED_PAGES, RetainedPage, RetainedVersions
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import Version
from rootline.schemas.intent import Intent, StoredPage, VersionReference
from rootline.schemas.object_keys import page_location
from rootline.schemas.parts.page_reference import PageReference
from rootline.schemas.parts.tags import TAGS
from rootline.schemas.parts.versions import VERSIONS, Expiry, ReadableVersions
from rootline.schemas.root_header import RootHeader
from rootline.tree.draft.batch import Absent, FetchedObjects, Needs, PageNeed
from rootline.tree.draft.change import Change, Effect, SetPart
from rootline.tree.draft.draft import Draft
from rootline.tree.intents.restore import RootNeed

TAGS_MAX: Final = 200
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")


def tag(draft: Draft, intent: Intent, _fetched: FetchedObjects) -> Change:
    """Set, move or delete a tag. Raises `Invalid`: `tag-invalid`, `tag-conflict`, `version-unknown`."""
    ref = intent.ref or VersionReference()
    name, tags = check_tag_name(ref.tag or ""), dict(draft.addressable.tags)
    now = tags.get(name)
    if now == ref.version:
        return Change(Effect.NOTHING)
    if now != ref.seen_version:
        raise Invalid("tag-conflict", f"tag {name!r} is {_place(now)}, the writer saw it {_place(ref.seen_version)}")
    if ref.version is None:
        del tags[name]
    else:
        draft.addressable.check(ref.version)
        tags[name] = ref.version
        if len(tags) > TAGS_MAX:
            raise Invalid("tag-invalid", f"the table already has {TAGS_MAX} tags, which is the limit: delete one first")
    return Change(Effect.NOTHING, (SetPart(TAGS, tags),))


def check_tag_name(name: str) -> str:
    """`name`. Raises `Invalid` (`tag-invalid`) if it is not a valid name of a tag."""
    if not _NAME.fullmatch(name):
        raise Invalid("tag-invalid", f"tag {name[:80]!r} is not 1 to 64 letters, digits, '.', '_' or '-'")
    return name


def _place(version: int | None) -> str:
    return "not there" if version is None else f"at version {version}"


def expire(draft: Draft, intent: Intent, fetched: FetchedObjects) -> Change | Needs:
    """Expire the versions below the one that the intent names, except those of its page.

    Raises:
        Invalid: `version-unknown`, the table has no such version, or the page lists one that has expired;
            `expiry-stale`, more versions have expired already; `version-tagged`, a tagged version would expire;
            `page-invalid`, the page cannot be read, or contradicts the roots.
    """
    wanted = Version(0 if intent.ref is None else intent.ref.version or 0)
    versions, table = draft.parts.of(VERSIONS), draft.addressable.table
    if wanted < versions.oldest:
        raise Invalid(
            "expiry-stale",
            f"{table}: versions below {versions.oldest} have already expired, the intent names {wanted}",
        )
    draft.addressable.check(wanted)
    named = intent.page
    if wanted == versions.oldest and _digest_of(versions.retained_page) == _digest_of(named):
        return Change(Effect.NOTHING)
    if named is not None and named.location != page_location(named.digest.hex()):
        raise Invalid(
            "page-invalid", f"{named.location[:200]!r} is not the location of a page with the intent's digest"
        )
    of_page = () if named is None else (PageNeed(RETAINED_PAGES, named, draft.definition.table_uuid),)
    missing = fetched.missing((RootNeed(wanted), *of_page))
    if missing:
        return missing
    root = fetched.of(RootNeed(wanted))
    if isinstance(root, Absent) or root.header.table_uuid != draft.definition.table_uuid:
        raise Invalid(
            "version-unknown", f"{table}: root {wanted} is absent, cannot be read, or belongs to another table"
        )
    page = _page(draft, root.header, of_page[0], fetched) if of_page else None
    _check_tags(draft, wanted, page)
    given_up = root.header.earlier_bytes - (0 if page is None else page.content.size_in_bytes)
    if given_up < versions.expired_bytes:
        raise Invalid("page-invalid", f"{table}: the retained versions are larger in the page than in the table")
    expiry = Expiry(given_up, None if page is None else page.reference)
    pages = () if page is None else (page,)
    return Change(Effect.NOTHING, (SetPart(VERSIONS, ReadableVersions(wanted, expiry), {RETAINED_PAGES: pages}),))


def _digest_of(page: PageReference | StoredPage | None) -> bytes | None:
    return None if page is None else page.digest


def _page(draft: Draft, oldest: RootHeader, need: PageNeed[RetainedVersions], fetched: FetchedObjects) -> RetainedPage:
    """The page, if no row contradicts the table. Raises `Invalid`."""
    page, named = fetched.of(need), need.page
    if isinstance(page, Absent):
        raise Invalid("page-invalid", f"page {named.location} is absent, or is not the page that the intent names")
    known = draft.pages.newest(RETAINED_PAGES)
    for kept in page.content.versions:
        before = None if known is None else known.content.find(kept.version)
        if before is not None and before != kept:
            raise Invalid("page-invalid", f"page {named.location} contradicts the table about version {kept.version}")
        if not draft.addressable.has(kept.version):
            raise Invalid("version-unknown", f"version {kept.version}, which the page lists, has already expired")
    last = page.content.versions[-1]
    if last.version >= oldest.version or last.timestamp_ms >= oldest.snapshot.timestamp_ms:
        raise Invalid(
            "page-invalid", f"page {named.location} lists version {last.version}, which is not below the oldest version"
        )
    return page


def _check_tags(draft: Draft, oldest: Version, page: RetainedPage | None) -> None:
    for name, version in draft.parts.of(TAGS).items():
        if version < oldest and (page is None or page.content.find(version) is None):
            raise Invalid(
                "version-tagged", f"version {version} has tag {name!r} and must be retained: delete the tag first"
            )
