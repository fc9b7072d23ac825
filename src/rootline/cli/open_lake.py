"""How a command opens the lake that it works on.

Owns: that a command that only reads hosts no coordinator, and one that changes something may. Does not own: which
adapters a lake has (`rootline.connect`), what the command does.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rootline.cli.options import required

if TYPE_CHECKING:
    from rootline.client.lake import Lake


def lake_to_read(warehouse: str | None, log: str | None = None) -> Lake:
    """The lake for a command that changes nothing. Raises as `rootline.connect`."""
    from rootline.connect import connect

    return connect(required(warehouse), log=log, coordinator="elsewhere")


def lake_to_change(warehouse: str | None, log: str | None = None) -> Lake:
    """The lake for a command that publishes intents. Raises as `rootline.connect`."""
    from rootline.connect import connect

    return connect(required(warehouse), log=log)


def check_folder(warehouse: str) -> None:
    """Raises `Unavailable` (`store-unavailable`) when the warehouse is a folder of this machine that does not exist."""
    from rootline.connect import lake_folder
    from rootline.schemas.errors import Unavailable

    folder: Path | None = lake_folder(warehouse)
    if folder is not None and not folder.is_dir():
        raise Unavailable("store-unavailable", f"{folder}: there is no such folder; give another --warehouse")
