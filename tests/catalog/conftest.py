"""Embedded lakes for the catalog's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rootline.connect import connect
from tests.catalog.exported_lake import ExportedLake


@pytest.fixture
def exported(tmp_path: Path) -> Iterator[ExportedLake]:
    """An empty table in a lake in a folder."""
    folder = tmp_path / "lake"
    with connect(folder) as lake:
        yield ExportedLake(folder, lake)
