"""Which versions of a table may be read, named and returned to.

Owns: the rule. Does not own: what raises the oldest version (expiry), reading roots (`rootline.storage`).
Invariants: what the head does not name is not addressable, so an orphan below the head is never read.

Source: protocol page, section 1, "Expiry, drop"; invariants page, numbers 6 and 16.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rootline.schemas.bytes.root.kept_page import RetainedPage
from rootline.schemas.errors import Invalid
from rootline.schemas.root_header import RootHeader


@dataclass(frozen=True, slots=True)
class Addressable:
    """The versions from `oldest` to `newest`, and those below that have a tag or are kept. `table`: for messages."""

    table: str
    oldest: int
    newest: int
    tags: Mapping[str, int]
    kept: RetainedPage | None = None

    @staticmethod
    def of(head: RootHeader | None, kept: RetainedPage | None = None) -> Addressable:
        """What a head addresses, with the page that it names; nothing, while there is none."""
        if head is None:
            return Addressable("this table", 0, -1, {})
        return Addressable(head.table, head.oldest_version, head.version, head.tags, kept)

    def older(self) -> list[int]:
        """The addressable versions below the oldest, ascending."""
        found = {version for version in self.tags.values() if version < self.oldest}
        return sorted(found.union(() if self.kept is None else (kept.version for kept in self.kept.versions)))

    def has(self, version: int) -> bool:
        """Whether `version` is one of them."""
        if self.oldest <= version <= self.newest:
            return True
        return version in self.tags.values() or (self.kept is not None and self.kept.find(version) is not None)

    def check(self, version: int) -> None:
        """Raises `Invalid` (`version-unknown`) unless `version` is one of them."""
        if version < 0:
            raise Invalid("version-unknown", f"{self.table}: version {version} is before the first, which is version 0")
        if version > self.newest:
            raise Invalid(
                "version-unknown",
                f"{self.table}: version {version} is ahead of the head, which is version {self.newest}",
            )
        if not self.has(version):
            raise Invalid(
                "version-unknown",
                f"{self.table}: version {version} has expired; the oldest addressable one is {self.oldest}",
            )
