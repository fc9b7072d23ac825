"""Tables of others, each written once: adoption changes nothing of them."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

Once = Callable[[Callable[[Path], tuple[Any, Any]]], tuple[Any, Any]]


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Once:
    """What a function wrote into a folder the first time it was asked, and a copy of its model."""
    written: dict[object, tuple[Any, Any]] = {}

    def of(write: Callable[[Path], tuple[Any, Any]]) -> tuple[Any, Any]:
        if write not in written:
            written[write] = write(tmp_path_factory.mktemp("others"))
        table, model = written[write]
        return table, deepcopy(model)

    return of
