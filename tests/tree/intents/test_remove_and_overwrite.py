from __future__ import annotations

import pytest

from rootline.schemas.bytes.leaf_codec import LeafContent
from rootline.schemas.content_entry import ContentType, Status
from rootline.schemas.intent import Intent, IntentKind, RemovedFile, VectorReference
from tests.tree.tables import (
    BY_CARRIER,
    UNPARTITIONED,
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


def with_vector(lake: Lake, *positions: int, name: str = "v") -> None:
    """Delete positions of file a."""
    added = lake.vector(name, A, positions, seen_vector(lake.head, A))
    assert codes(lake.put(intent(IntentKind.ROW_DELTA, name, add_vectors=(added,)))) == [None]


def overwrite(intent_id: str, *files: RemovedFile, **more: object) -> Intent:
    return intent(IntentKind.OVERWRITE, intent_id, remove_files=files, **more)


def test_a_removed_file_is_shown_deleted_in_that_root_only() -> None:
    lake = new_lake(append("a"), append("b"))
    lake.put(remove("r", removed(A)))
    [shown] = lake.shown(Status.DELETED)
    assert (shown.location, shown.version_info.snapshot_id) == (A, lake.head.header.snapshot.snapshot_id)
    assert shown.version_info.sequence_number == 2
    lake.put(append("c"))
    assert lake.shown(Status.DELETED) == []
    assert A not in {entry.location for entry in lake.root_entries()}


def test_a_file_that_is_not_live_cannot_be_removed() -> None:
    lake = new_lake(append("a"))
    assert codes(lake.put(remove("r1", removed(A)), remove("r2", removed(A)))) == [None, "file-not-live"]


def test_a_rejected_remove_removes_none_of_its_files() -> None:
    lake = new_lake(append("a"))
    assert codes(lake.put(remove("r", removed(A), removed("data/none.parquet")))) == ["file-not-live"]
    assert lake.head.header.totals.data_files == 1


def test_a_removed_file_takes_its_vector_along() -> None:
    lake = new_lake(append("a"))
    with_vector(lake, 1, 2)
    lake.put(remove("r", removed(A, seen_vector(lake.head, A))))
    assert {entry.content_type for entry in lake.shown(Status.DELETED)} == {
        ContentType.DATA,
        ContentType.POSITION_DELETE,
    }
    assert lake.live() == {}


def test_a_writer_that_saw_no_vector_cannot_remove_a_file_that_has_one() -> None:
    lake = new_lake(append("a"))
    with_vector(lake, 1)
    assert codes(lake.put(remove("r", removed(A)))) == ["stale-source"]


def test_a_writer_that_saw_another_vector_cannot_remove_the_file() -> None:
    lake = new_lake(append("a"))
    with_vector(lake, 1)
    seen = seen_vector(lake.head, A)
    with_vector(lake, 1, 2, name="v2")
    assert codes(lake.put(remove("r", removed(A, seen)))) == ["stale-source"]


def test_an_overwrite_that_read_before_a_concurrent_vector_landed_is_rejected() -> None:
    lake = new_lake(append("a"))
    late = overwrite("o", removed(A), add_data_files=(data_file("new"),), read_sequence_number=2)
    vector = lake.vector("v", A, [3])
    assert codes(lake.put(intent(IntentKind.ROW_DELTA, "d", add_vectors=(vector,)), late)) == [None, "stale-source"]


def test_file_and_vector_that_are_both_in_leaves_leave_by_two_manifest_vectors() -> None:
    lake = new_lake(append("a"), append("b"))
    with_vector(lake, 1)
    data = lake.leaf(lake.root_entries())
    vectors = lake.leaf(
        lake.root_entries(ContentType.POSITION_DELETE), content=LeafContent.DELETE, belongs_to=data.location
    )
    lake.put(lake.flush("f", data, vectors))
    assert lake.head.live.rows == {}
    lake.put(remove("r", removed(A, seen_vector(lake.head, A))))
    assert {location: list(dead) for location, dead in lake.head.live.dead.items()} == {
        data.location: [0],
        vectors.location: [0],
    }
    assert {place.location for place in lake.live()} == {"data/b.parquet"}


@pytest.mark.parametrize(
    "content_type", [ContentType.POSITION_DELETE, ContentType.DATA_MANIFEST, ContentType.MANIFEST_DV]
)
def test_only_data_files_and_equality_deletes_can_be_removed_by_themselves(content_type: ContentType) -> None:
    lake = new_lake(append("a"))
    assert codes(lake.put(remove("r", RemovedFile(location=A, content_type=content_type)))) == ["intent-malformed"]


def test_an_equality_delete_can_be_removed() -> None:
    lake = new_lake(append("a"))
    lake.put(intent(IntentKind.ROW_DELTA, "d", add_equality_deletes=(equality_delete("e", 3, "UA"),)))
    gone = RemovedFile(location="data/e.parquet", content_type=ContentType.EQUALITY_DELETE)
    assert codes(lake.put(remove("r", gone))) == [None]
    assert lake.head.header.totals.equality_deletes == 0


def test_overwrite_replaces_files_at_once() -> None:
    lake = new_lake(append("a"), append("b"))
    lake.put(overwrite("o", removed(A), add_data_files=(data_file("new"),), read_sequence_number=3))
    assert {place.location for place in lake.live()} == {"data/b.parquet", "data/new.parquet"}
    assert lake.head.header.snapshot.operation == "overwrite"


def test_an_overwrite_may_not_add_what_it_removes() -> None:
    lake = new_lake(append("a"))
    assert codes(lake.put(overwrite("o", removed(A), add_data_files=(data_file("a"),)))) == ["file-named-twice"]


@pytest.mark.parametrize(
    ("value", "carrier", "spec", "read", "code"),
    [
        (3, "UA", BY_CARRIER, 2, "stale-source"),
        (3, None, UNPARTITIONED, 2, "stale-source"),
        (3, "UA", BY_CARRIER, None, "stale-source"),
        (3, "UA", BY_CARRIER, 3, None),
        (3, "AA", BY_CARRIER, 2, None),
        (99, "UA", BY_CARRIER, 2, None),
    ],
)
def test_an_equality_delete_that_the_writer_did_not_read_and_that_may_match_stops_an_overwrite(
    value: int, carrier: str | None, spec: int, read: int | None, code: str | None
) -> None:
    lake = new_lake(append("a"))
    delete = equality_delete("e", value, carrier, spec=spec)
    lake.put(intent(IntentKind.ROW_DELTA, "d", add_equality_deletes=(delete,)))
    late = overwrite("o", removed(A), add_data_files=(data_file("new"),), read_sequence_number=read)
    assert codes(lake.put(late)) == [code]


def test_an_older_equality_delete_does_not_stop_an_overwrite_of_a_newer_file() -> None:
    lake = new_lake()
    lake.put(intent(IntentKind.ROW_DELTA, "d", add_equality_deletes=(equality_delete("e", 3, "UA"),)), append("a"))
    late = overwrite("o", removed(A), add_data_files=(data_file("new"),), read_sequence_number=0)
    assert codes(lake.put(late)) == [None]


def test_an_equality_delete_in_a_later_intent_applies_to_a_file_of_an_earlier_one_in_the_same_root() -> None:
    lake = new_lake()
    delete = intent(IntentKind.ROW_DELTA, "d", add_equality_deletes=(equality_delete("e", 3, "UA"),))
    lake.put(append("a"), delete, append("b"))
    numbers = {entry.location: entry.version_info.sequence_number or 0 for entry in lake.live().values()}
    assert numbers[A] < numbers["data/e.parquet"] < numbers["data/b.parquet"]


def test_an_absolute_location_must_be_a_live_entrys() -> None:
    lake = new_lake(append("a"))
    away = RemovedFile(location="s3://other/data/a.parquet", vector=VectorReference(location="x", offset=0))
    assert codes(lake.put(remove("r", away))) == ["location-invalid"]
