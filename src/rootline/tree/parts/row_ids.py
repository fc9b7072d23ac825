"""The part `row_ids`: the next row id to assign, which never decreases."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rootline.schemas.parts.row_ids import RowIds
from rootline.schemas.root_header import RootHeader
from rootline.tree.parts.part_rules import Advance, PartRules


def _advance(next_row_id: int, step: Advance) -> RowIds:
    return RowIds(next_row_id, 0 if step.before is None else step.before.row_ids.next)


def _own_rule(before: RootHeader, after: RootHeader) -> Iterator[str]:
    was, now = before.row_ids, after.row_ids
    if now.next_of_parent != was.next:
        yield f"the parent's next row id is {was.next}, but it states {now.next_of_parent}"
    if now.next < was.next:
        yield f"next row id {now.next} follows {was.next}"


ROW_IDS: Final = PartRules("row_ids", own_rule=_own_rule, advance=_advance)
