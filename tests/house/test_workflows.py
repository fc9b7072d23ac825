"""What `.github` has is what its schemas allow, runs what a person runs, and does not claim to have run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.house.test_commands import phony_targets

SCHEMAS = {"workflows": "vendor.github-workflows", "ISSUE_TEMPLATE": "vendor.github-issue-forms"}


def files_of(house: Path, folder: str) -> list[Path]:
    return [path for path in sorted((house / ".github" / folder).glob("*.yml")) if path.name != "config.yml"]


def faults(schema: str, *paths: Path) -> str:
    """What the schema does not allow; empty if there is nothing."""
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


@pytest.mark.parametrize("folder", SCHEMAS)
def test_each_file_is_what_the_schema_of_its_kind_allows(folder: str, house: Path) -> None:
    found = files_of(house, folder)
    assert len(found) >= 2
    assert faults(SCHEMAS[folder], *found) == ""


@pytest.mark.parametrize(
    ("folder", "name", "right", "wrong"),
    [
        ("workflows", "check.yml", "runs-on: ubuntu-24.04", "run-on: ubuntu-24.04"),
        ("workflows", "release.yml", "id-token: write", "id-token: yes-please"),
        ("ISSUE_TEMPLATE", "bug.yml", "type: dropdown", "type: drop-down"),
    ],
)
def test_a_mistake_is_found(folder: str, name: str, right: str, wrong: str, house: Path, tmp_path: Path) -> None:
    text = (house / ".github" / folder / name).read_text()
    assert right in text
    (tmp_path / name).write_text(text.replace(right, wrong))
    assert name in faults(SCHEMAS[folder], tmp_path / name)


def test_the_workflows_run_targets_and_scripts_that_exist_and_say_that_they_did_not_run_yet(house: Path) -> None:
    for path in files_of(house, "workflows"):
        text = path.read_text()
        assert "has not run on this service yet" in text, path.name
        assert {*re.findall(r"\bmake ([a-z-]+)", text)} <= phony_targets(house), path.name
        scripts = re.findall(r"(?<![\w/])(?:\.ci|deploy|tests|src)/[\w./-]+\w", text)
        assert [name for name in scripts if not (house / name).exists()] == [], path.name


def test_only_the_job_that_publishes_may_ask_for_an_identity(house: Path) -> None:
    granted = {
        (path.name, name, right)
        for path in files_of(house, "workflows")
        for name, job in yaml.safe_load(path.read_text())["jobs"].items()
        for right, level in job.get("permissions", {}).items()
        if level == "write"
    }
    assert granted == {("release.yml", "index", "id-token"), ("release.yml", "page", "contents")}
