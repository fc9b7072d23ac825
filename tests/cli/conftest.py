"""Running the command line inside the test's own process."""

from __future__ import annotations

import gc
import json
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rootline.cli.app import main
from rootline.connect import connect

SCHEMA = pa.schema([("id", pa.int64()), ("carrier", pa.string()), ("delay", pa.float64())])


@dataclass(frozen=True)
class Result:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """What it printed."""
        return self.out.splitlines()

    @property
    def records(self) -> list[Any]:
        """What it printed, as JSON lines."""
        return [json.loads(line) for line in self.lines]


Run = Callable[..., Result]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """`run("scan", "demo.t", ...)` as the `rootline` program."""
    searches = gc.get_threshold()
    for name in ("ROOTLINE_WAREHOUSE", "ROOTLINE_LOG", "ROOTLINE_TRACEBACK"):
        monkeypatch.delenv(name, raising=False)

    def command(*words: object) -> Result:
        monkeypatch.setattr(sys, "argv", ["rootline", *map(str, words)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        code = ended.value.code
        return Result(code if isinstance(code, int) else 0 if code is None else 1, out, err)

    yield command
    gc.set_threshold(*searches)


@pytest.fixture
def lake(tmp_path: Path, made_once: Path) -> Path:
    """A lake with the table `demo.flights` of three files and one deletion vector."""
    shutil.copytree(made_once, tmp_path / "lake")
    return tmp_path / "lake"


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What each `lake` is a copy of: a lake knows no path of its own."""
    folder = tmp_path_factory.mktemp("flights") / "lake"
    with connect(folder) as opened:
        table = opened.create_table("demo.flights", SCHEMA, partition_by=["carrier"])
        table.append({"id": [1, 2, 3], "carrier": ["UA", "UA", "AA"], "delay": [5.0, 70.0, None]})
        table.append({"id": [4], "carrier": ["DL, Inc"], "delay": [0.0]})
        table.delete_where("id = 2")
    return folder
