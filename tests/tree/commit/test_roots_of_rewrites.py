"""Which intents share a root, and what its operation is: an `append` has no other changes of rows than its new files,
and a rewrite of data files is a `replace` beside maintenance only.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from itertools import pairwise

import pytest

from rootline.schemas.content_entry import Status
from rootline.schemas.intent import Intent, IntentKind, VersionReference
from rootline.schemas.root_header import Operation
from rootline.tree.check.invariants import violations
from rootline.tree.commit import decide
from rootline.tree.draft.batch import Applied
from tests.support.changed_headers import of_part
from tests.tree.check.test_invariants import with_header
from tests.tree.intents.test_alter import add_column
from tests.tree.intents.test_compact_leaves import joined
from tests.tree.intents.test_compact_vectors import joining
from tests.tree.intents.test_convert_equality_deletes import convert, delete_rows, delete_value
from tests.tree.intents.test_rewrite import rewrite
from tests.tree.tables import Lake, append, codes, data_file, intent, new_lake, remove, removed

A, B, C, D = (f"data/{name}.parquet" for name in "abcd")
MAINTENANCE: dict[str, Callable[[Lake], Intent]] = {
    "flush": lambda lake: lake.flush("m", lake.leaf(lake.root_entries())),
    "compaction of leaves": lambda lake: lake.compaction(
        "m", joined(lake, *lake.head.leaves), replaces=list(lake.head.leaves)
    ),
    "join of vectors": lambda lake: joining(lake, B, intent_id="m"),
    "conversion": lambda lake: convert(lake, "m", "data/value.parquet", rows={A: {3}}, clean=[B]),
    "tag": lambda lake: intent(IntentKind.TAG, "m", ref=VersionReference(tag="t", version=1)),
    "change of the definition": lambda lake: add_column(lake, "m"),
}
CHANGES: dict[str, Callable[[Lake], Intent]] = {
    "append": lambda _: append("new"),
    "remove": lambda _: remove("x", removed(A)),
    "overwrite": lambda _: intent(
        IntentKind.OVERWRITE, "o", remove_files=(removed(A),), add_data_files=(data_file("new"),)
    ),
    "deleted rows": lambda lake: delete_rows(lake, "delta", A, 1),
    "deleted values": lambda _: delete_value("delta", 4),
    "restore": lambda _: intent(IntentKind.RESTORE, "back", ref=VersionReference(version=1)),
}


def lake_with_everything() -> Lake:
    """Files a and b in a leaf, b with a vector; c in the root; an equality delete that reaches row 3 of a and b."""
    lake = new_lake(append("a"), append("b"))
    lake.put(lake.flush("first", lake.leaf(lake.root_entries())))
    lake.put(delete_value("value", 3))
    lake.put(delete_rows(lake, "vector", B, 3))
    lake.put(append("c"))
    return lake


def roots_of(lake: Lake, *intents: Intent) -> list[str]:
    """The operations of the roots that one batch of accepted intents becomes."""
    before = len(lake.states)
    assert codes(lake.put(*intents)) == [None] * len(intents)
    return [state.header.snapshot.operation.value for state in lake.states[before:]]


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("kind", MAINTENANCE)
def test_an_append_is_an_append_whatever_maintenance_shares_its_root(kind: str, is_first: bool) -> None:
    lake = lake_with_everything()
    batch = [MAINTENANCE[kind](lake), append("d")]
    assert roots_of(lake, *(batch if is_first else batch[::-1])) == ["append"]
    assert [entry.location for entry in lake.shown(Status.ADDED)] == [D]
    assert lake.shown(Status.DELETED) == []
    assert lake.head.header.snapshot.summary["added-data-files"] == "1"


@pytest.mark.parametrize("kind", MAINTENANCE)
def test_maintenance_changes_the_operation_of_no_other_change_either(kind: str) -> None:
    lake = lake_with_everything()
    assert roots_of(lake, MAINTENANCE[kind](lake), remove("x", removed(C))) == ["delete"]
    lake = lake_with_everything()
    assert roots_of(lake, MAINTENANCE[kind](lake), remove("x", removed(C)), append("d")) == ["overwrite"]
    lake = lake_with_everything()
    assert roots_of(lake, MAINTENANCE[kind](lake)) == ["replace"]


def lake_to_rewrite() -> tuple[Lake, Intent]:
    """Files a, b and c, and a rewrite of the last two."""
    lake = new_lake(append("a"), append("b"), append("c"))
    return lake, rewrite(lake, "r", B, C, adds=(data_file("bc", rows=20),))


@pytest.mark.parametrize("kind", CHANGES)
def test_a_rewrite_shares_its_root_with_no_change_of_rows_before_or_after_it(kind: str) -> None:
    lake, rewritten = lake_to_rewrite()
    [alone] = roots_of(lake, CHANGES[kind](lake))
    lake, rewritten = lake_to_rewrite()
    assert roots_of(lake, rewritten, CHANGES[kind](lake))[0] == "replace"
    assert len(lake.states) == 6
    if kind != "restore":  # which makes the rewrite stale
        lake, rewritten = lake_to_rewrite()
        assert roots_of(lake, CHANGES[kind](lake), rewritten) == [alone, "replace"]


def test_a_batch_ends_before_and_after_a_rewrite_and_goes_on_in_the_order_of_the_log() -> None:
    lake, rewritten = lake_to_rewrite()
    found = lake.put(append("d"), append("e"), rewritten, append("f"), append("g"))
    assert [(item.intent_id, item.version) for item in found] == [("d", 4), ("e", 4), ("r", 5), ("f", 6), ("g", 6)]
    assert [state.header.snapshot.operation for state in lake.states[4:]] == ["append", "replace", "append"]
    numbers = [item.sequence_number or 0 for item in found]
    assert numbers == list(range(numbers[0], numbers[0] + 5))
    ends = [state.header.log.offsets[0].next_offset for state in lake.states[3:]]
    assert [after - before for before, after in pairwise(ends)] == [2, 1, 2]


def test_rewrites_share_a_root_with_each_other_and_with_maintenance() -> None:
    lake, rewritten = lake_to_rewrite()
    other = rewrite(lake, "r2", A, adds=(data_file("a2"),))
    flush = lake.flush("f", lake.leaf(lake.root_entries()))
    assert roots_of(lake, flush, rewritten, other) == ["replace"]


def test_appends_and_rewrites_in_turns_all_become_roots() -> None:
    lake = new_lake(*(append(f"old-{number}") for number in range(6)))
    batch: list[Intent] = []
    for number in range(6):
        batch.append(append(f"new-{number}"))
        batch.append(rewrite(lake, f"r-{number}", f"data/old-{number}.parquet", adds=(data_file(f"more-{number}"),)))
    assert roots_of(lake, *batch) == ["append", "replace"] * 6


def test_a_rejected_rewrite_holds_no_later_intent_back() -> None:
    lake, rewritten = lake_to_rewrite()
    lake.put(remove("x", removed(B)))
    found = lake.put(append("d"), rewritten, append("e"), append("f"))
    assert [(item.code, item.version) for item in found] == [(None, 5), ("stale-source", None), (None, 6), (None, 6)]


def test_a_change_of_rows_that_is_rejected_or_known_after_a_rewrite_waits_too_and_joins_the_next_root() -> None:
    lake, rewritten = lake_to_rewrite()
    other = rewrite(lake, "r2", A, adds=(data_file("a2"),))
    found = lake.put(rewritten, append("again", data_file("b")), other)
    assert [(item.kind.value, item.version) for item in found] == [
        ("committed", 4),
        ("duplicate", None),
        ("committed", 5),
    ]


def test_a_refused_record_ends_no_batch() -> None:
    lake, rewritten = lake_to_rewrite()
    [first, second, third] = lake.records([append("d"), rewritten, append("e")])
    found = lake.put_records([first, dataclasses.replace(second, refusal=("not-permitted", "no")), third])
    assert [(item.code, item.version) for item in found] == [(None, 4), ("not-permitted", None), (None, 4)]


def test_what_waits_behind_a_rewrite_is_not_fetched_for_its_root() -> None:
    lake = lake_with_everything()
    rewritten = rewrite(lake, "r", C, adds=(data_file("c2"),))
    lake.rounds.clear()
    assert codes(lake.put(append("d"), rewritten, delete_rows(lake, "delta", A, 1))) == [None] * 3
    assert len(lake.rounds) == 1, "only the vector is fetched, for the third root"


@pytest.mark.parametrize("kind", ["append", "remove", "overwrite"])
def test_a_rewrite_that_shares_a_root_all_the_same_is_not_put(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decide, "_BESIDE_REWRITES", frozenset(IntentKind))
    lake, rewritten = lake_to_rewrite()
    before = lake.head
    outcome = lake.try_records(lake.records([rewritten, CHANGES[kind](lake)]))
    assert isinstance(outcome, Applied)
    assert any("rewrites data files" in sentence for sentence in violations(before, outcome.state))


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        ("append", Operation.REPLACE),
        ("append", Operation.DELETE),
        ("remove", Operation.REPLACE),
        ("remove", Operation.APPEND),
        ("overwrite", Operation.APPEND),
        ("overwrite", Operation.DELETE),
        ("deleted rows", Operation.APPEND),
        ("deleted values", Operation.APPEND),
        ("deleted values", Operation.REPLACE),
    ],
)
def test_a_root_that_calls_itself_something_else_than_it_does_is_not_put(kind: str, wrong: Operation) -> None:
    lake, _ = lake_to_rewrite()
    before = lake.head
    lake.put(CHANGES[kind](lake))
    forged = with_header(lake.head, of_part("snapshot", operation=wrong))
    assert any(f"its operation is {wrong.value}" in sentence for sentence in violations(before, forged))
