"""What was rewritten: as roots before remember it, and as the batch adds to it.

Owns: noting what an accepted change lets leave for good, looking a location up. Does not own: until when it is known,
pages (`rootline.tree.ledger.left_spill`), what it means for an intent (`rootline.tree.commit.arrival_rules`).
Invariants: files of rows and equality deletes count, vectors and leaves do not; what only moves within the tree does
not leave, and what an intent removes may come again; what was rewritten before a restore counts as removed, unless it
came back and was rewritten again: the last time counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from functools import cached_property
from typing import Final

from rootline.schemas.bytes.root.left_page import RetiredPage
from rootline.schemas.bytes.root.location_hashes import HASH_BYTES, LocationHashes, location_hash
from rootline.schemas.content_entry import ContentType
from rootline.schemas.identifiers import SequenceNumber
from rootline.schemas.root_header import NOTHING_RETIRED, Retired
from rootline.tree.draft.carried import CarriedFields
from rootline.tree.draft.change import Change
from rootline.tree.ledger.left_spill import Leaving

_FILES: Final = (ContentType.DATA, ContentType.EQUALITY_DELETE)


class Retirement(Enum):
    """`REWRITTEN`: other files hold its rows. `REMOVED`: they are gone, or were before a restore."""

    REMOVED = auto()
    REWRITTEN = auto()


def restored_through(carried: CarriedFields) -> SequenceNumber:
    """The sequence number of the last intent that undid what was rewritten before it: of a restore or a replace."""
    return max(carried.restored_at, carried.replaced_at)


class RetiredDraft:
    """`header` and `pages` are the parent's; changed by `note` only."""

    def __init__(self, header: Retired = NOTHING_RETIRED, pages: tuple[RetiredPage, ...] = ()) -> None:
        self.header, self.pages = header, pages
        self._came: dict[bytes, SequenceNumber] = {}

    def __bool__(self) -> bool:
        """Whether anything left."""
        return bool(self.header or self._came)

    def note(self, change: Change, number: SequenceNumber) -> None:
        """Other files hold the rows of what an accepted change replaces, or vectors delete what it deleted."""
        for live in change.replaced:
            if live.entry.content_type in _FILES:
                self._came[location_hash(live.entry.location)] = number

    def find(self, location: str, restored_through: int) -> Retirement | None:
        """How a location left; `None`: it did not, or it is forgotten. `restored_through`: as of the function."""
        wanted = location_hash(location)
        came = self._came.get(wanted)
        if came is not None:
            return _how(True, came, restored_through)
        late = self._late.get(wanted)
        if late is not None:
            return _how(late, self.header.number, restored_through)
        first_half = int.from_bytes(wanted[:8], "big")
        for item, page in zip(reversed(self.header.pages), reversed(self.pages), strict=True):
            if page.rewritten.may_hold(first_half) and wanted in page.rewritten:
                return _how(True, item.number, restored_through)
            if page.removed.may_hold(first_half) and wanted in page.removed:
                return Retirement.REMOVED
        return None

    def leaving(self, restored_through: int) -> Leaving | None:
        """What the batch let leave; `None`: nothing."""
        if not self._came:
            return None
        removed = LocationHashes.of(item for item, came in self._came.items() if came <= restored_through)
        rewritten = LocationHashes.of(item for item, came in self._came.items() if came > restored_through)
        return Leaving(removed, rewritten, max(self._came.values()))

    @cached_property
    def _late(self) -> Mapping[bytes, bool]:
        """What the header itself names: hash → whether it was rewritten."""
        header = self.header
        return {
            packed[at : at + HASH_BYTES]: is_rewritten
            for packed, is_rewritten in ((header.removed, False), (header.rewritten, True))
            for at in range(0, len(packed), HASH_BYTES)
        }


def _how(is_rewritten: bool, number: int, restored_through: int) -> Retirement:
    """What a record up to sequence number `number` says by now."""
    return Retirement.REWRITTEN if is_rewritten and number > restored_through else Retirement.REMOVED
