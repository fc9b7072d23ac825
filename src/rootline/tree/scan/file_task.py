"""Scan tasks: one data file to read, or the files of a plan that are in one leaf.

Owns: tasks, and finding a file's deletion vectors.
Does not own: the choice of files (`scan_plan`), finding delete files (`delete_index`), residual filters (`pruning`).
Invariants: A task made from a leaf decodes its entry on first access. Its leaf knows its row in the root, so entries
have their inherited sequence numbers. A task can be pickled. Of the statistics, a pickled task keeps only the
partition values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from rootline.schemas.arrow_values import array_from, numpy_from
from rootline.schemas.bytes.leaf import Leaf
from rootline.schemas.content_entry import ContentEntry, ContentType, Status
from rootline.tree.filter.filters import BoundFilter
from rootline.tree.filter.pruning import PruningFilter, residual_of
from rootline.tree.scan.delete_index import NO_DELETES, DeleteIndex, FileDeletes, may_have_deletes

_CHUNK: Final = 1024
_VECTOR_OFFSET: Final = "deletion_vector.offset"
Ordinals = np.ndarray[tuple[int], np.dtype[np.int64]]
Flags = np.ndarray[tuple[int], np.dtype[np.bool_]]


class VectorSource:
    """A deletion vector's entry: already decoded, or at `ordinal` of a leaf that knows its row in the root."""

    __slots__ = ("_entry", "_leaf", "_ordinal", "cardinality")

    def __init__(
        self,
        entry: ContentEntry | None,
        cardinality: int,
        leaf: Leaf | None = None,
        ordinal: int = -1,
    ) -> None:
        self._entry, self.cardinality = entry, cardinality
        self._leaf, self._ordinal = leaf, ordinal

    @property
    def entry(self) -> ContentEntry:
        """The POSITION_DELETE entry."""
        if self._entry is None:
            assert self._leaf is not None
            self._entry = self._leaf.entry(self._ordinal)
        return self._entry


class FileTask:
    """One data file to read. `is_whole` means that every row matches, so no row needs testing."""

    __slots__ = (
        "_data",
        "_deletes",
        "_from",
        "_index",
        "_of_plan",
        "_residual",
        "_vectors",
        "is_whole",
        "location",
        "record_count",
    )

    def __init__(
        self,
        data: ContentEntry,
        vectors: Sequence[ContentEntry | VectorSource] = (),
        residual: BoundFilter | None = None,
        deletes: FileDeletes = NO_DELETES,
    ) -> None:
        self.location, self.record_count, self.is_whole = data.location, data.record_count, residual is None
        self._data: ContentEntry | None = data
        self._from: FilesOfLeaf | None = None
        self._index = -1
        self._vectors: Sequence[ContentEntry | VectorSource] = vectors
        self._of_plan: TaskContext | None = None
        self._residual: BoundFilter | None = residual
        self._deletes: FileDeletes | None = deletes

    @staticmethod
    def of_plan(
        context: TaskContext, data: ContentEntry, vectors: Sequence[ContentEntry | VectorSource], *, is_whole: bool
    ) -> FileTask:
        """The task of a file whose entry is in the root."""
        task = FileTask(data, vectors)
        task.is_whole, task._of_plan, task._deletes = is_whole, context, None
        return task

    @staticmethod
    def in_leaf(
        files: FilesOfLeaf,
        index: int,
        location: str,
        record_count: int,
        vectors: Sequence[VectorSource],
        is_whole: bool,
        deletes: FileDeletes | None,
    ) -> FileTask:
        """The task of the file at `index` of `files`. If `deletes` is `None`, they are looked up on first access."""
        task = FileTask.__new__(FileTask)
        task.location, task.record_count, task.is_whole = location, record_count, is_whole
        task._data, task._from, task._index, task._vectors = None, files, index, vectors
        task._of_plan, task._residual, task._deletes = files.context, None, deletes
        return task

    @property
    def data(self) -> ContentEntry:
        """The file's entry."""
        if self._data is None:
            assert self._from is not None
            self._data = self._from.entry(self._index)
        return self._data

    @property
    def vectors(self) -> tuple[ContentEntry, ...]:
        """The entries of the file's deletion vectors. Rootline writes at most one for a file."""
        return tuple(item.entry if isinstance(item, VectorSource) else item for item in self._vectors)

    @property
    def residual(self) -> BoundFilter | None:
        """The filter that the file's rows must still be tested with, or `None` if every row matches."""
        if self.is_whole:
            return None
        if self._residual is None and self._of_plan is not None:
            self._residual = residual_of(self._of_plan.pruning, self.data)
            self.is_whole = self._residual is None
        return self._residual

    @property
    def deletes(self) -> FileDeletes:
        """The equality deletes and position delete files that apply. Raises the errors of `DeleteIndex.of_file`."""
        if self._deletes is None:
            index = None if self._of_plan is None else self._of_plan.deletes
            self._deletes = index.of_file(self.data) if index else NO_DELETES
        return self._deletes

    def row_count(self) -> int | None:
        """The number of rows that the task yields, or `None` if it is unknown before reading the file."""
        if not self.is_whole or len(self._vectors) > 1 or self.deletes:
            return None
        deleted = sum(
            item.cardinality if isinstance(item, VectorSource) else item.record_count for item in self._vectors
        )
        return self.record_count - deleted

    def __repr__(self) -> str:
        return f"FileTask({self.location!r}, {self.record_count} rows, {len(self._vectors)} vectors)"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FileTask):
            return NotImplemented
        mine = (self.data, self.vectors, self.residual, self.deletes)
        return mine == (other.data, other.vectors, other.residual, other.deletes)

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        members = () if self._of_plan is None else self._of_plan.pruning.members_of(self.data.partition_spec_id)
        stats = {member: self.data.content_stats[member] for member in members if member in self.data.content_stats}
        deletes = FileDeletes(_plain(self.deletes.equality), _plain(self.deletes.positions))
        data = replace(self.data, content_stats=stats)
        return FileTask, (data, _plain(self.vectors), self.residual, deletes if deletes else NO_DELETES)


def _plain(entries: Sequence[ContentEntry]) -> tuple[ContentEntry, ...]:
    return tuple(replace(entry, content_stats={}) for entry in entries)


@dataclass(frozen=True, slots=True)
class TaskContext:
    """The filter and the delete files that all tasks of a plan share."""

    pruning: PruningFilter
    deletes: DeleteIndex | None = None


@dataclass
class VectorsOfLeaf:
    """The deletion vectors of each data file (by location), from the root and from delete leaves."""

    _found: dict[str, tuple[VectorSource, ...]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._found)

    def add(self, data_location: str, source: VectorSource) -> None:
        """Add a vector of a file."""
        self._found[data_location] = (*self._found.get(data_location, ()), source)

    def of(self, data_location: str) -> tuple[VectorSource, ...]:
        """The vectors of a file."""
        return self._found.get(data_location, ())

    def take(self, leaf: Leaf, dead: BitMap | None) -> list[ContentEntry]:
        """Add every live vector of a delete leaf, and return the live delete files of the leaf.

        Delete files are equality deletes, and position deletes of older formats, which have no `deletion_vector`.
        """
        table = leaf.columns(["content_type", "version_info.status", "referenced_file", "record_count", _VECTOR_OFFSET])
        statuses = table.column("version_info").combine_chunks().field("status")
        offsets = table.column("deletion_vector").combine_chunks().field("offset")
        rows = zip(
            table.column("content_type").to_pylist(),
            statuses.to_pylist(),
            table.column("referenced_file").to_pylist(),
            table.column("record_count").to_pylist(),
            offsets.is_valid().to_pylist(),
            strict=True,
        )
        files: list[ContentEntry] = []
        for ordinal, (content_type, status, referenced_file, cardinality, is_vector) in enumerate(rows):
            if status == Status.DELETED or (dead is not None and ordinal in dead):
                continue
            if content_type == ContentType.POSITION_DELETE and is_vector and referenced_file is not None:
                self.add(referenced_file, VectorSource(None, cardinality, leaf, ordinal))
            else:
                files.append(leaf.entry(ordinal))
        return files


@dataclass(frozen=True)
class FilesOfLeaf:
    """The files of a plan that are in one data leaf, at `ordinals`.

    `all_match` has a flag for each file: whether all of its rows match the filter.
    """

    leaf: Leaf
    leaf_row: ContentEntry
    ordinals: Ordinals
    all_match: Flags
    context: TaskContext
    vectors: VectorsOfLeaf = field(default_factory=VectorsOfLeaf)
    _decoded: dict[int, list[ContentEntry]] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.ordinals)

    def tasks(self) -> Iterator[FileTask]:
        """The tasks, in the order of their ordinals."""
        if not len(self.ordinals):
            return
        table = self._columns(["location", "record_count"])
        locations, counts = table.column("location").to_pylist(), table.column("record_count").to_pylist()
        of, make = self.vectors.of, FileTask.in_leaf
        flags, unsure = self.all_match.tolist(), self._may_have_deletes
        if unsure is None:
            for index, (location, count, is_whole) in enumerate(zip(locations, counts, flags, strict=True)):
                yield make(self, index, location, count, of(location), is_whole, NO_DELETES)
            return
        for index, (location, count, is_whole) in enumerate(zip(locations, counts, flags, strict=True)):
            yield make(self, index, location, count, of(location), is_whole, None if unsure[index] else NO_DELETES)

    def locations(self) -> Sequence[str]:
        """The locations of the files, in the order of their ordinals."""
        found: list[str] = self._columns(["location"]).column(0).to_pylist() if len(self.ordinals) else []
        return found

    def at(self, locations: pa.Array) -> FilesOfLeaf:
        """The subset of the files whose locations are in `locations`."""
        if not len(self.ordinals):
            return self
        named = self._columns(["location"]).column(0)
        found = np.flatnonzero(pc.is_in(named, locations).to_numpy())
        return FilesOfLeaf(
            self.leaf, self.leaf_row, self.ordinals[found], self.all_match[found], self.context, self.vectors
        )

    def _columns(self, names: list[str]) -> pa.Table:
        return self.leaf.columns(names).take(array_from(self.ordinals))

    @cached_property
    def _may_have_deletes(self) -> list[bool] | None:
        """For each file, whether an equality or position delete may apply to it. `None` if none applies to any."""
        deletes = self.context.deletes
        if not deletes:
            return None
        flags: list[bool] = may_have_deletes(deletes, self.leaf, self.leaf_row)[self.ordinals].tolist()
        return flags if any(flags) else None

    def row_count(self) -> int | None:
        """The number of rows of all tasks, or `None` if it is unknown before reading the files."""
        if not self.all_match.all():
            return None
        if not len(self.vectors) and not self.context.deletes:
            counts = self.leaf.columns(["record_count"]).column(0).combine_chunks()
            return int(numpy_from(counts)[self.ordinals].sum())
        total = 0
        for task in self.tasks():
            count = task.row_count()
            if count is None:
                return None
            total += count
        return total

    def entry(self, index: int) -> ContentEntry:
        """The entry of the file at `index`. It is decoded together with its neighbours and cached."""
        chunk, at = divmod(index, _CHUNK)
        entries = self._decoded.get(chunk)
        if entries is None:
            ordinals = self.ordinals[chunk * _CHUNK : (chunk + 1) * _CHUNK].tolist()
            entries = self.leaf.entries_at(ordinals)
            self._decoded.clear()  # tasks are looked at in order: one chunk is enough
            self._decoded[chunk] = entries
        return entries[at]
