"""Which versions of a table may be read, named and returned to.

Owns: the rule. Does not own: what raises the oldest version (expiry), reading roots (`rootline.storage`).
Invariants: what the head does not name is not addressable, so an orphan below the head is never read.

Source: protocol page, section 1, "Expiry, drop"; invariants page, numbers 6 and 16.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from rootline.schemas.errors import Invalid
from rootline.schemas.root_header import RootHeader


@dataclass(frozen=True, slots=True)
class Addressable:
    """The versions from `oldest` to `newest`, and those below that have a tag. `table` is its name, for messages."""

    table: str
    oldest: int
    newest: int
    tags: Mapping[str, int]

    @staticmethod
    def of(head: RootHeader | None) -> Addressable:
        """What a head addresses; nothing, while there is none."""
        if head is None:
            return Addressable("this table", 0, -1, {})
        return Addressable(head.table, head.oldest_version, head.version, head.tags)

    def with_tags(self, tags: Mapping[str, int]) -> Addressable:
        """The same, with these tags."""
        return replace(self, tags=tags)

    def check(self, version: int) -> None:
        """Raises `Invalid` (`version-unknown`) unless `version` is one of them."""
        if version < 0:
            raise Invalid("version-unknown", f"{self.table}: version {version} is before the first, which is version 0")
        if version > self.newest:
            raise Invalid(
                "version-unknown",
                f"{self.table}: version {version} is ahead of the head, which is version {self.newest}",
            )
        if version < self.oldest and version not in self.tags.values():
            raise Invalid(
                "version-unknown",
                f"{self.table}: version {version} has expired; the oldest addressable one is {self.oldest}",
            )
