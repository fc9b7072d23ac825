"""Exports of a table whose columns change: manifests of what did not change are not written again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rootline.catalog.manifest.format_version import FormatVersion
from rootline.client.change.alter_table import TableChange
from rootline.connect import connect
from tests.catalog.exported_lake import V2, V3, ExportedLake, rows, sorted_rows
from tests.engines.duckdb_reader import open_duckdb

LEAVES = 8
Change = Callable[[TableChange], object]


@pytest.fixture
def leafy(tmp_path: Path) -> Any:
    """A table with several leaves and nothing beside them."""
    with connect(tmp_path / "lake") as lake:
        made = ExportedLake(tmp_path / "lake", lake, **{"rootline.append.leaf-files": "2"})
        for number in range(LEAVES):
            made.table.append(rows(*range(100 * number, 100 * number + 100)))
        assert made.table.head().totals.data_manifests == LEAVES
        yield made


def alter(exported: ExportedLake, change: Change) -> None:
    with exported.table.alter() as altered:
        change(altered)


def manifests(exported: ExportedLake) -> list[str]:
    return [key for key in exported.written if "/manifests/" in key]


def bytes_written(exported: ExportedLake) -> int:
    return sum((exported.folder / key).stat().st_size for key in exported.written)


ALTERS: dict[str, Change] = {
    "add": lambda change: change.add_column("gate", "string"),
    "add in front": lambda change: change.add_column("stand", "long").move_column("stand", first=True),
    "rename": lambda change: change.rename_column("delay", "late"),
    "drop": lambda change: change.drop_column("late"),
    "comment": lambda change: change.update_column("id", doc="who"),
    "property": lambda change: change.set_properties({"owner": "me"}),
}
"""Each can follow the ones before it."""


@pytest.mark.parametrize("format_version", [V2, V3])
def test_a_change_of_columns_writes_no_manifest_again(leafy: ExportedLake, format_version: FormatVersion) -> None:
    whole = leafy.export(format_version).cost
    before = bytes_written(leafy)
    assert whole.puts > len(manifests(leafy)) == LEAVES
    for name, change in ALTERS.items():
        alter(leafy, change)
        cost = leafy.export(format_version).cost
        assert manifests(leafy) == [], name
        assert cost.puts == 2, f"{name}: a manifest list and a metadata.json"
        assert bytes_written(leafy) < before / 2, name
        assert not [key for key in leafy.read if "/leaves/" in key], name


@pytest.mark.parametrize("format_version", [V2, V3])
def test_a_process_that_knows_nothing_gives_every_version_the_same_manifests(
    leafy: ExportedLake, format_version: FormatVersion
) -> None:
    alter(leafy, ALTERS["add in front"])
    leafy.export(format_version)
    first = set(manifests(leafy))
    older = leafy.export(format_version, leafy.head - 1, leafy.fresh())
    assert not set(manifests(leafy)) - first
    assert older.cost.puts <= 2


@pytest.mark.parametrize("format_version", [V2, V3])
def test_engines_read_old_and_new_manifests_together(leafy: ExportedLake, format_version: FormatVersion) -> None:
    leafy.export(format_version)
    alter(leafy, ALTERS["add"])
    leafy.table.append(rows(1001, 1002).append_column("gate", pa.array(["B1", None])))
    alter(leafy, ALTERS["rename"])
    leafy.table.append(pa.table({"id": [1003], "carrier": ["DL"], "late": [9.5], "gate": ["B2"]}))
    exported = leafy.export(format_version)
    assert len(manifests(leafy)) <= 3
    opened = leafy.opened(format_version)
    with open_duckdb() as duckdb:
        for where in ("gate = 'B1'", "gate is null", "late = 9.5", "id = 7", "id > 795", "carrier = 'DL'", "late < 1"):
            ours = sorted_rows(leafy.table.scan(where).to_arrow())
            assert ours
            assert sorted_rows(opened.scan(row_filter=where).to_arrow()) == ours, where
            assert sorted_rows(duckdb.rows(exported.metadata_location, where=where)) == ours, where
        assert sorted_rows(duckdb.rows(exported.metadata_location)) == sorted_rows(leafy.table.scan().to_arrow())


@pytest.mark.parametrize("format_version", [V2, V3])
def test_a_wider_type_writes_bounds_of_that_type(tmp_path: Path, format_version: FormatVersion) -> None:
    with connect(tmp_path / "lake") as lake:
        narrow = ExportedLake(tmp_path / "lake", lake)
        alter(narrow, lambda change: change.add_column("n", "int"))
        narrow.table.append(rows(1, 2, 3).append_column("n", pa.array([1, 2, 3], pa.int32())))
        narrow.flush()
        narrow.export(format_version)
        alter(narrow, lambda change: change.update_column("n", "long"))
        narrow.table.append(rows(4).append_column("n", pa.array([2**40])))
        exported = narrow.export(format_version)
        assert len(manifests(narrow)) >= 2
        opened = narrow.opened(format_version)
        with open_duckdb() as duckdb:
            for where in ("n = 2", "n > 3", "n < 2"):
                ours = sorted_rows(narrow.table.scan(where).to_arrow())
                assert ours
                assert sorted_rows(opened.scan(row_filter=where).to_arrow()) == ours, where
                assert sorted_rows(duckdb.rows(exported.metadata_location, where=where)) == ours, where
