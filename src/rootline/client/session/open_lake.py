"""What a table handle needs of the lake that it belongs to."""

from __future__ import annotations

from typing import Protocol

from rootline.client.session.session import SessionHolder
from rootline.client.session.writer_stamp import WriterStamp


class OpenLake(Protocol):
    """A shared connection, and the writer id that changes of this process carry."""

    @property
    def holder(self) -> SessionHolder:
        """Runs operations on the lake's loop."""
        ...

    @property
    def stamp(self) -> WriterStamp:
        """Numbers the intents of this process."""
        ...
