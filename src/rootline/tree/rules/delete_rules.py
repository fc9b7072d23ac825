"""Rules for deletes of rows: those in a writer's leaves, and the data files that equality deletes may reach.

Owns: the rules of vectors and equality deletes in such a leaf, and the search of root and leaves for files within
reach. Does not own: the leaf (`leaf_rules`), the blobs and when a vector replaces another (`vector_rules`), vectors
that an intent lists one by one (`row_delta`), which files a delete reaches (`delete_index`).
Invariants:
* A stored leaf cannot be changed, so its vectors are never merged. A writer that did not see the live vector is
  rejected and must read again.
* A vector has its data file's partition values, because pruning depends on them.
* No file within reach is omitted. A leaf whose files are all newer than the deletes is not read.

Source: the Single File Commits proposal, "A Complex Row Delta with Modified Delete Vectors". Format page, type 4.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from rootline.schemas.bytes.leaf import LeafContent
from rootline.schemas.content_entry import ContentEntry, ContentStats, ContentType, EntryPlace, Status, same_bound
from rootline.schemas.errors import Invalid
from rootline.schemas.intent import AddedVector, Intent
from rootline.tree.draft.change import IncomingLeaf
from rootline.tree.draft.draft import Draft
from rootline.tree.rules.file_rules import check_equality_ids
from rootline.tree.rules.leaf_rules import named_locations
from rootline.tree.rules.vector_rules import reference_of
from rootline.tree.scan.delete_index import DeleteIndex, may_have_deletes
from rootline.tree.state.leaf_lookup import LeafLookup
from rootline.tree.state.live_index import Live

_AT_ONCE: Final = 64


class DeletesOfLeaves:
    """The deletes in the leaves of one intent, and the data files in its leaves."""

    def __init__(self, draft: Draft, intent: Intent, leaves: Sequence[IncomingLeaf]) -> None:
        self._draft, self._intent = draft, intent
        self._deletes = [leaf for leaf in leaves if leaf.lookup.leaf.content is LeafContent.DELETE]
        self._data = {leaf.lookup.location: leaf.lookup for leaf in leaves if leaf not in self._deletes}
        self._locations = set(named_locations(intent))
        self._places = {(vector.location, vector.offset) for vector in intent.add_vectors}
        self._targets = {vector.referenced_file for vector in intent.add_vectors}

    def data_file(self, location: str) -> ContentEntry | None:
        """The data file that a leaf of the intent adds at `location`."""
        place = EntryPlace(ContentType.DATA, location)
        for lookup in self._data.values():
            ordinal = lookup.ordinal_of(place)
            if ordinal is not None:
                return lookup.entry(ordinal)
        return None

    def vectors(self) -> Iterator[AddedVector]:
        """Each vector, as the intent would list it, with the vector that it replaces. Equality deletes are checked on
        the way.

        Raises:
            Invalid: `row-conflict`, the writer cannot have seen the live vector; `file-not-live`, `file-named-twice`,
                `leaf-invalid`, `location-invalid`, `intent-malformed`.
        """
        for leaf in self._deletes:
            affinity = leaf.row.entry.referenced_file
            owner = None if affinity is None else self._owner(leaf, affinity)
            for ordinal, entry in enumerate(leaf.lookup.leaf.entries()):
                name = f"leaf {leaf.lookup.location!r}, entry {ordinal} ({entry.location[:80]!r})"
                if entry.content_type is ContentType.POSITION_DELETE:
                    yield self._vector(name, entry, owner)
                elif owner is not None:
                    raise Invalid(
                        "leaf-invalid", f"{name}: the leaf belongs to one data leaf, but this entry is not a vector"
                    )
                else:
                    self._check_equality(name, entry)

    def _owner(self, leaf: IncomingLeaf, affinity: str) -> LeafLookup:
        owner = self._data.get(affinity) or self._draft.in_leaves.lookup(affinity)
        if owner is None or not owner.holds(ContentType.DATA):
            name = f"leaf {leaf.lookup.location!r}"
            raise Invalid("leaf-invalid", f"{name} belongs to {affinity!r}, which is not a data leaf of the table")
        return owner

    def _vector(self, name: str, entry: ContentEntry, owner: LeafLookup | None) -> AddedVector:
        target = entry.referenced_file or ""
        stored = entry.deletion_vector
        if stored is None or stored.offset is None or stored.size_in_bytes is None:
            raise Invalid("leaf-invalid", f"{name}: the vector has no place: set offset and size")
        if target in self._targets or (entry.location, stored.offset) in self._places:
            raise Invalid("file-named-twice", f"{name}: the intent adds this vector, or one of {target!r}, twice")
        self._targets.add(target)
        self._places.add((entry.location, stored.offset))
        data = self.data_file(target) or self._read_data(name, target)
        if owner is not None and not self._is_live_in(owner, target):
            raise Invalid(
                "leaf-invalid", f"{name}: {target!r} is not live in {owner.location!r}: leave referenced_file empty"
            )
        self._check_partition(name, entry, data)
        current = self._draft.vector_of(target)
        if current is not None:
            self._check_seen(name, current)
        return AddedVector(
            location=entry.location,
            offset=stored.offset,
            size_in_bytes=stored.size_in_bytes,
            file_size_in_bytes=entry.file_size_in_bytes or 0,
            cardinality=entry.record_count,
            referenced_file=target,
            replaces_vector=reference_of(current),
        )

    def _read_data(self, name: str, target: str) -> ContentEntry:
        """The live data file. Rejects one that was added or restored after the writer read."""
        live = self._draft.find(EntryPlace(ContentType.DATA, target))
        if live is None:
            raise Invalid("file-not-live", f"{name}: {target!r} is not part of the table")
        read, number = self._intent.read_sequence_number, live.entry.version_info.file_sequence_number or 0
        if read is not None and max(number, self._draft.restored_at) > read:
            raise Invalid(
                "row-conflict",
                f"{name}: {target!r} was added or restored at sequence number {max(number, self._draft.restored_at)}, "
                f"after {read}, which the writer read: read the table again",
            )
        return live.entry

    def _is_live_in(self, owner: LeafLookup, target: str) -> bool:
        ordinal = owner.ordinal_of(EntryPlace(ContentType.DATA, target))
        return ordinal is not None and not self._draft.in_leaves.is_dead(owner.location, ordinal)

    def _check_partition(self, name: str, entry: ContentEntry, data: ContentEntry) -> None:
        if entry.partition_spec_id != data.partition_spec_id:
            raise Invalid(
                "leaf-invalid",
                f"{name} is of spec {entry.partition_spec_id}, its data file of {data.partition_spec_id}",
            )
        for expr_id in self._draft.definition.spec_by_id(data.partition_spec_id).expr_ids:
            if not _says_the_same(entry.content_stats, data.content_stats, expr_id):
                raise Invalid("leaf-invalid", f"{name}: id {expr_id} is not the partition value of its data file")
        if len(entry.content_stats) > len(self._draft.definition.spec_by_id(data.partition_spec_id).expr_ids):
            raise Invalid("leaf-invalid", f"{name}: a vector must have partition values and no other statistics")

    def _check_seen(self, name: str, current: Live) -> None:
        read, number = self._intent.read_sequence_number, current.entry.version_info.file_sequence_number or 0
        if read is None or number > read:
            known = "no read_sequence_number was sent" if read is None else f"the writer read {read}"
            raise Invalid(
                "row-conflict",
                f"{name}: its data file has a vector of sequence number {number}, but {known}: read the table again, "
                "and write a vector with those rows too",
            )

    def _check_equality(self, name: str, entry: ContentEntry) -> None:
        check_equality_ids(self._draft, name, entry.equality_ids or ())
        if entry.location in self._locations or self.data_file(entry.location) is not None:
            raise Invalid("file-named-twice", f"{name}: the intent lists this file twice")
        self._locations.add(entry.location)
        if self._draft.is_live(entry.location):
            raise Invalid("file-already-live", f"{name} is already part of the table")


def _says_the_same(one: ContentStats, other: ContentStats, expr_id: int) -> bool:
    """Whether both have the same partition value, or neither has one."""
    mine, theirs = one.get(expr_id), other.get(expr_id)
    if mine is None or theirs is None:
        return mine is theirs
    return same_bound(mine.lower_bound, theirs.lower_bound)


def reached_files(draft: Draft, index: DeleteIndex) -> Iterator[ContentEntry]:
    """The live data files that a delete of `index` may reach. Raises `Invalid` (`equality-delete-unread`)."""
    for live in draft.live_rows():
        if live.entry.content_type is ContentType.DATA and index.of_file(live.entry):
            yield live.entry
    for leaf_row in draft.in_leaves.rows():
        lookup = draft.in_leaves.lookup(leaf_row.location)
        if lookup is None or not lookup.holds(ContentType.DATA) or not _has_older_files(index, leaf_row):
            continue
        near = np.flatnonzero(may_have_deletes(index, lookup.leaf, leaf_row)).tolist()
        alive = [ordinal for ordinal in near if not draft.in_leaves.is_dead(lookup.location, ordinal)]
        for start in range(0, len(alive), _AT_ONCE):
            for entry in lookup.leaf.entries_at(alive[start : start + _AT_ONCE]):
                if entry.version_info.status is not Status.DELETED and index.of_file(entry):
                    yield entry


def _has_older_files(index: DeleteIndex, leaf_row: ContentEntry) -> bool:
    stats, deletes = leaf_row.manifest_stats, index.reaching(leaf_row.partition_spec_id).equality
    newest = max((entry.version_info.sequence_number or 0 for entry in deletes), default=0)
    return bool(deletes) and (stats is None or stats.min_sequence_number < newest)
