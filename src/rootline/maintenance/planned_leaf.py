"""Leaves of a plan: what each holds, in which order, what it belongs to, and how they become objects.

Owns: the form of entries in a leaf that takes them over, how many entries fill how many leaves, and how an intent names
a leaf. Does not own: which entries (`flush_plan`, `leaf_compaction_plan`), their order (`clustering`), the bytes of a
leaf (`leaf_codec`).
Invariants: a leaf holds one spec, and data or deletes; every entry is EXISTING with the explicit snapshot id, sequence
numbers and first row id of the place that it came from.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from rootline.maintenance.clustering import cluster, cut
from rootline.schemas.bytes.leaf_codec import EncodedLeaf, LeafContent, encode_leaf
from rootline.schemas.content_entry import ContentEntry, ContentType, FileFormat, Status
from rootline.schemas.intent import AddedManifest
from rootline.schemas.table_definition import TableDefinition
from rootline.tree.state.pending_object import PendingObject


@dataclass(frozen=True, slots=True)
class InPlan:
    """Affiliated with a data leaf of the same plan, by its index among the plan's leaves."""

    index: int


@dataclass(frozen=True, slots=True)
class InRoot:
    """Affiliated with a data leaf that the root names already."""

    location: str


@dataclass(frozen=True, slots=True)
class PlannedLeaf:
    """One leaf to write: its entries in order, of one spec. `affinity`: the data leaf that its vectors belong to."""

    content: LeafContent
    spec_id: int
    entries: tuple[ContentEntry, ...]
    affinity: InPlan | InRoot | None = None


@dataclass(frozen=True, slots=True)
class WrittenLeaves:
    """The leaves of a plan, in its order: as objects to store, and as an intent names them."""

    objects: tuple[PendingObject, ...]
    manifests: tuple[AddedManifest, ...]


def write_leaves(
    leaves: Sequence[PlannedLeaf], definition: TableDefinition, leaf_uuid: Callable[[int], uuid.UUID]
) -> WrittenLeaves:
    """Encode `leaves`; `leaf_uuid`: from a leaf's index to the UUID in its name.

    Raises:
        Invalid: `leaf-invalid`, `statistics-invalid`, a leaf cannot hold an entry.

    """
    objects: list[PendingObject] = []
    manifests: list[AddedManifest] = []
    for index, planned in enumerate(leaves):
        leaf = encode_leaf(planned.entries, definition, leaf_uuid=leaf_uuid(index), content=planned.content)
        objects.append(PendingObject(leaf.location, leaf.body))
        manifests.append(manifest_of(planned, leaf, manifests))
    return WrittenLeaves(tuple(objects), tuple(manifests))


def manifest_of(planned: PlannedLeaf, leaf: EncodedLeaf, before: Sequence[AddedManifest]) -> AddedManifest:
    """What an intent says of `leaf`, the encoded `planned` one; `before`: the same of the plan's leaves before it."""
    owner: str | None = None
    if isinstance(planned.affinity, InPlan):
        owner = before[planned.affinity.index].location
    elif isinstance(planned.affinity, InRoot):
        owner = planned.affinity.location
    is_data = planned.content is LeafContent.DATA
    return AddedManifest(
        location=leaf.location,
        content_type=ContentType.DATA_MANIFEST if is_data else ContentType.DELETE_MANIFEST,
        file_format=FileFormat.PARQUET,
        file_size_in_bytes=len(leaf.body),
        record_count=len(planned.entries),
        partition_spec_id=planned.spec_id,
        referenced_file=owner,
    )


def planned_leaves(
    content: LeafContent,
    entries: Iterable[ContentEntry],
    definition: TableDefinition,
    entries_max: int,
    affinity: InPlan | InRoot | None,
) -> list[PlannedLeaf]:
    """Leaves of at most `entries_max` of `entries`, by spec, clustered."""
    of_spec: dict[int, list[ContentEntry]] = defaultdict(list)
    for entry in entries:
        existing = replace(entry.version_info, status=Status.EXISTING)
        of_spec[entry.partition_spec_id].append(entry.with_version_info(existing))
    return [
        PlannedLeaf(content, spec_id, tuple(piece), affinity)
        for spec_id in sorted(of_spec)
        for piece in cut(cluster(of_spec[spec_id], definition, spec_id), entries_max)
    ]
