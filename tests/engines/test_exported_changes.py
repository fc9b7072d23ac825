"""Clients find in an export what changed between any two of its snapshots, with the code of their own checks.

A client that commits compares what others committed since it read the table. It reads, for each snapshot in between,
the manifests that the snapshot's list ascribes to it. A change that these do not show is undone in silence.
"""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest
from pyiceberg.table import StaticTable
from pyiceberg.table.snapshots import Snapshot, ancestors_of
from pyiceberg.table.update.validate import _added_data_files, _added_delete_files, _deleted_data_files

from rootline import connect
from rootline.catalog.export_keys import FormatVersion
from rootline.client.lake import Lake
from rootline.schemas.identifiers import Version, snapshot_id_of
from tests.catalog.served_catalog import served
from tests.engines.changed_table import ChangedTable, Difference
from tests.engines.iceberg_spark import IcebergSpark
from tests.support.examples import drawn

STEPS = 22
EVERYTHING = 100


def shown(seed: int) -> int:
    """The number of versions that the exports of a drawn table list. For some it is all."""
    return (EVERYTHING, 6)[seed % 3 == 2]


def version_of(snapshot: Snapshot) -> int:
    assert snapshot.summary is not None
    return int(snapshot.summary["rootline.version"] or "")


def operation_of(snapshot: Snapshot) -> str:
    assert snapshot.summary is not None
    return str(snapshot.summary.operation.value)


def ancestors_of_main(opened: StaticTable) -> list[Snapshot]:
    current = opened.current_snapshot()
    return [] if current is None else list(ancestors_of(current, opened.metadata))


def is_version(opened: StaticTable, snapshot: Snapshot) -> bool:
    return snapshot.snapshot_id == snapshot_id_of(opened.metadata.table_uuid, Version(version_of(snapshot)))


def chain_of(opened: StaticTable) -> list[Snapshot]:
    """The versions of `main`, the oldest first."""
    return [each for each in ancestors_of_main(opened)[::-1] if is_version(opened, each)]


def others_of(opened: StaticTable) -> list[Snapshot]:
    """The snapshots of clients, which are no versions."""
    return [each for each in opened.snapshots() if not is_version(opened, each)]


def assert_clients_find_theirs(opened: StaticTable, world: ChangedTable, window: int) -> None:
    """Every job finds its newest words on the way to the oldest snapshot, and nobody comes to the other ids."""
    walked, versions, others = ancestors_of_main(opened), chain_of(opened), others_of(opened)
    for key, newest in world.words.items():
        found = [each.summary[key] for each in walked if each.summary is not None and each.summary[key] is not None]
        assert found[0] == newest
    behind = walked[len(versions) :]
    assert walked[: len(versions)] == versions[::-1], "words are behind the oldest version"
    beside = {each.snapshot_id for each in others} - {each.snapshot_id for each in behind}
    ids = [each.snapshot_id for each in opened.snapshots()]
    assert len(ids) == len(set(ids))
    assert not beside & {each.parent_snapshot_id for each in opened.snapshots()}
    assert not {each.snapshot_id for each in others} & {each.snapshot_id for each in opened.metadata.snapshot_log}
    lists = {version_of(each): each.manifest_list for each in opened.snapshots() if is_version(opened, each)}
    assert all(each.manifest_list == lists[version_of(each)] for each in others)
    is_whole = len(versions) < window
    assert {each.snapshot_id for each in others} <= world.client_ids
    assert not is_whole or {each.snapshot_id for each in others} == world.client_ids
    last = walked[-1].parent_snapshot_id
    assert last not in ids
    assert (last is None) == is_whole, "a reader that walked to the end knows whether it has seen everything"


def drawn_table(folder: Path, lake: Lake, seed: int) -> ChangedTable:
    world = ChangedTable(folder, lake, seed, **{"rootline.export.snapshots": str(shown(seed))})
    for _ in range(STEPS):
        world.step()
    return world


@pytest.mark.parametrize("seed", drawn(20))
def test_pyiceberg_finds_every_change_between_two_snapshots(tmp_path: Path, seed: int) -> None:
    with connect(tmp_path / "lake") as lake:
        world = drawn_table(tmp_path / "lake", lake, seed)
        steps = Difference(world).steps
        opened = StaticTable.from_metadata(world.table.export(FormatVersion(2 + seed % 2)).metadata_location)
        assert_clients_find_theirs(opened, world, shown(seed))
        chain = chain_of(opened)
        listed = [version_of(snapshot) for snapshot in chain]
        assert not [at for at, step in enumerate(steps) if step and at > listed[0] and at not in listed]
        operations = dict(zip(listed, map(operation_of, chain), strict=True))
        for older, newer in combinations(chain, 2):
            passed = [version for version in listed if version_of(older) < version <= version_of(newer)]
            case = f"{version_of(older)} to {version_of(newer)}: {[(at, operations[at]) for at in passed]}"
            removed = frozenset[str]().union(*(steps[at].removed for at in passed))
            found = _deleted_data_files(opened, newer, None, None, older)
            assert {entry.data_file.file_path for entry in found} == removed, case
            seen = [steps[at] for at in passed if operations[at] in ("append", "overwrite")]
            added = frozenset[str]().union(*(step.added for step in seen))
            entries = _added_data_files(opened, newer, None, None, older)
            assert {entry.data_file.file_path for entry in entries} == added, case
            seen = [steps[at] for at in passed if operations[at] in ("delete", "overwrite")]
            deleted_in = frozenset[str]().union(*(step.deleted_in for step in seen))
            assert deleted_in <= _added_delete_files(opened, newer, None, None, older)._by_path.keys(), case
            quiet = [steps[at] for at in passed if operations[at] in ("append", "replace")]
            assert not any(step.deleted_in for step in quiet), case


@pytest.mark.spark
@pytest.mark.services
@pytest.mark.slow
@pytest.mark.parametrize("seed", drawn(10))
def test_java_finds_every_change_of_a_snapshot(iceberg_spark: IcebergSpark, tmp_path: Path, seed: int) -> None:
    with connect(tmp_path / "lake") as lake, served(tmp_path / "lake") as address:
        world = drawn_table(tmp_path / "lake", lake, seed)
        steps, form = Difference(world).steps, 2 + seed % 2
        opened = StaticTable.from_metadata(world.table.export(FormatVersion(form)).metadata_location)
        iceberg_spark.rest_catalog(f"changes_{seed}", address, warehouse=f"v{form}")
        found = iceberg_spark.changes(f"changes_{seed}.demo.flights")
        nothing = {"added": [], "removed": [], "deleted_in": []}
        assert [found[each.snapshot_id] for each in others_of(opened)] == [nothing] * len(others_of(opened))
        for snapshot in chain_of(opened):
            step, seen, operation = steps[version_of(snapshot)], found[snapshot.snapshot_id], operation_of(snapshot)
            assert set(seen["removed"]) == step.removed, snapshot
            assert set(seen["added"]) == (step.added if operation in ("append", "overwrite") else set()), snapshot
            if operation in ("delete", "overwrite"):
                assert step.deleted_in <= set(seen["deleted_in"]), snapshot
