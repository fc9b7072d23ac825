"""The checks before a read: the name is a table, neither a view nor dropped, and the version is addressable.

Owns: the rule for addressable versions, the check of the newest root, the error messages. Does not own: expiry, which
raises the oldest version, the kinds of names (`root_header`), finding heads and reading roots (`rootline.storage`).
Invariants: Only versions that the head names are addressable, so an orphaned root below the head is never read. No
reader sees a dropped table. The error gives the time of the drop and the way to restore the table.

Source: protocol page, section 1, "Expiry, drop" and invariants page, numbers 6 and 16.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rootline.schemas.errors import Invalid
from rootline.schemas.parts.name import Drop, NameState
from rootline.schemas.root_header import RootHeader

if TYPE_CHECKING:
    from rootline.schemas.bytes.root.retained_page import RetainedPage

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_LAST_MS: Final = 253_402_300_799_000
"""The end of the year 9999. The number in a header may be greater."""


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


def check_is_table(header: RootHeader) -> None:
    """Raise `Invalid` (`table-dropped`, `name-is-view`) unless the newest root of a name is a table."""
    if header.name.state is NameState.VIEW:
        raise Invalid(
            "name-is-view", f"{header.table} is a view, not a table: `rootline view show {header.table}` shows its SQL"
        )
    if header.is_tombstone:
        raise Invalid("table-dropped", dropped_words(header.table, header.name.drops[-1]))


def dropped_words(table: str, drop: Drop) -> str:
    """The message for a name whose table was dropped. `dropped_ms` is 0 while the root of the drop is being made."""
    moment = _EPOCH + dt.timedelta(milliseconds=min(drop.dropped_ms, _LAST_MS))
    when = f", at {moment.isoformat(timespec='seconds')}" if drop.dropped_ms else ""
    dropped = f"{table} was dropped in version {drop.version}{when}"
    if drop.is_purged:
        return f"{dropped}, with its files, and cannot be restored: `rootline table create {table}` makes a new one"
    return f"{dropped}: `rootline table restore {table}` restores it"
