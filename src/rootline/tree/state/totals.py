"""Running totals of live entries.

Owns: what entries of each type count for. Does not own: the sums over a leaf's columns (`leaf_tally`), which entries
are live (`draft`), the header's value type (`Totals`).
Invariants: taking away what was added gives the same numbers again; `rows` counts rows that vectors delete too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from rootline.schemas.content_entry import ContentEntry, ContentType
from rootline.schemas.root_header import Totals

SIZE_OF: Final[Mapping[ContentType, str]] = {
    ContentType.DATA: "file_size_in_bytes",
    ContentType.POSITION_DELETE: "deletion_vector.size_in_bytes",
    ContentType.EQUALITY_DELETE: "file_size_in_bytes",
}
"""What the bytes of an entry are. Vectors share a Puffin file, so each counts its own bytes."""


@dataclass(slots=True)
class _Counted:
    """Entries of one type: how many, the sums of their record counts and of the sizes that `SIZE_OF` names."""

    entries: int = 0
    records: int = 0
    size_in_bytes: int = 0


class Tally:
    """Counters of one set of entries."""

    __slots__ = ("_of",)

    def __init__(self) -> None:
        self._of = [_Counted() for _ in ContentType]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tally) and self._of == other._of

    def count(self, entry: ContentEntry, times: int = 1) -> None:
        """Take in an entry; `times` = -1 takes it away again."""
        content_type, size = entry.content_type, entry.file_size_in_bytes
        if content_type is ContentType.POSITION_DELETE:
            vector = entry.deletion_vector
            size = None if vector is None else vector.size_in_bytes
        counted = self._of[content_type]
        counted.entries += times
        counted.records += times * entry.record_count
        counted.size_in_bytes += times * (size or 0)

    def add(self, content_type: ContentType, entries: int, records: int, size_in_bytes: int) -> None:
        """Take in many entries of one type: the sums of their record counts, and of the sizes that `SIZE_OF` names."""
        counted = self._of[content_type]
        counted.entries += entries
        counted.records += records
        counted.size_in_bytes += size_in_bytes

    def take(self, other: Tally, times: int = 1) -> None:
        """Take in all that `other` counted; `times` = -1 takes it away again."""
        for content_type, counted in zip(ContentType, other._of, strict=True):
            self.add(content_type, times * counted.entries, times * counted.records, times * counted.size_in_bytes)

    @property
    def data_files(self) -> int:
        """Data files."""
        return self._of[ContentType.DATA].entries

    @property
    def rows(self) -> int:
        """Rows of the data files, those that vectors delete too."""
        return self._of[ContentType.DATA].records

    @property
    def data_bytes(self) -> int:
        """Bytes of the data files."""
        return self._of[ContentType.DATA].size_in_bytes

    @property
    def vectors(self) -> int:
        """Deletion vectors."""
        return self._of[ContentType.POSITION_DELETE].entries

    @property
    def deleted_rows(self) -> int:
        """Rows that the vectors delete."""
        return self._of[ContentType.POSITION_DELETE].records

    @property
    def equality_deletes(self) -> int:
        """Files of equality deletes."""
        return self._of[ContentType.EQUALITY_DELETE].entries

    @property
    def equality_rows(self) -> int:
        """Rows of the equality deletes."""
        return self._of[ContentType.EQUALITY_DELETE].records

    @property
    def data_manifests(self) -> int:
        """Data leaves."""
        return self._of[ContentType.DATA_MANIFEST].entries

    @property
    def delete_manifests(self) -> int:
        """Delete leaves."""
        return self._of[ContentType.DELETE_MANIFEST].entries

    @property
    def delete_bytes(self) -> int:
        """Bytes of vectors and of equality deletes."""
        return sum(self._of[kind].size_in_bytes for kind in (ContentType.POSITION_DELETE, ContentType.EQUALITY_DELETE))


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
