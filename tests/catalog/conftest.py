"""A lake with a table for the catalog's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from rootline.client.lake import Lake
from tests.catalog.exported_lake import ExportedLake


@pytest.fixture
def exported(folder: Path, lake: Lake) -> ExportedLake:
    """An empty table in a lake in a folder."""
    return ExportedLake(folder, lake)
