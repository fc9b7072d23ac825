"""The release, installed once for a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compatibility.sides import installed, named_release
from tests.release.built import NotBuilt, has_whole_history


@pytest.fixture(scope="session")
def released_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that has the release."""
    try:
        return installed(named_release(), tmp_path_factory.mktemp("release"))
    except NotBuilt as error:
        told = f"tests/compatibility/release.toml: {error}"
        if has_whole_history():
            pytest.fail(told, pytrace=False)
        pytest.skip(told)  # sources without their history cannot make the release
