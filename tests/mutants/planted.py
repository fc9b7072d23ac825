"""The list of planted bugs: a line of the product altered as a mistake would alter it, and the tests that notice."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

LIST: Final = Path(__file__).with_name("planted.toml")


@dataclass(frozen=True, slots=True)
class Mutant:
    """`before`, which occurs once in `file`, becomes `after`; one of `tests` must fail then."""

    name: str
    file: str
    before: str
    after: str
    tests: tuple[str, ...]

    def text(self, house: Path) -> str:
        """The file as the mutant alters it. Raises `ValueError` when `before` does not occur exactly once."""
        text = (house / self.file).read_text()
        if text.count(self.before) != 1:
            raise ValueError(f"{self.name}: {self.file} contains {text.count(self.before)} times: {self.before!r}")
        return text.replace(self.before, self.after)


def planted() -> list[Mutant]:
    """All of them, in the order of the list."""
    rows = tomllib.loads(LIST.read_text())["mutant"]
    return [Mutant(**{**row, "tests": tuple(row["tests"])}) for row in rows]
