"""How records are cut into batches changes no verdict and nothing that is live, whatever a name becomes meanwhile."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

import pytest

from rootline.schemas.intent import Intent, IntentKind
from rootline.tree.evolution.changes import DefinitionChanges, SetProperties
from tests.support.state_rules import state_violations
from tests.tree.intents.test_drop import SECOND, THIRD, said
from tests.tree.intents.test_view import OTHER_UUID, VIEW_UUID, create_view, drop_view, replace_view, version
from tests.tree.tables import DEFINITION, TABLE_UUID, Lake, append, create, data_file, intent, remove, removed

TABLES, VIEWS = (TABLE_UUID, SECOND, THIRD), (VIEW_UUID, OTHER_UUID)


def drawn(rng: random.Random, number: int) -> Intent:
    name = f"i{number}"
    view_uuid = rng.choice(VIEWS)
    any_uuid = rng.choice((*TABLES, view_uuid))
    file = f"f{rng.randrange(6)}"
    stamp = {} if rng.random() < 0.5 else {"writer_id": rng.choice("wv"), "writer_sequence": rng.randrange(6)}
    of_table = {**stamp, **({} if rng.random() < 0.2 else {"table_uuid": rng.choice(TABLES)})}
    new_uuid = rng.choice((*TABLES, UUID(int=rng.randrange(1, 10**9))))
    property_set = DefinitionChanges(None, (SetProperties({"a": name}),)).to_json()
    kinds: list[Callable[[], Intent]] = [
        lambda: append(name, data_file(file), **of_table),
        lambda: append(name, data_file(file), **of_table),
        lambda: remove(name, removed(f"data/{file}.parquet"), **of_table),
        lambda: intent(IntentKind.ALTER, name, definition=property_set, **of_table),
        lambda: intent(IntentKind.DROP, name, **{**stamp, "table_uuid": any_uuid}),
        lambda: intent(IntentKind.PURGE, name, **{**stamp, "table_uuid": any_uuid}),
        lambda: create(name, replace(DEFINITION, table_uuid=new_uuid).to_json().decode(), **stamp),
        lambda: create_view(name, view_uuid=view_uuid, **stamp),
        lambda: replace_view(name, view_uuid, stamp=stamp, version=version(f"SELECT {rng.randrange(3)}")),
        lambda: drop_view(name, any_uuid, **stamp),
    ]
    return rng.choice(kinds)()


@pytest.mark.parametrize("seed", range(8))
def test_the_same_records_get_the_same_verdicts_however_they_are_cut(seed: int) -> None:
    rng = random.Random(seed)
    intents = [drawn(rng, number) for number in range(40)]

    def told(size: Callable[[], int]) -> tuple[list[str], list[str], object]:
        lake, verdicts, at = Lake(), list[str](), 0
        while at < len(intents):
            end = at + size()
            verdicts += said(lake.put(*intents[at:end]))
            at = end
            assert lake.state is None or state_violations(lake.state) == []
        header = lake.head.header
        live = sorted(found.entry.location for found in lake.head.live.entries())
        return verdicts, live, (header.name.state, header.table_uuid, header.tags)

    alone = told(lambda: 1)
    assert told(lambda: rng.choice((2, 3, 5))) == alone
    assert told(lambda: len(intents)) == alone
