"""From a plan to the intent that a writer of one table would send."""

from __future__ import annotations

import uuid

from rootline.schemas.content_entry import (
    ContentEntry,
    ContentType,
    DeletionVector,
    EntryPlace,
    FileFormat,
    Status,
    VersionInfo,
)
from rootline.schemas.intent import (
    AddedManifest,
    AddedVector,
    DataFile,
    EqualityDeleteFile,
    Intent,
    IntentKind,
    Isolation,
    RemovedFile,
    VersionReference,
)
from rootline.schemas.leaf_codec import LeafContent
from rootline.schemas.statistics import ContentStats
from rootline.tree.statistics_rules import partition_statistics
from rootline.tree.table_state import TableState
from tests.tree.reference_model import STALE, Plan
from tests.tree.tables import (
    BY_CARRIER,
    CARRIER,
    UNPARTITIONED,
    Lake,
    data_file,
    equality_delete,
    intent,
    new_entry,
    seen_vector,
)


def location(name: str) -> str:
    return f"data/{name}.parquet"


def intent_of(plan: Plan, lake: Lake, view: TableState) -> Intent:
    """The intent of a writer who read `view`, one of `lake`'s versions; what it names is stored in the lake."""
    cargo: dict[str, object] = {}
    if plan.writer is not None:
        cargo |= {"writer_id": plan.writer, "writer_sequence": plan.sequence}
    if plan.serializable is not None:
        cargo |= {"isolation": Isolation.SERIALIZABLE, "filter": f"id = {plan.serializable}"}
    if plan.kind in STALE:
        manifests = _leaves(plan, lake, view)
        if plan.kind is IntentKind.COMPACT_LEAVES:
            replaced = [found for name in plan.replaces if (found := _leaf_of(name, view)) is not None]
            cargo |= {"replaces": replaced, "reaffiliate": _moved_along(plan, view, manifests)}
        return intent(
            plan.kind,
            plan.intent_id,
            add_manifests=manifests,
            made_from_version=view.header.version,
            **cargo,
        )
    if plan.kind is IntentKind.RESTORE:
        return intent(plan.kind, plan.intent_id, ref=VersionReference(version=view.header.version), **cargo)
    if plan.tags is not None:
        version = None if plan.untags else view.header.version
        ref = VersionReference(version=version, tag=plan.tags, seen_version=view.header.tags.get(plan.tags))
        return intent(plan.kind, plan.intent_id, ref=ref, **cargo)
    files = [_data(name, carrier, ids) for name, carrier, ids in plan.adds]
    vectors = [
        lake.vector(
            f"{plan.intent_id}-{vector.target}",
            location(vector.target),
            vector.positions,
            seen_vector(view, location(vector.target)),
        )
        for vector in plan.vectors
    ]
    return intent(
        plan.kind,
        plan.intent_id,
        read_version=view.header.version,
        read_sequence_number=view.header.snapshot.sequence_number,
        add_data_files=[] if plan.adds_in_leaf else files,
        add_manifests=[
            *([_written(plan, lake, files)] if plan.adds_in_leaf else []),
            *([_written_vectors(plan, lake, view, vectors)] if plan.vectors_in_leaf else []),
        ],
        add_equality_deletes=[_equality(name, carrier, value) for name, carrier, value in plan.equality],
        remove_files=[
            RemovedFile(location=location(name), vector=seen_vector(view, location(name))) for name in plan.removes
        ],
        add_vectors=[] if plan.vectors_in_leaf else vectors,
        **cargo,
    )


def _written(plan: Plan, lake: Lake, files: list[DataFile]) -> AddedManifest:
    """The files of the plan in a leaf of the writer's own."""
    return lake.written_leaf(*(new_entry(file) for file in files), leaf_uuid=_uuid(plan.intent_id, "adds"))


def _written_vectors(plan: Plan, lake: Lake, view: TableState, vectors: list[AddedVector]) -> AddedManifest:
    """The vectors of the plan in a leaf of the writer's own."""
    entries = [
        ContentEntry(
            content_type=ContentType.POSITION_DELETE,
            location=vector.location,
            file_format=FileFormat.PUFFIN,
            version_info=VersionInfo(Status.ADDED),
            partition_spec_id=BY_CARRIER,
            record_count=vector.cardinality,
            file_size_in_bytes=vector.file_size_in_bytes,
            deletion_vector=DeletionVector(vector.offset, vector.size_in_bytes),
            referenced_file=vector.referenced_file,
            content_stats=_partition_of(_row(view, EntryPlace(ContentType.DATA, vector.referenced_file))),
        )
        for vector in vectors
    ]
    return lake.written_leaf(*entries, leaf_uuid=_uuid(plan.intent_id, "deletes"))


def _partition_of(entry: ContentEntry) -> ContentStats:
    return partition_statistics(entry.content_stats, (CARRIER,))


def _data(name: str, carrier: str, ids: tuple[int, ...]) -> DataFile:
    return data_file(name, carrier=carrier, ids=ids)


def _equality(name: str, carrier: str | None, value: int) -> EqualityDeleteFile:
    return equality_delete(name, value, carrier, spec=UNPARTITIONED if carrier is None else BY_CARRIER)


def _leaves(plan: Plan, lake: Lake, view: TableState) -> list[AddedManifest]:
    """The leaves of maintenance: one of data files, one of vectors, one each of equality deletes of a spec."""
    manifests: list[AddedManifest] = []
    files = [_row(view, EntryPlace(ContentType.DATA, location(name))) for name in plan.flushed_files]
    if files:
        manifests.append(lake.leaf(files, leaf_uuid=_uuid(plan.intent_id, "data")))
    vectors = [vector for name in plan.flushed_vectors if (vector := view.vector_of(location(name))) is not None]
    if vectors:
        owner = manifests[0].location if plan.affiliated else None
        leaf_uuid = _uuid(plan.intent_id, "vectors")
        manifests.append(lake.leaf(vectors, content=LeafContent.DELETE, leaf_uuid=leaf_uuid, belongs_to=owner))
    deletes = [_row(view, EntryPlace(ContentType.EQUALITY_DELETE, location(name))) for name in plan.flushed_equality]
    for spec, name in ((BY_CARRIER, "carrier"), (UNPARTITIONED, "all")):
        of_spec = [entry for entry in deletes if entry.partition_spec_id == spec]
        if of_spec:
            manifests.append(lake.leaf(of_spec, content=LeafContent.DELETE, leaf_uuid=_uuid(plan.intent_id, name)))
    return manifests


def _row(view: TableState, place: EntryPlace) -> ContentEntry:
    found = view.find(place)
    assert found is not None
    return found.entry


def _leaf_of(name: str, view: TableState) -> str | None:
    """The location of a leaf by the model's name for it, `<intent id>/<what it holds>`."""
    stem = f"metadata/leaves/{_uuid(*name.split('/'))}-"
    return next((location for location in view.leaves if location.startswith(stem)), None)


def _moved_along(plan: Plan, view: TableState, manifests: list[AddedManifest]) -> list[dict[str, str | None]]:
    """Every delete leaf of the view shall belong to the new data leaf; where that is wrong, it must not."""
    data = next((item.location for item in manifests if item.content_type is ContentType.DATA_MANIFEST), None)
    rows = [row.entry for row in view.live.leaf_rows.values()]
    deletes = [row.location for row in rows if row.content_type is ContentType.DELETE_MANIFEST]
    return [{"location": name, "referenced_file": data} for name in deletes] if plan.affiliated else []


def _uuid(intent_id: str, what: str) -> uuid.UUID:
    return uuid.uuid5(uuid.NAMESPACE_OID, f"{intent_id}/{what}")
