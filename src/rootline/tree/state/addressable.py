"""The versions of a table that can be read, tagged and restored.

Owns: the rule for addressable versions. Does not own: expiry, which raises the oldest version, reading roots
(`rootline.storage`).
Invariants: Only versions that the head names are addressable, so an orphaned root below the head is never read.

Source: protocol page, section 1, "Expiry, drop" and invariants page, numbers 6 and 16.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rootline.schemas.bytes.root.retained_page import RetainedPage
from rootline.schemas.errors import Invalid
from rootline.schemas.root_header import RootHeader


@dataclass(frozen=True, slots=True)
class Addressable:
    """The addressable versions: `oldest` to `newest`, and older ones with a tag or in the page of kept versions.

    `table` is the name for messages.
    """

    table: str
    oldest: int
    newest: int
    tags: Mapping[str, int]
    kept: RetainedPage | None = None

    @staticmethod
    def of(head: RootHeader | None, kept: RetainedPage | None = None) -> Addressable:
        """The addressable versions of a head and its page of kept versions. Empty without a head."""
        if head is None:
            return Addressable("this table", 0, -1, {})
        return Addressable(head.table, head.versions.oldest, head.version, head.tags, kept)

    def older(self) -> list[int]:
        """The addressable versions below `oldest`, ascending."""
        found = {version for version in self.tags.values() if version < self.oldest}
        return sorted(found.union(() if self.kept is None else (kept.version for kept in self.kept.content.versions)))

    def has(self, version: int) -> bool:
        """Whether `version` is addressable."""
        if self.oldest <= version <= self.newest:
            return True
        return version in self.tags.values() or (self.kept is not None and self.kept.content.find(version) is not None)

    def check(self, version: int) -> None:
        """Raise `Invalid` (`version-unknown`) unless `version` is addressable."""
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
