"""What a user installs: every module, one top-level name, and it works as a zip."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.release.built import differences, files_of, sources_of

pytestmark = pytest.mark.slow

IMPORT_EVERYTHING = """
import importlib, pathlib, pkgutil, sys
import rootline
assert str(pathlib.Path(rootline.__file__)).startswith(sys.argv[1]), rootline.__file__
for module in pkgutil.walk_packages(rootline.__path__, "rootline."):
    importlib.import_module(module.name)
"""


def run(code: str, *arguments: str, path: Path) -> str:
    """Run `code` in a fresh interpreter that finds `path` before anything installed."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=path.parent,
        env={**os.environ, "PYTHONPATH": str(path), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel alone, installed into a folder without an index."""
    folder = tmp_path_factory.mktemp("installed") / "site"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-compile"]
    subprocess.run([*command, "--target", str(folder), str(wheel)], check=True, capture_output=True)
    return folder


def test_the_wheel_holds_every_file_of_the_sources(wheel: Path, house: Path) -> None:
    assert list(differences(files_of(wheel), sources_of(house))) == []


def test_the_wheel_holds_the_rooms_that_are_links_and_the_files_that_are_no_modules(wheel: Path) -> None:
    expected = {
        "rootline/schemas/errors.py",
        "rootline/coordinator/settings.py",
        "rootline/workers/settings.py",
        "rootline/schemas/avro/intent.avsc",
        "rootline/schemas/avro/intent_1.avsc",
        "rootline/schemas/avro/intent_2.avsc",
        "rootline/schemas/avro/intent_4.avsc",
        "rootline/schemas/avro/verdict.avsc",
        "rootline/schemas/avro/dead_letter.avsc",
        "rootline/schemas/codes/intents.toml",
        "rootline/schemas/codes/definitions.toml",
        "rootline/schemas/codes/stored_bytes.toml",
        "rootline/schemas/codes/services_and_use.toml",
        "rootline/client/foreign_names.toml",
        "rootline/coordinator/http/page/index.html",
        "rootline/coordinator/http/page/console.js",
        "rootline/coordinator/http/page/console.css",
        "rootline/py.typed",
    }
    assert expected <= files_of(wheel).keys()


def test_a_wheel_made_from_the_source_distribution_holds_the_same_bytes(wheel: Path, wheel_from_sdist: Path) -> None:
    assert list(differences(files_of(wheel), files_of(wheel_from_sdist))) == []


def test_the_wheel_has_one_top_level_name_and_carries_the_licence(wheel: Path) -> None:
    assert {name.split("/")[0] for name in files_of(wheel)} == {"rootline"}
    assert any(name.endswith("licenses/LICENSE") for name in zipfile.ZipFile(wheel).namelist())


def test_installed_beside_a_users_own_modules_both_keep_what_is_theirs(installed: Path) -> None:
    for name in ("schemas", "workers", "coordinator"):
        (installed / f"{name}.py").write_text("OWNER = 'the user'\n")
    check_owners = """
import schemas, workers, coordinator
assert {schemas.OWNER, workers.OWNER, coordinator.OWNER} == {"the user"}
"""
    run(IMPORT_EVERYTHING + check_owners, str(installed), path=installed)


def test_importing_rootline_imports_nothing_else(installed: Path) -> None:
    code = """
import sys
before = set(sys.modules)
import rootline
print(sorted({name.split(".")[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names)))
"""
    assert run(code, path=installed).strip() == "['rootline']"


def test_the_wheel_works_as_a_zip_as_spark_hands_it_out(wheel: Path, tmp_path: Path) -> None:
    archive = shutil.copy(wheel, tmp_path / "rootline.zip")
    read_resources = """
from importlib import resources
for name in ("intent", "verdict", "dead_letter"):
    assert resources.files("rootline.schemas").joinpath(f"avro/{name}.avsc").read_text().startswith("{")
from rootline.schemas.error_codes import CODES
assert CODES["root-corrupt"].category == "Corrupt"
"""
    run(IMPORT_EVERYTHING + read_resources, str(archive), path=Path(archive))
