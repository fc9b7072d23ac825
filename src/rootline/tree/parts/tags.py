"""The part `tags`: the summary states each changed tag, and a changed tag names a version that could be read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from rootline.schemas.errors import Invalid
from rootline.schemas.root_header import RootHeader
from rootline.tree.parts.part_rules import BatchFacts, PartRules
from rootline.tree.state.addressable import Addressable

CHANGED_TAGS: Final = "rootline.changed-tags"
"""Key of a snapshot's summary: the tags that its intents set, moved or deleted."""


def changed_tags(before: Mapping[str, int], after: Mapping[str, int]) -> str:
    """The names of tags that were set, moved or deleted, ascending, separated by commas."""
    return ",".join(sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name)))


def _summary(before: Mapping[str, int] | None, after: Mapping[str, int], _facts: BatchFacts) -> Mapping[str, str]:
    changed = changed_tags(before or {}, after)
    return {CHANGED_TAGS: changed} if changed else {}


def tag_violations(before: RootHeader, after: RootHeader) -> Iterator[str]:
    """Violations in a root's tags, compared with the root before it, as sentences."""
    stated = after.snapshot.summary.get(CHANGED_TAGS, "")
    if after.tags is before.tags and not stated:
        return  # as after most commits
    changed = changed_tags(before.tags, after.tags)
    if changed != stated:
        yield f"the changed tags are {changed!r}, but its summary states {stated!r}"
    known = Addressable.of(before)
    has_page = before.versions.retained_page is not None
    for name, version in after.tags.items():
        if before.tags.get(name) == version or (has_page and 0 <= version < before.versions.oldest):
            continue  # versions retained below the oldest are listed in a page (`versions`)
        try:
            known.check(version)
        except Invalid as error:
            yield f"tag {name!r} is at a version that was not addressable: {error.message}"


def _begins(_before: RootHeader, after: RootHeader) -> Iterator[str]:
    if after.tags:
        yield "it can reach tags of the earlier table of its name"


TAGS: Final = PartRules("tags", _summary, tag_violations, _begins, finding="tags-wrong")
