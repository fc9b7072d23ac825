"""Deletion of objects, as a separate port. Only workers that expire snapshots or sweep orphans receive one.

Owns: the port and its value. Does not own: the choice of the objects (`rootline.maintenance`), and
condemning them, which a root does before they may be deleted.
Invariants: An adapter that removes objects can also list them with the store's own dates and sizes. No other port
removes anything.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from rootline.schemas.identifiers import ObjectKey


@dataclass(frozen=True, slots=True)
class DatedObject:
    """An object in a listing.

    `length`: bytes. `last_modified_ms`: the store's own date, milliseconds since the epoch.
    """

    key: ObjectKey
    length: int
    last_modified_ms: int


class ObjectRemover(Protocol):
    """The remover of one warehouse. Every method raises `Unavailable` if the store does not answer or denies access."""

    def inventory(self, prefix: str) -> AsyncIterator[Sequence[DatedObject]]:
        """List all objects under `prefix` (which ends in `/`), ascending by key, a page at a time.

        Includes objects that other software stored under names that are not valid keys (`key_fault`).
        """
        ...

    async def remove(self, keys: Sequence[ObjectKey]) -> None:
        """Remove objects. Absent keys are no error, so a repetition is safe. Keys are never absolute.

        Raises:
            Invalid: `location-invalid`, one of the keys is not valid (`key_fault`), and nothing is removed.
        """
        ...

    async def close(self) -> None:
        """Close the connections. The remover must not be used afterwards."""
        ...
