"""What is about to be committed is decoded first, where it changes more than rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from rootline.schemas.intent import Intent, IntentKind, VersionReference
from rootline.tree.check.read_back import read_back_faults
from rootline.tree.draft.batch import Applied
from rootline.tree.state.table_state import TableState
from tests.tree.tables import DEFINITION, Lake, append, create, intent, new_lake


def _set_property(lake: Lake) -> Intent:
    body = {"changes": [{"action": "set-properties", "updates": {"owner": "me"}}]}
    return intent(IntentKind.ALTER, "alter", definition=json.dumps(body))


def _made(lake: Lake, item: Intent) -> tuple[TableState | None, Applied]:
    before = lake.state
    made = lake.try_records(lake.records((item,)))
    assert isinstance(made, Applied)
    assert read_back_faults(before, made) == []
    return before, made


RARE: list[Callable[[Lake], Intent]] = [
    _set_property,
    lambda _: intent(IntentKind.TAG, "tag", ref=VersionReference(version=0, tag="first")),
    lambda _: intent(IntentKind.DROP, "drop", table_uuid=DEFINITION.table_uuid),
]


@pytest.mark.parametrize("make", RARE)
def test_a_root_that_changes_more_than_rows_is_read_back(make: Callable[[Lake], Intent]) -> None:
    lake = new_lake()
    lake.put(append("one"))
    before, made = _made(lake, make(lake))
    assert before is not None
    cut = replace(made, body=made.body[:-1])
    assert "could not be read back" in read_back_faults(before, cut)[0]
    header = replace(
        made.state.header, row_ids=replace(made.state.header.row_ids, next=made.state.header.row_ids.next + 1)
    )
    other = replace(made.state, root=replace(made.state.root, header=header))
    assert read_back_faults(before, replace(made, state=other)) == ["its header would be read differently"]


def test_a_first_root_and_a_new_definition_are_read_back() -> None:
    _, first = _made(Lake(), create())
    assert read_back_faults(None, replace(first, body=b""))
    lake = new_lake()
    before, made = _made(lake, _set_property(lake))
    [definition] = made.objects
    for body, reason in ((b"{", "could not be read back"), (DEFINITION.to_json(), "read differently")):
        [fault] = read_back_faults(before, replace(made, objects=(replace(definition, body=body),)))
        assert reason in fault


def test_a_root_that_only_adds_rows_costs_no_decoding() -> None:
    lake = new_lake()
    before, made = _made(lake, append("one"))
    assert read_back_faults(before, replace(made, body=b"")) == []
