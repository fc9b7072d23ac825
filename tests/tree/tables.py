"""A small table to try things on: its definition, intents as writers send them, and a lake without I/O."""

from __future__ import annotations

import dataclasses
import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, LongType, NestedField, StringType
from pyroaring import BitMap, BitMap64

from rootline.schemas.bytes.leaf_codec import EncodedLeaf, Leaf, LeafContent, decode_leaf, encode_leaf
from rootline.schemas.bytes.root.entry_codec import EntryCodec
from rootline.schemas.bytes.root.ledger_page import LEDGER_PAGES
from rootline.schemas.bytes.root.location_pages import RETIRED_PAGES
from rootline.schemas.bytes.root.outcome_page import OUTCOME_PAGES
from rootline.schemas.bytes.root.page_codec import PageKind
from rootline.schemas.bytes.root.retained_page import RETAINED_PAGES, RetainedPage
from rootline.schemas.bytes.root.root_codec import decode_root
from rootline.schemas.bytes.vector_codec import decode_puffin
from rootline.schemas.content_entry import (
    ContentEntry,
    ContentStats,
    ContentType,
    EntryPlace,
    FieldStatistics,
    Status,
    VersionInfo,
)
from rootline.schemas.identifiers import NOTHING_ACKNOWLEDGED, Acknowledged, CommitId, LogId, LogPosition, TableName
from rootline.schemas.intent import (
    AddedManifest,
    AddedVector,
    DataFile,
    EqualityDeleteFile,
    Intent,
    IntentKind,
    RemovedFile,
    StoredPage,
    VectorReference,
)
from rootline.schemas.root_header import RootHeader
from rootline.schemas.table_definition import Expression, PartitionSpec, SortOrder, TableDefinition
from rootline.schemas.verdict import Verdict, VerdictKind
from rootline.tree.check.invariants import violations
from rootline.tree.check.read_back import read_back_faults
from rootline.tree.commit.apply import apply_batch
from rootline.tree.draft.batch import ABSENT, Applied, FetchedObjects, Need, Needs, NoTable, PageNeed, Record, Stamp
from rootline.tree.intents.restore import DefinitionNeed, RootNeed
from rootline.tree.parts.header_limits import HEADER_LIMITS, HeaderLimits
from rootline.tree.rules.leaf_rules import LeafNeed, ReadLeaf
from rootline.tree.rules.vector_rules import VectorNeed
from rootline.tree.state.table_state import NO_PAGES, TablePages, TableState

TABLE = TableName("demo.flights")
TABLE_UUID = uuid.UUID("4f3c3a52-0000-4000-8000-000000000001")
LOG = LogId("embedded/11111111-1111-4111-8111-111111111111")
ID, CARRIER, DELAY, BUCKET = 1, 2, 3, 4
BY_CARRIER, UNPARTITIONED, BY_BUCKET = 0, 1, 2


def definition(properties: Mapping[str, str] | None = None) -> TableDefinition:
    return TableDefinition(
        table_uuid=TABLE_UUID,
        schemas=(
            Schema(
                NestedField(ID, "id", LongType(), required=False),
                NestedField(CARRIER, "carrier", StringType(), required=False),
                NestedField(DELAY, "delay", DoubleType(), required=False),
                schema_id=0,
            ),
        ),
        current_schema_id=0,
        expressions=(Expression(BUCKET, (ID,), "bucket[4]", "id_bucket"),),
        partition_specs=(
            PartitionSpec(BY_CARRIER, (CARRIER,)),
            PartitionSpec(UNPARTITIONED),
            PartitionSpec(BY_BUCKET, (BUCKET,)),
        ),
        default_spec_id=BY_CARRIER,
        sort_orders=(SortOrder(0),),
        default_sort_order_id=0,
        last_column_id=4,
        properties=properties or {},
    )


DEFINITION = definition()
CODEC = EntryCodec.of_definition(DEFINITION)


def stats(ids: Sequence[int], carrier: str | None, *, spec: int = BY_CARRIER) -> ContentStats:
    """Statistics of a file of rows with these ids."""
    found: dict[int, FieldStatistics] = {}
    if ids:
        found[ID] = FieldStatistics(min(ids), max(ids), True, len(ids), 0)
    if spec == BY_CARRIER:
        found[CARRIER] = FieldStatistics(carrier, carrier, True)
    if spec == BY_BUCKET:
        found[BUCKET] = FieldStatistics(0, None)
    return found


def data_file(
    name: str = "a", *, rows: int = 10, carrier: str | None = "UA", ids: Sequence[int] | None = None, **more: object
) -> DataFile:
    spec = int(str(more.pop("partition_spec_id", BY_CARRIER)))
    values = list(ids) if ids is not None else list(range(rows))
    fields: dict[str, object] = {
        "location": f"data/{name}.parquet",
        "record_count": len(values),
        "file_size_in_bytes": 1000,
        "partition_spec_id": spec,
        "content_stats": CODEC.statistics.encode(stats(values, carrier, spec=spec)),
        "stats_schema": CODEC.statistics.fingerprint,
    }
    return DataFile.model_validate(fields | more)


def new_entry(file: DataFile) -> ContentEntry:
    """A data file as it stands in a leaf that its writer wrote: what the commit gives is null."""
    stats, _ = CODEC.statistics.decode(file.content_stats or b"")
    return ContentEntry(
        content_type=ContentType.DATA,
        location=file.location,
        file_format=file.file_format,
        version_info=VersionInfo(Status.ADDED),
        partition_spec_id=file.partition_spec_id,
        record_count=file.record_count,
        file_size_in_bytes=file.file_size_in_bytes,
        sort_order_id=file.sort_order_id,
        split_offsets=file.split_offsets,
        content_stats=stats,
    )


def equality_delete(name: str, value: int, carrier: str | None, *, spec: int = BY_CARRIER) -> EqualityDeleteFile:
    return EqualityDeleteFile(
        location=f"data/{name}.parquet",
        record_count=1,
        file_size_in_bytes=100,
        partition_spec_id=spec,
        content_stats=CODEC.statistics.encode(stats([value], carrier, spec=spec)),
        stats_schema=CODEC.statistics.fingerprint,
        equality_ids=(ID,),
    )


def intent(kind: IntentKind, intent_id: str, **more: object) -> Intent:
    return Intent.model_validate({"intent_id": intent_id, "table": TABLE, "kind": kind} | more)


def append(intent_id: str, *files: DataFile, **more: object) -> Intent:
    return intent(IntentKind.APPEND, intent_id, add_data_files=files or (data_file(intent_id),), **more)


def remove(intent_id: str, *files: RemovedFile, **more: object) -> Intent:
    return intent(IntentKind.REMOVE, intent_id, remove_files=files, **more)


def create(intent_id: str = "create", text: str | None = None, **more: object) -> Intent:
    body = DEFINITION.to_json().decode() if text is None else text
    return intent(IntentKind.CREATE, intent_id, definition=body, **more)


def changed_definition(**members: object) -> str:
    return json.dumps(
        json.loads(DEFINITION.to_json()) | {key.replace("_", "-"): value for key, value in members.items()}
    )


def removed(location: str, vector: VectorReference | None = None) -> RemovedFile:
    return RemovedFile(location=location, vector=vector)


def seen_vector(state: TableState, location: str) -> VectorReference | None:
    entry = state.vector_of(location)
    if entry is None or entry.deletion_vector is None:
        return None
    return VectorReference(location=entry.location, offset=entry.deletion_vector.offset or 0)


@dataclass
class Lake:
    """One table without I/O: what is stored is in dictionaries; every step is checked."""

    state: TableState | None = None
    vectors: dict[VectorNeed, BitMap64] = field(default_factory=dict)
    leaves: dict[str, Leaf] = field(default_factory=dict)
    objects: dict[str, bytes] = field(default_factory=dict)
    bodies: list[bytes] = field(default_factory=list)
    states: list[TableState] = field(default_factory=list)
    offset: int = 0
    now_ms: int = 1_000_000
    rounds: list[Needs] = field(default_factory=list)
    kept: dict[StoredPage, RetainedPage] = field(default_factory=dict)
    limits: HeaderLimits = HEADER_LIMITS

    @property
    def head(self) -> TableState:
        assert self.state is not None
        return self.state

    def records(self, intents: Iterable[Intent]) -> list[Record]:
        places = enumerate(intents, self.offset)
        found = [Record(LogPosition(LOG, 0, at), item, 500, appended_ms=self.now_ms) for at, item in places]
        self.offset += len(found)
        return found

    def put(self, *intents: Intent, acknowledged: Acknowledged = NOTHING_ACKNOWLEDGED) -> list[Verdict]:
        """Apply one batch; its verdicts."""
        return self.put_records(self.records(intents), acknowledged=acknowledged)

    def put_records(
        self, records: Sequence[Record], *, acknowledged: Acknowledged = NOTHING_ACKNOWLEDGED
    ) -> list[Verdict]:
        outcome = self.try_records(records, acknowledged=acknowledged)
        if isinstance(outcome, NoTable):
            return list(outcome.verdicts)
        rest = records[len(outcome.verdicts) :]  # they wait for the next root
        old, self.state = self.state, outcome.state
        assert violations(old, outcome.state, acknowledged=acknowledged, limits=self.limits) == []
        assert read_back_faults(old, outcome) == []
        self.bodies.append(outcome.body)
        self.states.append(outcome.state)
        for pending in outcome.objects:
            assert self.objects.setdefault(pending.location, pending.body) == pending.body
            if pending.location.endswith(".parquet"):
                self.leaves[pending.location] = decode_leaf(pending.body, location=pending.location)
            if pending.location.endswith(".puffin"):
                for blob in decode_puffin(pending.body, name=pending.location):
                    self.vectors[VectorNeed(pending.location, blob.place.offset)] = blob.vector
        return [*outcome.verdicts, *(self.put_records(rest, acknowledged=acknowledged) if rest else ())]

    def try_records(
        self, records: Sequence[Record], *, acknowledged: Acknowledged = NOTHING_ACKNOWLEDGED
    ) -> Applied | NoTable:
        self.now_ms += 10
        version = 0 if self.state is None else self.state.header.version + 1
        stamp, fetched = Stamp(CommitId(f"{version:032x}"), "coordinator-1", self.now_ms), FetchedObjects()
        while True:
            outcome = apply_batch(
                self.state, TABLE, records, fetched, stamp, acknowledged=acknowledged, limits=self.limits
            )
            if not isinstance(outcome, Needs):
                return outcome
            self.rounds.append(outcome)
            fetched = fetched.with_more(self.fetched(outcome))

    def fetched(self, needs: Needs) -> FetchedObjects:
        return FetchedObjects({need: self.found(need) for need in needs})

    def found(self, need: Need[object]) -> object:
        match need:
            case LeafNeed():
                return ReadLeaf(self.leaves[need.location]) if need.location in self.leaves else ABSENT
            case VectorNeed():
                return self.vectors.get(VectorNeed(need.location, need.offset), ABSENT)
            case RootNeed():
                return self.states[need.version].root
            case PageNeed() if need.kind is RETAINED_PAGES:
                return self.kept.get(need.page, ABSENT)
            case DefinitionNeed():
                return TableDefinition.from_json(self.objects[need.reference.location])
            case _:
                raise AssertionError(f"{need} is not stored here")

    def vector(
        self,
        name: str,
        target: str,
        positions: Iterable[int],
        replaces: VectorReference | None = None,
        *,
        offset: int = 4,
    ) -> AddedVector:
        """Store a vector as a writer would, and name it; one Puffin file may hold several."""
        held = BitMap64(positions)
        self.vectors[VectorNeed(f"data/{name}.puffin", offset)] = held
        return AddedVector(
            location=f"data/{name}.puffin",
            offset=offset,
            size_in_bytes=40,
            file_size_in_bytes=offset + 96,
            cardinality=len(held),
            referenced_file=target,
            replaces_vector=replaces,
        )

    def leaf(
        self,
        entries: Sequence[ContentEntry],
        *,
        content: LeafContent = LeafContent.DATA,
        leaf_uuid: uuid.UUID | None = None,
        belongs_to: str | None = None,
        under: TableDefinition = DEFINITION,
    ) -> AddedManifest:
        """Store a leaf as the flush job would, and name it."""
        existing = [as_existing(entry) for entry in entries]
        number = leaf_uuid or uuid.UUID(int=len(self.leaves) + 1)
        encoded = encode_leaf(existing, under, leaf_uuid=number, content=content)
        return self._stored_leaf(encoded, content, existing, belongs_to)

    def written_leaf(
        self,
        *entries: ContentEntry,
        leaf_uuid: uuid.UUID | None = None,
        belongs_to: str | None = None,
        under: TableDefinition = DEFINITION,
    ) -> AddedManifest:
        """Store a leaf as a writer would, and name it."""
        content = LeafContent.DATA if entries[0].content_type is ContentType.DATA else LeafContent.DELETE
        number = leaf_uuid or uuid.UUID(int=1_000 + len(self.leaves))
        encoded = encode_leaf(entries, under, leaf_uuid=number, content=content)
        return self._stored_leaf(encoded, content, entries, belongs_to)

    def _stored_leaf(
        self, leaf: EncodedLeaf, content: LeafContent, entries: Sequence[ContentEntry], belongs_to: str | None
    ) -> AddedManifest:
        self.leaves[leaf.location] = decode_leaf(leaf.body, location=leaf.location)
        self.objects[leaf.location] = leaf.body
        return AddedManifest(
            location=leaf.location,
            content_type=ContentType.DATA_MANIFEST if content is LeafContent.DATA else ContentType.DELETE_MANIFEST,
            file_size_in_bytes=len(leaf.body),
            record_count=len(entries),
            partition_spec_id=entries[0].partition_spec_id,
            referenced_file=belongs_to,
        )

    def flush(self, intent_id: str, *manifests: AddedManifest, made_from: int | None = None) -> Intent:
        version = self.head.header.version if made_from is None else made_from
        return intent(IntentKind.FLUSH, intent_id, add_manifests=manifests, made_from_version=version)

    def compaction(
        self,
        intent_id: str,
        *manifests: AddedManifest,
        replaces: Sequence[str],
        reaffiliate: Mapping[str, str | None] | None = None,
        made_from: int | None = None,
    ) -> Intent:
        moved = [{"location": name, "referenced_file": owner} for name, owner in (reaffiliate or {}).items()]
        return intent(
            IntentKind.COMPACT_LEAVES,
            intent_id,
            add_manifests=manifests,
            made_from_version=self.head.header.version if made_from is None else made_from,
            replaces=replaces,
            reaffiliate=moved,
        )

    def root_entries(self, content_type: ContentType = ContentType.DATA) -> list[ContentEntry]:
        """Live root entries of a type, by location."""
        rows = [row.entry for place, row in self.head.live.rows.items() if place.content_type is content_type]
        return sorted(rows, key=lambda entry: entry.location)

    def shown(self, status: Status) -> list[ContentEntry]:
        return [row.entry for row in self.head.root.rows if row.entry.version_info.status is status]

    def live(self) -> dict[EntryPlace, ContentEntry]:
        return {found.entry.place: found.entry for found in self.head.live.entries()}

    def deleted_rows(self) -> dict[str, set[int]]:
        """Live data file → the positions that its vector deletes."""
        data = [item.location for item in self.live().values() if item.content_type is ContentType.DATA]
        return {name: set(() if (at := self.head.vector_of(name)) is None else self.positions(at)) for name in data}

    def positions(self, vector: ContentEntry) -> BitMap64:
        stored = vector.deletion_vector
        assert stored is not None
        return self.vectors[VectorNeed(vector.location, stored.offset or 0)]

    def reloaded_lake(self) -> Lake:
        """A lake that knows the head from its bytes only."""
        return dataclasses.replace(self, state=self.reloaded())

    def reloaded(self) -> TableState:
        """The head, read back from its bytes."""
        root, leaves = decode_root(self.bodies[-1], name="head"), {name: self.leaves[name] for name in self.head.leaves}
        stored = {(at.location, at.offset): BitMap(held) for at, held in self.vectors.items()}
        under = TableDefinition.from_json(self.objects[root.header.definition.location])
        return TableState.of(root, under, leaves, self.pages_of(root.header), stored)

    def pages_of(self, header: RootHeader) -> TablePages:
        """The pages that a header names, read back from their bytes."""
        kinds: tuple[PageKind[Any], ...] = (LEDGER_PAGES, OUTCOME_PAGES, RETIRED_PAGES)
        pages = NO_PAGES.having(RETAINED_PAGES, self.head.pages.of(RETAINED_PAGES))
        for kind in kinds:
            named = kind.named_in(header)
            read = [kind.decode(self.objects[at.location], at, header.table_uuid, name=at.location) for at in named]
            pages = pages.having(kind, read)
        return pages


def as_existing(entry: ContentEntry) -> ContentEntry:
    info = entry.version_info
    numbers = VersionInfo(Status.EXISTING, info.snapshot_id, info.sequence_number, info.file_sequence_number)
    return dataclasses.replace(entry, version_info=numbers)


def new_lake(*intents: Intent) -> Lake:
    """A lake with the table, and one version for each of `intents`."""
    lake = Lake()
    lake.put(create())
    for item in intents:
        lake.put(item)
    return lake


def kinds(verdicts: Iterable[Verdict]) -> list[VerdictKind]:
    return [item.kind for item in verdicts]


def codes(verdicts: Iterable[Verdict]) -> list[str | None]:
    return [verdict.code for verdict in verdicts]
