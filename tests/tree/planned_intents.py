"""From a plan to the intent that a writer of one table would send."""

from __future__ import annotations

import uuid

from rootline.schemas.content_entry import ContentEntry, ContentType, EntryPlace
from rootline.schemas.intent import (
    AddedManifest,
    DataFile,
    EqualityDeleteFile,
    Intent,
    IntentKind,
    Isolation,
    RemovedFile,
)
from rootline.schemas.leaf_codec import LeafContent
from rootline.tree.table_state import TableState
from tests.tree.reference_model import Plan
from tests.tree.tables import BY_CARRIER, UNPARTITIONED, Lake, data_file, equality_delete, intent, seen_vector


def location(name: str) -> str:
    return f"data/{name}.parquet"


def intent_of(plan: Plan, lake: Lake, view: TableState) -> Intent:
    """The intent of a writer who read `view`, one of `lake`'s versions; what it names is stored in the lake."""
    cargo: dict[str, object] = {}
    if plan.writer is not None:
        cargo |= {"writer_id": plan.writer, "writer_sequence": plan.sequence}
    if plan.serializable is not None:
        cargo |= {"isolation": Isolation.SERIALIZABLE, "filter": f"id = {plan.serializable}"}
    if plan.kind is IntentKind.FLUSH:
        manifests = _leaves(plan, lake, view)
        return intent(
            plan.kind,
            plan.intent_id,
            add_manifests=manifests,
            made_from_version=view.header.version,
            **cargo,
        )
    return intent(
        plan.kind,
        plan.intent_id,
        read_version=view.header.version,
        read_sequence_number=view.header.snapshot.sequence_number,
        add_data_files=[_data(name, carrier, ids) for name, carrier, ids in plan.adds],
        add_equality_deletes=[_equality(name, carrier, value) for name, carrier, value in plan.equality],
        remove_files=[
            RemovedFile(location=location(name), vector=seen_vector(view, location(name))) for name in plan.removes
        ],
        add_vectors=[
            lake.vector(
                f"{plan.intent_id}-{vector.target}",
                location(vector.target),
                vector.positions,
                seen_vector(view, location(vector.target)),
            )
            for vector in plan.vectors
        ],
        **cargo,
    )


def _data(name: str, carrier: str, ids: tuple[int, ...]) -> DataFile:
    return data_file(name, carrier=carrier, ids=ids)


def _equality(name: str, carrier: str | None, value: int) -> EqualityDeleteFile:
    return equality_delete(name, value, carrier, spec=UNPARTITIONED if carrier is None else BY_CARRIER)


def _leaves(plan: Plan, lake: Lake, view: TableState) -> list[AddedManifest]:
    """The leaves of a flush: one of data files, one of vectors, one each of equality deletes of a spec."""
    manifests: list[AddedManifest] = []
    files = [_row(view, EntryPlace(ContentType.DATA, location(name))) for name in plan.flushed_files]
    if files:
        manifests.append(lake.leaf(files, leaf_uuid=_uuid(plan, 1)))
    vectors = [view.live.vectors[location(name)].entry for name in plan.flushed_vectors]
    if vectors:
        owner = manifests[0].location if plan.affiliated else None
        manifests.append(lake.leaf(vectors, content=LeafContent.DELETE, leaf_uuid=_uuid(plan, 2), belongs_to=owner))
    deletes = [_row(view, EntryPlace(ContentType.EQUALITY_DELETE, location(name))) for name in plan.flushed_equality]
    for spec in (BY_CARRIER, UNPARTITIONED):
        of_spec = [entry for entry in deletes if entry.partition_spec_id == spec]
        if of_spec:
            manifests.append(lake.leaf(of_spec, content=LeafContent.DELETE, leaf_uuid=_uuid(plan, 3 + spec)))
    return manifests


def _row(view: TableState, place: EntryPlace) -> ContentEntry:
    return view.live.rows[place].entry


def _uuid(plan: Plan, number: int) -> uuid.UUID:
    return uuid.uuid5(uuid.NAMESPACE_OID, f"{plan.intent_id}/{number}")
