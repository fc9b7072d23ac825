"""When a session uploaded its files, so that an intent can say how old the oldest of them is.

Owns: the dates, until they are too many. Does not own: uploading (`upload`), what a table does with the claim.
Invariants: a claim is made only when the date of every file is known; it is the store's date where the store has dates.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rootline.schemas.intent import Intent

_FILES_MAX: Final = 100_000


class UploadDates:
    """By table and location, in milliseconds; the oldest uploads are forgotten first."""

    def __init__(self) -> None:
        self._dates: dict[tuple[str, str], int] = {}

    def note(self, table: str, location: str, stored_ms: int) -> None:
        """A file was uploaded."""
        if len(self._dates) >= _FILES_MAX:
            del self._dates[next(iter(self._dates))]
        self._dates[table, location] = stored_ms

    def note_leaves(self, table: str, leaves: Iterable[str], oldest_ms: int | None) -> None:
        """Leaves were written of files the oldest of which is of `oldest_ms`, if that is known; so are they."""
        for leaf in leaves:
            uploaded_ms = self._dates.pop((table, leaf), None)
            if oldest_ms is not None and uploaded_ms is not None:
                self.note(table, leaf, min(oldest_ms, uploaded_ms))

    def oldest(self, table: str, locations: Iterable[str]) -> int | None:
        """The date of the oldest; `None`: one of them was not uploaded here, or there are none."""
        return oldest_date(self._dates.get((table, location)) for location in locations)

    def oldest_of(self, intents: Iterable[Intent]) -> int | None:
        """Of all files that these bring; `None`: it is not known, or they bring none."""
        return oldest_date(
            self._dates.get((intent.table, location)) for intent in intents for location in brought(intent)
        )


def oldest_date(dates: Iterable[int | None]) -> int | None:
    """The least; `None`: one of them is not known, or there are none."""
    oldest_ms: int | None = None
    for date_ms in dates:
        if date_ms is None:
            return None
        oldest_ms = date_ms if oldest_ms is None else min(oldest_ms, date_ms)
    return oldest_ms


def brought(intent: Intent) -> list[str]:
    """The locations that an intent names as new."""
    lists = (intent.add_data_files, intent.add_equality_deletes, intent.add_vectors, intent.add_manifests)
    return [item.location for items in lists for item in items]
