"""Writers who read before a restore, and whose intents are decided after it."""

from __future__ import annotations

from rootline.schemas.content_entry import ContentType
from rootline.schemas.intent import IntentKind
from tests.tree.intents.test_restore import A, delta, put_restored
from tests.tree.tables import append, codes, data_file, equality_delete, intent, new_lake, remove, removed


def test_a_delete_that_was_planned_before_a_restore_deletes_its_own_rows_only() -> None:
    lake = new_lake(append("a"))
    lake.put(delta(lake, "v1", A, [1]))
    lake.put(delta(lake, "v2", A, [1, 2]))
    late = delta(lake, "late", A, [1, 2, 5])  # deletes row 5 of a table in which 1 and 2 were gone
    put_restored(lake, 2)
    assert codes(lake.put(late)) == [None]
    assert lake.deleted_rows() == {A: {1, 5}}


def test_a_delete_that_was_planned_before_its_vector_was_taken_back_is_a_conflict() -> None:
    lake = new_lake(append("a"))
    lake.put(delta(lake, "v1", A, [1]))
    late = delta(lake, "late", A, [1, 5])
    put_restored(lake, 1)
    assert codes(lake.put(late)) == ["row-conflict"]


def test_a_serializable_intent_that_read_before_a_restore_conflicts_with_what_came_back() -> None:
    lake = new_lake(append("a"), remove("r", removed(A)))
    read = lake.head.header.snapshot.sequence_number
    put_restored(lake, 1)
    blind = append("b", isolation="serializable", filter="id = 3", read_sequence_number=read)
    assert codes(lake.put(blind)) == ["isolation-conflict"]
    now = lake.head.header.snapshot.sequence_number
    assert codes(lake.put(append("c", isolation="serializable", filter="id = 77", read_sequence_number=now))) == [None]


def test_a_serializable_intent_conflicts_with_rows_that_came_back_because_a_vector_went() -> None:
    lake = new_lake(append("a"))
    lake.put(delta(lake, "v1", A, [1]))
    read = lake.head.header.snapshot.sequence_number
    put_restored(lake, 1)
    blind = append("b", isolation="serializable", filter="id = 1", read_sequence_number=read)
    lake.put(append("c"))
    assert codes(lake.put(blind)) == ["isolation-conflict"]
    assert lake.reloaded().header.restores.restored_at == read + 1


def test_an_overwrite_that_read_before_an_equality_delete_came_back_is_stale() -> None:
    lake = new_lake(append("a"))
    lake.put(intent(IntentKind.ROW_DELTA, "e", add_equality_deletes=[equality_delete("e", 3, "UA")]))
    gone = removed("data/e.parquet").model_copy(update={"content_type": ContentType.EQUALITY_DELETE})
    lake.put(remove("r", gone))
    read = lake.head.header.snapshot.sequence_number
    put_restored(lake, 2)
    late = intent(
        IntentKind.OVERWRITE,
        "o",
        add_data_files=[data_file("b")],
        remove_files=[removed(A)],
        read_sequence_number=read,
    )
    assert codes(lake.put(late)) == ["stale-source"]
