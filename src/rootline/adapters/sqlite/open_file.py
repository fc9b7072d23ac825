"""Whether an open file is still the one that its path names.

What is written to a file that was moved away, deleted or replaced is lost: no other process finds it, and no later one.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from rootline.schemas.errors import Unavailable


@dataclass(frozen=True, slots=True)
class OpenFile:
    """The file that `path` named when it was opened."""

    path: Path
    device: int
    inode: int

    @classmethod
    def at(cls, path: Path) -> Self:
        """The one that is there now. Raises `OSError`."""
        found = path.stat()
        return cls(path, found.st_dev, found.st_ino)

    def check(self) -> None:
        """Raises `Unavailable` (`log-unavailable`) unless the path still names it."""
        try:
            found = self.path.stat()
            is_there = (found.st_dev, found.st_ino) == (self.device, self.inode)
        except OSError:
            is_there = False
        if not is_there:
            raise Unavailable(
                "log-unavailable",
                f"{self.path}: the log's file was moved away, deleted or replaced while it was open: put it back, or "
                "stop all processes that use this lake and start them again",
            )
