"""Exports of a table whose columns change: manifests of what did not change are not written again."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rootline.catalog.export_keys import FormatVersion
from rootline.client.alter_table import TableChange
from rootline.connect import connect
from rootline.schemas.bytes.root.root_codec import decode_root, encode_root
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import Location
from rootline.schemas.table_definition import TableDefinition
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
        assert cost.puts == 1, f"{name}: a metadata.json with the snapshot of before"
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


def with_struct_default(folder: Path, column: str) -> None:
    """Give a column of a stored table a default that coordinators took once: in all definitions, all digests right."""
    for path in sorted((folder / "metadata/roots").glob("*.avro")):
        root = decode_root(path.read_bytes(), name=path.name)
        header = root.header
        body = json.loads((folder / header.definition.location).read_bytes())
        for schema in body["schemas"]:
            for field in schema["fields"]:
                if field["name"] == column:
                    field |= {"initial-default": {str(field["type"]["fields"][0]["id"]): 7}, "write-default": {}}
        made = TableDefinition.from_json(json.dumps(body).encode()).to_json()
        digest = hashlib.sha256(made).digest()
        location = f"metadata/definitions/{uuid.UUID(bytes=digest[:16])}.json"
        (folder / location).write_bytes(made)
        forged = replace(header, definition=replace(header.definition, location=Location(location), digest=digest))
        _, encoded = encode_root(forged, root.blocks, root.codec, root.sync)
        path.chmod(0o644)
        path.write_bytes(encoded)


@pytest.mark.parametrize("format_version", [V2, V3])
def test_a_table_that_had_a_default_of_a_struct_is_exported_without_the_time_when_it_had_it(
    tmp_path: Path, format_version: FormatVersion
) -> None:
    with connect(tmp_path / "lake") as lake:
        table = lake.create_table("demo.t", {"id": "long"})
        table.append([{"id": 1}])
        with table.alter() as change:
            change.add_column("place", {"x": "int"})
        table.append([{"id": 2, "place": {"x": 2}}])
        table.tag("then")
        had = table.head().version
    with_struct_default(tmp_path / "lake/demo/t", "place")
    with connect(tmp_path / "lake") as lake:
        table = lake.table("demo.t")
        assert table.scan(where="id = 1").to_arrow().to_pylist() == [{"id": 1, "place": {"x": 7}}]
        with pytest.raises(Invalid, match=r"'place' \(id 2\).*add a column without one") as caught:
            table.export(int(format_version))
        assert caught.value.code == "export-unsupported"
        with table.alter() as change:
            change.drop_column("place")
        table.append([{"id": 3}])
        if format_version is V2:
            with pytest.raises(Invalid, match="export it in format version 3"):
                table.export(2)
            return
        exported = table.export(int(format_version))
        metadata = json.loads(exported.metadata)
        assert [int(each["summary"]["rootline.version"]) for each in metadata["snapshots"]] == [1, had + 1, had + 2]
        assert (list(metadata["refs"]), "default" in json.dumps(metadata["schemas"])) == (["main"], False)
        with open_duckdb() as duckdb:
            assert duckdb.rows(exported.metadata_location).sort_by("id").to_pylist() == [
                {"id": key} for key in (1, 2, 3)
            ]
            first = metadata["snapshots"][0]["snapshot-id"]
            assert duckdb.rows(exported.metadata_location, snapshot_id=first).to_pylist() == [{"id": 1}]
