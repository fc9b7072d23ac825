"""An object that must be stored before the root that names it."""

from __future__ import annotations

from dataclasses import dataclass

from rootline.schemas.identifiers import Location


@dataclass(frozen=True, slots=True)
class PendingObject:
    """An object to store before the root, at a relative `location`.

    It is put if absent. An object with identical bytes is not a conflict.
    """

    location: Location
    body: bytes
