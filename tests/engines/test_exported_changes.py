"""Clients find in an export what changed between any two of its snapshots, with the code of their own checks.

A client that commits compares what others committed since it read the table. It reads, for each snapshot in between,
the manifests that the snapshot's list ascribes to it. A change that these do not show is undone in silence.
"""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest
from pyiceberg.table import StaticTable
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update.validate import _added_data_files, _added_delete_files, _deleted_data_files

from rootline import connect
from rootline.catalog.export_keys import FormatVersion
from tests.catalog.served_catalog import served
from tests.engines.changed_table import ChangedTable, Difference
from tests.engines.iceberg_spark import IcebergSpark
from tests.support.examples import drawn

STEPS = 22
SHOWN = {"rootline.export.snapshots": "100"}


def version_of(snapshot: Snapshot) -> int:
    assert snapshot.summary is not None
    return int(snapshot.summary["rootline.version"] or "")


def operation_of(snapshot: Snapshot) -> str:
    assert snapshot.summary is not None
    return str(snapshot.summary.operation.value)


def chain_of(opened: StaticTable) -> list[Snapshot]:
    """The snapshots of `main`, the oldest first."""
    found = []
    current = opened.current_snapshot()
    while current is not None:
        found.append(current)
        parent = current.parent_snapshot_id
        current = None if parent is None else opened.snapshot_by_id(parent)
    return found[::-1]


@pytest.mark.parametrize("seed", drawn(20))
def test_pyiceberg_finds_every_change_between_two_snapshots(tmp_path: Path, seed: int) -> None:
    with connect(tmp_path / "lake") as lake:
        world = ChangedTable(tmp_path / "lake", lake, seed, **SHOWN)
        for _ in range(STEPS):
            world.step()
        steps = Difference(world).steps
        opened = StaticTable.from_metadata(world.table.export(FormatVersion(2 + seed % 2)).metadata_location)
        chain = chain_of(opened)
        shown = [version_of(snapshot) for snapshot in chain]
        assert not [version for version, step in enumerate(steps) if step and version not in shown]
        operations = dict(zip(shown, map(operation_of, chain), strict=True))
        for older, newer in combinations(chain, 2):
            passed = [version for version in shown if version_of(older) < version <= version_of(newer)]
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
        world = ChangedTable(tmp_path / "lake", lake, seed, **SHOWN)
        for _ in range(STEPS):
            world.step()
        steps, form = Difference(world).steps, 2 + seed % 2
        opened = StaticTable.from_metadata(world.table.export(FormatVersion(form)).metadata_location)
        iceberg_spark.rest_catalog(f"changes_{seed}", address, warehouse=f"v{form}")
        found = iceberg_spark.changes(f"changes_{seed}.demo.flights")
        for snapshot in chain_of(opened):
            step, seen, operation = steps[version_of(snapshot)], found[snapshot.snapshot_id], operation_of(snapshot)
            assert set(seen["removed"]) == step.removed, snapshot
            assert set(seen["added"]) == (step.added if operation in ("append", "overwrite") else set()), snapshot
            if operation in ("delete", "overwrite"):
                assert step.deleted_in <= set(seen["deleted_in"]), snapshot
