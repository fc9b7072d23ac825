from __future__ import annotations

import pytest

from rootline.schemas.intent import Intent, IntentKind, Isolation
from tests.tree.tables import Lake, append, codes, data_file, intent, new_lake


def serializable(intent_id: str, read: int, where: str) -> Intent:
    return append(intent_id, isolation=Isolation.SERIALIZABLE, read_sequence_number=read, filter=where)


@pytest.fixture
def lake() -> Lake:
    return new_lake(append("a", data_file("a", ids=[10, 20])))


def test_a_file_added_since_that_may_match_is_a_conflict(lake: Lake) -> None:
    assert codes(lake.put(serializable("s", 1, "id = 15"))) == ["isolation-conflict"]


@pytest.mark.parametrize(("read", "where"), [(2, "id = 15"), (1, "id = 30"), (1, "carrier = 'AA'")])
def test_what_was_read_or_cannot_match_is_none(lake: Lake, read: int, where: str) -> None:
    assert codes(lake.put(serializable("s", read, where))) == [None]


def test_an_earlier_intent_of_the_batch_conflicts_like_any_other(lake: Lake) -> None:
    first = append("b", data_file("b", ids=[30]))
    assert codes(lake.put(first, serializable("s", 2, "id = 30"))) == [None, "isolation-conflict"]


def test_a_file_that_moved_into_a_leaf_still_conflicts_and_an_older_one_does_not(lake: Lake) -> None:
    lake.put(lake.flush("f", lake.leaf(lake.root_entries())))
    assert codes(lake.put(serializable("s", 1, "id = 15"), serializable("t", 2, "id = 15"))) == [
        "isolation-conflict",
        None,
    ]


def test_a_vector_added_since_conflicts_where_its_file_may_match(lake: Lake) -> None:
    vector = lake.vector("v", "data/a.parquet", [0])
    lake.put(intent(IntentKind.ROW_DELTA, "d", add_vectors=(vector,)))
    assert codes(lake.put(serializable("s", 2, "id = 15"), serializable("t", 2, "id = 99"))) == [
        "isolation-conflict",
        None,
    ]


def test_a_filter_that_cannot_be_read_is_rejected(lake: Lake) -> None:
    assert codes(lake.put(serializable("s", 1, "nothing = 1"))) == ["filter-invalid"]
    endless = f"id in ({', '.join(['1'] * 30_000)})"
    assert codes(lake.put(serializable("t", 1, endless))) == ["filter-invalid"], "other tables would wait for it"
