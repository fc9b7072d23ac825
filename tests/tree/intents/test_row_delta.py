from __future__ import annotations

import pytest

from rootline.schemas.bytes.leaf_codec import LeafContent
from rootline.schemas.content_entry import ContentType, FieldStatistics, Status
from rootline.schemas.intent import AddedVector, DataFile, Intent, IntentKind, VectorReference
from rootline.tree.rules.vector_rules import VectorNeed
from tests.tree.tables import (
    CARRIER,
    Lake,
    append,
    codes,
    data_file,
    equality_delete,
    intent,
    new_lake,
    remove,
    removed,
    seen_vector,
)

A = "data/a.parquet"


def delta(intent_id: str, *vectors: AddedVector, files: tuple[DataFile, ...] = (), **more: object) -> Intent:
    return intent(IntentKind.ROW_DELTA, intent_id, add_vectors=vectors, add_data_files=files, **more)


@pytest.fixture
def lake() -> Lake:
    return new_lake(append("a"))


def test_a_vector_carries_its_data_files_spec_and_partition_values_and_nothing_else(lake: Lake) -> None:
    lake.put(delta("d", lake.vector("v", A, [1, 2])))
    vector = lake.head.vector_of(A)
    assert vector is not None
    assert vector.partition_spec_id == 0
    assert vector.content_stats == {CARRIER: FieldStatistics("UA", "UA")}
    assert (vector.record_count, vector.referenced_file, vector.first_row_id) == (2, A, None)


def test_the_added_vector_and_the_one_it_replaces_are_all_that_is_read(lake: Lake) -> None:
    lake.put(delta("d", lake.vector("v", A, [1])))
    lake.put(delta("d2", lake.vector("v2", A, [1, 2], seen_vector(lake.head, A))))
    assert [set(needs) for needs in lake.rounds] == [
        {VectorNeed("data/v.puffin", 4, 40, 100)},
        {VectorNeed("data/v2.puffin", 4, 40, 100), VectorNeed("data/v.puffin", 4, 40, 100)},
    ]
    assert lake.deleted_rows() == {A: {1, 2}}


def test_a_replaced_vector_is_shown_deleted(lake: Lake) -> None:
    lake.put(delta("d", lake.vector("v", A, [1])))
    lake.put(delta("d2", lake.vector("v2", A, [1, 2], seen_vector(lake.head, A))))
    assert [entry.location for entry in lake.shown(Status.DELETED)] == ["data/v.puffin"]
    assert lake.head.header.totals.vectors == 1


def test_vectors_of_two_writers_are_merged(lake: Lake) -> None:
    lake.put(delta("d1", lake.vector("v1", A, [1])))
    lake.put(delta("d2", lake.vector("v2", A, [2, 3])))
    assert lake.deleted_rows() == {A: {1, 2, 3}}
    [merged] = [name for name in lake.objects if name.startswith("metadata/vectors/")]
    vector = lake.head.vector_of(A)
    assert vector is not None
    assert (vector.location, vector.record_count, vector.version_info.sequence_number) == (merged, 3, 4)


def test_all_merged_vectors_of_a_batch_share_one_file() -> None:
    lake = new_lake(append("a"), append("b"))
    b = "data/b.parquet"
    lake.put(delta("d1", lake.vector("v1", A, [1]), lake.vector("w1", b, [1])))
    lake.put(delta("d2", lake.vector("v2", A, [2])), delta("d3", lake.vector("w2", b, [3])))
    assert lake.deleted_rows() == {A: {1, 2}, b: {1, 3}}
    assert len([name for name in lake.objects if name.endswith(".puffin")]) == 1


def test_vectors_of_one_batch_merge_with_one_another(lake: Lake) -> None:
    vectors = [lake.vector(f"v{number}", A, [number]) for number in range(4)]
    assert codes(lake.put(*(delta(f"d{index}", vector) for index, vector in enumerate(vectors)))) == [None] * 4
    assert lake.deleted_rows() == {A: {0, 1, 2, 3}}
    assert len([name for name in lake.objects if name.endswith(".puffin")]) == 1
    assert lake.shown(Status.DELETED) == []


def test_a_merge_asks_for_its_vectors_once_for_the_whole_batch(lake: Lake) -> None:
    lake.put(delta("d1", lake.vector("v1", A, [1])))
    lake.rounds.clear()
    lake.put(delta("d2", lake.vector("v2", A, [2])), delta("d3", lake.vector("v3", A, [3])))
    [needs] = lake.rounds
    assert set(needs) == {VectorNeed(f"data/v{number}.puffin", 4, 40, 100) for number in (1, 2, 3)}


def test_a_merge_that_adds_nothing_leaves_the_vector_as_it_is(lake: Lake) -> None:
    lake.put(delta("d1", lake.vector("v1", A, [1, 2])))
    assert codes(lake.put(delta("d2", lake.vector("v2", A, [2])))) == [None]
    vector = lake.head.vector_of(A)
    assert vector is not None
    assert vector.location == "data/v1.puffin"


def test_a_merge_whose_result_is_the_added_vector_writes_no_object(lake: Lake) -> None:
    lake.put(delta("d1", lake.vector("v1", A, [1])))
    lake.put(delta("d2", lake.vector("v2", A, [1, 2])))
    vector = lake.head.vector_of(A)
    assert vector is not None
    assert vector.location == "data/v2.puffin"


def test_two_updates_of_one_row_do_not_both_land(lake: Lake) -> None:
    first = delta("u1", lake.vector("v1", A, [1]), files=(data_file("new1", rows=1),))
    second = delta("u2", lake.vector("v2", A, [1]), files=(data_file("new2", rows=1),))
    assert codes(lake.put(first, second)) == [None, "row-conflict"]
    assert {place.location for place in lake.live() if place.content_type is ContentType.DATA} == {
        A,
        "data/new1.parquet",
    }


@pytest.mark.parametrize(
    ("value", "carrier", "read", "is_update", "code"),
    [
        (3, "UA", 2, True, "row-conflict"),
        (3, "UA", 3, True, None),
        (3, "UA", None, True, None),
        (3, "UA", 2, False, None),
        (3, "AA", 2, True, None),
        (99, "UA", 2, True, None),
    ],
)
def test_a_row_that_was_deleted_by_value_since_the_writer_read_it_is_not_updated(
    lake: Lake, value: int, carrier: str, read: int | None, is_update: bool, code: str | None
) -> None:
    lake.put(intent(IntentKind.ROW_DELTA, "e", add_equality_deletes=(equality_delete("e", value, carrier),)))
    files = (data_file("new", rows=1),) if is_update else ()
    late = delta("u", lake.vector("v", A, [1]), files=files, read_sequence_number=read)
    assert codes(lake.put(late)) == [code]


def test_updates_of_different_rows_both_land(lake: Lake) -> None:
    first = delta("u1", lake.vector("v1", A, [1]), files=(data_file("new1", rows=1),))
    second = delta("u2", lake.vector("v2", A, [2]), files=(data_file("new2", rows=1),))
    assert codes(lake.put(first, second)) == [None, None]
    assert lake.deleted_rows()[A] == {1, 2}


def test_rows_deleted_before_both_read_are_no_conflict(lake: Lake) -> None:
    lake.put(delta("d", lake.vector("v", A, [0])))
    seen = seen_vector(lake.head, A)
    first = delta("u1", lake.vector("v1", A, [0, 1], seen), files=(data_file("new1", rows=1),))
    second = delta("u2", lake.vector("v2", A, [0, 2], seen), files=(data_file("new2", rows=1),))
    assert codes(lake.put(first, second)) == [None, None]
    assert lake.deleted_rows()[A] == {0, 1, 2}


def test_a_vector_of_a_file_that_left_is_rejected(lake: Lake) -> None:
    assert codes(lake.put(remove("r", removed(A)), delta("d", lake.vector("v", A, [1])))) == [None, "file-not-live"]


def test_a_vector_that_replaces_one_which_is_gone_is_a_conflict(lake: Lake) -> None:
    gone = VectorReference(location="data/old.puffin", offset=4)
    assert codes(lake.put(delta("d", lake.vector("v", A, [1], gone)))) == ["row-conflict"]


@pytest.mark.parametrize(
    "lie",
    [
        {"cardinality": 11},
        {"size_in_bytes": 200},
        {"size_in_bytes": 0},
        {"offset": 90},
    ],
)
def test_a_vector_that_cannot_fit_its_file_is_rejected(lake: Lake, lie: dict[str, int]) -> None:
    vector = lake.vector("v", A, [1]).model_copy(update=lie)
    assert codes(lake.put(delta("d", vector))) == ["vector-invalid"]


@pytest.mark.parametrize("positions", [[3], [1, 3], [1, 3, 4, 5]])
def test_a_vector_that_would_bring_deleted_rows_back_is_rejected(lake: Lake, positions: list[int]) -> None:
    lake.put(delta("d", lake.vector("v", A, [1, 2])))
    late = delta("d2", lake.vector("v2", A, positions, seen_vector(lake.head, A)))
    assert codes(lake.put(late)) == ["vector-invalid"]
    assert lake.deleted_rows() == {A: {1, 2}}


def test_a_vector_that_cannot_be_read_is_rejected_and_its_neighbour_is_not(lake: Lake) -> None:
    absent = lake.vector("v2", A, [2])
    del lake.vectors[VectorNeed("data/v2.puffin", 4)]
    assert codes(lake.put(delta("d2", absent), append("b"))) == ["vector-invalid", None]


def test_a_vector_must_hold_what_it_says(lake: Lake) -> None:
    liar = lake.vector("v2", A, [2, 3]).model_copy(update={"cardinality": 1})
    beyond = lake.vector("v3", A, [10])
    assert codes(lake.put(delta("d2", liar), delta("d3", beyond))) == ["vector-invalid", "vector-invalid"]


def test_a_file_may_come_with_a_vector_of_its_own(lake: Lake) -> None:
    lake.put(delta("d", lake.vector("v", "data/new.parquet", [0]), files=(data_file("new"),)))
    assert lake.deleted_rows()["data/new.parquet"] == {0}


def test_two_vectors_of_one_file_in_one_intent_are_rejected(lake: Lake) -> None:
    assert codes(lake.put(delta("d", lake.vector("v", A, [1]), lake.vector("w", A, [2])))) == ["file-named-twice"]


def test_the_same_vector_again_is_already_live(lake: Lake) -> None:
    vector = lake.vector("v", A, [1])
    assert codes(lake.put(delta("d", vector), delta("again", vector))) == [None, "file-already-live"]


def test_a_vector_in_a_leaf_is_merged_and_leaves_by_a_manifest_vector(lake: Lake) -> None:
    lake.put(delta("d", lake.vector("v", A, [1])))
    data = lake.leaf(lake.root_entries())
    vectors = lake.leaf(lake.root_entries(ContentType.POSITION_DELETE), content=LeafContent.DELETE)
    lake.put(lake.flush("f", data, vectors))
    assert codes(lake.put(delta("d2", lake.vector("v2", A, [2])))) == [None]
    assert lake.deleted_rows() == {A: {1, 2}}
    assert list(lake.head.live.dead[vectors.location]) == [0]


def test_merging_the_same_again_on_another_head_reuses_the_object() -> None:
    lakes = [new_lake(append("a")), new_lake(append("x"), append("a"))]
    names = []
    for lake in lakes:
        lake.put(delta("d1", lake.vector("v1", A, [1])))
        lake.put(delta("d2", lake.vector("v2", A, [2])))
        names.append([name for name in lake.objects if name.endswith(".puffin")])
    assert names[0] == names[1]


def test_deletes_only_is_a_delete_and_with_files_an_overwrite(lake: Lake) -> None:
    lake.put(delta("d", lake.vector("v", A, [1])))
    assert lake.head.header.snapshot.operation == "delete"
    lake.put(delta("u", lake.vector("v2", A, [1, 2], seen_vector(lake.head, A)), files=(data_file("new"),)))
    assert lake.head.header.snapshot.operation == "overwrite"
