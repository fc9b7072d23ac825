"""Every kind of intent has its rows, its page and its golden bytes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rootline.schemas.intent_rules import CARGO, MAINTENANCE_KINDS, SHAPES, IntentKind, Names
from rootline.tree.intents.kinds import KINDS
from tests.schemas.intent_examples import intents

INTENTS_PAGE = Path(__file__).parents[3] / "docs" / "intents.md"


@pytest.mark.parametrize("kind", IntentKind)
def test_a_kind_is_decided_on_a_table_or_begins_one(kind: IntentKind) -> None:
    row = KINDS[kind]
    assert (row.judge is None) != (row.begin is None)


@pytest.mark.parametrize("kind", IntentKind)
def test_a_kind_carries_what_it_must(kind: IntentKind) -> None:
    shape = SHAPES[kind]
    assert shape.must_carry_one_of or set(shape.must_name) == {"table_uuid"}
    assert shape.must_carry_one_of <= shape.may_carry <= set(CARGO)
    assert ("ref" in shape.may_carry) == (shape.ref is not Names.NO_VERSION)
    assert (kind in MAINTENANCE_KINDS) == ("made_from_version" in shape.must_name)


@pytest.mark.parametrize("kind", IntentKind)
def test_a_kind_is_explained_and_has_an_example_whose_bytes_are_kept(kind: IntentKind) -> None:
    assert re.search(rf"`{kind}`", INTENTS_PAGE.read_text())
    assert kind in {intent.kind for intent in intents()}


def test_the_tables_hold_every_kind_and_nothing_else() -> None:
    assert set(KINDS) == set(SHAPES) == set(IntentKind)
