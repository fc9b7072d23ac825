"""The loggers of the library, and where their lines are written.

Owns: the choice between structlog and `logging` for each line. Does not own: the configuration of services
(`rootline.cli.service_process`).
Invariants: structlog is not imported here, because it imports rich where that is installed, which takes longer than a
commit.
"""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LibraryLogger:
    """Writes lines to structlog if the program has configured it, otherwise to `logging`, as a library should."""

    name: str

    def debug(self, event: str, **fields: object) -> None:
        """Write a line with its fields."""
        self._write("debug", logging.DEBUG, event, fields)

    def info(self, event: str, **fields: object) -> None:
        """Write a line with its fields."""
        self._write("info", logging.INFO, event, fields)

    def warning(self, event: str, **fields: object) -> None:
        """Write a line with its fields."""
        self._write("warning", logging.WARNING, event, fields)

    def error(self, event: str, **fields: object) -> None:
        """Write a line with its fields."""
        self._write("error", logging.ERROR, event, fields)

    def exception(self, event: str, **fields: object) -> None:
        """Write a line with its fields, and the traceback of `exc_info` or of the handled error."""
        self._write("exception", logging.ERROR, event, {"exc_info": True} | fields)

    def _write(self, method: str, level: int, event: str, fields: dict[str, object]) -> None:
        is_configured = getattr(sys.modules.get("structlog"), "is_configured", None)  # absent while it is imported
        if is_configured is not None and is_configured():
            getattr(sys.modules["structlog"].get_logger(self.name), method)(event, **fields)
            return
        logger = logging.getLogger(self.name)
        if logger.isEnabledFor(level):
            raised = fields.pop("exc_info", None)
            text = " ".join(f"{name}={value!r}" for name, value in {"event": event, **fields}.items())
            logger.log(level, "%s", text, exc_info=raised, stacklevel=3)  # type: ignore[arg-type]


def library_logger(name: str = "rootline") -> LibraryLogger:
    """The logger `name`."""
    return LibraryLogger(name)
