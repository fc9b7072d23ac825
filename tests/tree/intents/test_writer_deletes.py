"""The seed's complex row delta: deletes and files in leaves, the vectors they replace masked."""

from __future__ import annotations

import dataclasses

import pytest

from rootline.schemas.content_entry import (
    ContentEntry,
    ContentType,
    DeletionVector,
    FieldStatistics,
    FileFormat,
    Status,
    VersionInfo,
)
from rootline.schemas.intent import AddedManifest, Intent, IntentKind
from rootline.tree.check.root_diff import diff
from rootline.tree.state.live_index import ordinals_of_vector
from tests.support.state_rules import state_violations
from tests.tree.tables import (
    CARRIER,
    ID,
    Lake,
    append,
    codes,
    data_file,
    equality_delete,
    new_entry,
    new_lake,
    remove,
    removed,
    seen_vector,
)
from tests.tree.written import adding, leaf_of, rejection, shown_leaves

A, B, C = (f"data/{name}.parquet" for name in "abc")


def vector_entry(lake: Lake, name: str, target: str, positions: list[int], **more: object) -> ContentEntry:
    stored = lake.vector(name, target, positions)
    fields: dict[str, object] = {
        "content_type": ContentType.POSITION_DELETE,
        "location": stored.location,
        "file_format": FileFormat.PUFFIN,
        "version_info": VersionInfo(Status.ADDED),
        "partition_spec_id": 0,
        "record_count": len(positions),
        "file_size_in_bytes": stored.file_size_in_bytes,
        "deletion_vector": DeletionVector(stored.offset, stored.size_in_bytes),
        "referenced_file": target,
        "content_stats": {CARRIER: FieldStatistics("UA", "UA")},
    }
    return ContentEntry(**(fields | more))  # type: ignore[arg-type]


def delta(lake: Lake, intent_id: str, *leaves: AddedManifest, **more: object) -> Intent:
    read = lake.head.header.snapshot.sequence_number
    return adding(intent_id, *leaves, kind=IntentKind.ROW_DELTA, **({"read_sequence_number": read} | more))


@pytest.fixture
def lake() -> Lake:
    """D1 = a, D2 = b in DM1; their vectors DV1 and DV2 in DVM1."""
    lake = new_lake()
    data = leaf_of(lake, "a", "b")
    lake.put(adding("s0", data))
    deletes = lake.written_leaf(
        vector_entry(lake, "dv1", A, [1]), vector_entry(lake, "dv2", B, [2]), belongs_to=data.location
    )
    assert codes(lake.put(delta(lake, "s1", deletes))) == [None]
    return lake


def test_vectors_in_a_leaf_delete_rows(lake: Lake) -> None:
    assert lake.deleted_rows() == {A: {1}, B: {2}}
    assert lake.head.header.totals.vectors == 2
    assert state_violations(lake.head) == []


def test_a_new_vector_in_a_new_leaf_replaces_the_one_in_the_old_leaf(lake: Lake) -> None:
    dvm2 = lake.written_leaf(vector_entry(lake, "dv4", A, [1, 3]))
    dm2 = leaf_of(lake, "c")
    assert codes(lake.put(delta(lake, "s2", dvm2, dm2))) == [None]
    assert lake.deleted_rows() == {A: {1, 3}, B: {2}, C: set()}
    statuses = {row.location: row.version_info.status for row in shown_leaves(lake)}
    assert statuses[dvm2.location] is statuses[dm2.location] is Status.ADDED
    [mask] = [row.entry for rows in lake.head.live.manifest_vector_rows.values() for row in rows]
    assert mask.version_info.status is Status.ADDED
    assert list(ordinals_of_vector(mask)) == [0]
    changes = diff(lake.head.root, lake.head.leaves)
    assert [item.location for item in changes.removed] == ["data/dv1.puffin"]
    assert state_violations(lake.head) == []


def test_a_vector_that_drops_deleted_rows_is_refused(lake: Lake) -> None:
    leaf = lake.written_leaf(vector_entry(lake, "dv4", A, [3]))
    assert codes(lake.put(delta(lake, "s2", leaf))) == ["vector-invalid"]


def test_who_did_not_see_the_live_vector_is_told_to_read_again(lake: Lake) -> None:
    leaf = lake.written_leaf(vector_entry(lake, "dv4", A, [1, 3]))
    code, message = rejection(lake, delta(lake, "s2", leaf, read_sequence_number=1))
    assert code == "row-conflict"
    assert "read the table again" in message


def test_a_vector_of_a_file_that_came_back_since_the_writer_read_is_refused(lake: Lake) -> None:
    lake.put(append("c"))
    leaf = lake.written_leaf(vector_entry(lake, "dv4", C, [1]))
    late = delta(lake, "s2", leaf)
    lake.put(remove("r", removed(C)))
    lake.put(append("again", data_file("c")))
    assert codes(lake.put(late)) == ["row-conflict"]


def test_a_vector_of_a_file_that_is_not_live_is_refused(lake: Lake) -> None:
    leaf = lake.written_leaf(vector_entry(lake, "dv4", "data/no.parquet", [1]))
    assert codes(lake.put(delta(lake, "s2", leaf))) == ["file-not-live"]


def test_a_vector_of_a_file_that_comes_in_the_same_intent_is_accepted(lake: Lake) -> None:
    data = leaf_of(lake, "c")
    deletes = lake.written_leaf(vector_entry(lake, "dv4", C, [4]), belongs_to=data.location)
    assert codes(lake.put(delta(lake, "s2", data, deletes))) == [None]
    assert lake.deleted_rows()[C] == {4}
    assert state_violations(lake.head) == []


@pytest.mark.parametrize(
    ("lie", "code"),
    [
        ({"content_stats": {CARRIER: FieldStatistics("AA", "AA")}}, "leaf-invalid"),
        ({"content_stats": {}}, "statistics-missing"),
        ({"record_count": 5}, "vector-invalid"),
        ({"location": "data/elsewhere.puffin"}, "vector-invalid"),
        ({"location": "../x.puffin"}, "location-invalid"),
        ({"version_info": VersionInfo(Status.ADDED, None, 1, 1)}, "leaf-invalid"),
    ],
)
def test_a_vectors_entry_that_lies_is_refused(lake: Lake, lie: dict[str, object], code: str) -> None:
    lake.put(append("c"))
    leaf = lake.written_leaf(vector_entry(lake, "dv4", C, [1], **lie))
    assert codes(lake.put(delta(lake, "s2", leaf))) == [code]


def test_affinity_to_a_leaf_without_the_data_file_is_refused(lake: Lake) -> None:
    owner = shown_leaves(lake)[0].location
    lake.put(append("c"))
    leaf = lake.written_leaf(vector_entry(lake, "dv4", C, [1]), belongs_to=owner)
    assert codes(lake.put(delta(lake, "s2", leaf))) == ["leaf-invalid"]


def test_one_data_file_cannot_get_two_vectors(lake: Lake) -> None:
    lake.put(append("c"))
    one, two = (lake.written_leaf(vector_entry(lake, name, C, [1])) for name in ("x", "y"))
    assert codes(lake.put(delta(lake, "s2", one, two))) == ["file-named-twice"]


def test_an_equality_delete_in_a_leaf_has_its_intents_number(lake: Lake) -> None:
    file = equality_delete("e", 3, "UA")
    leaf = lake.written_leaf(
        dataclasses.replace(
            new_entry(file), content_type=ContentType.EQUALITY_DELETE, equality_ids=(ID,), sort_order_id=None
        )
    )
    assert codes(lake.put(delta(lake, "s2", leaf))) == [None]
    [found] = [item for item in lake.live().values() if item.content_type is ContentType.EQUALITY_DELETE]
    assert found.version_info.sequence_number == lake.head.header.snapshot.sequence_number
    assert lake.head.header.totals.equality_deletes == 1
    assert state_violations(lake.head) == []


def test_an_equality_delete_of_no_column_is_refused(lake: Lake) -> None:
    file = equality_delete("e", 3, "UA")
    leaf = lake.written_leaf(
        dataclasses.replace(new_entry(file), content_type=ContentType.EQUALITY_DELETE, equality_ids=(99,))
    )
    assert codes(lake.put(delta(lake, "s2", leaf))) == ["intent-malformed"]


def test_without_deletes_it_is_no_row_delta(lake: Lake) -> None:
    assert codes(lake.put(delta(lake, "s2", leaf_of(lake, "c")))) == ["intent-malformed"]


def test_removing_the_data_file_removes_its_vector_from_its_leaf(lake: Lake) -> None:
    lake.put(remove("r", removed(A, seen_vector(lake.head, A))))
    assert lake.deleted_rows() == {B: {2}}
    assert len(lake.head.live.manifest_vector_rows) == 2
    assert state_violations(lake.head) == []


def test_a_leaf_that_changes_owner_in_the_very_next_root_is_not_added_again() -> None:
    lake = new_lake()
    data = leaf_of(lake, "a", "b")
    lake.put(adding("s0", data))
    deletes = lake.written_leaf(vector_entry(lake, "dv1", A, [1]))
    lake.put(delta(lake, "s1", deletes))
    lake.put(lake.compaction("m", replaces=(), reaffiliate={deletes.location: data.location}))
    row = lake.head.live.leaf_rows[deletes.location].entry
    assert (row.referenced_file, row.version_info.status) == (data.location, Status.EXISTING)
    assert row.version_info.sequence_number == lake.head.header.snapshot.sequence_number - 1
    assert lake.deleted_rows() == {A: {1}, B: set()}
    assert lake.head.header.totals.vectors == 1
    assert state_violations(lake.head) == []
