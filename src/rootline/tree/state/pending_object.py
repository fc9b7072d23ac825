"""An object that must be stored before the root that names it."""

from __future__ import annotations

from dataclasses import dataclass

from rootline.schemas.identifiers import Location


@dataclass(frozen=True, slots=True)
class PendingObject:
    """An object to store (put if absent, identical bytes are no conflict) before the root; `location` is relative."""

    location: Location
    body: bytes
