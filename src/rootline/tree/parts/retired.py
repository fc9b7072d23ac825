"""Locations that were rewritten or removed: those recorded by earlier roots, and those of the batch.

Owns: recording the files that a change replaces, and lookups by location. Does not own: how long a location is recorded
and the pages (`retired_spill`), the consequence for an intent (`rootline.tree.commit.arrival_rules`).
Invariants:
* Data files and equality deletes are recorded. Vectors and leaves are not.
* An entry that only moves within the tree is not recorded, nor is a file that an intent removes, which may be added
  again.
* A file rewritten before a restore counts as removed, unless it was restored and rewritten again. The last time counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum, auto
from functools import cached_property
from typing import Final

from rootline.schemas.bytes.root.location_pages import RetiredPage
from rootline.schemas.content_entry import ContentType
from rootline.schemas.identifiers import SequenceNumber
from rootline.schemas.location_hashes import HASH_BYTES, LocationHashes, location_hash
from rootline.schemas.parts.locations import NOTHING_RETIRED, Retired
from rootline.tree.parts.retired_spill import NewlyRetired
from rootline.tree.state.live_index import Live

_FILES: Final = (ContentType.DATA, ContentType.EQUALITY_DELETE)


class Retirement(Enum):
    """`REWRITTEN`: other files contain its rows. `REMOVED`: its rows were removed, or it was rewritten before a
    restore.
    """

    REMOVED = auto()
    REWRITTEN = auto()


class RetiredDraft:
    """Retired locations of the parent (`header`, `pages`) and of the batch. Only `note` changes it."""

    def __init__(self, header: Retired = NOTHING_RETIRED, pages: tuple[RetiredPage, ...] = ()) -> None:
        self.header, self.pages = header, pages
        self._has_earlier = bool(header)
        self._new: dict[bytes, SequenceNumber] = {}

    def __bool__(self) -> bool:
        """Whether any location is recorded."""
        return self._has_earlier or bool(self._new)

    def note(self, replaced: Iterable[Live], number: SequenceNumber) -> None:
        """Record the files that a change replaces: other files contain the same rows, or delete the same rows."""
        for live in replaced:
            if live.entry.content_type in _FILES:
                self._new[location_hash(live.entry.location)] = number

    def find(self, location: str, restored_through: int) -> Retirement | None:
        """The retirement of a location, or `None` if it was not retired or is forgotten."""
        wanted = location_hash(location)
        number = self._new.get(wanted)
        if number is not None:
            return _how(True, number, restored_through)
        late = self._late.get(wanted)
        if late is not None:
            return _how(late, self.header.number, restored_through)
        first_half = int.from_bytes(wanted[:8], "big")
        for item, page in zip(reversed(self.header.pages), reversed(self.pages), strict=True):
            if page.content.rewritten.may_contain(first_half) and wanted in page.content.rewritten:
                return _how(True, item.number, restored_through)
            if page.content.removed.may_contain(first_half) and wanted in page.content.removed:
                return Retirement.REMOVED
        return None

    def newly_retired(self, restored_through: int) -> NewlyRetired | None:
        """The locations retired by the batch, or `None` if there are none."""
        if not self._new:
            return None
        removed = LocationHashes.of(item for item, number in self._new.items() if number <= restored_through)
        rewritten = LocationHashes.of(item for item, number in self._new.items() if number > restored_through)
        return NewlyRetired(removed, rewritten, max(self._new.values()))

    @cached_property
    def _late(self) -> Mapping[bytes, bool]:
        """The retired locations that the header itself contains: hash → whether the file was rewritten."""
        header = self.header
        return {
            packed[at : at + HASH_BYTES]: is_rewritten
            for packed, is_rewritten in ((header.removed, False), (header.rewritten, True))
            for at in range(0, len(packed), HASH_BYTES)
        }


def _how(is_rewritten: bool, number: int, restored_through: int) -> Retirement:
    """The retirement of a location recorded at sequence number `number`, after later restores."""
    return Retirement.REWRITTEN if is_rewritten and number > restored_through else Retirement.REMOVED
