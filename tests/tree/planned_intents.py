"""From a plan to the intent that a writer of one table would send."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import replace

from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from rootline.schemas.bytes.leaf_codec import LeafContent
from rootline.schemas.client_commits import CLIENT, REFUSED, ClientCommit
from rootline.schemas.content_entry import (
    ContentEntry,
    ContentStats,
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
from rootline.schemas.parts.progress import ClientSnapshot
from rootline.schemas.table_definition import TableDefinition
from rootline.tree.evolution.changes import DefinitionChanges, schema_changes
from rootline.tree.proof.file_proof import partition_statistics
from rootline.tree.state.table_state import TableState
from tests.tree.reference_model import STALE
from tests.tree.reference_plan import Plan
from tests.tree.reference_rules import leaf_of
from tests.tree.tables import (
    BY_CARRIER,
    CARRIER,
    DEFINITION,
    UNPARTITIONED,
    Lake,
    data_file,
    definition,
    equality_delete,
    intent,
    new_entry,
    seen_vector,
)

FIRST_COLUMNS = tuple(field.name for field in definition().schema.fields)


def location(name: str) -> str:
    return f"data/{name}.parquet"


def made_by(intent_id: str) -> TableDefinition:
    """What a table begins with that a `create` makes; empty: the one that the name had first."""
    if not intent_id:
        return DEFINITION
    return replace(DEFINITION, table_uuid=uuid.uuid5(uuid.NAMESPACE_OID, f"table of {intent_id}"))


class DescribedFiles:
    """What a writer says of its files, which nobody has written."""

    def data(self, name: str, carrier: str | None, ids: tuple[int, ...]) -> DataFile:
        return data_file(name, carrier=carrier, ids=ids, partition_spec_id=_spec(carrier))

    def equality(self, name: str, carrier: str | None, value: int) -> EqualityDeleteFile:
        return equality_delete(name, value, carrier, spec=_spec(carrier))


def _spec(carrier: str | None) -> int:
    return UNPARTITIONED if carrier is None else BY_CARRIER


def intent_of(plan: Plan, lake: Lake, view: TableState, written: DescribedFiles | None = None) -> Intent:
    """The intent of a writer who read `view`, one of `lake`'s versions; what it names is stored in the lake."""
    described = written or DescribedFiles()
    cargo: dict[str, object] = {}
    if plan.writer is not None:
        cargo |= {"writer_id": plan.writer, "writer_sequence": plan.sequence}
    if plan.client is not None:
        commit = ClientCommit((ClientSnapshot(plan.client, "append"),), "ab" * 32, {job: (job,) for job in plan.jobs})
        cargo |= {"summary": {CLIENT: commit.to_json(), **dict.fromkeys(plan.jobs, plan.intent_id)}}
    if plan.names_table:
        cargo |= {"table_uuid": view.header.table_uuid}
    if plan.refuses:
        return intent(plan.kind, plan.intent_id, **cargo | {"summary": {REFUSED: "it is wrong"}})
    if plan.names_schema:
        cargo |= {"schema_id": view.definition.current_schema_id}
    if plan.kind in (IntentKind.DROP, IntentKind.PURGE):
        return intent(plan.kind, plan.intent_id, **cargo)
    if plan.kind is IntentKind.CREATE:
        again = made_by(plan.intent_id)
        cargo |= {"table_uuid": again.table_uuid if plan.names_table else None, "schema_id": None}
        files = [described.data(name, carrier, ids) for name, carrier, ids in plan.adds]
        cargo |= _added(plan, lake, again, files)
        return intent(plan.kind, plan.intent_id, definition=again.to_json().decode(), **cargo)
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
    if plan.kind is IntentKind.ALTER:
        return intent(plan.kind, plan.intent_id, definition=_changes(plan, view).to_json(), **cargo)
    if plan.kind is IntentKind.RESTORE:
        is_back = view.header.is_tombstone
        ref = VersionReference(version=view.header.name.drops[-1].version if is_back else view.header.version)
        return intent(plan.kind, plan.intent_id, ref=ref, **cargo)
    if plan.kind is IntentKind.REPLACE:
        cargo |= {"definition": _changes(plan, view).to_json()}
    if plan.tags is not None:
        version = None if plan.untags else view.header.version
        ref = VersionReference(version=version, tag=plan.tags, seen_version=view.header.tags.get(plan.tags))
        return intent(plan.kind, plan.intent_id, ref=ref, **cargo)
    if plan.converts:
        cargo |= {
            "remove_files": [
                RemovedFile(location=location(name), content_type=ContentType.EQUALITY_DELETE) for name in plan.converts
            ],
            "replaces": [location(name) for name in plan.clean],
            "made_from_version": view.header.version,
        }
    files = [described.data(name, carrier, ids) for name, carrier, ids in plan.adds]
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
            *(_written(plan, lake, _under(view), files) if plan.adds_in_leaf else []),
            *(_written_vectors(plan, lake, view, vectors) if plan.vectors_in_leaf else []),
        ],
        add_equality_deletes=[described.equality(name, carrier, value) for name, carrier, value in plan.equality],
        add_vectors=[] if plan.vectors_in_leaf else vectors,
        **{
            "remove_files": [
                RemovedFile(location=location(name), vector=seen_vector(view, location(name))) for name in plan.removes
            ],
            **cargo,
        },
    )


def _changes(plan: Plan, view: TableState) -> DefinitionChanges:
    """To the columns of the plan: those that the view has not come last."""
    known = {field.name: field for field in view.definition.schema.fields}
    kept = [field for name, field in known.items() if name in FIRST_COLUMNS or name in plan.columns]
    next_id = view.definition.last_column_id + 1
    more = [name for name in plan.columns if name not in known]
    kept += [NestedField(next_id + at, name, LongType(), required=False) for at, name in enumerate(more)]
    return DefinitionChanges(view.header.definition.digest, tuple(schema_changes(Schema(*kept, schema_id=0))))


def _added(plan: Plan, lake: Lake, under: TableDefinition, files: list[DataFile]) -> dict[str, object]:
    if plan.adds_in_leaf:
        return {"add_manifests": _written(plan, lake, under, files)}
    return {"add_data_files": files}


def _written(plan: Plan, lake: Lake, under: TableDefinition, files: list[DataFile]) -> list[AddedManifest]:
    """The files of the plan in leaves of the writer's own."""
    entries = [new_entry(file) for file in files]
    specs = _by_spec(entries)
    return [lake.written_leaf(*one, leaf_uuid=_uuid(plan, "adds", spec), under=under) for spec, one in specs]


def _under(view: TableState) -> TableDefinition:
    """What the leaves of a writer say: columns that came later are not in them."""
    return replace(DEFINITION, table_uuid=view.header.table_uuid)


def _written_vectors(plan: Plan, lake: Lake, view: TableState, vectors: list[AddedVector]) -> list[AddedManifest]:
    """The vectors of the plan in leaves of the writer's own."""
    targets = [_row(view, EntryPlace(ContentType.DATA, vector.referenced_file)) for vector in vectors]
    entries = [
        ContentEntry(
            content_type=ContentType.POSITION_DELETE,
            location=vector.location,
            file_format=FileFormat.PUFFIN,
            version_info=VersionInfo(Status.ADDED),
            partition_spec_id=target.partition_spec_id,
            record_count=vector.cardinality,
            file_size_in_bytes=vector.file_size_in_bytes,
            deletion_vector=DeletionVector(vector.offset, vector.size_in_bytes),
            referenced_file=vector.referenced_file,
            content_stats=_partition_of(target),
        )
        for vector, target in zip(vectors, targets, strict=True)
    ]
    specs, under = _by_spec(entries), _under(view)
    return [lake.written_leaf(*one, leaf_uuid=_uuid(plan, "deletes", spec), under=under) for spec, one in specs]


def _partition_of(entry: ContentEntry) -> ContentStats:
    return partition_statistics(entry.content_stats, (CARRIER,) if entry.partition_spec_id == BY_CARRIER else ())


def _by_spec(entries: Iterable[ContentEntry]) -> list[tuple[int, list[ContentEntry]]]:
    """The spec of the first entry comes first: row ids are given in this order."""
    found: dict[int, list[ContentEntry]] = {}
    for entry in entries:
        found.setdefault(entry.partition_spec_id, []).append(entry)
    return list(found.items())


def _leaves(plan: Plan, lake: Lake, view: TableState) -> list[AddedManifest]:
    """The leaves of maintenance: of each spec one of data files, one of vectors, one of equality deletes."""
    manifests: list[AddedManifest] = []
    under = _under(view)
    owners: dict[int, str] = {}
    files = [_row(view, EntryPlace(ContentType.DATA, location(name))) for name in plan.flushed_files]
    for spec, of_spec in _by_spec(files):
        manifests.append(lake.leaf(of_spec, leaf_uuid=_uuid(plan, "data", spec), under=under))
        owners[spec] = manifests[-1].location
    vectors = [vector for name in plan.flushed_vectors if (vector := view.vector_of(location(name))) is not None]
    for spec, of_spec in _by_spec(vectors):
        owner = owners[spec] if plan.affiliated else None
        leaf_uuid = _uuid(plan, "vectors", spec)
        content = LeafContent.DELETE
        manifests.append(lake.leaf(of_spec, content=content, leaf_uuid=leaf_uuid, belongs_to=owner, under=under))
    deletes = [_row(view, EntryPlace(ContentType.EQUALITY_DELETE, location(name))) for name in plan.flushed_equality]
    for spec, of_spec in _by_spec(deletes):
        leaf_uuid = _uuid(plan, "equality", spec)
        manifests.append(lake.leaf(of_spec, content=LeafContent.DELETE, leaf_uuid=leaf_uuid, under=under))
    return manifests


def _row(view: TableState, place: EntryPlace) -> ContentEntry:
    found = view.find(place)
    assert found is not None
    return found.entry


def _leaf_of(name: str, view: TableState) -> str | None:
    """The location of a leaf by the model's name for it, `<intent id>/<what it holds>`."""
    stem = f"metadata/leaves/{uuid.uuid5(uuid.NAMESPACE_OID, name)}-"
    return next((location for location in view.leaves if location.startswith(stem)), None)


def _moved_along(plan: Plan, view: TableState, manifests: list[AddedManifest]) -> list[dict[str, str | None]]:
    """Every delete leaf of the view shall belong to the new data leaf; where that is wrong, it must not."""
    data = next((item.location for item in manifests if item.content_type is ContentType.DATA_MANIFEST), None)
    rows = [row.entry for row in view.live.leaf_rows.values()]
    deletes = [row.location for row in rows if row.content_type is ContentType.DELETE_MANIFEST]
    return [{"location": name, "referenced_file": data} for name in deletes] if plan.affiliated else []


def _uuid(plan: Plan, what: str, spec: int) -> uuid.UUID:
    name = leaf_of(plan.intent_id, what, None if spec == UNPARTITIONED else "of a carrier")
    return uuid.uuid5(uuid.NAMESPACE_OID, name)
