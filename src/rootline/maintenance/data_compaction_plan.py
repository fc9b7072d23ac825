"""Chooses the data files to rewrite into fewer, larger ones, or without their deleted rows.

Owns: the live files of one version with the deletes of each, the thresholds (`rootline.compact.data*`), the choice
of one group for a worker, and of all groups for a cluster. Does not own: reading and writing rows
(`rootline.workers.jobs.data_jobs`, `rootline.client.row_changes`), the deletes that apply to a file
(`rootline.tree.scan.delete_index`), the check that a group is unchanged (`rootline.tree.intents.rewrite`).
Invariants: pure. A task (a data file with its deletes) names all deletes of its file, or all except the equality
deletes that a plan leaves out.
The files of a group are of the table's default spec and of one partition. No group needs more bytes than the limit.
A new file alone is never chosen.

Theory. A rewrite is rejected if a writer meanwhile removed one of its files, or deleted rows of one by position.
Appends and equality deletes never make it stale. A group that was rejected is not retried unchanged: its files get the
lowest priority, and the next group has half as many files. A group is committed as soon as its files, perhaps only one,
stay unchanged while they are read and written. Source: decision 0034.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from rootline.schemas.content_entry import ContentEntry, ContentType, Status
from rootline.schemas.intent import VectorReference
from rootline.schemas.table_definition import TableDefinition
from rootline.schemas.table_properties import switch, whole_number
from rootline.tree.draft.draft import Draft
from rootline.tree.rules.delete_rules import reached_files
from rootline.tree.rules.vector_rules import reference_of
from rootline.tree.scan.delete_index import DeleteIndex, partition_tuple
from rootline.tree.scan.file_task import FileTask, VectorsOfLeaf
from rootline.tree.state.live_index import Live
from rootline.tree.state.table_state import TableState


@dataclass(frozen=True)
class TableFiles:
    """The files of one version of a table."""

    state: TableState

    @cached_property
    def draft(self) -> Draft:
        """The state of this version, in the form against which a coordinator checks an intent."""
        return Draft.to_plan_on(self.state)

    @cached_property
    def equality_deletes(self) -> tuple[ContentEntry, ...]:
        """The live equality deletes, oldest first."""
        return tuple(sorted(self.draft.live_equality_deletes(), key=_age))

    @cached_property
    def position_deletes(self) -> tuple[ContentEntry, ...]:
        """The live position delete files of older formats. Deletion vectors are not included."""
        found: list[ContentEntry] = []
        for location, row in self.state.live.leaf_rows.items():
            if row.entry.content_type is ContentType.DELETE_MANIFEST:
                leaf = self.state.leaves[location].of_row(row.entry)
                files = VectorsOfLeaf().take(leaf, self.state.live.dead.get(location))
                found += [entry for entry in files if entry.content_type is ContentType.POSITION_DELETE]
        return tuple(found)

    def index(self, deletes: tuple[ContentEntry, ...]) -> DeleteIndex:
        """Index the given equality deletes and all position deletes. Raises `Invalid` (`equality-delete-unread`)."""
        return DeleteIndex.of((*deletes, *self.position_deletes), self.state.definition, None)

    def reached(self, deletes: tuple[ContentEntry, ...]) -> Iterator[FileTask]:
        """Yield the data files to which any of `deletes` may apply. Raises `Invalid` (`equality-delete-unread`)."""
        index = self.index(deletes)
        for entry in reached_files(self.draft, DeleteIndex.of(deletes, self.state.definition, None)):
            yield self.task(entry, index)

    def task(self, data: ContentEntry, index: DeleteIndex) -> FileTask:
        """A data file with its vector and the deletes in `index` that apply to it."""
        vector = self.draft.vector_of(data.location)
        return FileTask(data, () if vector is None else (vector.entry,), deletes=index.of_file(data))

    def vector_of(self, data_location: str) -> VectorReference | None:
        """The reference to the vector of a data file, in the form of intents."""
        return reference_of(self.draft.vector_of(data_location))

    def data_files(self, size_below: int) -> Iterator[Live]:
        """The live data files that are smaller than `size_below`, or have a vector."""
        for live in self.draft.live_rows():
            if live.entry.content_type is ContentType.DATA and self._is_wanted(live.entry, size_below):
                yield live
        for location, lookup in self.state.live.lookups.items():
            if not lookup.holds(ContentType.DATA):
                continue
            columns = lookup.leaf.columns(["location", "file_size_in_bytes"])
            pairs = zip(*(columns.column(name).to_pylist() for name in columns.column_names), strict=True)
            for ordinal, (name, size) in enumerate(pairs):
                if self.draft.in_leaves.is_dead(location, ordinal):
                    continue
                if (size or 0) < size_below or self.draft.vector_of(name) is not None:
                    entry = lookup.entry(ordinal)
                    if entry.version_info.status is not Status.DELETED:
                        yield Live(entry, leaf=location, ordinal=ordinal)

    def _is_wanted(self, entry: ContentEntry, size_below: int) -> bool:
        return (entry.file_size_in_bytes or 0) < size_below or self.draft.vector_of(entry.location) is not None


def _age(entry: ContentEntry) -> tuple[int, str]:
    return entry.version_info.sequence_number or 0, entry.location


FILES_MAX: Final = 1_000
"""Files of one group."""
ORDERED_FILES_MAX: Final = 4_000
"""Files of one group whose rows are sorted."""
_NAMES_MAX: Final = 400_000
"""Characters of all locations in one group, because its intent names them and the new files."""


@dataclass(frozen=True, slots=True)
class DataCompactionLimits:
    """The thresholds of a data compaction.

    * `files`: the number of small files of a partition from which on they are merged. A small file has less than half
      of `target_bytes`.
    * `deleted_percent`: a file is rewritten when its vector deletes this share of its rows.
    * `bytes`: the most bytes of a group, the files that are rewritten together.
    """

    is_on: bool = False
    target_bytes: int = 134_217_728
    files: int = 8
    deleted_percent: int = 25
    bytes: int = 134_217_728

    @staticmethod
    def of_properties(properties: Mapping[str, str]) -> DataCompactionLimits:
        """The limits in a table's properties, with defaults for the rest."""
        own = DataCompactionLimits()
        return DataCompactionLimits(
            is_on=switch(properties, "rootline.compact.data", default=own.is_on),
            target_bytes=whole_number(properties, "rootline.compact.data-target-bytes", own.target_bytes),
            files=max(2, whole_number(properties, "rootline.compact.data-files", own.files)),
            deleted_percent=whole_number(properties, "rootline.compact.data-deleted-percent", own.deleted_percent),
            bytes=whole_number(properties, "rootline.compact.data-bytes", own.bytes),
        )

    @property
    def now(self) -> DataCompactionLimits:
        """The limits of an operator's command, for which two small files or 1 % of deleted rows are enough."""
        return replace(self, is_on=True, files=2, deleted_percent=1)

    @property
    def small(self) -> int:
        """The number of bytes below which a file is small."""
        return self.target_bytes // 2


@dataclass(frozen=True, slots=True)
class ChosenFiles:
    """The `files` of one group. `left`: files with many deleted rows that are too large to rewrite in this process.

    `due_bytes`: the total size of `left`, and of all files in partitions that have a group.
    """

    files: tuple[ContentEntry, ...]
    left: tuple[ContentEntry, ...] = ()
    due_bytes: int = 0


def choose_files(
    files: TableFiles, limits: DataCompactionLimits, lost: Mapping[str, int], at_most: int = FILES_MAX
) -> ChosenFiles:
    """Choose one group. `lost`: data file → number of its rewrites that were rejected as stale."""
    partitions: dict[Hashable, list[ContentEntry]] = {}
    left: list[ContentEntry] = []
    delete_heavy: set[str] = set()
    definition = files.state.definition
    for entry in (live.entry for live in files.data_files(limits.small)):
        is_delete_heavy = _is_delete_heavy(files, entry, limits)
        values = partition_tuple(entry, definition)
        if entry.partition_spec_id != definition.default_spec_id or values is None:
            continue
        if is_delete_heavy and _size(entry) > limits.bytes:
            left.append(entry)
        elif is_delete_heavy or _size(entry) < limits.small:
            partitions.setdefault(values, []).append(entry)
            delete_heavy |= {entry.location} if is_delete_heavy else set()
    found = [(_group(held, delete_heavy, limits, lost, at_most), held) for held in partitions.values()]
    groups = [group for group, _ in found if group]
    due = sum(map(_size, left)) + sum(_size(entry) for group, held in found if group for entry in held)
    if not groups:
        return ChosenFiles((), tuple(left), due)
    best = min((_rank(group, lost), at) for at, group in enumerate(groups))[1]
    return ChosenFiles(tuple(groups[best]), tuple(left), due)


def _group(
    entries: Iterable[ContentEntry],
    delete_heavy: set[str],
    limits: DataCompactionLimits,
    lost: Mapping[str, int],
    at_most: int,
) -> list[ContentEntry]:
    """Files of one partition that fit the limits together, preferably files whose rewrite was never rejected.

    Empty if a rewrite is not worth it.
    """
    ordered = sorted(
        entries,
        key=lambda entry: (
            lost.get(entry.location, 0),
            entry.location not in delete_heavy,
            _size(entry),
            entry.location,
        ),
    )
    most_bytes, group, size = min(limits.target_bytes, limits.bytes), list[ContentEntry](), 0
    for entry in ordered:
        if len(group) < at_most and (not group or size + _size(entry) <= most_bytes):
            group.append(entry)
            size += _size(entry)
    is_worth_it = any(entry.location in delete_heavy for entry in group) or len(group) >= min(
        limits.files, max(2, at_most)
    )
    return group if is_worth_it else []


def _rank(group: Sequence[ContentEntry], lost: Mapping[str, int]) -> tuple[int, int, str]:
    return sum(lost.get(entry.location, 0) for entry in group), -len(group), group[0].location


def groups_to_pack(
    tasks: Iterable[FileTask], definition: TableDefinition, limits: DataCompactionLimits
) -> Iterator[tuple[FileTask, ...]]:
    """Every group of small and delete-heavy files of one partition that is worth a rewrite.

    A single delete-heavy file may be a group. Here equality deletes make a file delete-heavy, too. Files of similar
    size are grouped in the order of their row ids, which follows the order of appends. So a column that grows with time
    still has narrow bounds in each new file, and filters on it skip files.
    """
    for of_partition in _by_partition(tasks, definition):
        due = [task for task in of_partition if size_of(task) < limits.small or _is_delete_heavy_task(task, limits)]
        for group in filled(sorted(due, key=_by_size_and_age), limits.target_bytes):
            if len(group) >= limits.files or any(_is_delete_heavy_task(task, limits) for task in group):
                yield group


def groups_to_order(
    tasks: Iterable[FileTask], definition: TableDefinition, bytes_max: int
) -> Iterator[tuple[FileTask, ...]]:
    """All files, in groups of one partition, so that their rows can be sorted across the new files."""
    for of_partition in _by_partition(tasks, definition):
        yield from filled(of_partition, bytes_max, ORDERED_FILES_MAX)


def filled(tasks: Iterable[FileTask], bytes_max: int, files_max: int = FILES_MAX) -> Iterator[tuple[FileTask, ...]]:
    """Divide tasks, in order, into groups within both limits. A file above `bytes_max` is a group alone."""
    group, size, names = list[FileTask](), 0, 0
    for task in tasks:
        more = size_of(task)
        if group and (size + more > bytes_max or len(group) >= files_max or names + len(task.location) > _NAMES_MAX):
            yield tuple(group)
            group, size, names = [], 0, 0
        group.append(task)
        size += more
        names += len(task.location)
    if group:
        yield tuple(group)


def size_of(task: FileTask) -> int:
    """The size of the task's file in bytes."""
    return _size(task.data)


def _by_size_and_age(task: FileTask) -> tuple[int, int]:
    """A sort key: the size up to a factor of two, then the first row id, which follows the order of appends."""
    return size_of(task).bit_length(), task.data.first_row_id or 0


def _by_partition(tasks: Iterable[FileTask], definition: TableDefinition) -> Iterable[list[FileTask]]:
    """The tasks whose files are of the table's default spec, by partition."""
    partitions: dict[Hashable, list[FileTask]] = {}
    for task in tasks:
        values = partition_tuple(task.data, definition)
        if task.data.partition_spec_id == definition.default_spec_id and values is not None:
            partitions.setdefault(values, []).append(task)
    return partitions.values()


def _is_delete_heavy_task(task: FileTask, limits: DataCompactionLimits) -> bool:
    deleted = sum(vector.record_count for vector in task.vectors)
    return bool(task.deletes) or _are_many(deleted, task.record_count, limits)


def _is_delete_heavy(files: TableFiles, entry: ContentEntry, limits: DataCompactionLimits) -> bool:
    vector = files.draft.vector_of(entry.location)
    return vector is not None and _are_many(vector.entry.record_count, entry.record_count, limits)


def _are_many(deleted: int, rows: int, limits: DataCompactionLimits) -> bool:
    return deleted > 0 and deleted * 100 >= limits.deleted_percent * rows


def _size(entry: ContentEntry) -> int:
    return entry.file_size_in_bytes or 0
