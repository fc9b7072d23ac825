"""An embedded lake in a folder, for every test that asks for one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from rootline.client.lake import Lake


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The warehouse of `lake`."""
    return tmp_path / "lake"


@pytest.fixture
def lake(folder: Path) -> Iterator[Lake]:
    """An embedded lake, whose coordinator this process hosts."""
    from rootline.connect import connect  # takes a while to import

    with connect(folder) as opened:
        yield opened
