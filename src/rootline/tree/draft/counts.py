"""Totals of the entries that a batch adds and removes."""

from __future__ import annotations

from typing import Final

from rootline.schemas.content_entry import ContentType
from rootline.schemas.root_header import Totals
from rootline.tree.state.totals import Tally, totals_after

_DATA: Final = ContentType.DATA


class Counts:
    """`added` and `removed` are shown by the next root. `rewritten` and `replaced` are not: their rows only moved."""

    __slots__ = ("added", "before", "removed", "replaced", "rewritten")

    def __init__(self, before: Totals) -> None:
        self.before = before
        self.added, self.removed, self.rewritten, self.replaced = Tally(), Tally(), Tally(), Tally()

    @property
    def totals(self) -> Totals:
        """The live totals after the intents accepted so far."""
        shown = totals_after(self.before, self.added, self.removed)
        return totals_after(shown, self.rewritten, self.replaced)

    @property
    def data_bytes(self) -> int:
        """The bytes of live data files after the intents accepted so far."""
        new = self.added.sizes[_DATA] + self.rewritten.sizes[_DATA]
        return self.before.data_bytes + new - self.removed.sizes[_DATA] - self.replaced.sizes[_DATA]
