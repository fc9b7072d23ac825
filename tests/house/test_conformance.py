"""docs/conformance.md: every requirement has a state, and every test that it names exists."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

STATES: Final = {"tested", "partly", "deviates", "not tested", "not built", "not ours"}
WITH_TESTS: Final = {"tested", "partly", "deviates"}
WITH_REASON: Final = {"partly", "not tested", "not built", "deviates"}
SEEDS: Final = ("A. Table specification", "B. Row-level deletes", "C. Single File Commits", "D. Views")
_TEST: Final = re.compile(r"`(test_\w+)`")
_DECISION: Final = re.compile(r"\[(\d{4})\]\((decisions/[^)]+)\)")


@dataclass(frozen=True, slots=True)
class Row:
    """One requirement."""

    line: int
    seed: str
    requirement: str
    state: str
    evidence: str


def _rows(house: Path) -> list[Row]:
    found: list[Row] = []
    seed = ""
    for number, line in enumerate((house / "docs/conformance.md").read_text().splitlines(), start=1):
        if line.startswith("## "):
            seed = line.removeprefix("## ")
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|") or not seed or cells[0] == "requirement" or set(line) <= set("|- "):
            continue
        assert len(cells) == 3, f"line {number}: {len(cells)} cells"
        found.append(Row(number, seed, *cells))
    return found


@pytest.fixture(scope="module")
def definitions(house: Path) -> Counter[str]:
    """How many tests there are of each name."""
    text = "\n".join(path.read_text() for path in (house / "tests").rglob("test_*.py"))
    return Counter(re.findall(r"^ *(?:async )?def (test_\w+)\(", text, re.MULTILINE))


def test_every_text_that_we_follow_has_its_requirements_listed(house: Path) -> None:
    rows = _rows(house)
    assert tuple(dict.fromkeys(row.seed for row in rows)) == SEEDS
    twice = [name for name, times in Counter((row.seed, row.requirement) for row in rows).items() if times > 1]
    assert twice == []


def test_every_requirement_has_a_state_and_what_the_state_asks_for(house: Path) -> None:
    faults = []
    for row in _rows(house):
        words = _TEST.sub("", _DECISION.sub("", row.evidence)).strip(" ,.;:")
        if row.state not in STATES:
            faults.append(f"line {row.line}: {row.state!r} is no state")
        if row.state in WITH_TESTS and not _TEST.search(row.evidence):
            faults.append(f"line {row.line}: {row.state}, but no test is named")
        if row.state in WITH_REASON and not words:
            faults.append(f"line {row.line}: {row.state}, but nothing says what is missing")
        if row.state == "deviates" and not _DECISION.search(row.evidence):
            faults.append(f"line {row.line}: it deviates without a decision")
    assert faults == []


def test_every_test_that_the_page_names_exists_once(house: Path, definitions: Counter[str]) -> None:
    named = {name: row.line for row in _rows(house) for name in _TEST.findall(row.evidence)}
    assert {name: line for name, line in named.items() if definitions[name] != 1} == {}


def test_every_decision_that_the_page_names_exists_under_its_number(house: Path) -> None:
    for row in _rows(house):
        for number, path in _DECISION.findall(row.evidence):
            assert (house / "docs" / path).is_file(), f"line {row.line}: {path}"
            assert Path(path).name.startswith(number), f"line {row.line}: {path}"
