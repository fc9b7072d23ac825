"""What came and went in a batch, as totals."""

from __future__ import annotations

from typing import Final

from rootline.schemas.content_entry import ContentType
from rootline.schemas.root_header import Totals
from rootline.tree.state.totals import Tally, totals_after

_DATA: Final = ContentType.DATA


class Counts:
    """Shown by the next root, or not, because rewrites moved the rows elsewhere."""

    __slots__ = ("added", "before", "removed", "replaced", "rewritten")

    def __init__(self, before: Totals) -> None:
        self.before = before
        self.added, self.removed, self.rewritten, self.replaced = Tally(), Tally(), Tally(), Tally()

    @property
    def totals(self) -> Totals:
        """The live totals as the batch leaves them so far."""
        shown = totals_after(self.before, self.added, self.removed)
        return totals_after(shown, self.rewritten, self.replaced)

    @property
    def data_bytes(self) -> int:
        """The live data files' bytes so far."""
        came = self.added.sizes[_DATA] + self.rewritten.sizes[_DATA]
        return self.before.data_bytes + came - self.removed.sizes[_DATA] - self.replaced.sizes[_DATA]
