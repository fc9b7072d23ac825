"""The notebooks run, and print what is stored in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.documents.notebooks import NOTEBOOKS, run_cells


def texts(outputs: list[dict[str, Any]]) -> list[str]:
    """What can be compared: pictures have lengths in bytes in them, which follow the version of Arrow."""
    return ["".join(output.get("text") or output["data"]["text/plain"]) for output in outputs]


def test_every_notebook_prints_what_is_stored_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = sorted(NOTEBOOKS.glob("*.ipynb"))
    assert paths
    for path in paths:
        folder = tmp_path / path.stem
        folder.mkdir()
        monkeypatch.chdir(folder)
        for name in ("ROOTLINE_WAREHOUSE", "ROOTLINE_LOG"):
            monkeypatch.delenv(name, raising=False)
        notebook = json.loads(path.read_text())
        stored = [cell["outputs"] for cell in notebook["cells"] if cell["cell_type"] == "code"]
        assert [texts(outputs) for outputs in run_cells(notebook)] == [texts(outputs) for outputs in stored]
        pictures = [output for outputs in stored for output in outputs if "image/svg+xml" in output.get("data", {})]
        assert pictures
        assert path.stat().st_size < 50_000
