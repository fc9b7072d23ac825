"""The form of every plan: the objects to store, the leaves among them, and the intent to publish after them.

Owns: the shape of a plan and of its output, entries in a leaf that takes them over, how many entries fill how many
leaves, how an intent names leaves and the vectors of a Puffin file. Does not own: the plans (`*_plan`), the order of
entries (`file_leaves`), the bytes of a leaf (`leaf_codec`), storing and publishing
(`rootline.workers.jobs.maintenance_job`).
Invariants: pure. A plan that is written twice with one stamp gives the same objects under the same names. A leaf holds
one spec, and data or deletes. Every entry is EXISTING with the explicit snapshot id, sequence numbers and first row id
of the place that it came from.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from rootline.maintenance.file_leaves import cluster, cut
from rootline.schemas.bytes.leaf_codec import EncodedLeaf, LeafContent, encode_leaf
from rootline.schemas.bytes.vector_codec import EncodedPuffin, VectorBlob
from rootline.schemas.content_entry import ContentEntry, ContentType, FileFormat, Status
from rootline.schemas.identifiers import TableName, Version
from rootline.schemas.intent import AddedManifest, AddedVector, Intent, IntentKind, VectorReference
from rootline.schemas.table_definition import TableDefinition
from rootline.tree.state.pending_object import PendingObject


@dataclass(frozen=True, slots=True)
class IntentStamp:
    """Whose intent it is, and of which table. `intent_id`: fresh, 32 hex digits; new objects are named after it."""

    intent_id: str
    table: TableName
    table_uuid: uuid.UUID
    writer_id: str
    writer_sequence: int

    def object_uuid(self, number: int) -> uuid.UUID:
        """For the name of the plan's object `number`: no other object has it."""
        return uuid.uuid5(uuid.UUID(self.intent_id), str(number))

    def intent(self, kind: IntentKind, made_from_version: Version, **cargo: Any) -> Intent:
        """The intent of this stamp; `cargo`: the fields of `Intent` that `kind` carries."""
        return Intent(
            intent_id=self.intent_id,
            table=self.table,
            table_uuid=self.table_uuid,
            kind=kind,
            writer_id=self.writer_id,
            writer_sequence=self.writer_sequence,
            made_from_version=made_from_version,
            **cargo,
        )


@dataclass(frozen=True, slots=True)
class WrittenPlan:
    """A plan as bytes: `objects` to store, and then `intent` to publish."""

    objects: tuple[PendingObject, ...]
    intent: Intent


class Plan(Protocol):
    """What is to be done to one root of a table."""

    @property
    def made_from_version(self) -> Version:
        """The root's."""
        ...

    @property
    def leaf_count(self) -> int:
        """New leaves."""
        ...

    @property
    def entries(self) -> int:
        """Entries that move."""
        ...

    def write(self, stamp: IntentStamp, definition: TableDefinition) -> WrittenPlan:
        """The objects and the intent; the same arguments give the same bytes and names. Encoding takes a while.

        Raises:
            Invalid: `leaf-invalid`, `statistics-invalid`, a leaf cannot hold an entry.

        """
        ...


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


def vectors_of_puffin(
    location: str, puffin: EncodedPuffin, blobs: Sequence[VectorBlob], replaces: Sequence[VectorReference | None]
) -> tuple[AddedVector, ...]:
    """One for each of `blobs`, which `puffin` was made of, and the vector that each replaces."""
    return tuple(
        AddedVector(
            location=location,
            offset=place.offset,
            size_in_bytes=place.size,
            file_size_in_bytes=len(puffin.body),
            cardinality=place.cardinality,
            referenced_file=blob.referenced_data_file,
            replaces_vector=replaced,
        )
        for blob, place, replaced in zip(blobs, puffin.places, replaces, strict=True)
    )
