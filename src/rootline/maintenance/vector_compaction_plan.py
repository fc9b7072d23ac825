"""Which manifest vectors are too large for a root that is written with every commit.

Owns: the choice, and the Puffin file. Does not own: thresholds (`compaction_limits`), storing the file
(`rootline.workers.jobs`), what became of the leaves since (`rootline.tree`).
Invariants: pure; a vector that moves holds all that is dead in its leaf.

Source: format page, "Manifest vectors".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyroaring import BitMap, BitMap64

from rootline.maintenance.compaction_limits import CompactionLimits
from rootline.maintenance.plan import IntentStamp, WrittenPlan
from rootline.maintenance.puffin_vectors import vectors_of_puffin
from rootline.schemas.bytes.root.root_codec import Root
from rootline.schemas.bytes.vector.puffin_codec import VectorBlob, encode_puffin, puffin_name
from rootline.schemas.content_entry import ContentType, Status
from rootline.schemas.identifiers import Location, Version
from rootline.schemas.intent import IntentKind
from rootline.schemas.table_definition import TableDefinition
from rootline.tree.state.pending_object import PendingObject

_WORTH_IT: Final = 512
"""Bytes below which a vector stays: a row that names a Puffin file is not much shorter."""


@dataclass(frozen=True, slots=True)
class VectorCompactionPlan:
    """Leaf → its dead ordinals, for one Puffin file."""

    made_from_version: Version
    vectors: Mapping[str, BitMap]

    @property
    def entries(self) -> int:
        """Vectors that the plan moves."""
        return len(self.vectors)

    @property
    def leaf_count(self) -> int:
        """New leaves: vectors alone move."""
        return 0

    def write(self, stamp: IntentStamp, definition: TableDefinition) -> WrittenPlan:
        """One Puffin file, and the intent that names its vectors; as `Plan.write`."""
        blobs = [VectorBlob(leaf, BitMap64(ordinals)) for leaf, ordinals in self.vectors.items()]
        puffin = encode_puffin(blobs)
        location = puffin_name(f"metadata/vectors/{stamp.object_uuid(0)}", puffin.body)
        vectors = vectors_of_puffin(location, puffin, blobs, [None] * len(blobs))
        intent = stamp.intent(IntentKind.COMPACT_VECTORS, self.made_from_version, add_vectors=vectors)
        return WrittenPlan((PendingObject(Location(location), puffin.body),), intent)


def inline_bytes(root: Root) -> dict[str, int]:
    """Leaf → bytes of its vectors in the root."""
    found: dict[str, int] = defaultdict(int)
    for row in root.rows:
        entry, vector = row.entry, row.entry.deletion_vector
        if entry.content_type is ContentType.MANIFEST_DV and entry.version_info.status is not Status.DELETED:
            inline = None if vector is None else vector.inline_content
            found[entry.referenced_file or entry.location] += 0 if inline is None else len(inline)
    return dict(found)


def large_vectors(sizes: Mapping[str, int], limits: CompactionLimits) -> list[str]:
    """Leaves whose vectors are due: every large one, and the largest while all together are too much for a root."""
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
    """What to move out of `root`; `dead`: leaf → its dead ordinals."""
    due = large_vectors(inline_bytes(root), limits)
    return VectorCompactionPlan(root.header.version, {leaf: dead[leaf] for leaf in due}) if due else None
