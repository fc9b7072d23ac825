"""What the metadata of an export says agrees with the table's own history."""

from __future__ import annotations

import dataclasses
import json
import uuid
from collections.abc import Iterator
from dataclasses import replace

import pytest
from pyiceberg.manifest import ManifestContent, ManifestEntry, ManifestEntryStatus
from pyiceberg.table import StaticTable

from rootline.catalog.adoption_plan import AdoptedHistory
from rootline.catalog.export_keys import ExportFolder, FormatVersion, snapshots_of
from rootline.catalog.export_memory import TableMemory
from rootline.catalog.table_metadata import VERSION, metadata_json, read_metadata
from rootline.connect import connect
from rootline.schemas.errors import Corrupt
from rootline.schemas.identifiers import Version
from rootline.tree.parts.tags import CHANGED_TAGS
from tests.catalog.exported_lake import TABLE, V2, V3, ExportedLake, long_story, metadata_of, rows


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExportedLake]:
    """A table with a long story; nobody changes it."""
    folder = tmp_path_factory.mktemp("told") / "lake"
    with connect(folder) as lake:
        own = {"owner": "us", "write.format.default": "orc", "commit.retry.num-retries": "20"}
        never = {"gc.enabled": "true", "write.metadata.path": "/elsewhere"}
        made = ExportedLake(folder, lake, **own, **never)
        long_story(made)
        yield made


@pytest.mark.parametrize("format_version", [V2, V3])
def test_snapshots_log_and_refs_agree_with_the_history(told: ExportedLake, format_version: FormatVersion) -> None:
    opened = told.opened(format_version)
    everything = list(reversed(told.table.history(limit=100)))
    history = [header for header in everything if CHANGED_TAGS not in header.snapshot.summary][-10:]
    tagged = [header for header in everything if header.version == 6]
    expected = [*tagged, *history]
    shown = opened.inspect.snapshots().to_pylist()
    assert [(row["snapshot_id"], row["operation"]) for row in shown] == [
        (header.snapshot.snapshot_id, header.snapshot.operation.value) for header in expected
    ]
    assert [row["parent_id"] for row in shown[2:]] == [row["snapshot_id"] for row in shown[1:-1]]
    assert [row["parent_id"] for row in shown[:2]] == [header.snapshot.parent_id for header in expected[:2]]
    assert [int(row["committed_at"].timestamp() * 1000) for row in shown] == [
        header.snapshot.timestamp_ms for header in expected
    ]
    for row, header in zip(shown, expected, strict=True):
        summary = dict(row["summary"])
        assert summary.pop("rootline.version") == str(header.version)
        assert summary == dict(header.snapshot.summary)
    log = opened.inspect.history().to_pylist()
    assert [row["snapshot_id"] for row in log] == [header.snapshot.snapshot_id for header in history]
    current = history[-1].snapshot.snapshot_id
    assert opened.metadata.current_snapshot_id == current
    refs = {row["name"]: (row["type"], row["snapshot_id"]) for row in opened.inspect.refs().to_pylist()}
    assert refs == {"main": ("BRANCH", current), "before": ("TAG", tagged[0].snapshot.snapshot_id)}


def entries_of(opened: StaticTable) -> list[ManifestEntry]:
    """All entries of the current snapshot, of data files, those that it removed too."""
    snapshot = opened.current_snapshot()
    assert snapshot is not None
    manifests = [each for each in snapshot.manifests(opened.io) if each.content is ManifestContent.DATA]
    return [entry for each in manifests for entry in each.fetch_manifest_entry(opened.io, discard_deleted=False)]


def test_each_snapshot_shows_what_its_root_added_and_what_is_live_no_more(told: ExportedLake) -> None:
    def live(version: int) -> set[str]:
        return {task.location for task in told.table.scan(version=version).plan()}

    for version in range(1, told.head + 1):
        opened = told.opened(V3, version)
        own = [entry for entry in entries_of(opened) if entry.snapshot_id == opened.metadata.current_snapshot_id]
        changes = told.table.changes(from_version=version - 1, to_version=version)
        removed = live(version - 1) - live(version)  # a root shows no sources of a rewrite
        assert removed >= {file.location for file in changes.removed_files}
        for status, names in (
            (ManifestEntryStatus.ADDED, [file.location for file in changes.added_files]),
            (ManifestEntryStatus.DELETED, removed),
        ):
            found = sorted(entry.data_file.file_path for entry in own if entry.status is status)
            assert found == sorted(f"{told.base_url}/demo/flights/{name}" for name in names), version


@pytest.mark.parametrize("format_version", [V2, V3])
def test_files_carry_the_numbers_of_their_entries(told: ExportedLake, format_version: FormatVersion) -> None:
    live = [
        entry for entry in entries_of(told.opened(format_version)) if entry.status is not ManifestEntryStatus.DELETED
    ]
    found = {entry.data_file.file_path: entry for entry in live}
    plan = told.table.scan().plan()
    for task in plan:
        entry, info = found[f"{told.base_url}/demo/flights/{task.location}"], task.data.version_info
        assert (entry.sequence_number, entry.file_sequence_number, entry.snapshot_id) == (
            info.sequence_number,
            info.file_sequence_number,
            info.snapshot_id,
        )
    assert len(live) == len(found) == len(plan)


def test_pyiceberg_shows_entries_and_files(told: ExportedLake) -> None:
    for format_version in (V2, V3):
        opened = told.opened(format_version, 8)
        shown = opened.inspect.entries().to_pylist()
        data = [
            row["data_file"]["file_path"] for row in shown if row["data_file"]["content"] == 0 and row["status"] != 2
        ]
        assert sorted(data) == sorted(row["file_path"] for row in opened.inspect.data_files().to_pylist())
        assert sorted(data) == sorted(task.file.file_path for task in opened.scan().plan_files())
        vectors = sum(len(task.vectors) for task in told.table.scan(version=8).plan())
        assert opened.inspect.delete_files().num_rows == vectors > 0


def test_row_ids_go_on_from_snapshot_to_snapshot_in_v3_only(told: ExportedLake) -> None:
    headers = {header.snapshot.snapshot_id: header for header in told.table.history(limit=100)}
    metadata = metadata_of(told.export(V3))
    assert metadata["next-row-id"] == told.table.head().row_ids.next
    for snapshot in metadata["snapshots"]:
        header = headers[snapshot["snapshot-id"]]
        parent = headers[snapshot["parent-snapshot-id"]]
        assert snapshot["first-row-id"] == parent.row_ids.next
        assert snapshot["first-row-id"] + snapshot["added-rows"] == header.row_ids.next
    first = metadata_of(told.export(V3, 1))["snapshots"][0]
    assert (first["first-row-id"], first["added-rows"], first.get("parent-snapshot-id")) == (0, 20, None)
    older = metadata_of(told.export(V2))
    assert "next-row-id" not in older
    assert not any({"first-row-id", "added-rows"} & snapshot.keys() for snapshot in older["snapshots"])


@pytest.mark.parametrize("format_version", [V2, V3])
def test_the_label_the_numbers_and_the_properties_are_right(told: ExportedLake, format_version: FormatVersion) -> None:
    found = told.export(format_version)
    metadata, head = metadata_of(found), told.table.head()
    assert metadata["format-version"] == int(format_version)
    assert metadata["table-uuid"] == str(head.table_uuid)
    assert metadata["last-sequence-number"] == head.snapshot.sequence_number
    assert metadata["last-updated-ms"] == head.snapshot.timestamp_ms == found.snapshot_timestamp_ms
    properties = metadata["properties"]
    assert properties.pop("rootline.export-digest")
    assert properties == {
        "owner": "us",
        "write.format.default": "orc",
        "gc.enabled": "false",
        "commit.manifest-merge.enabled": "false",
        "commit.retry.max-wait-ms": "1000",
        "commit.retry.num-retries": "20",
        "write.metadata.path": f"{told.base_url}/demo/flights/rest/metadata",
        "rootline.definition-digest": head.definition.digest.hex(),
        "rootline.expire": "true",
        "rootline.sweep": "true",
        "rootline.table": "demo.flights",
        "rootline.version": str(head.version),
    }


def test_an_empty_table_has_no_snapshot_and_its_first_has_no_parent(exported: ExportedLake) -> None:
    for format_version in (V2, V3):
        with exported.lake.table(TABLE).alter() as change:
            change.add_column(f"of_{int(format_version)}", "int")
        exported.table = exported.lake.table(TABLE)
        exported.table.tag(f"empty{int(format_version)}")
        opened = exported.opened(format_version)
        assert (opened.snapshots(), opened.current_snapshot(), opened.refs()) == ([], None, {})
        assert opened.schema().column_names[-1] == f"of_{int(format_version)}"
        assert opened.scan().to_arrow().num_rows == 0
    exported.table.append(rows(1))
    opened = exported.opened()
    assert [each.parent_snapshot_id for each in opened.snapshots()] == [None]
    assert opened.refs().keys() == {"main"}


def test_versions_that_change_no_row_are_no_snapshot_and_their_export_has_what_they_changed(
    exported: ExportedLake,
) -> None:
    exported.table.append(rows(1, 2))
    exported.table.append(rows(3))
    current, seen = exported.opened().current_snapshot(), exported.export()
    with exported.table.alter() as change:
        change.add_column("later", "int")
    exported.table = exported.lake.table(TABLE)
    altered = exported.export()
    assert (altered.version, altered.metadata_location != seen.metadata_location) == (exported.head, True)
    exported.table.tag("here")
    exported.lake.drop_table(TABLE)
    exported.lake.restore_table(TABLE)
    exported.table.append(rows(4))
    exported.flush()
    named = metadata_of(exported.export(V3, exported.head - 2))
    opened = exported.opened(V3, exported.head - 2)
    assert [each.snapshot_id for each in opened.snapshots()][-1] == current.snapshot_id if current else False
    assert opened.schema().column_names[-1] == "later"
    assert opened.refs()["here"].snapshot_id == named["current-snapshot-id"] == named["snapshot-log"][-1]["snapshot-id"]
    assert named["last-updated-ms"] > named["snapshots"][-1]["timestamp-ms"]
    newest = metadata_of(exported.export())["snapshots"]
    ids = [each["snapshot-id"] for each in newest]
    assert [each["summary"]["rootline.version"] for each in newest[:2]] == ["1", "2"]
    assert [each.get("parent-snapshot-id") for each in newest] == [None, *ids[:-1]]
    assert len(newest) == 4, "what moves files is a snapshot, as before"
    assert metadata_of(exported.export(exporter=exported.fresh())) == metadata_of(exported.export())


def test_a_table_says_how_many_snapshots_its_exports_name(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("few") / "lake"
    with connect(folder) as lake:
        few = ExportedLake(folder, lake, **{"rootline.export.snapshots": "3"})
        for number in range(5):
            few.table.append(rows(number))
        assert [snapshot["summary"]["rootline.version"] for snapshot in metadata_of(few.export())["snapshots"]] == [
            "3",
            "4",
            "5",
        ]


def test_the_window_holds_what_is_addressable_and_tagged(told: ExportedLake) -> None:
    header = told.table.head()
    memory = TableMemory(ExportFolder.of(told.base_url, TABLE, V3))
    assert memory.readable_of(header) == (0, {"before": 6})
    named = [int(each["summary"]["rootline.version"]) for each in metadata_of(told.export())["snapshots"]]
    assert named == [6, *range(header.version - 9, header.version + 1)]
    oldest = Version(header.version - 2)
    expired = dataclasses.replace(header, versions=replace(header.versions, oldest=oldest), tags={"a": 1, "b": 10_000})
    assert memory.readable_of(expired) == (oldest, {"a": 1})
    memory.meet(dataclasses.replace(expired, tags={}))
    assert memory.readable_of(expired) == (oldest, {}), "the head has no tag of it any more"
    assert memory.readable_of(header) == (oldest, {})
    for value in ("0", "many", "-1"):  # no coordinator takes it any more; a table may have it from before
        assert snapshots_of({"rootline.export.snapshots": value}) == 10


def test_stored_metadata_is_believed_only_if_it_is_whole_and_its_own(told: ExportedLake) -> None:
    found = told.export()
    folder, version = ExportFolder.of(told.base_url, TABLE, V3), Version(told.head)
    stored = read_metadata(found.metadata, folder, version, told.table.head().table_uuid)
    assert stored.current is not None
    assert stored.current["snapshot-id"] == told.table.head().snapshot.snapshot_id
    assert stored.version == version
    for place in range(0, len(found.metadata), 97):
        flipped = bytearray(found.metadata)
        flipped[place] ^= 4
        with pytest.raises(Corrupt, match=r"-\d+\.metadata\.json: its bytes do not match its digest"):
            read_metadata(bytes(flipped), folder, version, None)
    for other in (
        (ExportFolder.of("file:///elsewhere", TABLE, V3), version, None),
        (ExportFolder.of(told.base_url, TABLE, V2), version, None),
        (folder, Version(version - 1), None),
        (folder, version, uuid.UUID(int=9)),
    ):
        with pytest.raises(Corrupt, match="it belongs to "):
            read_metadata(found.metadata, *other)


def test_a_time_between_a_tagged_snapshot_and_the_window_is_not_answered_by_the_tag(told: ExportedLake) -> None:
    opened = told.opened()
    tagged, *listed = opened.metadata.snapshots
    assert opened.snapshot_as_of_timestamp(listed[0].timestamp_ms) == listed[0]
    assert opened.snapshot_as_of_timestamp(listed[0].timestamp_ms - 1) is None
    assert opened.snapshot_by_name("before") == tagged


def test_a_snapshot_from_before_an_adoption_whose_id_is_one_of_ours_is_left_out(told: ExportedLake) -> None:
    """Tables that were adopted from exports while they kept the uuid have such ids."""
    header, own = told.table.head(), metadata_of(told.export(V3))["snapshots"]
    first = {**own[-1], "summary": {**own[-1]["summary"], VERSION: "0"}}
    first.pop("parent-snapshot-id", None)
    twin, older = {**first, "manifest-list": "of-the-origin.avro"}, {**first, "snapshot-id": 5}
    log = tuple({"snapshot-id": each["snapshot-id"], "timestamp-ms": 1} for each in (older, twin))
    folder = ExportFolder.of(told.base_url, TABLE, V3)
    before = AdoptedHistory((older, twin), log)
    found = json.loads(metadata_json(header, {"properties": {}}, folder, [first], {}, before))
    assert found["snapshots"] == [older, first]
    assert [each["snapshot-id"] for each in found["snapshot-log"]] == [5, first["snapshot-id"]]
