"""Running totals of live entries.

Owns: the counters for each type of entry, and a batch's counters. Does not own: the sums over a leaf's columns
(`aggregates`), when a batch counts an entry (`overlays`), the header's value type (`Totals`).
Invariants: Subtracting an added entry restores the earlier numbers. `rows` includes rows that vectors delete.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import sub
from typing import Final

from rootline.schemas.content_entry import ContentEntry, ContentType, quick
from rootline.schemas.root_header import Totals

SIZE_OF: Final[Mapping[ContentType, str]] = {
    ContentType.DATA: "file_size_in_bytes",
    ContentType.POSITION_DELETE: "deletion_vector.size_in_bytes",
    ContentType.EQUALITY_DELETE: "file_size_in_bytes",
}
"""The field with the size in bytes of an entry. Vectors can share a Puffin file, so each counts its own bytes."""


_TYPES: Final = max(ContentType) + 1
_DATA: Final = ContentType.DATA
_totals: Final = quick(Totals)


class Tally:
    """Counters of one set of entries, by content type."""

    __slots__ = ("_entries", "_records", "sizes")

    def __init__(self) -> None:
        self._entries, self._records = [0] * _TYPES, [0] * _TYPES
        self.sizes = [0] * _TYPES
        """The sums of sizes in bytes (see `SIZE_OF`), by content type."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tally) and self._columns == other._columns

    @property
    def _columns(self) -> tuple[list[int], list[int], list[int]]:
        return self._entries, self._records, self.sizes

    def count(self, entry: ContentEntry, times: int = 1) -> None:
        """Add an entry, or subtract it with `times` = -1."""
        content_type, size = entry.content_type, entry.file_size_in_bytes
        if content_type is ContentType.POSITION_DELETE:
            vector = entry.deletion_vector
            size = None if vector is None else vector.size_in_bytes
        self.add(content_type, times, times * entry.record_count, times * (size or 0))

    def add(self, content_type: ContentType, entries: int, records: int, size_in_bytes: int) -> None:
        """Add many entries of one type, with the sums of their record counts and of their sizes (see `SIZE_OF`)."""
        self._entries[content_type] += entries
        self._records[content_type] += records
        self.sizes[content_type] += size_in_bytes

    def take(self, other: Tally, times: int = 1) -> None:
        """Add the counts of `other`, or subtract them with `times` = -1."""
        for own, others in zip(self._columns, other._columns, strict=True):
            own[:] = [number + times * more for number, more in zip(own, others, strict=True)]

    def minus(self, other: Tally) -> tuple[list[int], list[int], list[int]]:
        """The differences from `other` in entries, records and sizes, each by content type."""
        return (
            list(map(sub, self._entries, other._entries)),
            list(map(sub, self._records, other._records)),
            list(map(sub, self.sizes, other.sizes)),
        )

    @property
    def types(self) -> set[ContentType]:
        """The content types of which there are entries."""
        return {content_type for content_type in ContentType if self._entries[content_type]}

    @property
    def data_files(self) -> int:
        """The number of data files."""
        return self._entries[ContentType.DATA]

    @property
    def rows(self) -> int:
        """The number of rows in data files, including those that vectors delete."""
        return self._records[ContentType.DATA]

    @property
    def data_bytes(self) -> int:
        """The size of the data files, in bytes."""
        return self.sizes[ContentType.DATA]

    @property
    def vectors(self) -> int:
        """The number of deletion vectors."""
        return self._entries[ContentType.POSITION_DELETE]

    @property
    def deleted_rows(self) -> int:
        """The number of rows that vectors delete."""
        return self._records[ContentType.POSITION_DELETE]

    @property
    def equality_deletes(self) -> int:
        """The number of equality delete files."""
        return self._entries[ContentType.EQUALITY_DELETE]

    @property
    def equality_rows(self) -> int:
        """The number of rows in equality delete files."""
        return self._records[ContentType.EQUALITY_DELETE]

    @property
    def data_manifests(self) -> int:
        """The number of data leaves."""
        return self._entries[ContentType.DATA_MANIFEST]

    @property
    def delete_manifests(self) -> int:
        """The number of delete leaves."""
        return self._entries[ContentType.DELETE_MANIFEST]

    @property
    def delete_bytes(self) -> int:
        """The size of deletion vectors and equality delete files, in bytes."""
        return self.sizes[ContentType.POSITION_DELETE] + self.sizes[ContentType.EQUALITY_DELETE]


def totals_after(before: Totals, added: Tally, removed: Tally) -> Totals:
    """The totals after `added` is added to `before` and `removed` is subtracted."""
    (files, vectors, deletes, data_leaves, delete_leaves, _), (rows, deleted, *_), (size, *_) = added.minus(removed)
    return _totals(
        before.data_files + files,
        before.vectors + vectors,
        before.equality_deletes + deletes,
        before.data_manifests + data_leaves,
        before.delete_manifests + delete_leaves,
        before.rows + rows,
        before.deleted_rows + deleted,
        before.data_bytes + size,
    )


class Counts:
    """Counters of the entries that a batch adds and removes.

    The next root shows `added` and `removed`. It does not show `rewritten` and `replaced`: the content of what was
    replaced is in what was rewritten.
    """

    __slots__ = ("added", "before", "removed", "replaced", "rewritten")

    def __init__(self, before: Totals) -> None:
        self.before = before
        self.added, self.removed, self.rewritten, self.replaced = Tally(), Tally(), Tally(), Tally()

    @property
    def totals(self) -> Totals:
        """The live totals after the intents accepted so far."""
        shown = totals_after(self.before, self.added, self.removed)
        return totals_after(shown, self.rewritten, self.replaced)

    @property
    def data_bytes(self) -> int:
        """The bytes of live data files after the intents accepted so far."""
        new = self.added.sizes[_DATA] + self.rewritten.sizes[_DATA]
        return self.before.data_bytes + new - self.removed.sizes[_DATA] - self.replaced.sizes[_DATA]


def totals_of(entries: Iterable[ContentEntry]) -> Totals:
    """The totals of live entries, counted one by one."""
    tally = Tally()
    for entry in entries:
        tally.count(entry)
    return totals_after(Totals(), tally, Tally())
