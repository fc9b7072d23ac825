"""The warning that a lake is not hosted."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator


class NotHosted(logging.Handler):
    """Waits for the warning."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.is_said, self.text = threading.Event(), ""

    @classmethod
    @contextlib.contextmanager
    def heard(cls) -> Iterator[NotHosted]:
        """Hear the warnings of the block."""
        handler = cls()
        logging.getLogger().addHandler(handler)
        try:
            yield handler
        finally:
            logging.getLogger().removeHandler(handler)

    def emit(self, record: logging.LogRecord) -> None:
        if "lake not hosted" in record.getMessage():
            self.text = record.getMessage()
            self.is_said.set()
