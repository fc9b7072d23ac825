"""The kind `tag`: names for versions.

Owns: the rules for a tag and for changing one. Does not own: the rules from root to root (`rootline.tree.parts.tags`),
which versions are addressable (`addressable`), expiry, which respects tags.
Invariants: A tag names a version that was addressable when it was set. Only an intent of kind `tag` changes it, and the
root of that intent states it in its summary. Every other commit carries tags forward.

Source: protocol page, sections 1 and 2, `tag`.
"""

from __future__ import annotations

import re
from typing import Final

from rootline.schemas.errors import Invalid
from rootline.schemas.intent import Intent, VersionReference
from rootline.schemas.parts.tags import TAGS
from rootline.tree.draft.batch import FetchedObjects
from rootline.tree.draft.change import Change, Effect, SetPart
from rootline.tree.draft.draft import Draft

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
