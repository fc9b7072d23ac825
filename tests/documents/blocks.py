"""The blocks of code in the documents.

Owns: finding them, and what a line of shell is. Does not own: running them.
Invariants: every fence of a page is in exactly one block.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HOUSE = Path(__file__).parents[2]
FENCE = re.compile(r"^(?P<indent> *)```(?P<language>[a-z]*)\n(?P<text>.*?)^(?P=indent)```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    """A block: its page, as a path from the top of the repository, its language ("" without one), its text."""

    page: str
    language: str
    text: str

    @property
    def first_line(self) -> str:
        """What the lists of this folder call it by."""
        return self.text.partition("\n")[0].strip()

    @property
    def name(self) -> tuple[str, str]:
        """Page and first line."""
        return self.page, self.first_line


def blocks_of(page: str, *languages: str) -> list[Block]:
    """The blocks of a page, in order; only those in `languages`, if any are given."""
    found = [Block(page, match["language"], match["text"]) for match in FENCE.finditer((HOUSE / page).read_text())]
    return [block for block in found if not languages or block.language in languages]


def pages() -> list[str]:
    """Every page for people, decision records and generated pages included."""
    tops = [HOUSE / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    return [str(path.relative_to(HOUSE)) for path in [*tops, *sorted((HOUSE / "docs").rglob("*.md"))] if path.exists()]


def statements(text: str) -> Iterator[str]:
    """The statements of a shell block: lines, joined where one ends in a backslash; no comments."""
    for line in text.replace("\\\n", " ").splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            yield line.strip()
