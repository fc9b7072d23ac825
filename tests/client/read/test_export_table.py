"""Exporting a table from a program."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from rootline.connect import connect
from rootline.schemas.errors import Invalid

SCHEMA = pa.schema([("id", pa.int64())])


def test_an_export_names_the_newest_version_and_is_made_once(tmp_path: Path) -> None:
    with connect(tmp_path) as lake:
        table = lake.create_table("demo.t", SCHEMA)
        table.append({"id": [1]})
        first, again = table.export(), table.export()
        assert (first.version, first.format_version) == (1, 3)
        assert first.cost.puts > 0
        assert (again.metadata_location, again.metadata) == (first.metadata_location, first.metadata)
        assert (again.cost.puts, again.cost.gets) == (0, 0)
        table.append({"id": [2]})
        assert table.export().version == 2


@pytest.mark.parametrize("wanted", [2, "2", "v2"])
def test_format_and_version_are_chosen(tmp_path: Path, wanted: int | str) -> None:
    with connect(tmp_path) as lake:
        table = lake.create_table("demo.t", SCHEMA)
        table.append({"id": [1]})
        table.append({"id": [2]})
        exported = table.export(wanted, version=1)
    metadata = json.loads(exported.metadata)
    assert (metadata["format-version"], metadata["properties"]["rootline.version"]) == (2, "1")
    assert Path(exported.metadata_location.removeprefix("file://")).read_bytes() == exported.metadata


def test_formats_and_versions_that_there_are_not_are_refused(tmp_path: Path) -> None:
    with connect(tmp_path) as lake:
        table = lake.create_table("demo.t", SCHEMA)
        for wanted in (1, 4, "v4", "x"):
            with pytest.raises(Invalid, match="write 2 or 3") as refused:
                table.export(wanted)
            assert refused.value.code == "setting-invalid"
        for missing in (7, -1):
            with pytest.raises(Invalid) as refused:
                table.export(version=missing)
            assert refused.value.code == "version-unknown"


def test_an_embedded_lake_exports_without_a_server(tmp_path: Path) -> None:
    program = (
        "import sys, pyarrow as pa, rootline\n"
        "with rootline.connect(sys.argv[1]) as lake:\n"
        "    lake.create_table('demo.t', pa.schema([('id', pa.int64())])).export()\n"
        "print(sorted({'starlette', 'uvicorn', 'typer'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
