"""The part `versions`: versions only expire, and the summary states it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from rootline.schemas.bytes.root.retained_page import RETAINED_PAGES
from rootline.schemas.parts.versions import ReadableVersions
from rootline.schemas.root_header import RootHeader
from rootline.tree.parts.name import purges
from rootline.tree.parts.part_rules import BatchFacts, CheckedStep, PartRules
from rootline.tree.state.table_state import TableState

EXPIRED_BELOW: Final = "rootline.expired-below"
"""Key of a snapshot's summary: the oldest addressable version, if its intents changed which versions can be read."""


def _summary(before: ReadableVersions | None, after: ReadableVersions, _facts: BatchFacts) -> Mapping[str, str]:
    if after.expiry == (None if before is None else before.expiry):
        return {}
    return {EXPIRED_BELOW: str(after.oldest)}


def _own_rule(before: RootHeader, after: RootHeader) -> Iterator[str]:
    if after.versions.oldest < before.versions.oldest:
        yield f"the oldest version, {after.versions.oldest}, decreased from {before.versions.oldest}"


def expiry_violations(before: RootHeader, after: RootHeader) -> Iterator[str]:
    """Violations in a root's readable versions, compared with the root before it, as sentences."""
    was, now, stated = before.versions, after.versions, after.snapshot.summary.get(EXPIRED_BELOW)
    if stated is None:
        if now != was:
            yield "the readable versions changed, but its summary does not state it"
        return
    if now.expiry is None or stated != str(now.oldest):
        yield f"its summary expires versions below {stated}, but its header those below {now.oldest}"
        return
    newest = after.version if purges(before, after) else before.version  # a purge expires all earlier versions
    if not was.oldest <= now.oldest <= newest:
        yield f"versions below {now.oldest} expired, of {was.oldest} to {before.version}"
    if not was.expired_bytes <= now.expired_bytes <= after.earlier_bytes:
        yield (f"{now.expired_bytes} bytes of roots have expired, {was.expired_bytes} before, of {after.earlier_bytes}")


def _page_rule(_old: TableState | None, new: TableState, _step: CheckedStep) -> Iterator[str]:
    page = new.pages.newest(RETAINED_PAGES)
    for name, version in new.header.tags.items() if new.header.versions.expiry is not None else ():
        if version < new.header.versions.oldest and (page is None or page.content.find(version) is None):
            yield f"version {version}, which has tag {name!r}, is not among the retained versions"


def _begins(_before: RootHeader, after: RootHeader) -> Iterator[str]:
    expiry = after.versions.expiry
    if after.versions.oldest != after.version:
        yield "it can reach versions of the earlier table of its name"
    if expiry is None or expiry.given_up_bytes != after.earlier_bytes or expiry.kept is not None:
        yield f"its expiry is {expiry}, but the roots before it have {after.earlier_bytes} bytes"


VERSIONS: Final = PartRules(
    "versions", _summary, expiry_violations, _begins, _own_rule, page_rules={RETAINED_PAGES: _page_rule}
)
