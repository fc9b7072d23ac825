"""A batch of rejections makes a version that is neither in the history nor among the snapshots of an export."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable

import rootline
from rootline.client.lake import Lake
from rootline.client.table_handle import TableHandle
from rootline.schemas.identifiers import Version, snapshot_id_of
from rootline.schemas.intent import Intent, IntentKind, RemovedFile
from rootline.schemas.verdict import VerdictKind
from rootline.workers.kinds import BY_HAND, maintain


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with rootline.connect(tmp_path / "lake") as opened:
        yield opened


@pytest.fixture
def table(lake: Lake) -> TableHandle:
    made = lake.create_table("demo.t", pa.schema([("id", pa.int64())]))
    made.append({"id": [1, 2]})
    return made


def reject(lake: Lake) -> int:
    """A batch whose only intent is rejected; the version that records it."""
    removal = (RemovedFile(location="data/none.parquet"),)
    intent = Intent(intent_id=uuid.uuid4().hex, table="demo.t", kind=IntentKind.REMOVE, remove_files=removal)
    with lake.producer() as producer:
        assert producer.publish(intent).verdict(30).kind is VerdictKind.REJECTED
    return lake.table("demo.t").head().version


def maintained(table: TableHandle, kind: str) -> int:
    async def once(session: Any) -> Any:
        return await maintain(session.store, session.log, session.environment, table.name, BY_HAND[kind], dry_run=False)

    version = table._lake.holder.run(once).version
    assert version is not None
    return int(version)


def exported(table: TableHandle, format_version: int, version: int | None = None) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(table.export(format_version, version).metadata)
    return found


def shown(table: TableHandle, **options: Any) -> list[int]:
    return [int(header.version) for header in table.history(**options)]


def listed(metadata: dict[str, Any]) -> list[int]:
    return [int(snapshot["summary"]["rootline.version"]) for snapshot in metadata["snapshots"]]


def test_the_history_leaves_out_versions_that_only_record_verdicts(lake: Lake, table: TableHandle) -> None:
    hidden = {reject(lake), reject(lake)}
    table.delete_where("id = 1")
    hidden.add(reject(lake))
    table.tag("told")
    hidden.add(reject(lake))
    maintained(table, "flush")
    table.append({"id": [5]})
    maintained(table, "flush")
    maintained(table, "compact")
    hidden.add(reject(lake))
    head = table.head().version
    everything = list(range(head, -1, -1))
    assert len(hidden) == 5
    assert shown(table, limit=100, everything=True) == everything
    assert shown(table, limit=100) == [version for version in everything if version not in hidden]
    assert shown(table, limit=3) == shown(table, limit=100)[:3]
    assert shown(table, limit=3, everything=True) == everything[:3]
    for limit in range(1, head + 2):
        assert shown(table, limit=limit) == shown(table, limit=100)[:limit]


def test_removals_from_a_leaf_that_are_folded_into_one_vector_are_no_change_of_their_own(
    lake: Lake, table: TableHandle
) -> None:
    for number in range(3, 6):
        table.append({"id": [number]})
    maintained(table, "flush")
    table.delete_where("id = 3")
    table.delete_where("id = 4")
    hidden = reject(lake)
    assert hidden not in shown(table, limit=100)
    assert table.export(3).version == hidden - 1


@pytest.mark.parametrize("format_version", [2, 3])
def test_an_export_has_no_snapshot_of_such_a_version_and_names_no_such_parent(
    lake: Lake, table: TableHandle, tmp_path: Path, format_version: int
) -> None:
    before = table.export(format_version)
    first = reject(lake)
    again = table.export(format_version)
    assert (again.metadata_location, again.metadata) == (before.metadata_location, before.metadata)
    assert again.version == first - 1
    table.append({"id": [3]})
    last = reject(lake)

    metadata = exported(table, format_version)
    assert listed(metadata) == [1, 3]
    ids = [snapshot["snapshot-id"] for snapshot in metadata["snapshots"]]
    assert [snapshot.get("parent-snapshot-id") for snapshot in metadata["snapshots"]] == [None, *ids[:-1]]
    assert metadata["current-snapshot-id"] == metadata["refs"]["main"]["snapshot-id"] == ids[-1]
    assert [entry["snapshot-id"] for entry in metadata["snapshot-log"]] == ids
    assert exported(table, format_version, last) == metadata
    opened = StaticTable.from_metadata(table.export(format_version).metadata_location)
    assert sorted(opened.scan().to_arrow().column("id").to_pylist()) == [1, 2, 3]
    for is_new in (False, True):
        if is_new:
            shutil.rmtree(tmp_path / "lake/demo/t/export")
        with rootline.connect(tmp_path / "lake", coordinator="elsewhere") as other:
            assert exported(other.table("demo.t"), format_version) == metadata, "another exporter makes the same"


def test_versions_that_only_record_verdicts_can_be_read_tagged_and_compared(lake: Lake, table: TableHandle) -> None:
    hidden = reject(lake)
    table.append({"id": [3]})
    table.tag("rejected-then", version=hidden)
    assert table.scan(version=hidden).count() == 2
    snapshot_id = snapshot_id_of(table.head().table_uuid, Version(hidden))
    assert table.scan(snapshot_id=snapshot_id).count() == 2
    assert not table.changes(from_version=hidden - 1, to_version=hidden)
    metadata = exported(table, 3)
    [one] = [each["snapshot-id"] for each in metadata["snapshots"] if each["summary"]["rootline.version"] == "1"]
    assert metadata["refs"]["rejected-then"]["snapshot-id"] == one


def test_more_rejections_than_an_export_has_snapshots_push_none_out_of_it(lake: Lake, table: TableHandle) -> None:
    for _ in range(12):
        reject(lake)
    table.append({"id": [3]})
    assert listed(exported(table, 3)) == [1, 14]
