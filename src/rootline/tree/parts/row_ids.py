"""The part `row_ids`: the next row id to assign."""

from __future__ import annotations

from typing import Final

from rootline.schemas.parts.row_ids import RowIds
from rootline.tree.parts.part_rules import Advance, PartRules


def _advance(next_row_id: int, step: Advance) -> RowIds:
    return RowIds(next_row_id, 0 if step.before is None else step.before.row_ids.next)


ROW_IDS: Final = PartRules("row_ids", advance=_advance)
