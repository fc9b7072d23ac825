"""Plans to move manifest vectors that are too large for a root, and to join scattered vectors of data files.

A *manifest vector* is a list of dead entries of a leaf, in the root or in a Puffin file. Every small delete writes a
Puffin file with the deletion vectors of one or a few data files, and a scan opens all these files. So files with few
vectors are joined into larger ones, of at most `JOINED_MAX` vectors. The vectors are ordered by data leaf, so that a
scan that prunes leaves opens few files. A file with half of `JOINED_MAX` vectors, or half of `JOINED_BYTES_MAX`, is not
joined, so a vector moves a bounded number of times.

Owns: the choice, and the Puffin file. Does not own: thresholds (`rootline.maintenance.limits`), storing the file
(`metadata_jobs`), later changes of leaves and vectors (`rootline.tree`).
Invariants: pure. A manifest vector that moves contains all dead entries of its leaf. A joined vector is unchanged.

Source: format page, "Manifest vectors" and "Deletion vectors"; decision 0034.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap, BitMap64

from rootline.maintenance.limits import CompactionLimits
from rootline.maintenance.plan import IntentStamp, WrittenPlan, vectors_of_puffin
from rootline.schemas.bytes.leaf import Leaf
from rootline.schemas.bytes.root.root_codec import Root
from rootline.schemas.bytes.vector_codec import VectorBlob, encode_puffin, puffin_name
from rootline.schemas.content_entry import ContentEntry, ContentType, Status
from rootline.schemas.identifiers import Location, Version
from rootline.schemas.intent import IntentKind
from rootline.schemas.table_definition import TableDefinition
from rootline.tree.rules.vector_rules import reference_of_entry
from rootline.tree.state.table_state import PendingObject

JOINED_MAX: Final = 256
"""Vectors in one intent. The coordinator reads as many Puffin files before it continues with the table."""
JOINED_BYTES_MAX: Final = 4_000_000
_NAMES: Final = ["data", "location", "size", "data_leaf", "leaf", "ordinal"]
_KINDS: Final = [pa.string(), pa.string(), pa.int64(), pa.string(), pa.int64(), pa.int64()]
_WORTH_IT: Final = 512
"""Bytes below which a vector stays inline, because a row that names a Puffin file is not much shorter."""


@dataclass(frozen=True, slots=True)
class VectorCompactionPlan:
    """Vectors for one Puffin file. `vectors`: leaf → positions of its dead entries.

    `joined`: vectors of data files, each with the positions of the deleted rows.
    """

    made_from_version: Version
    vectors: Mapping[str, BitMap] = field(default_factory=dict)
    joined: Sequence[tuple[ContentEntry, BitMap64]] = ()

    @property
    def entries(self) -> int:
        """The number of vectors that move."""
        return len(self.vectors) + len(self.joined)

    @property
    def leaf_count(self) -> int:
        """The number of new leaves, which is 0."""
        return 0

    def write(self, stamp: IntentStamp, definition: TableDefinition) -> WrittenPlan:
        """Encode one Puffin file, and make the intent that names its vectors."""
        blobs = [VectorBlob(leaf, BitMap64(ordinals)) for leaf, ordinals in self.vectors.items()]
        blobs += [VectorBlob(vector.referenced_file or "", positions) for vector, positions in self.joined]
        replaces = [*(None for _ in self.vectors), *(reference_of_entry(vector) for vector, _ in self.joined)]
        puffin = encode_puffin(blobs)
        own = stamp.object_uuid(0)
        prefix = f"data/{own}-deletes" if self.joined else f"metadata/vectors/{own}"
        location = puffin_name(prefix, puffin.body)
        vectors = vectors_of_puffin(location, puffin, blobs, replaces)
        intent = stamp.intent(IntentKind.COMPACT_VECTORS, self.made_from_version, add_vectors=vectors)
        return WrittenPlan((PendingObject(Location(location), puffin.body),), intent)


def inline_bytes(root: Root) -> dict[str, int]:
    """Leaf → bytes of its manifest vectors that are in the root itself."""
    found: dict[str, int] = defaultdict(int)
    for row in root.rows:
        entry, vector = row.entry, row.entry.deletion_vector
        if entry.content_type is ContentType.MANIFEST_DV and entry.version_info.status is not Status.DELETED:
            inline = None if vector is None else vector.inline_content
            found[entry.referenced_file or entry.location] += 0 if inline is None else len(inline)
    return dict(found)


def large_vectors(sizes: Mapping[str, int], limits: CompactionLimits) -> list[str]:
    """The leaves whose manifest vectors must move out of the root.

    Every large vector moves. If the total is too large, the largest of the others move until it is half of the limit.
    """
    total = sum(sizes.values())
    is_crowded = total > limits.root_vector_bytes
    due: list[str] = []
    for leaf, size in sorted(sizes.items(), key=lambda item: (-item[1], item[0])):
        is_too_much = is_crowded and total > limits.root_vector_bytes // 2 and size >= _WORTH_IT
        if size > limits.vector_bytes or is_too_much:
            due.append(leaf)
            total -= size
    return due


def plan_vector_compaction(
    root: Root, limits: CompactionLimits, dead: Mapping[str, BitMap]
) -> VectorCompactionPlan | None:
    """Plan to move manifest vectors out of `root`, or return `None` if none must move.

    `dead`: leaf → positions of its dead entries.
    """
    due = large_vectors(inline_bytes(root), limits)
    return VectorCompactionPlan(root.header.version, {leaf: dead[leaf] for leaf in due}) if due else None


class DataVectors:
    """The live deletion vectors of a table: those that are rows of the root, and columns of those in delete leaves."""

    def __init__(self, root: Root) -> None:
        rows = (row.entry for row in root.rows if row.entry.version_info.status is not Status.DELETED)
        self._in_root = [entry for entry in rows if _is_vector(entry)]
        self._leaves: list[Leaf] = []
        places = [(entry.referenced_file, entry.location, _size(entry)) for entry in self._in_root]
        columns = [list(column) for column in zip(*places, strict=True)] if places else [[], [], []]
        self._tables = [_table(columns, "", -1, range(len(places)))]

    def take(self, leaf: Leaf, row: ContentEntry, dead: BitMap | None) -> None:
        """Add the live vectors of a delete leaf. `row`: its row in the root. `dead`: positions of dead entries."""
        rows = leaf.rows
        is_vector = pc.and_(
            pc.equal(rows.column("content_type"), int(ContentType.POSITION_DELETE)), rows["deletion_vector"]
        )
        live = pc.and_(is_vector, pc.not_equal(rows.column("status"), int(Status.DELETED)))
        ordinals = np.flatnonzero(live.to_numpy())
        if dead:
            ordinals = ordinals[~np.isin(ordinals, np.asarray(dead.to_array(), dtype=np.int64))]
        picked = rows.select(["referenced_file", "location", "size_in_bytes"]).take(pa.array(ordinals, pa.int64()))
        self._tables.append(_table(picked.columns, row.referenced_file or "", len(self._leaves), ordinals.tolist()))
        self._leaves.append(leaf)

    def scattered(self, limits: CompactionLimits) -> list[ContentEntry]:
        """The vectors to join in one Puffin file. Empty if fewer than `vector_files` Puffin files have few vectors."""
        every = pa.concat_tables(self._tables)
        files = every.group_by("location").aggregate([("size", "sum"), ("size", "count")])
        is_small = pc.and_(
            pc.less_equal(files["size_count"], JOINED_MAX // 2), pc.less_equal(files["size_sum"], JOINED_BYTES_MAX // 2)
        )
        small = files.filter(is_small)["location"]
        if len(small) < limits.vector_files:
            return []
        candidates = every.filter(pc.is_in(every["location"], value_set=small.combine_chunks()))
        chosen = candidates.sort_by([("data_leaf", "ascending"), ("data", "ascending")]).slice(0, JOINED_MAX)
        fitting = int(np.searchsorted(np.cumsum(chosen["size"].to_numpy()), JOINED_BYTES_MAX, side="right"))
        places = chosen.select(["leaf", "ordinal"]).slice(0, max(1, fitting)).to_pylist()
        return [self._entry(place["leaf"], place["ordinal"]) for place in places]

    def _entry(self, leaf: int, ordinal: int) -> ContentEntry:
        return self._in_root[ordinal] if leaf < 0 else self._leaves[leaf].entry(ordinal)


def _is_vector(entry: ContentEntry) -> bool:
    return entry.content_type is ContentType.POSITION_DELETE and entry.deletion_vector is not None


def _size(entry: ContentEntry) -> int:
    return 0 if entry.deletion_vector is None else entry.deletion_vector.size_in_bytes or 0


def _table(columns: Sequence[Any], data_leaf: str, leaf: int, ordinals: Sequence[int]) -> pa.Table:
    """One row for each vector: data file, Puffin file, bytes, the data leaf that lists the file if known, and its
    place.
    """
    data, location, size = columns
    count = len(ordinals)
    arrays = [data, location, size, [data_leaf] * count, [leaf] * count, list(ordinals)]
    return pa.table(
        [
            pa.array(item, kind) if isinstance(item, list) else item.cast(kind)
            for item, kind in zip(arrays, _KINDS, strict=True)
        ],
        names=_NAMES,
    )
