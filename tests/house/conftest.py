"""Fixtures of the tests about the repository itself: where it is, a copy to break, and its wheel."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.release.built import build

HOUSE = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def house() -> Path:
    """The top folder of the repository."""
    return HOUSE


def copy_sources(target: Path) -> Path:
    """The sources and their configuration, copied into `target`."""
    unwanted = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in ("src", "schemas", "coordinator", "workers"):
        shutil.copytree(HOUSE / name, target / name, symlinks=True, ignore=unwanted)
    for name in ("pyproject.toml", "ruff-pure.toml", "README.md", "LICENSE"):
        shutil.copy2(HOUSE / name, target / name)
    (target / "tests").mkdir()
    return target


@pytest.fixture
def copied_house(tmp_path: Path) -> Path:
    """The sources and their configuration, in a folder that a test may spoil."""
    return copy_sources(tmp_path)


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from the sources as they are."""
    return build("wheel", copy_sources(tmp_path_factory.mktemp("wheel")))


@pytest.fixture(scope="session")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A source distribution built from the sources as they are."""
    return build("sdist", copy_sources(tmp_path_factory.mktemp("sdist")))


@pytest.fixture(scope="session")
def wheel_from_sdist(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from the unpacked source distribution, as installers without a wheel do it."""
    unpacked = tmp_path_factory.mktemp("unpacked")
    shutil.unpack_archive(sdist, unpacked, filter="data")
    return build("wheel", next(unpacked.iterdir()))
