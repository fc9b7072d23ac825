"""Roots say in which version the definition was changed last, so that software that would misread it refuses them."""

from __future__ import annotations

from rootline.schemas.field_ids import PROFILE, PROFILE_OF_EXPIRY
from rootline.tree.check.invariants import violations
from rootline.tree.evolution.changes import DefinitionChanges, SetProperties
from tests.tree.tables import IntentKind, Lake, append, intent, new_lake


def alter(lake: Lake, name: str, **properties: str) -> None:
    changes = DefinitionChanges(lake.head.header.definition.digest, (SetProperties(properties),))
    [verdict] = lake.put(intent(IntentKind.ALTER, name, definition=changes.to_json()))
    assert verdict.version == lake.head.header.version, verdict


def profile(lake: Lake) -> bytes:
    return next(name for name in (PROFILE.encode(), PROFILE_OF_EXPIRY.encode()) if name in lake.bodies[-1])


def test_a_table_as_it_was_made_has_the_profile_of_the_first_release() -> None:
    lake = new_lake(append("a"))
    assert lake.head.header.restores.redefined_in is None
    assert profile(lake) == PROFILE.encode()


def test_from_the_first_change_of_its_definition_on_a_table_has_the_newer_profile() -> None:
    lake = new_lake(append("a"))
    alter(lake, "first", owner="me")
    changed = lake.head.header.version
    assert lake.head.header.restores.redefined_in == changed
    lake.put(append("b"))
    assert (lake.head.header.restores.redefined_in, lake.reloaded().header) == (changed, lake.head.header)
    assert profile(lake) == PROFILE_OF_EXPIRY.encode()
    before = lake.head
    alter(lake, "second", owner="you")
    assert lake.head.header.restores.redefined_in == lake.head.header.version > changed
    assert list(violations(before, lake.head)) == []
