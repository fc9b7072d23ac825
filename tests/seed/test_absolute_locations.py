"""An adopted table's manifests, data files, vectors and delete files stay where they are: at absolute locations."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest
from pyroaring import BitMap64

from rootline.adapters.memory import MemoryObjectStore
from rootline.coordinator.runtime.table.object_fetcher import fetch_objects
from rootline.schemas.bytes.manifest_codec import decode_manifest_list
from rootline.schemas.bytes.vector_codec import VectorBlob, encode_puffin
from rootline.schemas.content_entry import ContentType, EntryPlace, Status
from rootline.schemas.errors import Corrupt, Invalid
from rootline.schemas.identifiers import CommitId, LogId, LogPosition, ObjectKey, Version
from rootline.schemas.intent import AddedVector, DataFile, Intent, IntentKind, RemovedFile, VectorReference
from rootline.schemas.object_keys import root_key
from rootline.storage.check.chain import check_table
from rootline.storage.check.findings import DataFiles
from rootline.storage.metadata.read_cache import ReadCache
from rootline.storage.metadata.scan_loader import plan_scan
from rootline.storage.stored_objects import stored_key
from rootline.tree.check.invariants import violations
from rootline.tree.commit.apply import apply_batch
from rootline.tree.draft.batch import Applied, FetchedObjects, Needs, NoTable, Record, Stamp
from rootline.tree.filter.pruning import PruningFilter
from tests.schemas.iceberg_manifests import DEFINITION, list_entry, manifest, manifest_list, record
from tests.seed.migrated_table import Migrated, rows_of
from tests.support.state_rules import state_violations

BASE = "s3a://old-lake/flights.db/flights v1%2F/"
A, B = f"{BASE}data/a.parquet", f"{BASE}data/b.parquet"
M1, D1 = f"{BASE}metadata/m1.avro", f"{BASE}metadata/d1.avro"


class Adopted(Migrated):
    """Everything that is older than version 0 is at an absolute location."""

    def place(self, location: str, body: bytes) -> None:
        if self.version < 0 and not location.startswith(("metadata/definitions", BASE)):
            location = BASE + location
        self.sizes[location] = len(body)
        self.store.place(stored_key(self.name, location), body)

    def stored(self, record: dict[str, Any]) -> dict[str, Any]:
        data_file = record["data_file"] | {"file_path": BASE + record["data_file"]["file_path"]}
        return record | {"data_file": data_file | {"file_size_in_bytes": self.sizes[data_file["file_path"]]}}

    async def decide(self, *intents: Intent) -> list[str | None]:
        """One batch, with all that it needs read by the coordinator's own reader; the codes of its verdicts."""
        records = [
            Record(LogPosition(LogId("embedded/log"), 0, 100 * (self.version + 1) + n), one, 100)
            for n, one in enumerate(intents)
        ]
        stamp, fetched = (
            Stamp(CommitId(f"{self.version + 1:032x}"), "coordinator-1", 1_000_000 + self.version),
            FetchedObjects(),
        )
        while isinstance(made := apply_batch(self.state, self.name, records, fetched, stamp), Needs):
            fetched = fetched.with_more(await fetch_objects(self.store, self.name, made))
        assert not isinstance(made, NoTable)
        assert isinstance(made, Applied)
        assert violations(self.state, made.state) == []
        self.version += 1
        for item in made.objects:
            self.place(item.location, item.body)
        self.store.place(root_key(self.name, Version(self.version)), made.body)
        self.loaded = made.state
        return [verdict.code for verdict in made.verdicts]

    def delta(self, name: str, target: str, positions: Sequence[int], seen: VectorReference | None) -> Intent:
        puffin = encode_puffin([VectorBlob(target, BitMap64(positions))])
        self.place(f"data/{name}.puffin", puffin.body)
        [place] = puffin.places
        vector = AddedVector(
            location=f"data/{name}.puffin",
            offset=place.offset,
            size_in_bytes=place.size,
            file_size_in_bytes=len(puffin.body),
            cardinality=len(positions),
            referenced_file=target,
            replaces_vector=seen,
        )
        return Intent(intent_id=name, table=self.name, kind=IntentKind.ROW_DELTA, add_vectors=(vector,))

    def vector_of(self, target: str) -> VectorReference:
        entry = self.state.vector_of(target)
        assert entry is not None
        assert entry.deletion_vector is not None
        return VectorReference(location=entry.location, offset=entry.deletion_vector.offset or 0)

    async def findings(self, data_files: DataFiles = DataFiles.READ) -> list[tuple[str, str]]:
        return [(found.object, found.code) async for found in check_table(self.store, self.name, data_files=data_files)]


async def version_3() -> Adopted:
    """A has rows 0 to 9, B 10 to 19 and a vector of its rows 0 and 9."""
    table = Adopted(MemoryObjectStore(), DEFINITION)
    table.write_rows("a", rows_of(0, "UA"))
    table.write_rows("b", rows_of(10, "UA"))
    vector = _vector(table, B, [0, 9])
    m1 = manifest(3, [table.stored(record("a", Status.EXISTING, 2, first_row_id=0)), table.stored(record("b"))])
    d1 = manifest(3, [vector], content="deletes")
    table.place(M1, m1)
    table.place(D1, d1)
    body = manifest_list(3, [
        list_entry(M1, len(m1), first_row_id=100, existing_files_count=1, existing_rows_count=10,
                   min_sequence_number=2),
        list_entry(D1, len(d1), content=1, added_rows_count=2, sequence_number=6, min_sequence_number=6),
    ])  # fmt: skip
    await table.migrate(decode_manifest_list(body, DEFINITION, name="snap.avro"))
    return table


def _vector(table: Adopted, target: str, positions: Sequence[int]) -> dict[str, Any]:
    made = table.write_vector("v", target, positions)
    path = BASE + made["data_file"]["file_path"]
    return made | {"data_file": made["data_file"] | {"file_path": path, "file_size_in_bytes": table.sizes[path]}}


async def test_a_table_with_absolute_locations_is_scanned_and_checked() -> None:
    table = await version_3()
    assert {live.entry.location for live in table.state.live.entries()} == {A, B, f"{BASE}data/v.puffin"}
    assert await table.ids() == [*range(10), *range(11, 19)]
    assert await table.ids("id > 15") == [16, 17, 18]
    assert state_violations(table.state) == []
    assert await table.findings() == []


async def test_absolute_leaves_are_kept_by_a_reader_as_others_are() -> None:
    table, cache = await version_3(), ReadCache()
    pruning = PruningFilter.of(None, table.definition)
    first = await plan_scan(table.store, table.state.root, table.definition, pruning, cache=cache)
    table.store.discard(ObjectKey(M1))
    again = await plan_scan(table.store, table.state.root, table.definition, pruning, cache=cache)
    assert [task.location for task in first] == [task.location for task in again] == [A, B]
    assert cache.leaf(table.name, M1) is not None


async def test_files_at_absolute_locations_are_removed() -> None:
    table = await version_3()
    removal = RemovedFile(location=B, vector=table.vector_of(B))
    assert await table.decide(
        Intent(intent_id="r", table=table.name, kind=IntentKind.REMOVE, remove_files=(removal,))
    ) == [None]
    assert await table.ids() == list(range(10))
    assert await table.findings() == []


async def test_a_vector_at_an_absolute_location_is_replaced() -> None:
    table = await version_3()
    assert await table.decide(table.delta("w", B, [0, 1, 9], table.vector_of(B))) == [None]
    assert await table.ids() == [*range(10), *range(12, 19)]
    assert await table.findings() == []
    assert (await table.reloaded()).vector_of(B) == table.state.vector_of(B)


async def test_a_vector_that_lacks_rows_of_the_absolute_one_is_rejected() -> None:
    table = await version_3()
    assert await table.decide(table.delta("w", B, [0, 1], table.vector_of(B))) == ["vector-invalid"]


@pytest.mark.parametrize("at_once", [True, False])
async def test_two_writers_who_both_replace_it_are_merged(at_once: bool) -> None:
    table = await version_3()
    seen = table.vector_of(B)
    one, other = table.delta("w1", B, [0, 1, 9], seen), table.delta("w2", B, [0, 2, 3, 9], seen)
    if at_once:
        assert await table.decide(one, other) == [None, None]
    else:
        assert await table.decide(one) == [None]
        assert await table.decide(other) == [None]
    assert await table.ids() == [*range(10), *range(14, 19)]
    assert state_violations(table.state) == []
    assert await table.findings() == []


@pytest.mark.parametrize("where", ["s3a://old-lake/other.puffin", "file:///dev/zero", "/etc/passwd"])
async def test_no_intent_makes_the_coordinator_read_an_absolute_location_that_the_table_never_had(where: str) -> None:
    table = await version_3()
    puffin = encode_puffin([VectorBlob(B, BitMap64([5]))])
    table.store.place(ObjectKey(where), puffin.body)
    read_before = RecordingStore(table.store)
    table.store = read_before
    intent = table.delta("w", B, [0, 1, 9], VectorReference(location=where, offset=puffin.places[0].offset))
    assert await table.decide(intent) == ["row-conflict"]
    assert where not in read_before.read


@pytest.mark.parametrize("location", [f"{BASE}data/new.parquet", "/etc/passwd", "file:/etc/passwd"])
async def test_no_intent_brings_a_new_absolute_location(location: str) -> None:
    table = await version_3()
    file = DataFile(location=location, partition_spec_id=3, record_count=1, file_size_in_bytes=1)
    vector = table.delta("w", B, [0, 1, 9], table.vector_of(B)).add_vectors[0]
    assert await table.decide(
        Intent(intent_id="a", table=table.name, kind=IntentKind.APPEND, add_data_files=(file,)),
        Intent(
            intent_id="d",
            table=table.name,
            kind=IntentKind.ROW_DELTA,
            add_vectors=(vector.model_copy(update={"location": location}),),
        ),
    ) == ["location-invalid", "location-invalid"]


async def test_position_delete_files_name_absolute_data_files() -> None:
    table = Adopted(MemoryObjectStore(), DEFINITION)
    table.write_rows("a", rows_of(0, "UA"))
    table.write_rows("b", rows_of(10, "UA"))
    table.write_position_deletes("p", {A: [1, 2], B: [0]})
    m1 = manifest(2, [table.stored(record("a", Status.EXISTING, 1)), table.stored(record("b", Status.EXISTING, 1))])
    d1 = manifest(2, [table.stored(record("p", content=1, record_count=3))], content="deletes")
    table.place(M1, m1)
    table.place(D1, d1)
    rows = manifest_list(2, [
        list_entry(M1, len(m1), added_files_count=0, existing_files_count=2, added_rows_count=0, existing_rows_count=20,
                   min_sequence_number=1),
        list_entry(D1, len(d1), content=1, added_rows_count=3),
    ])  # fmt: skip
    await table.migrate(decode_manifest_list(rows, DEFINITION, name="snap.avro"))
    assert await table.ids() == [0, *range(3, 10), *range(11, 20)]
    assert await table.decide(table.delta("w", A, [5], None)) == [None]
    assert await table.ids() == [0, 3, 4, *range(6, 10), *range(11, 20)]
    assert await table.findings() == []


async def test_older_leaves_are_rewritten_into_ones_of_ours_and_their_files_stay() -> None:
    table = await version_3()
    before = await table.ids()
    await table.rewrite(M1)
    assert await table.ids() == before
    assert table.state.find(EntryPlace(ContentType.DATA, A)) is not None
    assert await table.findings() == []


async def test_check_names_an_absolute_object_that_is_gone_or_cannot_be_read() -> None:
    table = await version_3()
    table.store.discard(ObjectKey(A))
    assert await table.findings(DataFiles.LISTED) == []  # in no listing of the warehouse
    assert await table.findings() == [(A, "length-wrong")]
    table.store.discard(ObjectKey(f"{BASE}data/v.puffin"))
    assert (f"{BASE}data/v.puffin", "object-missing") in await table.findings()


async def test_a_file_that_is_gone_is_named_by_a_scan_with_its_whole_location() -> None:
    table = await version_3()
    table.store.discard(ObjectKey(B))
    with pytest.raises(Corrupt, match=re.escape(B)) as gone:
        await table.ids()
    assert gone.value.code == "object-missing"


async def test_a_leaf_of_a_scheme_that_is_not_read_is_a_finding_and_an_error() -> None:
    table = Adopted(MemoryObjectStore(), DEFINITION)
    body = manifest_list(3, [list_entry("hdfs://name-node/m1.avro", 10, first_row_id=0)])
    with pytest.raises(Invalid, match="hdfs:") as refused:
        await table.migrate(decode_manifest_list(body, DEFINITION, name="snap.avro"))
    assert refused.value.code == "file-unreadable"
    assert ("hdfs://name-node/m1.avro", "file-unreadable") in await table.findings()


class RecordingStore(MemoryObjectStore):
    """The same objects, and which keys were read."""

    def __init__(self, inner: MemoryObjectStore) -> None:
        super().__init__()
        self._objects, self._keys = inner._objects, inner._keys
        self.read: list[str] = []

    async def get(self, key: ObjectKey) -> Any:
        self.read.append(key)
        return await super().get(key)
