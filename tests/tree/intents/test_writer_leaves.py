from __future__ import annotations

import dataclasses

import pytest

from rootline.schemas.content_entry import (
    ContentStats,
    ContentType,
    FieldStatistics,
    Status,
    VersionInfo,
)
from rootline.schemas.intent import AddedManifest, IntentKind
from rootline.tree.check.root_diff import diff
from rootline.tree.rules.leaf_rules import LEAVES_BYTES_MAX
from rootline.tree.state.live_index import ordinals_of_vector
from tests.support.state_rules import state_violations
from tests.tree.tables import (
    CARRIER,
    DELAY,
    ID,
    UNPARTITIONED,
    Lake,
    append,
    codes,
    data_file,
    new_lake,
    remove,
    removed,
)
from tests.tree.written import adding, entry, leaf_of, rejection, shown_leaves

A, B, C, D = (f"data/{name}.parquet" for name in "abcd")


@pytest.fixture
def lake() -> Lake:
    return new_lake(append("z"))


def test_an_appended_leaf_is_added_and_its_entries_inherit_the_commits_numbers(lake: Lake) -> None:
    lake.put(adding("l", leaf_of(lake, "a", "b")))
    [row] = shown_leaves(lake)
    assert row.version_info.status is Status.ADDED
    assert row.first_row_id == 10
    number = lake.head.header.snapshot.sequence_number
    snapshot = lake.head.header.snapshot.snapshot_id
    found = {entry.location: entry for entry in lake.live().values()}
    for name, first_row_id in ((A, 10), (B, 20)):
        assert found[name].version_info == VersionInfo(Status.ADDED, snapshot, number, number)
        assert found[name].first_row_id == first_row_id
    assert lake.head.header.row_ids.next == 30
    assert lake.head.header.snapshot.operation == "append"
    assert state_violations(lake.head) == []


def test_the_coordinator_works_out_the_aggregates_itself(lake: Lake) -> None:
    lake.put(adding("l", leaf_of(lake, "a", "b")))
    [row] = shown_leaves(lake)
    counts = row.manifest_stats
    assert counts is not None
    assert (counts.added_files_count, counts.added_rows_count, counts.existing_files_count) == (2, 20, 0)
    assert counts.min_sequence_number == row.version_info.sequence_number
    assert row.content_stats[ID] == FieldStatistics(0, 9, True, 20, 0)
    assert row.content_stats[CARRIER].lower_bound == "UA"


def test_the_next_root_shows_the_leaf_existing_and_its_entries_still_inherit(lake: Lake) -> None:
    lake.put(adding("l", leaf_of(lake, "a", "b")))
    before = lake.live()
    lake.put(append("c"))
    [row] = shown_leaves(lake)
    assert row.version_info.status is Status.EXISTING
    after = lake.live()
    assert all(after[place] == item for place, item in before.items())
    assert state_violations(lake.head) == []
    assert lake.reloaded_lake().live() == after


def test_the_snapshot_shows_the_files_of_its_leaf_as_added_and_the_next_one_does_not(lake: Lake) -> None:
    lake.put(adding("l", leaf_of(lake, "a", "b")))
    assert [item.location for item in diff(lake.head.root, lake.head.leaves).added] == [A, B]
    assert lake.head.header.snapshot.summary["added-data-files"] == "2"
    lake.put(append("c"))
    assert [item.location for item in diff(lake.head.root, lake.head.leaves).added] == [C]


def test_row_ids_go_to_named_files_first_and_then_to_leaves_in_order(lake: Lake) -> None:
    first, second = leaf_of(lake, "a"), leaf_of(lake, "b", "c")
    lake.put(adding("l", first, second, add_data_files=(data_file("d"),)), append("e"))
    found = {item.location: item.first_row_id for item in lake.live().values()}
    assert [found[name] for name in (D, A, B, C, "data/e.parquet")] == [10, 20, 30, 40, 50]
    assert lake.head.header.row_ids.next == 60


def test_a_leaf_that_follows_a_rejected_intent_has_the_numbers_of_its_own_intent(lake: Lake) -> None:
    lake.put(append("c"), append("c2", data_file("c")), adding("l", leaf_of(lake, "a")), append("d"))
    found = {item.location: item.version_info.sequence_number for item in lake.live().values()}
    assert (found[C], found[A], found[D]) == (3, 4, 5)


def test_a_file_removed_from_an_added_leaf_shows_as_removed_in_its_own_snapshot_only(lake: Lake) -> None:
    lake.put(adding("l", leaf_of(lake, "a", "b")))
    lake.put(remove("r", removed(A)))
    changes = diff(lake.head.root, lake.head.leaves)
    assert ([item.location for item in changes.removed], changes.added) == ([A], ())
    assert changes.removed[0].first_row_id == 10
    assert lake.head.header.totals.data_files == 2


def test_what_one_root_adds_in_a_leaf_and_removes_again_is_in_no_change(lake: Lake) -> None:
    lake.put(adding("l", leaf_of(lake, "a", "b")), remove("r", removed(A)))
    changes = diff(lake.head.root, lake.head.leaves)
    assert ([item.location for item in changes.added], changes.removed) == ([B], ())
    [mask] = [row.entry for rows in lake.head.live.manifest_vector_rows.values() for row in rows]
    assert mask.version_info.status is Status.EXISTING
    assert list(ordinals_of_vector(mask)) == [0]
    assert lake.head.header.totals.data_files == 2
    assert state_violations(lake.head) == []
    lake.put(remove("r2", removed(B)))
    assert [item.location for item in diff(lake.head.root, lake.head.leaves).removed] == [B]
    assert state_violations(lake.head) == []


def test_an_overwrite_replaces_files_by_a_leaf(lake: Lake) -> None:
    lake.put(adding("o", leaf_of(lake, "a"), kind=IntentKind.OVERWRITE, remove_files=(removed("data/z.parquet"),)))
    changes = diff(lake.head.root, lake.head.leaves)
    assert [item.location for item in changes.added] == [A]
    assert [item.location for item in changes.removed] == ["data/z.parquet"]
    assert lake.head.header.snapshot.operation == "overwrite"


def test_a_leaf_of_a_batch_that_lost_its_race_gets_the_numbers_of_the_root_that_lands(lake: Lake) -> None:
    manifest = leaf_of(lake, "a")
    other = dataclasses.replace(lake, states=[], bodies=[])
    other.put(adding("l", manifest))
    lake.put(append("first"))
    lake.put(adding("l", manifest))
    [row] = shown_leaves(lake)
    found = {item.location: item for item in lake.live().values()}[A]
    assert found.version_info.sequence_number == row.version_info.sequence_number == 4
    assert found.first_row_id == 20


def test_a_flushed_leaf_and_a_written_one_live_side_by_side(lake: Lake) -> None:
    lake.put(adding("l", leaf_of(lake, "a", "b")))
    lake.put(append("c"))
    lake.put(lake.flush("f", lake.leaf(lake.root_entries())))
    assert len(lake.head.leaves) == 2
    assert state_violations(lake.head) == []
    assert lake.head.header.row_ids.next == 40


class TestRefused:
    """Each is a verdict of its own, names leaf, entry and reason, and leaves nothing behind."""

    def refused(self, lake: Lake, *manifests: AddedManifest, **more: object) -> tuple[str | None, str]:
        before = set(lake.live())
        code, message = rejection(lake, adding("bad", *manifests, **more))
        assert set(lake.live()) == before
        assert lake.head.leaves == {}
        assert code is not None
        return code, message

    def test_a_leaf_that_does_not_exist(self, lake: Lake) -> None:
        manifest = leaf_of(lake, "a")
        del lake.leaves[manifest.location]
        code, message = self.refused(lake, manifest)
        assert code == "leaf-missing"
        assert manifest.location in message
        assert "store it" in message

    @pytest.mark.parametrize(
        "lie",
        [
            {"record_count": 3},
            {"file_size_in_bytes": 7},
            {"partition_spec_id": UNPARTITIONED},
        ],
        ids=str,
    )
    def test_a_leaf_that_is_not_what_the_intent_says(self, lake: Lake, lie: dict[str, object]) -> None:
        code, message = self.refused(lake, leaf_of(lake, "a", "b").model_copy(update=lie))
        assert code == "leaf-invalid"
        assert "intent states" in message

    def test_more_bytes_of_leaves_than_are_read_for_one_intent(self, lake: Lake) -> None:
        large = leaf_of(lake, "a").model_copy(update={"file_size_in_bytes": LEAVES_BYTES_MAX + 1})
        assert self.refused(lake, large)[0] == "intent-too-large"

    def test_a_spec_that_the_table_does_not_have(self, lake: Lake) -> None:
        assert self.refused(lake, leaf_of(lake, "a").model_copy(update={"partition_spec_id": 9}))[0] == "spec-unknown"

    def test_a_leaf_outside_the_tables_leaves(self, lake: Lake) -> None:
        manifest = leaf_of(lake, "a")
        for location in ("data/x.parquet", "../other/metadata/leaves/x.parquet", "s3://b/x.parquet"):
            lie = manifest.model_copy(update={"location": location})
            assert self.refused(lake, lie)[0] == "location-invalid"

    def test_a_delete_leaf_in_an_append(self, lake: Lake) -> None:
        lie = leaf_of(lake, "a").model_copy(update={"content_type": ContentType.DELETE_MANIFEST})
        assert self.refused(lake, lie)[0] == "leaf-invalid"

    @pytest.mark.parametrize(
        ("forged", "reason"),
        [
            (VersionInfo(Status.ADDED, snapshot_id=7), "has a snapshot_id"),
            (VersionInfo(Status.ADDED, None, 1), "has a sequence_number"),
            (VersionInfo(Status.ADDED, None, None, 9), "has a file_sequence_number"),
            (VersionInfo(Status.EXISTING, 7, 1, 1), "status is not ADDED"),
            (VersionInfo(Status.DELETED, 7, 1, 1), "status is not ADDED"),
        ],
    )
    def test_forged_numbers(self, lake: Lake, forged: VersionInfo, reason: str) -> None:
        manifest = lake.written_leaf(entry("a"), entry("b", version_info=forged))
        code, message = self.refused(lake, manifest)
        assert code == "leaf-invalid"
        assert manifest.location in message
        assert "entry 1 ('data/b.parquet')" in message
        assert reason in message

    @pytest.mark.parametrize(
        ("lie", "code", "reason"),
        [
            ({"first_row_id": 3}, "leaf-invalid", "first_row_id"),
            ({"sort_order_id": 5}, "leaf-invalid", "sort order"),
            ({"split_offsets": (-4, 100)}, "leaf-invalid", "negative"),
            ({"location": "../other/data/a.parquet"}, "location-invalid", ".."),
            ({"location": "s3://other/data/a.parquet"}, "location-invalid", "absolute"),
            ({"location": "data/%2e%2e/a.parquet"}, "location-invalid", "encoded"),
            ({"location": "data/" + "x" * 2000}, "location-invalid", "has 2005"),
            ({"location": "metadata/roots/a.avro"}, "location-invalid", "own objects"),
            ({"location": A}, "file-named-twice", "entry 0"),
            ({"location": "data/z.parquet"}, "file-already-live", "already"),
        ],
    )
    def test_an_entry_that_breaks_a_rule(self, lake: Lake, lie: dict[str, object], code: str, reason: str) -> None:
        manifest = lake.written_leaf(entry("a"), entry("b", **lie))
        found, message = self.refused(lake, manifest)
        assert (found, reason in message) == (code, True), message
        assert "entry 1" in message
        assert manifest.location in message

    @pytest.mark.parametrize(
        ("stats", "code"),
        [
            ({}, "statistics-missing"),
            ({CARRIER: FieldStatistics(None, "UA")}, "statistics-missing"),
            ({CARRIER: FieldStatistics("AA", "UA")}, "statistics-invalid"),
            ({ID: FieldStatistics(9, 0)}, "statistics-invalid"),
            ({ID: FieldStatistics(value_count=11)}, "statistics-invalid"),
            ({ID: FieldStatistics(value_count=10, null_value_count=6, nan_value_count=5)}, "statistics-invalid"),
            ({ID: FieldStatistics(value_count=10, null_value_count=2**63 - 1)}, "statistics-invalid"),
            ({ID: FieldStatistics(null_value_count=-1)}, "statistics-invalid"),
            ({ID: FieldStatistics(avg_value_size_in_bytes=9, max_value_size_in_bytes=8)}, "statistics-invalid"),
            ({DELAY: FieldStatistics(float("nan"), 1.0)}, "statistics-invalid"),
        ],
    )
    def test_statistics_that_cannot_be(self, lake: Lake, stats: ContentStats, code: str) -> None:
        wrong = dict(stats) if code == "statistics-missing" else {CARRIER: FieldStatistics("UA", None), **stats}
        manifest = lake.written_leaf(entry("a"), entry("b", content_stats=wrong))
        found, message = self.refused(lake, manifest)
        assert found == code
        assert "entry 1" in message

    def test_one_file_in_two_leaves_of_an_intent(self, lake: Lake) -> None:
        code, message = self.refused(lake, leaf_of(lake, "a", "b"), leaf_of(lake, "c", "b"))
        assert code == "file-named-twice"
        assert B in message

    def test_one_file_in_a_leaf_and_beside_it(self, lake: Lake) -> None:
        found = self.refused(lake, leaf_of(lake, "a", "b"), add_data_files=(data_file("b"),))
        assert found[0] == "file-named-twice"

    def test_a_leaf_named_twice(self, lake: Lake) -> None:
        manifest = leaf_of(lake, "a")
        assert self.refused(lake, manifest, manifest)[0] == "file-named-twice"


def test_a_partition_value_may_be_null_and_its_upper_bound_absent(lake: Lake) -> None:
    null, open_ended = FieldStatistics(None, None), FieldStatistics("UA", None)
    manifest = lake.written_leaf(
        entry("a", content_stats={CARRIER: null}), entry("b", content_stats={CARRIER: open_ended})
    )
    assert codes(lake.put(adding("l", manifest))) == [None]


def test_a_leaf_belongs_to_one_intent(lake: Lake) -> None:
    manifest = leaf_of(lake, "a")
    assert codes(lake.put(adding("one", manifest), adding("two", manifest))) == [None, "file-already-live"]
    assert codes(lake.put(adding("three", manifest))) == ["file-already-live"]


def test_the_same_intent_again_is_a_duplicate(lake: Lake) -> None:
    again = adding("one", leaf_of(lake, "a"), writer_id="w", writer_sequence=1)
    first, second = lake.put(again, again)
    assert (first.kind, second.kind) == ("committed", "duplicate")
    assert lake.put(again)[0].kind == "duplicate"


def test_a_file_live_in_another_leaf_cannot_come_again(lake: Lake) -> None:
    lake.put(adding("one", leaf_of(lake, "a", "b")))
    code, message = rejection(lake, adding("two", leaf_of(lake, "c", "b")))
    assert code == "file-already-live"
    assert "entry 1" in message
    lake.put(remove("r", removed(B)))
    assert codes(lake.put(adding("three", leaf_of(lake, "d", "b")))) == [None]
    assert state_violations(lake.head) == []


def test_one_bad_leaf_fails_no_neighbour(lake: Lake) -> None:
    bad = lake.written_leaf(entry("b", first_row_id=1))
    assert codes(lake.put(append("c"), adding("bad", bad), adding("good", leaf_of(lake, "a")))) == [
        None,
        "leaf-invalid",
        None,
    ]


def test_serializable_isolation_sees_what_a_leaf_added(lake: Lake) -> None:
    read = lake.head.header.snapshot.sequence_number
    lake.put(adding("l", leaf_of(lake, "a")))
    late = append("late", isolation="serializable", filter="id = 5", read_sequence_number=read)
    assert codes(lake.put(late)) == ["isolation-conflict"]
