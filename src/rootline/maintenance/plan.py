"""The interface of maintenance plans. A plan yields objects to store and one intent to publish after them.

Owns: the interface of a plan and its output, the conversion of entries that move to a leaf, the division of entries
into leaves, the form in which an intent names leaves and the vectors of a Puffin file. Does not own: the plans
(`*_plan`), the order of entries (`file_leaves`), the bytes of a leaf (`leaf_codec`), storing and publishing
(`rootline.workers.jobs.maintenance_job`).
Invariants: pure. A plan that is written twice with one stamp yields the same objects under the same names. A leaf has
one spec, and data or deletes. Every entry is EXISTING with the explicit snapshot id, sequence numbers and first row id
of its former place.
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
from rootline.tree.state.table_state import PendingObject


@dataclass(frozen=True, slots=True)
class IntentStamp:
    """The identity of an intent: its id, its writer and its table.

    `intent_id`: fresh, 32 hex digits. The names of the plan's new objects are made from it.
    """

    intent_id: str
    table: TableName
    table_uuid: uuid.UUID
    writer_id: str
    writer_sequence: int

    def object_uuid(self, number: int) -> uuid.UUID:
        """A unique UUID for the name of the plan's object `number`."""
        return uuid.uuid5(uuid.UUID(self.intent_id), str(number))

    def intent(self, kind: IntentKind, made_from_version: Version, **cargo: Any) -> Intent:
        """The intent with the id and the writer of this stamp. `cargo`: the fields of `Intent` for this `kind`."""
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
    """A change of the metadata tree of one table, planned from one root."""

    @property
    def made_from_version(self) -> Version:
        """The version of the root from which the plan was made."""
        ...

    @property
    def leaf_count(self) -> int:
        """The number of new leaves."""
        ...

    @property
    def entries(self) -> int:
        """The number of entries that the plan moves, replaces or removes."""
        ...

    def write(self, stamp: IntentStamp, definition: TableDefinition) -> WrittenPlan:
        """Encode the objects, and make the intent. The same arguments yield the same bytes and names.

        Encoding blocks, perhaps for long.

        Raises:
            Invalid: `leaf-invalid`, `statistics-invalid`, a leaf cannot represent an entry.
        """
        ...


@dataclass(frozen=True, slots=True)
class InPlan:
    """A data leaf of the same plan, by its index among the plan's leaves."""

    index: int


@dataclass(frozen=True, slots=True)
class InRoot:
    """A data leaf that the root already names."""

    location: str


@dataclass(frozen=True, slots=True)
class PlannedLeaf:
    """One leaf to write: its entries in order, of one spec.

    `affinity`: the data leaf that lists the data files of its deletion vectors, `None` if no single leaf does.
    """

    content: LeafContent
    spec_id: int
    entries: tuple[ContentEntry, ...]
    affinity: InPlan | InRoot | None = None


@dataclass(frozen=True, slots=True)
class WrittenLeaves:
    """The leaves of a plan in order, as objects to store and as manifests of an intent."""

    objects: tuple[PendingObject, ...]
    manifests: tuple[AddedManifest, ...]


def write_leaves(
    leaves: Sequence[PlannedLeaf], definition: TableDefinition, leaf_uuid: Callable[[int], uuid.UUID]
) -> WrittenLeaves:
    """Encode `leaves`. `leaf_uuid` maps a leaf's index to the UUID in its name.

    Raises:
        Invalid: `leaf-invalid`, `statistics-invalid`, a leaf cannot represent an entry.
    """
    objects: list[PendingObject] = []
    manifests: list[AddedManifest] = []
    for index, planned in enumerate(leaves):
        leaf = encode_leaf(planned.entries, definition, leaf_uuid=leaf_uuid(index), content=planned.content)
        objects.append(PendingObject(leaf.location, leaf.body))
        manifests.append(manifest_of(planned, leaf, manifests))
    return WrittenLeaves(tuple(objects), tuple(manifests))


def manifest_of(planned: PlannedLeaf, leaf: EncodedLeaf, before: Sequence[AddedManifest]) -> AddedManifest:
    """The intent's manifest for `leaf`, the encoded form of `planned`.

    `before`: the manifests of the plan's earlier leaves.
    """
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
    """Divide `entries` into leaves of one partition spec and at most `entries_max` entries, sorted by `cluster`."""
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
    """The intent's entries for the vectors in `puffin`, each with the vector that it replaces."""
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
