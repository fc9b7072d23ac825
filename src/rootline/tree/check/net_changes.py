"""The changes over several versions: each root's changes folded into one.

Owns: the fold, and the assignment of vectors to the changes of their data files. Does not own: one root's changes
(`root_diff`), the positions in vectors.
Invariants: An entry that is added and removed within the range is in no change, and neither is one that is removed and
restored unchanged. Memory is proportional to the changes.

Source: format page, "Status".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from rootline.schemas.content_entry import ContentEntry, ContentType, EntryPlace
from rootline.tree.check.root_diff import Changes


@dataclass(frozen=True, slots=True)
class FileChange:
    """A data file that was added or removed, with its deletion vectors (at most one from our own writers)."""

    entry: ContentEntry
    vectors: tuple[ContentEntry, ...] = ()

    @property
    def location(self) -> str:
        """The file's location."""
        return self.entry.location


@dataclass(frozen=True, slots=True)
class VectorsChange:
    """The old and new deletion vectors of a data file that stayed (at most one of each from our own writers)."""

    data_location: str
    before: tuple[ContentEntry, ...]
    after: tuple[ContentEntry, ...]


@dataclass(frozen=True, slots=True)
class NetChange:
    """The net change over a range of versions. Everything is ordered by location."""

    added_files: tuple[FileChange, ...]
    removed_files: tuple[FileChange, ...]
    vectors: tuple[VectorsChange, ...]
    added_deletes: tuple[ContentEntry, ...]
    """Files of equality deletes, and of position deletes in older formats."""
    removed_deletes: tuple[ContentEntry, ...]

    def __bool__(self) -> bool:
        changed = (self.added_files, self.removed_files, self.vectors)
        return any(changed) or bool(self.added_deletes or self.removed_deletes)


@dataclass(slots=True)
class NetChanges:
    """The changes folded so far, from the oldest version on."""

    _ends: dict[EntryPlace, _Ends] = field(default_factory=dict)
    _added_vectors: dict[_VectorId, EntryPlace] = field(default_factory=dict)

    def take(self, changes: Changes) -> None:
        """Add the changes of the next version, as a whole or in parts."""
        for entry in changes.removed:
            place = self._place_when_added(entry)
            ends = self._ends.get(place)
            if ends is None:
                self._ends[place] = _Ends(entry, None)
            elif ends.before is None:
                del self._ends[place]
            else:
                ends.after = None
        for entry in changes.added:
            self._ends.setdefault(entry.place, _Ends(None, None)).after = entry
            if _is_vector(entry):
                self._added_vectors[_vector_id(entry)] = entry.place

    def _place_when_added(self, entry: ContentEntry) -> EntryPlace:
        """The place at which `entry` was added. A vector may have another place now, because a compaction moved it.
        Roots do not show compactions as changes.
        """
        if entry.place in self._ends or not _is_vector(entry):
            return entry.place
        return self._added_vectors.pop(_vector_id(entry), entry.place)

    def net(self) -> NetChange:
        """The net change of all versions added so far."""
        before, after = self._sorted()
        vectors_before, vectors_after = _by_data_file(before), _by_data_file(after)
        removed, added = list(filter(_is_data, before)), list(filter(_is_data, after))
        moved = {entry.location for entry in (*removed, *added)}
        stayed = sorted((vectors_before.keys() | vectors_after.keys()) - moved)
        return NetChange(
            tuple(FileChange(entry, vectors_after.get(entry.location, ())) for entry in added),
            tuple(FileChange(entry, vectors_before.get(entry.location, ())) for entry in removed),
            tuple(VectorsChange(name, vectors_before.get(name, ()), vectors_after.get(name, ())) for name in stayed),
            tuple(filter(_is_delete_file, after)),
            tuple(filter(_is_delete_file, before)),
        )

    def _sorted(self) -> tuple[list[ContentEntry], list[ContentEntry]]:
        ordered = sorted(self._ends.items(), key=lambda item: (*item[0][:2], item[0].content_offset or 0))
        ends = [ends for _, ends in ordered if not ends.are_the_same]
        return [item.before for item in ends if item.before is not None], [
            item.after for item in ends if item.after is not None
        ]


@dataclass(slots=True)
class _Ends:
    """The live entry at one place before the range and after it."""

    before: ContentEntry | None
    after: ContentEntry | None

    @property
    def are_the_same(self) -> bool:
        """Whether a removed entry was added again unchanged, by a restore or by an intent."""
        if self.before is None or self.after is None:
            return self.before is self.after
        return self.before.version_info.sequence_number == self.after.version_info.sequence_number


_VectorId = tuple[str | None, int | None]
"""Data file and sequence number of a vector. A compaction that moves it to another Puffin file changes neither."""


def _vector_id(entry: ContentEntry) -> _VectorId:
    return entry.referenced_file, entry.version_info.sequence_number


def _is_data(entry: ContentEntry) -> bool:
    return entry.content_type is ContentType.DATA


def _is_vector(entry: ContentEntry) -> bool:
    return entry.content_type is ContentType.POSITION_DELETE and entry.deletion_vector is not None


def _is_delete_file(entry: ContentEntry) -> bool:
    return not _is_data(entry) and not _is_vector(entry)


def _by_data_file(entries: Iterable[ContentEntry]) -> dict[str, tuple[ContentEntry, ...]]:
    found: dict[str, tuple[ContentEntry, ...]] = defaultdict(tuple)
    for entry in filter(_is_vector, entries):
        found[entry.referenced_file or ""] += (entry,)
    return found
