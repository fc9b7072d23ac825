"""Import contracts and the ban of clocks, chance and environment hold, and catch what is seeded against them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.conftest import copy_sources

PURE_FOLDERS = (
    "schemas",
    "coordinator/protocol",
    "src/rootline/tree",
    "src/rootline/maintenance",
    "src/rootline/ports",
)


def lint_imports(house: Path) -> tuple[int, str]:
    """Exit code and report of import-linter over the sources of `house`."""
    return run(house, str(Path(sys.executable).with_name("lint-imports")), "--no-cache")


def lint_pure(house: Path) -> tuple[int, str]:
    """Exit code and report of the ban over the pure folders of `house`, as `make lint` runs it."""
    ruff = [str(Path(sys.executable).with_name("ruff")), "check", "--no-cache", "--output-format", "concise"]
    return run(house, *ruff, "--ignore-noqa", "--config", "ruff-pure.toml", *PURE_FOLDERS)


def run(house: Path, *command: str) -> tuple[int, str]:
    """Run a linter in `house`, which comes before the installed package."""
    environment = {**os.environ, "PYTHONPATH": str(house / "src"), "COLUMNS": "200"}
    done = subprocess.run(command, cwd=house, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def seed(house: Path, module: str, text: str) -> None:
    """Write a module, given by its path, with `text` in it."""
    path = house / module
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"{text}\n")


def test_the_contracts_hold(copied_house: Path) -> None:
    code, report = lint_imports(copied_house)
    assert code == 0, report


SEEDED = [
    pytest.param(
        "schemas/seeded.py",
        "import asyncio",
        "Pure rooms touch no vendor, no event loop, no clock, no randomness BROKEN",
        "rootline.schemas.seeded -> asyncio",
        id="an event loop in a pure room",
    ),
    pytest.param(
        "coordinator/protocol/seeded.py",
        "from rootline.coordinator import settings",
        "Pure rooms touch no vendor, no event loop, no clock, no randomness BROKEN",
        "rootline.coordinator.protocol.seeded -> rootline.coordinator.settings",
        id="settings in the commit machine",
    ),
    pytest.param(
        "src/rootline/tree/seeded.py",
        "from rootline.ports import object_store",
        "Rooms import downwards only BROKEN",
        "rootline.tree.seeded -> rootline.ports.object_store",
        id="a room importing upwards",
    ),
    pytest.param(
        "src/rootline/tree/draft/seeded.py",
        "from rootline.tree.intents import append",
        "Inside the tree: commit and check over intents, intents over the draft BROKEN",
        "rootline.tree.draft.seeded -> rootline.tree.intents.append",
        id="a room inside the tree importing upwards",
    ),
    pytest.param(
        "workers/seeded.py",
        "from rootline.coordinator import settings",
        "Rooms import downwards only BROKEN",
        "rootline.workers.seeded -> rootline.coordinator.settings",
        id="two services that must not know each other",
    ),
    pytest.param(
        "coordinator/runtime/seeded.py",
        "from rootline.coordinator import app",
        "Inside the coordinator: shell over machine, never the other way round BROKEN",
        "rootline.coordinator.runtime.seeded -> rootline.coordinator.app",
        id="the shell importing the service around it",
    ),
    pytest.param(
        "coordinator/runtime/table/seeded.py",
        "from rootline.coordinator.runtime.assignment import frontier",
        "Inside the shell: an assignment over its tables and records, never the other way round BROKEN",
        "rootline.coordinator.runtime.table.seeded -> rootline.coordinator.runtime.assignment.frontier",
        id="a table importing the assignment around it",
    ),
    pytest.param(
        "workers/jobs/seeded.py",
        "from rootline.adapters import open",
        "Only composition roots name an adapter BROKEN",
        "rootline.workers.jobs.seeded -> rootline.adapters",
        id="an adapter outside a composition root",
    ),
    pytest.param(
        "src/rootline/storage/seeded.py",
        "import botocore",
        "Vendors of stores, logs and caches stay behind the ports BROKEN",
        "rootline.storage.seeded -> botocore",
        id="a vendor past its port",
    ),
    pytest.param(
        "src/rootline/attic/__init__.py",
        "",
        "Rooms import downwards only BROKEN",
        "attic",
        id="a room that no contract knows",
    ),
]
"""A module, what is seeded into it, the contract that breaks, and what its report names."""


@pytest.fixture(scope="module")
def report_of_all_seeded(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One report for all that is seeded: each has a module of its own."""
    house = copy_sources(tmp_path_factory.mktemp("seeded"))
    for case in SEEDED:
        module, line, *_ = case.values
        seed(house, str(module), str(line))
    code, report = lint_imports(house)
    assert code == 1
    return report


@pytest.mark.parametrize(("module", "line", "broken", "named"), SEEDED)
def test_a_seeded_import_is_caught_and_named(
    report_of_all_seeded: str, module: str, line: str, broken: str, named: str
) -> None:
    assert broken in report_of_all_seeded
    assert named in report_of_all_seeded


def test_the_pure_folders_name_no_clock_no_chance_no_environment(copied_house: Path) -> None:
    code, report = lint_pure(copied_house)
    assert code == 0, report


def test_every_seeded_use_of_the_outside_is_caught_in_every_pure_folder(copied_house: Path) -> None:
    uses = {
        "time": "import time",
        "random": "from random import random",
        "secrets": "import secrets",
        "uuid.uuid4": "import uuid\nFRESH = uuid.uuid4()",
        "uuid.uuid1": "from uuid import uuid1",
        "datetime.datetime.now": "import datetime as clock\nNOW = clock.datetime.now()",
        "datetime.datetime.utcnow": "from datetime import datetime\nNOW = datetime.utcnow()  # noqa",
        "datetime.date.today": "from datetime import date\nTODAY = date.today()",
        "os.environ": "import os\nHOME = os.environ['HOME']  # noqa: TID251",
        "os.getenv": "from os import getenv",
        "asyncio": "def late() -> None:\n    import asyncio",
        "sqlite3": "import sqlite3",
        "botocore": "from botocore.client import BaseClient",
    }
    for folder in PURE_FOLDERS:
        for number, text in enumerate(uses.values()):
            seed(copied_house, f"{folder}/seeded_{number}.py", text)
    _, report = lint_pure(copied_house)
    missed = [
        f"{folder}: {name}"
        for folder in PURE_FOLDERS
        for number, name in enumerate(uses)
        if not any(f"{folder}/seeded_{number}.py:" in line and f"`{name}" in line for line in report.splitlines())
    ]
    assert missed == []


def test_arithmetic_on_ids_and_times_is_allowed_in_pure_folders(copied_house: Path) -> None:
    text = "import datetime, uuid\nID = uuid.uuid5(uuid.UUID(int=0), 'name')\nDAY = datetime.datetime(2024, 1, 1)"
    seed(copied_house, "schemas/seeded.py", text)
    code, report = lint_pure(copied_house)
    assert code == 0, report


@pytest.mark.parametrize("room", ["schemas", "coordinator", "workers"])
def test_a_bare_import_of_a_top_folder_is_caught(copied_house: Path, room: str) -> None:
    seed(copied_house, "src/rootline/client/seeded.py", f"import {room}")
    ruff = str(Path(sys.executable).with_name("ruff"))
    code, report = run(copied_house, ruff, "check", "--no-cache", "--select", "TID251", "src")
    assert code == 1
    assert f"import rootline.{room}" in report
