"""What an intent says that it adopts is proven before anything is committed; a fault is that intent's alone."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from pyroaring import BitMap

from rootline.adapters.memory import MemoryObjectStore
from rootline.catalog.adoption_plan import AdoptionPlan, plan_adoption
from rootline.schemas.bytes.root.root_codec import decode_root
from rootline.schemas.bytes.vector_codec import encode_inline
from rootline.schemas.content_entry import (
    ContentEntry,
    ContentType,
    DeletionVector,
    FileFormat,
    Status,
    VersionInfo,
)
from rootline.schemas.error_codes import CODES
from rootline.schemas.identifiers import SnapshotId, TableName, Version
from rootline.schemas.intent import AdoptedRoot, Intent, IntentKind, RemovedFile
from rootline.schemas.object_keys import key_of
from rootline.schemas.root_header import RootHeader
from rootline.schemas.table_definition import TableDefinition
from rootline.schemas.verdict import Verdict, VerdictKind
from rootline.storage.check.header import faults_of_header
from rootline.storage.metadata.table_loader import load_to_build_on
from rootline.testing.object_stores import Fault, FaultyObjectStore, scripted
from rootline.tree.check.invariants import violations
from rootline.tree.proof.adoption import ADOPTED_SNAPSHOT, adopted_location, encode_adopted
from tests.catalog.hand_written_table import HandWritten, rows
from tests.coordinator.running_service import TABLE, append_intent, create_intent, running
from tests.support.state_rules import state_violations

BASE = "s3://old/wh/flights"


def iceberg_table(store: MemoryObjectStore) -> str:
    table = HandWritten(BASE, 3, lambda location, body: store.place(location, body))  # type: ignore[arg-type]
    table.manifest("m1", [table.data("a", rows(0, "UA")), table.data("b", rows(10, "DL"))], 1)
    gone = table.data("gone", rows(90, "UA"), status=Status.DELETED, number=1)
    table.manifest("m2", [gone, table.data("c", rows(20, "UA"))], 2)
    table.manifest("d1", [table.vector("v", "data/a.parquet", [0, 9])], 3)
    return table.finish(3)


def intent_of(plan: AdoptionPlan, named: AdoptedRoot | None = None, **more: Any) -> Intent:
    return Intent(
        intent_id="adopt",
        table=TABLE,
        kind=IntentKind.CREATE,
        definition=plan.definition.to_json().decode(),
        adopt=named or plan.named,
        **more,
    )


@dataclass
class Said:
    """What an adopted root says, to be said wrong."""

    table: TableName
    definition: TableDefinition
    header: RootHeader
    rows: list[ContentEntry] = field(default_factory=list)

    @staticmethod
    def of(plan: AdoptionPlan) -> Said:
        root = decode_root(plan.body, name="adopted")
        return Said(plan.table, plan.definition, root.header, [row.entry for row in root.rows])

    def change(self, index: int, **more: Any) -> Said:
        self.rows[index] = replace(self.rows[index], **more)
        return self

    def info(self, index: int, **more: Any) -> None:
        self.change(index, version_info=replace(self.rows[index].version_info, **more))

    def stats(self, index: int, **more: int) -> None:
        stats = self.rows[index].manifest_stats
        assert stats is not None
        self.change(index, manifest_stats=replace(stats, **more))

    def snapshot(self, **more: Any) -> None:
        self.header = replace(self.header, snapshot=replace(self.header.snapshot, **more))

    def stored(self, store: MemoryObjectStore) -> AdoptedRoot:
        header = self.header
        root, body = encode_adopted(
            self.table, self.definition, header.snapshot, self.rows, header.row_ids.next, header.totals
        )
        location = adopted_location(root.digest)
        store.place(key_of(TABLE, location), body)
        return AdoptedRoot(location=location, file_size_in_bytes=len(body), digest=root.digest)


async def planned(store: MemoryObjectStore) -> AdoptionPlan:
    plan = await plan_adoption(store, TABLE, iceberg_table(store))
    store.place(key_of(TABLE, plan.named.location), plan.body)
    return plan


async def test_the_same_intent_again_is_a_duplicate_and_another_finds_the_table() -> None:
    store = MemoryObjectStore()
    plan = await planned(store)
    intent = intent_of(plan, writer_id="w", writer_sequence=0)
    async with running(store) as service:
        [first] = await service.commit(intent)
        [again] = await service.commit(intent)
        [other] = await service.commit(intent_of(plan))
    assert (first.kind, first.version, first.sequence_number) == (VerdictKind.COMMITTED, 0, 4)
    assert (again.kind, again.version) == (VerdictKind.DUPLICATE, 0)
    assert (other.kind, other.code) == (VerdictKind.REJECTED, "table-exists")


async def test_what_follows_in_the_batch_is_applied_to_the_adopted_table() -> None:
    store = MemoryObjectStore()
    plan = await planned(store)
    table = HandWritten(BASE, 3, lambda location, body: None)
    remove = Intent(
        intent_id="r",
        table=TABLE,
        kind=IntentKind.REMOVE,
        remove_files=(RemovedFile(location=table.at("data/b.parquet")),),
    )
    async with running(store) as service:
        verdicts = await service.commit(intent_of(plan), remove)
    assert [(verdict.kind, verdict.version) for verdict in verdicts] == [(VerdictKind.COMMITTED, 0)] * 2
    assert [verdict.sequence_number for verdict in verdicts] == [4, 5]
    state = await load_to_build_on(store, TABLE, Version(0))
    assert {live.entry.location for live in state.live.entries()} == {
        table.at("data/a.parquet"),
        table.at("data/c.parquet"),
        table.at("data/v.puffin"),
    }
    assert state_violations(state) == []


async def test_root_0_keeps_every_rule_and_is_found_again_from_its_bytes() -> None:
    store = MemoryObjectStore()
    plan = await planned(store)
    async with running(store) as service:
        await service.commit(intent_of(plan))
    state = await load_to_build_on(store, TABLE, Version(0))
    assert violations(None, state) == []
    assert state_violations(state) == []
    header = state.header
    assert (header.totals, header.row_ids.next, header.tags) == (plan.totals, 30, {})
    assert header.snapshot.parent_id == plan.snapshot_id
    assert {row.entry.version_info.status for row in state.root.rows} == {Status.EXISTING}


def _stored_vector(said: Said, *ordinals: int, leaf: int = 0, number: int = 1) -> Said:
    location = said.rows[leaf].location
    said.rows.append(
        ContentEntry(
            content_type=ContentType.MANIFEST_DV,
            location=location,
            file_format=FileFormat.PUFFIN,
            version_info=VersionInfo(Status.EXISTING, 7, number, number),
            partition_spec_id=3,
            record_count=len(ordinals),
            deletion_vector=DeletionVector(inline_content=encode_inline(BitMap(ordinals))),
            referenced_file=location,
        )
    )
    return said


WRONG: dict[str, tuple[Callable[[Said], object], str]] = {
    "a row that is ADDED": (lambda said: said.info(0, status=Status.ADDED), "adoption-invalid"),
    "a number after the snapshot's": (
        lambda said: said.info(0, sequence_number=9, file_sequence_number=9),
        "adoption-invalid",
    ),
    "a spec that the table lacks": (lambda said: said.change(0, partition_spec_id=9), "spec-unknown"),
    "another spec of the table": (lambda said: said.change(0, partition_spec_id=0), "adoption-invalid"),
    "a leaf of our own format": (lambda said: said.change(0, file_format=FileFormat.PARQUET), "adoption-invalid"),
    "a location with control characters": (lambda said: said.change(0, location="s3://old/\n"), "location-invalid"),
    "a location that climbs": (lambda said: said.change(0, location="../../x.avro"), "location-invalid"),
    "a manifest that is not there": (lambda said: said.change(0, location=f"{BASE}/none.avro"), "adoption-invalid"),
    "a scheme that nobody reads": (lambda said: said.change(0, location="gopher://x/y.avro"), "file-unreadable"),
    "one leaf twice": (lambda said: said.rows.append(said.rows[0]), "adoption-invalid"),
    "more entries than there are": (
        lambda said: said.change(0, record_count=3).stats(0, added_files_count=3),
        "adoption-invalid",
    ),
    "more bytes than there are": (lambda said: said.change(0, file_size_in_bytes=7), "adoption-invalid"),
    "an absurd size": (lambda said: said.change(0, file_size_in_bytes=2**60), "adoption-invalid"),
    "rows that the entries do not have": (lambda said: said.stats(0, added_rows_count=30), "adoption-invalid"),
    "a leaf of the other content": (
        lambda said: said.change(2, content_type=ContentType.DATA_MANIFEST, first_row_id=0),
        "adoption-invalid",
    ),
    "row ids beyond the next free one": (lambda said: said.change(0, first_row_id=20), "adoption-invalid"),
    "no row ids": (lambda said: said.change(0, first_row_id=None), "adoption-invalid"),
    "a data file instead of a leaf": (
        lambda said: said.change(0, content_type=ContentType.DATA, manifest_stats=None),
        "adoption-invalid",
    ),
    "bounds that an entry leaves": (
        lambda said: said.change(0, content_stats={2: replace(said.rows[0].content_stats[2], lower_bound="Z")}),
        "adoption-invalid",
    ),
    "a vector without its data file": (lambda said: said.rows.pop(0), "adoption-invalid"),
    "totals that nothing gives": (
        lambda said: setattr(said, "header", replace(said.header, totals=replace(said.header.totals, rows=1))),
        "adoption-invalid",
    ),
    "a vector of entries that a leaf has not": (lambda said: _stored_vector(said, 70), "adoption-invalid"),
    "a vector of entries that are deleted": (
        lambda said: _stored_vector(said, 0, leaf=1, number=2),
        "adoption-invalid",
    ),
    "a vector of a leaf that is not there": (
        lambda said: _stored_vector(said, 0).change(3, location="x", referenced_file="x"),
        "adoption-invalid",
    ),
    "two vectors of one leaf": (lambda said: _stored_vector(_stored_vector(said, 0), 1), "adoption-invalid"),
    "a sequence number without an end": (lambda said: said.snapshot(sequence_number=2**63 - 1), "adoption-invalid"),
    "a clock far ahead": (lambda said: said.snapshot(timestamp_ms=2**62), "adoption-invalid"),
    "another table's name": (lambda said: setattr(said, "table", TableName("other.one")), "adoption-invalid"),
    "a definition that the intent does not carry": (
        lambda said: setattr(said, "definition", replace(said.definition, properties={"other": "one"})),
        "adoption-invalid",
    ),
    "no snapshot": (lambda said: said.snapshot(snapshot_id=0), "adoption-invalid"),
}


@pytest.mark.parametrize("name", WRONG)
async def test_an_adopted_root_that_says_something_wrong_rejects_its_intent_alone(name: str) -> None:
    store = MemoryObjectStore()
    plan = await planned(store)
    said = Said.of(plan)
    change, code = WRONG[name]
    change(said)
    async with running(store) as service:
        [verdict] = await service.commit(intent_of(plan, said.stored(store)))
        await _still_served(service)
    _rejected(verdict, code)


async def _still_served(service: Any) -> None:
    created, appended = await service.commit(create_intent(TABLE), append_intent("data/x.parquet"))
    assert (created.kind, appended.kind) == (VerdictKind.COMMITTED, VerdictKind.COMMITTED)


def _rejected(verdict: Verdict, code: str) -> None:
    assert (verdict.kind, verdict.code) == (VerdictKind.REJECTED, code), verdict
    assert verdict.code in CODES
    assert verdict.message is not None


NAMED: dict[str, tuple[dict[str, Any], str]] = {
    "absent": ({"digest": bytes(32), "location": adopted_location(bytes(32))}, "adoption-invalid"),
    "elsewhere": ({"location": "metadata/adopted/x.avro"}, "location-invalid"),
    "outside": ({"location": "s3://other/metadata/adopted/x.avro"}, "location-invalid"),
    "shorter": ({"file_size_in_bytes": 70}, "adoption-invalid"),
    "huge": ({"file_size_in_bytes": 2**40}, "intent-too-large"),
}


@pytest.mark.parametrize("name", NAMED)
async def test_an_intent_that_names_no_adopted_root_is_rejected(name: str) -> None:
    store = MemoryObjectStore()
    plan = await planned(store)
    more, code = NAMED[name]
    async with running(store) as service:
        [verdict] = await service.commit(intent_of(plan, plan.named.model_copy(update=more)))
        await _still_served(service)
    _rejected(verdict, code)


async def test_a_manifest_that_changed_after_the_plan_rejects_the_adoption() -> None:
    store = MemoryObjectStore()
    plan = await planned(store)
    other = HandWritten(BASE, 3, lambda location, body: store.place(location, body))  # type: ignore[arg-type]
    other.manifest("m2", [other.data("c", rows(20, "UA")), other.data("d", rows(30, "UA"))], 2)
    async with running(store) as service:
        [verdict] = await service.commit(intent_of(plan))
        await _still_served(service)
    _rejected(verdict, "adoption-invalid")
    assert verdict.message is not None
    assert "m2.avro" in verdict.message


async def test_flipped_bits_reject_the_adoption_or_change_nothing_that_is_proven() -> None:
    seeded = random.Random(20)
    for _ in range(25):
        store = MemoryObjectStore()
        plan = await planned(store)
        objects = [key_of(TABLE, plan.named.location), *(f"{BASE}/metadata/{name}.avro" for name in ("m1", "m2", "d1"))]
        key: Any = seeded.choice(objects)
        found = await store.get(key)
        assert found is not None
        body = bytearray(found.body)
        body[seeded.randrange(len(body))] ^= 1 << seeded.randrange(8)
        store.place(key, bytes(body))
        async with running(store) as service:
            [verdict] = await service.commit(intent_of(plan))
            if verdict.kind is VerdictKind.COMMITTED:
                assert state_violations(await load_to_build_on(store, TABLE, Version(0))) == []
            else:
                assert verdict.code in {"adoption-invalid", "location-invalid", "file-unreadable", "spec-unknown"}, (
                    verdict
                )
                await _still_served(service)


async def test_a_store_that_does_not_answer_rejects_nothing() -> None:
    inner = MemoryObjectStore()
    plan = await planned(inner)
    manifest: Any = f"{BASE}/metadata/m1.avro"
    store = FaultyObjectStore(inner, scripted([Fault.UNAVAILABLE, Fault.UNAVAILABLE], under=manifest))
    async with running(store) as service:
        [verdict] = await service.commit(intent_of(plan))
    assert (verdict.kind, verdict.version) == (VerdictKind.COMMITTED, 0)
    assert [fault for _, _, fault in store.drawn] == [Fault.UNAVAILABLE, Fault.UNAVAILABLE]


@pytest.mark.parametrize("name", ["m2", None])
async def test_an_answer_that_was_cut_off_once_rejects_nothing(name: str | None) -> None:
    inner = MemoryObjectStore()
    plan = await planned(inner)
    cut = key_of(TABLE, plan.named.location) if name is None else f"{BASE}/metadata/{name}.avro"
    store = FaultyObjectStore(inner, scripted([Fault.TRUNCATED], under=cut))
    async with running(store) as service:
        [verdict] = await service.commit(intent_of(plan))
    assert (verdict.kind, verdict.version) == (VerdictKind.COMMITTED, 0)
    assert [fault for _, _, fault in store.drawn] == [Fault.TRUNCATED]


async def test_a_first_root_says_the_snapshot_that_it_goes_on_from_or_has_none() -> None:
    store = MemoryObjectStore()
    plan = await planned(store)
    async with running(store) as service:
        await service.commit(intent_of(plan))
    state = await load_to_build_on(store, TABLE, Version(0))
    snapshot = state.header.snapshot
    for parent_id, said in (
        (snapshot.parent_id, {}),
        (99, {ADOPTED_SNAPSHOT: "7"}),
        (None, {ADOPTED_SNAPSHOT: "7"}),
        (None, {}),
    ):
        summary = {key: text for key, text in snapshot.summary.items() if key != ADOPTED_SNAPSHOT} | said
        parent = None if parent_id is None else SnapshotId(parent_id)
        header = replace(state.header, snapshot=replace(snapshot, parent_id=parent, summary=summary))
        wrong = replace(state, root=replace(state.root, header=header))
        assert violations(None, wrong) != [], (parent_id, said)
        if parent_id is not None or said:
            assert [fault.code for fault in faults_of_header(header)] == ["parent-mismatch"], (parent_id, said)
