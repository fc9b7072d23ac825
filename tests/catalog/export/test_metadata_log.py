"""An export names the metadata of earlier definitions, and every metadata.json that it names is there."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from rootline import connect
from rootline.catalog import metadata_log
from rootline.catalog.export_keys import FormatVersion
from rootline.schemas.intent import Intent, IntentKind, RemovedFile
from tests.catalog.export.test_export_over_alter import with_struct_default
from tests.catalog.exported_lake import SCHEMA, TABLE, V3, ExportedLake, metadata_of, rows
from tests.engines.changed_table import ChangedTable
from tests.support.examples import drawn


def alter(exported: ExportedLake, **properties: str) -> int:
    """A new definition. Returns its version."""
    with exported.table.alter() as change:
        if properties:
            change.set_properties(properties)
        else:
            change.add_column(f"c{exported.head}", "int")
    exported.table = exported.lake.table(TABLE)
    return exported.head


def logged(exported: ExportedLake, version: int | None = None, **more: Any) -> list[int]:
    """The versions in the log, all of which must exist, with their own times. So must those that their logs name."""
    found = metadata_of(exported.export(V3, version, **more))
    return [each[0] for each in checked(found["metadata-log"])]


def checked(log: list[dict[str, Any]]) -> list[tuple[int, int]]:
    found = []
    for entry in log:
        named = json.loads(Path(entry["metadata-file"].removeprefix("file://")).read_bytes())
        assert named["last-updated-ms"] == entry["timestamp-ms"]
        checked(named["metadata-log"])
        found.append((int(named["properties"]["rootline.version"]), entry["timestamp-ms"]))
    assert found == sorted(found)
    return found


def test_the_log_names_the_last_version_of_each_earlier_definition(exported: ExportedLake) -> None:
    exported.table.append(rows(1))
    assert logged(exported) == [], "rows are listed as snapshots"
    first = alter(exported)
    assert logged(exported) == [first - 1]
    exported.table.append(rows(2))
    exported.table.append(rows(3))
    assert logged(exported) == [first - 1]
    second, third = alter(exported), alter(exported)
    assert (second, third) == (first + 3, first + 4)
    assert logged(exported) == [first - 1, first + 2, second]
    assert logged(exported, exporter=exported.fresh()) == [first - 1, first + 2, second]


def test_an_export_makes_what_its_log_names_and_normally_nothing(exported: ExportedLake) -> None:
    for number in range(3):
        exported.table.append(rows(number))
        alter(exported)
    exported.export()
    made = [name for name in exported.written if name.endswith(".metadata.json")]
    assert len(made) == 4, "the last versions of three definitions, and its own"
    assert made[-1].endswith(f"-{exported.head}.metadata.json"), "after all that it names"
    alter(exported)
    exported.export()
    assert len([name for name in exported.written if name.endswith(".metadata.json")]) == 1
    exported.table.append(rows(9))
    assert exported.export().cost.gets == 2


def test_an_entry_for_a_version_that_only_records_verdicts_is_the_one_before(exported: ExportedLake) -> None:
    exported.table.append(rows(1))
    shown = exported.head
    removal = (RemovedFile(location="data/none.parquet"),)
    header = exported.table.head()
    rejected = Intent(
        intent_id="a" * 32,
        table=TABLE,
        table_uuid=header.table_uuid,
        kind=IntentKind.REMOVE,
        remove_files=removal,
        writer_id="named",
        writer_sequence=1,
    )
    with exported.lake.producer() as producer:
        producer.publish(rejected).verdict(30)
    alter(exported)
    assert logged(exported) == [shown]


def test_a_property_limits_the_log(exported: ExportedLake) -> None:
    for _ in range(4):
        alter(exported)
    assert logged(exported) == [0, 1, 2, 3]
    alter(exported, **{"write.metadata.previous-versions-max": "2"})
    assert logged(exported) == [3, 4]
    alter(exported)
    assert logged(exported) == [4, 5]
    alter(exported, **{"write.metadata.previous-versions-max": "4"})
    assert logged(exported) == [3, 4, 5, 6]
    for unusable in ("many", "-1"):
        alter(exported, **{"write.metadata.previous-versions-max": unusable})
    assert logged(exported) == [*range(9)]
    alter(exported, **{"write.metadata.previous-versions-max": "0"})
    assert logged(exported) == []


def test_the_log_goes_as_far_back_as_the_snapshots_of_the_export(exported: ExportedLake) -> None:
    alter(exported, **{"rootline.export.snapshots": "3"})
    for _ in range(3):
        alter(exported)
    assert logged(exported) == [2, 3]
    alter(exported, **{"rootline.export.snapshots": "1"})
    assert logged(exported) == []


def test_a_log_stays_in_its_block_so_that_an_export_of_a_table_that_nobody_exported_makes_few(
    exported: ExportedLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata_log, "BLOCK_VERSIONS", 4)
    for _ in range(10):
        alter(exported)
    assert logged(exported) == [8, 9]
    assert len(list((exported.folder / "demo/flights/export").rglob("*.metadata.json"))) == 3
    assert logged(exported, 8) == []
    assert logged(exported, 7) == [4, 5, 6]
    exported.lake.drop_table(TABLE)
    exported.table = exported.lake.create_table(TABLE, SCHEMA)
    created = exported.head
    for _ in range(3):
        alter(exported)
    assert logged(exported) == [created, created + 1, created + 2], "the blocks of a new table begin with it"


def test_a_version_that_cannot_be_exported_is_not_in_the_log(tmp_path: Path) -> None:
    with connect(tmp_path / "lake") as lake:
        table = lake.create_table("demo.t", {"id": "long"})
        with table.alter() as change:
            change.add_column("place", {"x": "int"})
    with_struct_default(tmp_path / "lake/demo/t", "place")
    with connect(tmp_path / "lake") as lake:
        with lake.table("demo.t").alter() as change:
            change.drop_column("place")
        exported = lake.table("demo.t").export(3)
        assert [version for version, _ in checked(metadata_of(exported)["metadata-log"])] == [0]


@pytest.mark.parametrize("seed", drawn(8))
def test_every_way_to_an_export_gives_the_same_log(tmp_path: Path, seed: int) -> None:
    with connect(tmp_path / "lake") as lake:
        world = ChangedTable(tmp_path / "lake", lake, seed, **{"rootline.export.snapshots": str(4 + seed)})
        form = FormatVersion(2 + seed % 2)
        found = {}
        for _ in range(14):
            world.step()
            if world.rng.random() < 0.6:
                found[world.head] = world.export(form).metadata
        cold = world.fresh()
        for version, metadata in world.rng.sample(sorted(found.items()), len(found)):
            assert world.export(form, version, exporter=cold).metadata == metadata
            checked(json.loads(metadata)["metadata-log"])
        shutil.rmtree(tmp_path / "lake/demo/flights/export")
        for version, metadata in world.rng.sample(sorted(found.items()), len(found)):
            assert world.export(form, version, exporter=world.fresh()).metadata == metadata
            checked(json.loads(metadata)["metadata-log"])
