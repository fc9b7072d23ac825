from __future__ import annotations

import dataclasses
import uuid

import pytest

from rootline.schemas.bytes.leaf_codec import LeafContent
from rootline.schemas.content_entry import ContentEntry, ContentType, EntryPlace, Status
from rootline.schemas.intent import AddedManifest, IntentKind
from rootline.tree.check.root_diff import diff
from rootline.tree.state.live_index import ordinals_of_vector
from tests.support.state_rules import state_violations
from tests.tree.tables import (
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

A, B, C = (f"data/{name}.parquet" for name in "abc")


@pytest.fixture
def lake() -> Lake:
    return new_lake(append("a"), append("b"), append("c"))


def vectors_of(lake: Lake) -> list[ContentEntry]:
    return lake.root_entries(ContentType.POSITION_DELETE)


def with_vector(lake: Lake, target: str, *positions: int, name: str = "v") -> None:
    vector = lake.vector(name, target, positions, seen_vector(lake.head, target))
    assert codes(lake.put(intent(IntentKind.ROW_DELTA, name, add_vectors=(vector,)))) == [None]


def masks(lake: Lake) -> dict[str, list[tuple[Status, list[int]]]]:
    return {
        location: [(row.entry.version_info.status, list(ordinals_of_vector(row.entry))) for row in rows]
        for location, rows in lake.head.live.manifest_vector_rows.items()
    }


def test_a_flush_moves_rows_and_changes_nothing_that_is_live(lake: Lake) -> None:
    before = lake.live()
    lake.put(lake.flush("f", lake.leaf(lake.root_entries())))
    after = lake.live()
    assert after.keys() == before.keys()
    for place, entry in after.items():
        assert entry.version_info.sequence_number == before[place].version_info.sequence_number
        assert entry.first_row_id == before[place].first_row_id
        assert entry.content_stats == before[place].content_stats
    assert lake.head.live.rows == {}
    assert lake.head.header.snapshot.operation == "replace"
    assert not diff(lake.head.root, lake.head.leaves)
    assert state_violations(lake.head) == []


def test_the_leafs_row_is_existing_with_aggregates_and_the_flushes_numbers(lake: Lake) -> None:
    lake.put(lake.flush("f", lake.leaf(lake.root_entries())))
    [row] = lake.head.live.leaf_rows.values()
    info, counts = row.entry.version_info, row.entry.manifest_stats
    assert info.status is Status.EXISTING
    assert info.sequence_number == info.file_sequence_number == 5
    assert counts is not None
    assert (counts.existing_files_count, counts.existing_rows_count, counts.min_sequence_number) == (3, 30, 2)
    assert row.entry.record_count == 3


def test_rows_that_were_added_while_the_leaf_was_written_stay_in_the_root(lake: Lake) -> None:
    leaf = lake.leaf(lake.root_entries())
    lake.put(append("d"), lake.flush("f", leaf), append("e"))
    assert {place.location for place in lake.head.live.rows} == {"data/d.parquet", "data/e.parquet"}
    assert lake.head.header.totals.data_files == 5


def test_what_was_removed_meanwhile_does_not_come_back(lake: Lake) -> None:
    leaf = lake.leaf(lake.root_entries())
    lake.put(remove("r", removed(B)))
    lake.put(lake.flush("f", leaf, made_from=3))
    assert {place.location for place in lake.live()} == {A, C}
    assert masks(lake) == {leaf.location: [(Status.EXISTING, [1])]}


def test_what_the_same_batch_removed_before_the_flush_is_masked_and_after_it_is_shown(lake: Lake) -> None:
    leaf = lake.leaf(lake.root_entries())
    lake.put(remove("r1", removed(A)), lake.flush("f", leaf), remove("r2", removed(C)))
    assert masks(lake) == {leaf.location: [(Status.EXISTING, [0]), (Status.ADDED, [2])]}
    assert {entry.location for entry in diff(lake.head.root, lake.head.leaves).removed} == {A, C}


def test_a_file_that_was_removed_and_added_again_is_not_the_one_that_was_flushed(lake: Lake) -> None:
    leaf = lake.leaf(lake.root_entries())
    lake.put(remove("r", removed(B)))
    lake.put(append("b2", data_file("b", rows=4)))
    lake.put(lake.flush("f", leaf))
    found = lake.head.find(EntryPlace(ContentType.DATA, B))
    assert found is not None
    assert found.leaf is None
    assert lake.head.header.totals.rows == 24


def test_two_flushes_of_the_same_rows_do_not_double_them(lake: Lake) -> None:
    first = lake.leaf(lake.root_entries())
    second = lake.leaf(lake.root_entries()[:2], leaf_uuid=uuid.UUID(int=77))
    assert codes(lake.put(lake.flush("f1", first), lake.flush("f2", second))) == [None, "flush-stale"]
    assert len(lake.live()) == 3


def test_an_overlapping_flush_takes_what_the_first_one_left(lake: Lake) -> None:
    first = lake.leaf(lake.root_entries()[:2])
    second = lake.leaf(lake.root_entries()[1:], leaf_uuid=uuid.UUID(int=77))
    assert codes(lake.put(lake.flush("f1", first), lake.flush("f2", second))) == [None, None]
    assert masks(lake) == {second.location: [(Status.EXISTING, [0])]}
    assert state_violations(lake.head) == []


def test_a_flush_of_which_nothing_is_live_is_rejected(lake: Lake) -> None:
    leaf = lake.leaf(lake.root_entries())
    lake.put(*(remove(f"r{name}", removed(name)) for name in (A, B, C)))
    assert codes(lake.put(lake.flush("f", leaf))) == ["flush-stale"]
    assert lake.head.live.leaf_rows == {}


def test_the_same_flush_again_is_stale(lake: Lake) -> None:
    leaf = lake.leaf(lake.root_entries())
    assert codes(lake.put(lake.flush("f", leaf), lake.flush("again", leaf))) == [None, "flush-stale"]


def test_a_vector_moves_along_with_its_file(lake: Lake) -> None:
    with_vector(lake, A, 1)
    data = lake.leaf(lake.root_entries())
    deletes = lake.leaf(vectors_of(lake), content=LeafContent.DELETE, belongs_to=data.location)
    lake.put(lake.flush("f", deletes, data))
    assert lake.head.live.rows == {}
    assert lake.deleted_rows()[A] == {1}
    assert state_violations(lake.head) == []


def test_a_vector_that_was_replaced_meanwhile_is_masked(lake: Lake) -> None:
    with_vector(lake, A, 1)
    data = lake.leaf(lake.root_entries())
    deletes = lake.leaf(vectors_of(lake), content=LeafContent.DELETE, belongs_to=data.location)
    with_vector(lake, A, 1, 2, name="v2")
    lake.put(lake.flush("f", data, deletes))
    assert deletes.location not in lake.head.leaves
    assert lake.deleted_rows()[A] == {1, 2}


def test_a_vector_does_not_move_into_an_affiliated_leaf_without_its_file(lake: Lake) -> None:
    with_vector(lake, A, 1)
    with_vector(lake, B, 1, name="w")
    data = lake.leaf([entry for entry in lake.root_entries() if entry.location != A])
    deletes = lake.leaf(vectors_of(lake), content=LeafContent.DELETE, belongs_to=data.location)
    lake.put(lake.flush("f", data, deletes))
    [kept] = vectors_of(lake)
    assert kept.referenced_file == A
    assert lake.deleted_rows() == {A: {1}, B: {1}, C: set()}
    assert state_violations(lake.head) == []


def test_a_vector_may_move_into_a_leaf_that_belongs_to_an_older_data_leaf(lake: Lake) -> None:
    data = lake.leaf(lake.root_entries())
    lake.put(lake.flush("f", data))
    with_vector(lake, A, 1)
    deletes = lake.leaf(vectors_of(lake), content=LeafContent.DELETE, belongs_to=data.location)
    assert codes(lake.put(lake.flush("g", deletes))) == [None]
    assert lake.deleted_rows()[A] == {1}


def test_an_affiliated_leaf_of_an_unknown_data_leaf_takes_nothing(lake: Lake) -> None:
    with_vector(lake, A, 1)
    deletes = lake.leaf(vectors_of(lake), content=LeafContent.DELETE, belongs_to="metadata/leaves/none.parquet")
    assert codes(lake.put(lake.flush("f", deletes))) == ["flush-stale"]


def test_equality_deletes_move_into_leaves_of_their_own(lake: Lake) -> None:
    lake.put(intent(IntentKind.ROW_DELTA, "d", add_equality_deletes=(equality_delete("e", 3, "UA"),)))
    deletes = lake.leaf(lake.root_entries(ContentType.EQUALITY_DELETE), content=LeafContent.DELETE)
    assert codes(lake.put(lake.flush("f", deletes))) == [None]
    assert lake.head.header.totals.equality_deletes == 1
    late = intent(
        IntentKind.OVERWRITE, "o", remove_files=(removed(A),), add_data_files=(data_file("n"),), read_sequence_number=2
    )
    assert codes(lake.put(late)) == ["stale-source"]


def test_manifest_vectors_fold_in_the_next_root(lake: Lake) -> None:
    leaf = lake.leaf(lake.root_entries())
    lake.put(lake.flush("f", leaf))
    lake.put(remove("r1", removed(A)))
    assert masks(lake) == {leaf.location: [(Status.ADDED, [0])]}
    lake.put(remove("r2", removed(B)))
    assert masks(lake) == {leaf.location: [(Status.EXISTING, [0]), (Status.ADDED, [1])]}
    lake.put(append("d"))
    assert masks(lake) == {leaf.location: [(Status.EXISTING, [0, 1])]}
    rows = lake.head.live.manifest_vector_rows[leaf.location]
    lake.put(append("e"))
    assert lake.head.live.manifest_vector_rows[leaf.location] is rows


def test_a_leaf_whose_last_entries_leave_goes_with_the_next_flush(lake: Lake) -> None:
    leaf = lake.leaf(lake.root_entries())
    lake.put(lake.flush("f", leaf))
    lake.put(*(remove(f"r{name}", removed(name)) for name in (A, B, C)))
    assert leaf.location in lake.head.leaves
    lake.put(append("d"))
    next_leaf = lake.leaf(lake.root_entries(), leaf_uuid=uuid.UUID(int=77))
    lake.put(lake.flush("g", next_leaf))
    assert set(lake.head.leaves) == {next_leaf.location}
    assert masks(lake) == {}
    assert lake.head.header.totals.data_manifests == 1
    assert state_violations(lake.head) == []


def test_a_data_leaf_stays_while_a_live_delete_leaf_belongs_to_it(lake: Lake) -> None:
    with_vector(lake, A, 1)
    data = lake.leaf([entry for entry in lake.root_entries() if entry.location == A])
    deletes = lake.leaf(vectors_of(lake), content=LeafContent.DELETE, belongs_to=data.location)
    lake.put(lake.flush("f", data, deletes))
    lake.put(remove("r", removed(A, seen_vector(lake.head, A))))
    lake.put(lake.flush("g", lake.leaf(lake.root_entries(), leaf_uuid=uuid.UUID(int=77))))
    assert data.location not in lake.head.leaves
    assert deletes.location not in lake.head.leaves
    assert state_violations(lake.head) == []


def test_the_state_reads_back_from_root_and_leaves(lake: Lake) -> None:
    lake.put(lake.flush("f", lake.leaf(lake.root_entries())))
    lake.put(remove("r", removed(B)), append("d"))
    again = lake.reloaded()
    assert again.live.rows.keys() == lake.head.live.rows.keys()
    assert again.live.dead == lake.head.live.dead
    assert state_violations(again) == []


def lies(leaf: AddedManifest, **lie: object) -> AddedManifest:
    return leaf.model_copy(update=lie)


@pytest.mark.parametrize(
    ("lie", "code"),
    [
        ({"record_count": 4}, "leaf-invalid"),
        ({"file_size_in_bytes": 1}, "leaf-invalid"),
        ({"partition_spec_id": UNPARTITIONED}, "leaf-invalid"),
        ({"partition_spec_id": 9}, "spec-unknown"),
        ({"content_type": ContentType.DELETE_MANIFEST}, "leaf-invalid"),
        ({"content_type": ContentType.DATA}, "leaf-invalid"),
        ({"file_format": "avro"}, "leaf-invalid"),
        ({"referenced_file": "metadata/leaves/x.parquet"}, "leaf-invalid"),
        ({"location": "data/leaf.parquet"}, "location-invalid"),
        ({"location": "metadata/leaves/none.parquet"}, "leaf-invalid"),
    ],
)
def test_a_leaf_that_is_not_what_the_intent_says_is_rejected(lake: Lake, lie: dict[str, object], code: str) -> None:
    leaf = lake.leaf(lake.root_entries())
    assert codes(lake.put(lake.flush("f", lies(leaf, **lie)), append("d"))) == [code, None]


@pytest.mark.parametrize(
    "change", [{"record_count": 11}, {"first_row_id": 99}, {"file_size_in_bytes": 7}, {"split_offsets": (4,)}]
)
def test_a_leaf_whose_entry_differs_from_its_row_is_rejected(lake: Lake, change: dict[str, object]) -> None:
    entries = lake.root_entries()
    entries[1] = dataclasses.replace(entries[1], **change)  # type: ignore[arg-type]
    assert codes(lake.put(lake.flush("f", lake.leaf(entries)))) == ["leaf-invalid"]


def test_a_leaf_that_names_an_entry_twice_is_rejected(lake: Lake) -> None:
    entries = lake.root_entries()
    assert codes(lake.put(lake.flush("f", lake.leaf([*entries, entries[0]])))) == ["leaf-invalid"]


def test_a_flush_of_a_version_that_is_not_there_yet_is_rejected(lake: Lake) -> None:
    assert codes(lake.put(lake.flush("f", lake.leaf(lake.root_entries()), made_from=99))) == ["version-unknown"]


def test_maintenance_carries_offsets_outcomes_and_ledger_forward(lake: Lake) -> None:
    lake.put(append("d", writer_id="w", writer_sequence=1))
    before = lake.head.header
    lake.put(lake.flush("f", lake.leaf(lake.root_entries())))
    after = lake.head.header
    assert after.ledger.writers == before.ledger.writers
    assert after.outcomes.newest.runs[:-1] == before.outcomes.newest.runs
    assert after.row_ids.next == before.row_ids.next
