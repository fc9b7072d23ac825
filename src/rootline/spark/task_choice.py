"""Some files of a plan, named shortly enough for an option of Spark's: by their numbers in it.

Owns: that text. Does not own: the plan, which two processes make alike because it is of one version and one filter.
Invariants: a text that was made for another plan chooses nothing: it carries a digest of the chosen files' names.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from rootline.schemas.errors import Invalid
from rootline.tree.scan.file_task import FileTask

_SHAPE: Final = re.compile(r"((?:\d{1,9}-\d{1,9},)*)@([0-9a-f]{32})")


@dataclass(frozen=True, slots=True)
class TaskChoice:
    """Ranges of numbers, both ends included, and the digest of the locations there."""

    ranges: tuple[tuple[int, int], ...]
    digest: str

    @staticmethod
    def of(numbers: Sequence[int], tasks: Sequence[FileTask]) -> TaskChoice:
        """Those of `tasks` that have the ascending `numbers`."""
        ranges: list[tuple[int, int]] = []
        for number in numbers:
            if ranges and number == ranges[-1][1] + 1:
                ranges[-1] = ranges[-1][0], number
            else:
                ranges.append((number, number))
        return TaskChoice(tuple(ranges), _digest(tasks[number] for number in numbers))

    @staticmethod
    def parse(text: str) -> TaskChoice:
        """What `str` made. Raises `Invalid` (`setting-invalid`)."""
        match = _SHAPE.fullmatch(text)
        if match is None:
            raise Invalid("setting-invalid", "option 'filesOfPlan' is for rootline.spark.table only: leave it out")
        pairs = (pair.split("-") for pair in match[1].split(",") if pair)
        return TaskChoice(tuple((int(first), int(last)) for first, last in pairs), match[2])

    def __str__(self) -> str:
        return "".join(f"{first}-{last}," for first, last in self.ranges) + f"@{self.digest}"

    def chosen(self, tasks: Sequence[FileTask]) -> list[FileTask]:
        """The chosen ones of `tasks`. Raises `Invalid` (`setting-invalid`): they are of another plan."""
        found = [task for first, last in self.ranges for task in tasks[first : last + 1]]
        if _digest(iter(found)) != self.digest:
            raise Invalid("setting-invalid", "option 'filesOfPlan' is of another plan: call rootline.spark.table again")
        return found


def _digest(tasks: Iterator[FileTask]) -> str:
    found = hashlib.sha256()
    for task in tasks:
        found.update(task.location.encode() + b"\n")
    return found.hexdigest()[:32]
