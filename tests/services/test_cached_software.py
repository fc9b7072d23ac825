"""Software in the cache is fetched once, and kept only when the fetch went well."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.services.cached_software import cache_folder, cached, carry_out


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_software_is_fetched_once() -> None:
    fetches: list[Path] = []

    def fetch(folder: Path) -> Path:
        fetches.append(folder)
        (folder / "rest").touch()
        (folder / "jars").mkdir()
        (folder / "jars/a.jar").touch()
        return folder / "jars"

    for _ in range(2):
        with cached("thing", "1.0", fetch) as found:
            assert found == cache_folder() / "thing-1.0"
            assert [path.name for path in found.iterdir()] == ["a.jar"]
    assert len(fetches) == 1
    assert not fetches[0].exists()


def test_a_step_that_fails_fails_the_test_with_its_error_and_keeps_nothing() -> None:
    def fetch(folder: Path) -> Path:
        command = [sys.executable, "-c", "print('[ERROR] no such artifact'); raise SystemExit(1)"]
        carry_out("Thing 1.0", "fetching it", command, folder, timeout_s=60, instead=", or do without")
        return folder

    with (
        pytest.raises(
            pytest.fail.Exception, match=r"^Thing 1\.0 cannot be installed: fetching it: \[ERROR\] no such artifact"
        ),
        cached("thing", "1.0", fetch),
    ):
        pass
    assert [path.name for path in cache_folder().iterdir()] == ["thing.lock"]
