"""Running totals of live entries.

Owns: what one entry counts for. Does not own: which entries are live (`draft`), the header's value type (`Totals`).
Invariants: taking away what was added gives the same numbers again; `rows` counts rows that vectors delete too.
"""

from __future__ import annotations

from collections.abc import Iterable

from rootline.schemas.content_entry import ContentEntry, ContentType
from rootline.schemas.root_header import Totals


class Tally:
    """Counters of one set of entries."""

    __slots__ = (
        "data_bytes",
        "data_files",
        "data_manifests",
        "delete_bytes",
        "delete_manifests",
        "deleted_rows",
        "equality_deletes",
        "equality_rows",
        "rows",
        "vectors",
    )

    def __init__(self) -> None:
        self.data_files = self.vectors = self.equality_deletes = self.data_manifests = self.delete_manifests = 0
        self.rows = self.deleted_rows = self.data_bytes = self.equality_rows = self.delete_bytes = 0

    def count(self, entry: ContentEntry, times: int = 1) -> None:
        """Take in an entry; `times` = -1 takes it away again."""
        content_type = entry.content_type
        if content_type is ContentType.DATA:
            self.data_files += times
            self.rows += times * entry.record_count
            self.data_bytes += times * (entry.file_size_in_bytes or 0)
        elif content_type is ContentType.POSITION_DELETE:
            self.vectors += times
            self.deleted_rows += times * entry.record_count
            vector = entry.deletion_vector
            self.delete_bytes += times * ((vector.size_in_bytes if vector is not None else None) or 0)
        elif content_type is ContentType.EQUALITY_DELETE:
            self.equality_deletes += times
            self.equality_rows += times * entry.record_count
            self.delete_bytes += times * (entry.file_size_in_bytes or 0)
        elif content_type is ContentType.DATA_MANIFEST:
            self.data_manifests += times
        elif content_type is ContentType.DELETE_MANIFEST:
            self.delete_manifests += times

    def take(self, other: Tally, times: int = 1) -> None:
        """Take in all that `other` counted; `times` = -1 takes it away again."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + times * getattr(other, name))


def totals_after(before: Totals, added: Tally, removed: Tally) -> Totals:
    """The live totals when `added` came and `removed` went."""
    return Totals(
        before.data_files + added.data_files - removed.data_files,
        before.vectors + added.vectors - removed.vectors,
        before.equality_deletes + added.equality_deletes - removed.equality_deletes,
        before.data_manifests + added.data_manifests - removed.data_manifests,
        before.delete_manifests + added.delete_manifests - removed.delete_manifests,
        before.rows + added.rows - removed.rows,
        before.deleted_rows + added.deleted_rows - removed.deleted_rows,
        before.data_bytes + added.data_bytes - removed.data_bytes,
    )


def totals_of(entries: Iterable[ContentEntry]) -> Totals:
    """The totals of live entries, recomputed."""
    tally = Tally()
    for entry in entries:
        tally.count(entry)
    return totals_after(Totals(), tally, Tally())
