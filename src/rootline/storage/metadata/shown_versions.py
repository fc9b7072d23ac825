"""Which versions people and other engines are shown: not those that record verdicts only.

Owns: the walk from a root back to the newest one that changed something. Does not own: what such a root is
(`rootline.tree.check.verdict_roots`).
Invariants: reads the parent only of a root that may be one; never reads what the head does not address; after
`HIDDEN_MAX` such roots in a row it stops, and the root it began with is shown.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from rootline.schemas.bytes.root.root_codec import Root
from rootline.schemas.identifiers import Version
from rootline.tree.check.verdict_roots import may_record_verdicts_only, records_verdicts_only

HIDDEN_MAX: Final = 200


async def shown_at(root: Root, oldest: Version, read: Callable[[Version], Awaitable[Root]]) -> Root:
    """`root`, or the newest before it that changed the table. `oldest`: the oldest version that may be read."""
    found = root
    for _ in range(HIDDEN_MAX):
        header = found.header
        if header.version <= oldest or not may_record_verdicts_only(header):
            return found
        parent = await read(Version(header.version - 1))
        if not records_verdicts_only(parent, found):
            return found
        found = parent
    return root
