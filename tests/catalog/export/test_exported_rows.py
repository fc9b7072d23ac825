"""PyIceberg reads from an export what a scan of the table gives, at every version."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyiceberg.manifest import DataFileContent, ManifestContent, ManifestEntry, ManifestEntryStatus
from pyiceberg.table import StaticTable

from rootline.catalog.export_keys import FormatVersion
from rootline.connect import connect
from tests.catalog.exported_lake import V2, V3, ExportedLake, delete_by_id, long_story, rows, sorted_rows

FILE_PATH = 2147483546


def deletes_of(opened: StaticTable) -> list[ManifestEntry]:
    """The live deletes of the current snapshot."""
    found = entries_of(opened, ManifestContent.DELETES)
    return [entry for entry in found if entry.status is not ManifestEntryStatus.DELETED]


def entries_of(opened: StaticTable, content: ManifestContent) -> list[ManifestEntry]:
    """All entries of the current snapshot, if there is one, those that it removed too."""
    snapshot = opened.current_snapshot()
    manifests = [each for each in snapshot.manifests(opened.io) if each.content is content] if snapshot else []
    return [entry for each in manifests for entry in each.fetch_manifest_entry(opened.io, discard_deleted=False)]


@pytest.mark.parametrize("format_version", [V2, V3])
def test_every_version_of_a_long_story_is_read_as_it_is_scanned(
    exported: ExportedLake, format_version: FormatVersion
) -> None:
    long_story(exported)
    for version in range(exported.head + 1):
        ours = exported.table.scan(version=version).to_arrow()
        theirs = exported.opened(format_version, version).scan().to_arrow()
        assert sorted_rows(theirs) == sorted_rows(ours), version
        assert len(ours) > 0 or version == 0


@pytest.mark.parametrize("format_version", [V2, V3])
def test_each_commit_is_exported_right_after_it(exported: ExportedLake, format_version: FormatVersion) -> None:
    for number in range(4):
        exported.table.append(rows(*range(10 * number, 10 * number + 10)))
        if number == 2:
            exported.flush()
        read = exported.opened(format_version).scan().to_arrow()
        assert sorted_rows(read) == sorted_rows(exported.table.scan().to_arrow())


def test_an_older_snapshot_is_read_from_the_newest_metadata(exported: ExportedLake) -> None:
    long_story(exported)
    opened = exported.opened()
    for header in exported.table.history(limit=10):
        theirs = opened.scan(snapshot_id=header.snapshot.snapshot_id).to_arrow()
        assert sorted_rows(theirs) == sorted_rows(exported.table.scan(version=header.version).to_arrow())


def test_filters_find_what_is_there_through_partitions_and_statistics(exported: ExportedLake) -> None:
    long_story(exported)
    opened = exported.opened()
    for where in ("carrier = 'UA'", "carrier is null", "id = 35", "delay > 15 and carrier = 'AA'", "id < 0"):
        theirs = opened.scan(row_filter=where).to_arrow()
        assert sorted_rows(theirs) == sorted_rows(exported.table.scan(where).to_arrow()), where


@pytest.mark.parametrize("format_version", [V2, V3])
def test_rows_that_equality_deletes_took_are_gone_for_engines_too(
    exported: ExportedLake, format_version: FormatVersion
) -> None:
    table = exported.table
    table.append(rows(*range(30)))
    delete_by_id(exported, 4, 5, 100)
    table.append(rows(4))  # came later: stays
    table.delete_where("id = 6 or id = 5")
    exported.flush()
    delete_by_id(exported, 8, 12)
    table.append(rows(*range(40, 45)))
    exported.flush()
    exported.compact()
    table.overwrite(rows(12), where="id = 13")
    for version in range(exported.head + 1):
        opened = exported.opened(format_version, version)
        assert sorted_rows(opened.scan().to_arrow()) == sorted_rows(table.scan(version=version).to_arrow()), version
        assert not [
            entry for entry in deletes_of(opened) if entry.data_file.content is DataFileContent.EQUALITY_DELETES
        ]
    again = exported.export(format_version, exporter=exported.fresh())
    assert again.cost.puts == 0
    table.append(rows(200))
    exported.export(format_version)
    assert not [key for key in exported.written if "/vectors/" in key or "/deletes/" in key]


@pytest.mark.parametrize("format_version", [V2, V3])
def test_a_data_file_has_one_delete(exported: ExportedLake, format_version: FormatVersion) -> None:
    exported.table.append(rows(*range(30)))
    exported.table.delete_where("id < 12")
    delete_by_id(exported, 14, 15)
    exported.table.delete_where("id = 20")
    targets = [entry.data_file.lower_bounds[FILE_PATH] for entry in deletes_of(exported.opened(format_version))]
    assert len(targets) == len(set(targets)) > 1


@pytest.mark.parametrize("format_version", [V2, V3])
def test_files_of_a_leaf_that_its_writer_wrote_are_added_by_its_snapshot(
    tmp_path: Path, format_version: FormatVersion
) -> None:
    with connect(tmp_path / "lake") as lake:
        made = ExportedLake(tmp_path / "lake", lake, **{"rootline.append.leaf-files": "2"})
        made.table.append(rows(*range(20)))
        made.table.delete_where("id = 3")
        made.table.append(rows(*range(20, 40)))
        made.table.overwrite(rows(50), where="id < 8")
        made.table.append(rows(60))
        assert made.table.tree().state.leaves
        for version in range(made.head + 1):
            opened = made.opened(format_version, version)
            ours = made.table.scan(version=version).to_arrow()
            assert sorted_rows(opened.scan().to_arrow()) == sorted_rows(ours), version
            own = opened.metadata.current_snapshot_id
            statuses = Counter(
                entry.status
                for entry in entries_of(opened, ManifestContent.DATA)
                if entry.snapshot_id == own and entry.status is not ManifestEntryStatus.EXISTING
            )
            summary = made.table.history(limit=100)[made.head - version].snapshot.summary
            assert statuses[ManifestEntryStatus.ADDED] == int(summary.get("added-data-files", 0))
            assert statuses[ManifestEntryStatus.DELETED] == int(summary.get("deleted-data-files", 0))
