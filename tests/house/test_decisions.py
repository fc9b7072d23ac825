"""docs/decisions: the index has every number once, and every reference to a record leads to one that exists."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

STATES: Final = {"accepted", "merged", "moved", "superseded"}
SECTIONS: Final = ("Context", "Decision", "What it costs", "What would change our mind")
_ROW: Final = re.compile(r'^\| (?:<a id="d(\d{4})"></a>)?(\d{4}) \| (.+?) \| (\w+) \| (.+) \|$', re.MULTILINE)
_REFERENCE: Final = re.compile(r"\b(?:[Dd]ecisions?[ /])(\d{4})(?:(?:,| and) (\d{4}))?")
_FOLDERS: Final = ("src/rootline", "schemas", "coordinator", "workers", "tests", "benchmarks", "docs")
_SUFFIXES: Final = {".py", ".md", ".toml"}


@pytest.fixture(scope="module")
def records(house: Path) -> dict[str, Path]:
    """The records that exist, by number."""
    return {path.name[:4]: path for path in (house / "docs/decisions").glob("[0-9]*.md")}


@pytest.fixture(scope="module")
def rows(house: Path) -> list[tuple[str, str, str, str, str]]:
    """The lines of the index: anchor, number, title, status, last column."""
    return _ROW.findall((house / "docs/decisions/README.md").read_text())


def test_the_index_has_every_number_once_in_order_and_every_record_under_its_title(
    rows: list[tuple[str, str, str, str, str]], records: dict[str, Path]
) -> None:
    numbers = [number for _, number, _, _, _ in rows]
    assert numbers == sorted(set(numbers))
    assert {status for _, _, _, status, _ in rows} <= STATES
    listed = {number: title for _, number, title, status, _ in rows if status == "accepted"}
    titles = {
        number: path.read_text().partition("\n")[0].removeprefix(f"# {number}: ") for number, path in records.items()
    }
    assert listed == {number: f"[{title}]({records[number].name})" for number, title in titles.items()}


def test_a_removed_record_keeps_an_anchor_and_a_record_that_contains_it_names_it(
    rows: list[tuple[str, str, str, str, str]], records: dict[str, Path]
) -> None:
    for anchor, number, _, status, where in rows:
        assert (anchor == number) == (status != "accepted"), number
        if status == "merged":
            [target] = re.findall(r"\]\((\d{4})-", where)
            [state] = [line for line in records[target].read_text().splitlines() if line.startswith("Status: ")]
            assert number in state, f"{number} is not named by {target}"


def test_every_record_has_its_four_sections_and_is_about_half_a_page(records: dict[str, Path]) -> None:
    for path in records.values():
        text = path.read_text()
        found = re.findall(r"^(?:\*\*|## )(.+?)\.?(?:\*\*|$)", text, re.MULTILINE)
        assert tuple(name for name in found if name in SECTIONS) == SECTIONS, path.name
        prose = [line for line in text.splitlines() if not line.startswith("|")]
        assert len(" ".join(prose).split()) <= 500, (
            f"{path.name}: move what explains how it works to a page or a module"
        )


def test_every_record_that_code_and_pages_name_exists(house: Path, records: dict[str, Path]) -> None:
    files = [house / "CONTRIBUTING.md", house / "README.md"]
    for folder in _FOLDERS:
        files += [path for path in (house / folder).rglob("*") if path.suffix in _SUFFIXES and path.is_file()]
    index = house / "docs/decisions/README.md"
    missing = {
        f"{path.relative_to(house)}: {number}"
        for path in files
        if path != index
        for found in _REFERENCE.findall(path.read_text())
        for number in found
        if number and number not in records
    }
    assert missing == set()
