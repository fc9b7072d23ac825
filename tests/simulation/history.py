"""Versions that simulated writers go back to, and tags that they put on them.

Owns: which version, and which tag. Does not own: when (`writers`), what expires.
Invariants: a writer goes by the head that it has seen: some of the versions are not there any more, or yet.
"""

from __future__ import annotations

import random
from typing import Final

from rootline.schemas.intent import IntentKind, VersionReference
from rootline.schemas.root_header import RootHeader

_GOES_BACK: Final = 0.2
_DELETES: Final = 0.3


def of_late(head: RootHeader, rng: random.Random, *, goes_back: bool) -> tuple[IntentKind, VersionReference]:
    """Back to a version of late, or a tag on one."""
    version = max(0, head.version - rng.randint(-1, 6))
    if goes_back:
        return IntentKind.RESTORE, VersionReference(version=version)
    return IntentKind.TAG, _tag(head, version, rng)


def of_tags(head: RootHeader, rng: random.Random) -> tuple[IntentKind, VersionReference]:
    """A tag on any version that can be read; now and then back to one that has a tag."""
    tagged = sorted(head.tags.values())
    if tagged and rng.random() < _GOES_BACK:
        return IntentKind.RESTORE, VersionReference(version=rng.choice(tagged))
    return IntentKind.TAG, _tag(head, rng.randint(head.versions.oldest, head.version), rng)


def _tag(head: RootHeader, version: int, rng: random.Random) -> VersionReference:
    tag = f"tag-{rng.randint(0, 2)}"
    seen = head.tags.get(tag)
    wanted = None if seen is not None and rng.random() < _DELETES else version
    return VersionReference(version=wanted, tag=tag, seen_version=seen)
