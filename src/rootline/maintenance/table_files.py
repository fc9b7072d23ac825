"""The live files of one version, with what deletes rows of each, for plans that read or replace them.

Owns: finding them in a loaded table. Does not own: which deletes apply to a file (`rootline.tree.scan.delete_index`),
reading rows, which files are worth it (`conversion_plan`, `data_compaction_plan`).
Invariants: pure; a task names all that deletes rows of its file, or all but the equality deletes that a plan leaves
out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from rootline.schemas.content_entry import ContentEntry, ContentType, Status
from rootline.schemas.intent import VectorReference
from rootline.tree.draft.draft import Draft
from rootline.tree.draft.live_deletes import live_equality_deletes
from rootline.tree.rules.equality_reach_rules import reached_files
from rootline.tree.rules.removal_rules import reference_of
from rootline.tree.scan.delete_index import DeleteIndex
from rootline.tree.scan.file_task import FileTask, VectorsOfLeaf
from rootline.tree.state.live_index import Live
from rootline.tree.state.table_state import TableState


@dataclass(frozen=True)
class TableFiles:
    """The files of `state`."""

    state: TableState

    @cached_property
    def draft(self) -> Draft:
        """What the coordinator would judge an intent against that came now."""
        return Draft.to_plan_on(self.state)

    @cached_property
    def equality_deletes(self) -> tuple[ContentEntry, ...]:
        """The live ones, oldest first."""
        return tuple(sorted(live_equality_deletes(self.draft), key=_age))

    @cached_property
    def position_deletes(self) -> tuple[ContentEntry, ...]:
        """The live files of position deletes, which tables of older formats have; vectors are not among them."""
        found: list[ContentEntry] = []
        for location, row in self.state.live.leaf_rows.items():
            if row.entry.content_type is ContentType.DELETE_MANIFEST:
                leaf = self.state.leaves[location]
                files = VectorsOfLeaf().take(leaf, row.entry, self.state.live.dead.get(location))
                found += [entry for entry in files if entry.content_type is ContentType.POSITION_DELETE]
        return tuple(found)

    def index(self, deletes: tuple[ContentEntry, ...]) -> DeleteIndex:
        """Of some equality deletes, and of all position deletes. Raises `Invalid` (`equality-delete-unread`)."""
        return DeleteIndex.of((*deletes, *self.position_deletes), self.state.definition, None)

    def reached(self, deletes: tuple[ContentEntry, ...]) -> Iterator[FileTask]:
        """The files that one of some equality deletes may reach. Raises `Invalid` (`equality-delete-unread`)."""
        index = self.index(deletes)
        for entry in reached_files(self.draft, DeleteIndex.of(deletes, self.state.definition, None)):
            yield self.task(entry, index)

    def task(self, data: ContentEntry, index: DeleteIndex) -> FileTask:
        """A data file with its vector and the deletes of `index` that apply to it."""
        vector = self.draft.vector_of(data.location)
        return FileTask(data, () if vector is None else (vector.entry,), deletes=index.of_file(data))

    def vector_of(self, data_location: str) -> VectorReference | None:
        """The vector of a data file, as intents name it."""
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
