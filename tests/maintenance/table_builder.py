"""Real tables for tests: every root is made by `apply_batch` and stored, step by step, as a coordinator would.

`TableBuilder` is the coordinator of one table on one store, without a log: what it is told to publish it applies.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from pyiceberg.conversions import to_bytes
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, IntegerType, LongType, NestedField, PrimitiveType, StringType
from pyroaring import BitMap64

from rootline.adapters.memory import MemoryObjectStore
from rootline.maintenance.flush_plan import FlushPlan, plan_flush
from rootline.maintenance.leaf_compaction_plan import LeafCompactionPlan, LeafLoad, plan_leaf_compaction
from rootline.maintenance.limits import FLUSH_NOW, CompactionLimits, FlushLimits
from rootline.maintenance.plan import PlannedLeaf, write_leaves
from rootline.ports.object_store import ObjectStore, PutStatus
from rootline.schemas.bytes.leaf_codec import LeafContent, decode_leaf, encode_leaf
from rootline.schemas.bytes.root.entry_codec import EntryCodec
from rootline.schemas.bytes.vector_codec import VectorBlob, decode_vector, encode_puffin, puffin_name
from rootline.schemas.content_entry import ContentEntry, ContentType, EntryPlace, Status, VersionInfo
from rootline.schemas.errors import Corrupt
from rootline.schemas.identifiers import CommitId, LogId, LogPosition, TableName
from rootline.schemas.intent import (
    AddedManifest,
    AddedVector,
    DataFile,
    EqualityDeleteFile,
    GenericStatistics,
    Intent,
    IntentKind,
    Reaffiliation,
    RemovedFile,
    VectorReference,
)
from rootline.schemas.object_keys import key_of, root_key
from rootline.schemas.table_definition import Expression, PartitionSpec, SortField, SortOrder, TableDefinition
from rootline.schemas.verdict import Verdict, VerdictKind
from rootline.storage.check.chain import check_table
from rootline.storage.check.findings import DataFiles
from rootline.tree.commit.apply import apply_batch
from rootline.tree.draft.batch import ABSENT, Absent, Applied, FetchedObjects, Need, Needs, Record, Stamp
from rootline.tree.intents.flush import OwnFlush
from rootline.tree.parts.header_limits import HEADER_LIMITS
from rootline.tree.proof.file_proof import statistics_of
from rootline.tree.rules.leaf_rules import LeafNeed, ReadLeaf
from rootline.tree.rules.vector_rules import VectorNeed
from rootline.tree.state.table_state import TableState

LOG = LogId("embedded/tests")
REGIONS = ("asia", "europe", "america")
ROWS = 1_000  # of each data file


def definition_of(table_uuid: uuid.UUID, **properties: str) -> TableDefinition:
    """Columns id, region, amount; spec 0 by region, spec 1 by bucket of id; sorted by id."""
    schema = Schema(
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "region", StringType(), required=False),
        NestedField(3, "amount", DoubleType(), required=False),
        schema_id=0,
    )
    return TableDefinition(
        table_uuid=table_uuid,
        schemas=(schema,),
        current_schema_id=0,
        expressions=(Expression(4, (1,), "bucket[4]", "id_bucket"),),
        partition_specs=(PartitionSpec(0, (2,)), PartitionSpec(1, (4,))),
        default_spec_id=0,
        sort_orders=(SortOrder(0), SortOrder(1, (SortField(1),))),
        default_sort_order_id=1,
        last_column_id=4,
        properties=properties,
    )


def data_file(number: int, *, spec_id: int = 0, region: str | None = None) -> DataFile:
    """File `number`: its statistics follow from the number."""
    region = REGIONS[number % len(REGIONS)] if region is None else region
    partition = (
        _statistics(2, StringType(), region, region, tight_bounds=True)
        if spec_id == 0
        else _statistics(4, IntegerType(), number % 4, number % 4)
    )
    first = number * ROWS
    return DataFile(
        location=location_of(number),
        partition_spec_id=spec_id,
        record_count=ROWS,
        file_size_in_bytes=100_000 + number,
        statistics=(
            partition,
            _statistics(
                1, LongType(), first, first + ROWS - 1, tight_bounds=True, value_count=ROWS, null_value_count=0
            ),
            _statistics(
                3, DoubleType(), 0.5, number + 0.5, value_count=ROWS, null_value_count=number % 3, nan_value_count=0
            ),
        ),
    )


def _statistics(field_id: int, of_type: PrimitiveType, lower: Any, upper: Any, **counts: Any) -> GenericStatistics:
    return GenericStatistics(
        field_id=field_id, lower_bound=to_bytes(of_type, lower), upper_bound=to_bytes(of_type, upper), **counts
    )


def location_of(number: int) -> str:
    """Where `data_file(number)` is stored."""
    return f"data/{number:06d}.parquet"


class TableBuilder:
    """One table; `state` is its head."""

    def __init__(self, store: ObjectStore | None = None, name: str = "demo.flights", **properties: str) -> None:
        self.store: ObjectStore = store or MemoryObjectStore()
        self.table = TableName(name)
        self.table_uuid = uuid.uuid5(uuid.NAMESPACE_URL, name)
        self.definition = definition_of(self.table_uuid, **properties)
        self._state: TableState | None = None
        self._offset = self._intents = self._names = 0
        self.now_ms = 1_700_000_000_000
        self.limits = HEADER_LIMITS
        self.relief: Callable[[TableState], OwnFlush] | None = None

    @property
    def state(self) -> TableState:
        assert self._state is not None
        return self._state

    def intent(self, kind: IntentKind, **cargo: Any) -> Intent:
        self._intents += 1
        return Intent(intent_id=f"intent-{self._intents}", table=self.table, kind=kind, **cargo)

    async def create(self) -> None:
        definition = self.definition.to_json().decode()
        await self.committed(self.intent(IntentKind.CREATE, definition=definition))

    async def append(self, *numbers: int, spec_id: int = 0, **more: Any) -> None:
        files = tuple(data_file(number, spec_id=spec_id) for number in numbers)
        await self.committed(self.intent(IntentKind.APPEND, add_data_files=files, **more))

    async def append_leaf(self, *numbers: int, **more: Any) -> None:
        """The same files in a leaf, as a writer of many files hands them over."""
        codec = EntryCodec.of_definition(self.definition)
        entries = [
            ContentEntry(
                ContentType.DATA,
                file.location,
                file.file_format,
                VersionInfo(Status.ADDED),
                file.partition_spec_id,
                file.record_count,
                file.file_size_in_bytes,
                content_stats=statistics_of(file, self.definition, codec),
            )
            for file in map(data_file, numbers)
        ]
        self._names += 1
        leaf_uuid = uuid.uuid5(self.table_uuid, f"written/{self._names}")
        leaf = encode_leaf(entries, self.definition, leaf_uuid=leaf_uuid, content=LeafContent.DATA)
        await self.put(leaf.location, leaf.body)
        manifest = AddedManifest(
            location=leaf.location,
            content_type=ContentType.DATA_MANIFEST,
            file_size_in_bytes=len(leaf.body),
            record_count=len(entries),
            partition_spec_id=0,
        )
        await self.committed(self.intent(IntentKind.APPEND, add_manifests=(manifest,), **more))

    async def remove(self, *numbers: int) -> None:
        await self.committed(self.removal(*numbers))

    def removal(self, *numbers: int) -> Intent:
        files = tuple(RemovedFile(location=location_of(number), vector=self._seen_vector(number)) for number in numbers)
        return self.intent(IntentKind.REMOVE, remove_files=files)

    def _seen_vector(self, number: int) -> VectorReference | None:
        vector = self.state.vector_of(location_of(number))
        if vector is None or vector.deletion_vector is None:
            return None
        return VectorReference(location=vector.location, offset=vector.deletion_vector.offset or 0)

    async def delete_rows(self, positions: dict[int, Sequence[int]]) -> None:
        await self.committed(await self.deletion(positions))

    async def deletion(self, positions: dict[int, Sequence[int]], *, blind: bool = False) -> Intent:
        """A row_delta whose vectors share one Puffin file; `blind`: the writer saw no vectors."""
        whole = {number: BitMap64(rows) for number, rows in positions.items()}
        for number in whole:
            seen = self.state.vector_of(location_of(number))
            if seen is not None and not blind:
                whole[number] |= await self.read_vector(seen)
        encoded = encode_puffin([VectorBlob(location_of(number), vector) for number, vector in whole.items()])
        self._names += 1
        location = puffin_name(f"data/vectors-{self._names}", encoded.body)
        await self.put(location, encoded.body)
        return self.intent(
            IntentKind.ROW_DELTA,
            read_version=self.state.header.version,
            add_vectors=tuple(
                AddedVector(
                    location=location,
                    offset=place.offset,
                    size_in_bytes=place.size,
                    file_size_in_bytes=len(encoded.body),
                    cardinality=place.cardinality,
                    referenced_file=location_of(number),
                    replaces_vector=None if blind else self._seen_vector(number),
                )
                for number, place in zip(whole, encoded.places, strict=True)
            ),
        )

    async def delete_where_equal(self, number: int) -> None:
        of_file = data_file(number)
        delete = EqualityDeleteFile(
            location=f"data/equality-{number}.parquet",
            record_count=3,
            file_size_in_bytes=512,
            statistics=of_file.statistics[:1],
            equality_ids=(1,),
        )
        await self.committed(self.intent(IntentKind.ROW_DELTA, add_equality_deletes=(delete,)))

    def plan(self, limits: FlushLimits = FLUSH_NOW) -> FlushPlan:
        return plan_flush(self.state.root, self.definition, limits, leaves=self.state.leaves)

    async def flush_intent(self, plan: FlushPlan | None = None) -> Intent:
        """Write the leaves of `plan` and name them in an intent, as the flush job does."""
        plan = self.plan() if plan is None else plan
        manifests = await self._written(plan.leaves)
        return self.intent(IntentKind.FLUSH, add_manifests=manifests, made_from_version=plan.made_from_version)

    def compaction_plan(self, limits: CompactionLimits) -> LeafCompactionPlan:
        state = self.state
        load = LeafLoad.of(state.root)
        chosen = load.chosen(limits)
        return plan_leaf_compaction(
            state.root, self.definition, limits, load=load, chosen=chosen, leaves=state.leaves, dead=state.live.dead
        )

    async def compaction_intent(self, plan: LeafCompactionPlan) -> Intent:
        """The same for a compaction of leaves."""
        manifests = await self._written(plan.leaves)
        return self.intent(
            IntentKind.COMPACT_LEAVES,
            add_manifests=manifests,
            made_from_version=plan.made_from_version,
            replaces=plan.replaces,
            reaffiliate=tuple(
                Reaffiliation(location=location, referenced_file=manifests[owner.index].location)
                for location, owner in plan.reaffiliate
            ),
        )

    async def _written(self, leaves: Sequence[PlannedLeaf]) -> tuple[AddedManifest, ...]:
        first = self._names + 1
        self._names += len(leaves)
        written = write_leaves(
            leaves, self.definition, lambda index: uuid.uuid5(self.table_uuid, f"leaf {first + index}")
        )
        for item in written.objects:
            await self.put(item.location, item.body)
        return written.manifests

    async def flush_loose(self) -> None:
        """Flush what is due, delete leaves without saying which data leaf they belong to."""
        plan = self.plan()
        loose = tuple(replace(leaf, affinity=None) for leaf in plan.leaves)
        await self.committed(await self.flush_intent(replace(plan, leaves=loose)))

    async def findings(self) -> list[object]:
        """What `rootline check` finds."""
        return [finding async for finding in check_table(self.store, self.table, data_files=DataFiles.IGNORED)]

    async def flush(self) -> None:
        await self.committed(await self.flush_intent())

    async def committed(self, *intents: Intent) -> None:
        """Commit all `intents`, in one root where they may share one."""
        verdicts = await self.apply(*intents)
        assert [verdict.kind for verdict in verdicts] == [VerdictKind.COMMITTED] * len(intents), verdicts

    async def apply(self, *intents: Intent) -> tuple[Verdict, ...]:
        """The roots of one batch, stored; its verdicts."""
        records = []
        for intent in intents:
            records.append(Record(LogPosition(LOG, 0, self._offset), intent, 1_000))
            self._offset += 1
        return await self.apply_records(records)

    async def apply_records(self, records: Sequence[Record]) -> tuple[Verdict, ...]:
        """The same for records of any log."""
        fetched = FetchedObjects()
        self.now_ms += 1_000
        version = 0 if self._state is None else self._state.header.version + 1
        stamp = Stamp(CommitId(uuid.uuid5(self.table_uuid, f"commit {version}").hex), "tests", self.now_ms)
        relief = None if self.relief is None or self._state is None else self.relief(self._state)
        while True:
            answer = apply_batch(self._state, self.table, records, fetched, stamp, limits=self.limits, relief=relief)
            if not isinstance(answer, Needs):
                break
            fetched = fetched.with_more(FetchedObjects({need: await self._found(need) for need in answer}))
        assert isinstance(answer, Applied), answer
        for pending in answer.objects:
            await self.put(pending.location, pending.body)
        reply = await self.store.put_if_absent(root_key(self.table, answer.state.header.version), answer.body)
        assert reply.answer is PutStatus.CREATED
        self._state = answer.state
        rest = records[len(answer.verdicts) :]  # they wait for the next root
        return (*answer.verdicts, *(await self.apply_records(rest) if rest else ()))

    async def _found(self, need: Need[object]) -> object:
        if isinstance(need, VectorNeed):
            return await self._vector_at(need)
        assert isinstance(need, LeafNeed), need
        stored = await self.store.get(key_of(self.table, need.location))
        return ABSENT if stored is None else ReadLeaf(decode_leaf(stored.body, location=need.location))

    async def _vector_at(self, at: VectorNeed) -> BitMap64 | Absent:
        stored = await self.store.get(key_of(self.table, at.location))
        if stored is None:
            return ABSENT
        length = int.from_bytes(stored.body[at.offset : at.offset + 4], "big")
        try:
            return decode_vector(stored.body[at.offset : at.offset + length + 8], name=at.location)
        except Corrupt:
            return ABSENT

    async def read_vector(self, entry: ContentEntry) -> BitMap64:
        assert entry.deletion_vector is not None
        found = await self._vector_at(VectorNeed(entry.location, entry.deletion_vector.offset or 0))
        assert not isinstance(found, Absent)
        return found

    async def put(self, location: str, body: bytes) -> None:
        await self.store.put_if_absent(key_of(self.table, location), body)

    def live_files(self) -> set[str]:
        """Locations of live data files, in the root and in leaves."""
        return {
            live.entry.location for live in self.state.live.entries() if live.entry.content_type is ContentType.DATA
        }

    def is_live(self, number: int) -> bool:
        return self.state.find(EntryPlace(ContentType.DATA, location_of(number))) is not None

    def rows_of(self, content_type: ContentType) -> list[ContentEntry]:
        """The root's rows of one content type."""
        return [row.entry for row in self.state.root.rows if row.entry.content_type is content_type]
