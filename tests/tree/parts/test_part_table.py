"""The table of parts: its rows, their order, and what is skipped."""

from __future__ import annotations

import pytest

from rootline.schemas.identifiers import NOTHING_ACKNOWLEDGED, Version
from rootline.schemas.parts.log import LOG
from rootline.schemas.root_header import PARTS
from rootline.tree.parts.header_limits import HEADER_LIMITS
from rootline.tree.parts.part_rules import Advance
from rootline.tree.parts.part_table import CARRIED_PARTS, PART_RULES
from rootline.tree.state.table_state import NO_PAGES, PAGE_KINDS
from tests.tree.tables import TABLE_UUID, append, data_file, new_lake


def test_each_part_of_the_header_has_one_row() -> None:
    names = [part.name for part in PART_RULES]
    assert len(names) == len(set(names))
    assert set(names) == {part.name for part in PARTS}


def test_a_part_advances_after_those_that_it_follows_from() -> None:
    still = {part.name for part in PART_RULES if part.advance is None}
    for at, part in enumerate(PART_RULES):
        assert set(part.follows) <= still.union(each.name for each in PART_RULES[:at]), part.name


def test_a_part_that_has_not_advanced_yet_cannot_be_read() -> None:
    step = Advance(
        before=None,
        starts_table=False,
        version=Version(0),
        timestamp_ms=1,
        appended_ms=1,
        table_uuid=TABLE_UUID,
        properties={},
        acknowledged=NOTHING_ACKNOWLEDGED,
        retention_ms=1,
        log_retention_s=1,
        limits=HEADER_LIMITS,
        salt=b"",
        pages=NO_PAGES,
    )
    with pytest.raises(KeyError):
        step.of(LOG)


def test_each_kind_of_page_belongs_to_one_part_which_has_its_rule() -> None:
    kinds = [kind.name for part in PART_RULES for kind in part.page_rules]
    assert sorted(kinds) == sorted(kind.name for kind in PAGE_KINDS)


def test_a_part_that_an_append_does_not_change_is_the_object_of_the_parent() -> None:
    lake = new_lake(append("a", data_file("a")))
    before = lake.head.header
    lake.put(append("b", data_file("b")))
    after = lake.head.header
    assert after.version == before.version + 1
    assert all(getattr(after, part.name) is getattr(before, part.name) for part in CARRIED_PARTS)
