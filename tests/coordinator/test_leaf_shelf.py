"""Leaves that writers wrote, from the store to the verdict: read on arrival, held to be broken at second sight only."""

from __future__ import annotations

import asyncio
import dataclasses
import uuid
from collections.abc import Coroutine
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rootline.adapters.memory import MemoryObjectStore
from rootline.client.create_drop import build_definition
from rootline.coordinator.runtime.table.object_fetcher import fetch_objects
from rootline.coordinator.runtime.table.table_loop import LeafPrefetch
from rootline.maintenance.file_leaves import leaf_columns
from rootline.ports.object_store import ObjectStore, StoredObject
from rootline.schemas.bytes import leaf_codec
from rootline.schemas.bytes.leaf_codec import EncodedLeaf, LeafContent, encode_columns, is_quickly_decoded
from rootline.schemas.bytes.leaf_schema import ROW_FIELDS
from rootline.schemas.content_entry import ContentType
from rootline.schemas.errors import Unavailable
from rootline.schemas.identifiers import Location, LogId, LogPosition, ObjectKey
from rootline.schemas.intent import AddedManifest, Intent, IntentKind
from rootline.schemas.object_keys import key_of
from rootline.schemas.table_definition import TableDefinition
from rootline.schemas.verdict import Verdict, VerdictKind
from rootline.storage.check.chain import check_table
from rootline.testing.virtual_loop import run_virtually
from rootline.tree.draft.batch import Needs, Record
from rootline.tree.rules.leaf_rules import LeafNeed, ReadLeaf
from tests.coordinator.hooked_ports import HookedStore, taking
from tests.coordinator.running_service import TABLE, append_intent, create_intent, running
from tests.coordinator.test_table_loop import owned
from tests.schemas.bytes.leaf.test_foreign_leaf import written
from tests.schemas.bytes.leaf.test_leaf_cost import repeated
from tests.support.loaded_tables import load_table

DEFINITION: TableDefinition = build_definition(
    pa.schema([pa.field("id", pa.int64()), pa.field("k", pa.int32())]),
    table_uuid=uuid.uuid5(uuid.NAMESPACE_DNS, TABLE),
    partition_by=[],
)


def files(count: int, prefix: str = "leaf") -> pa.Table:
    bounds = pa.StructArray.from_arrays(
        [pa.array(range(count)), pa.array(range(count))], ["lower_bound", "upper_bound"]
    )
    return pa.table(
        {
            "location": [f"data/{prefix}-{number}.parquet" for number in range(count)],
            "record_count": [10] * count,
            "file_size_in_bytes": [100] * count,
            "content_stats": pa.StructArray.from_arrays([bounds], ["_1"]),
        }
    )


def encoded(count: int, prefix: str = "leaf") -> EncodedLeaf:
    columns = leaf_columns(files(count, prefix), DEFINITION, 0)
    return encode_columns(columns, leaf_uuid=uuid.uuid5(uuid.NAMESPACE_OID, prefix), content=LeafContent.DATA)


def manifest_of(leaf: EncodedLeaf, count: int) -> AddedManifest:
    return AddedManifest(
        location=leaf.location,
        content_type=ContentType.DATA_MANIFEST,
        file_size_in_bytes=len(leaf.body),
        record_count=count,
        partition_spec_id=0,
    )


async def stored(store: ObjectStore, count: int = 3, prefix: str = "leaf") -> AddedManifest:
    """A leaf in the store, and what an intent says of it."""
    leaf = encoded(count, prefix)
    await store.put_if_absent(key_of(TABLE, leaf.location), leaf.body)
    return manifest_of(leaf, count)


def adding(name: str, *leaves: AddedManifest) -> Intent:
    return Intent(intent_id=name, table=TABLE, kind=IntentKind.APPEND, add_manifests=leaves)


def told(verdict: Verdict) -> tuple[str, str | None]:
    return verdict.kind.value, verdict.code


def virtually(work: Coroutine[Any, Any, None]) -> None:
    run_virtually(work)


async def test_a_leaf_of_many_files_is_committed_in_one_root_and_the_chain_holds() -> None:
    store = MemoryObjectStore()
    async with running(store) as service:
        await service.create()
        manifest = await stored(store, 20_000)
        assert told((await service.commit(adding("many", manifest)))[0]) == ("committed", None)
        assert told((await service.commit(append_intent("one")))[0]) == ("committed", None)
    state = await load_table(store, TABLE)
    assert state is not None
    assert state.header.totals.data_files == 20_001
    assert state.header.row_ids.next == 200_010
    findings = [finding.code async for finding in check_table(store, TABLE)]
    assert set(findings) <= {"object-missing"}  # data files are of no interest here


async def test_a_missing_leaf_is_a_rejection_and_its_neighbours_are_committed() -> None:
    store = MemoryObjectStore()
    async with running(store) as service:
        await service.create()
        absent = manifest_of(encoded(3), 3)
        verdicts = await service.commit(append_intent("one"), adding("absent", absent), append_intent("two"))
        assert [told(verdict) for verdict in verdicts] == [
            ("committed", None),
            ("rejected", "leaf-missing"),
            ("committed", None),
        ]


async def test_an_absent_store_rejects_nothing() -> None:
    failures = 3

    async def fail(operation: str, key: str) -> None:
        nonlocal failures
        if operation == "get" and "/leaves/" in key and failures:
            failures -= 1
            raise Unavailable("store-unavailable", "503")

    store = HookedStore(before=fail)
    async with running(store) as service:
        await service.create()
        verdict = (await service.commit(adding("leaf", await stored(store.inner))))[0]
    assert verdict.kind is VerdictKind.COMMITTED
    assert failures == 0


class CutOff(MemoryObjectStore):
    """Cuts off its first answers about leaves."""

    cuts = 1

    async def get(self, key: ObjectKey) -> StoredObject | None:
        found = await super().get(key)
        if found is None or "/leaves/" not in key or not self.cuts:
            return found
        self.cuts -= 1
        return dataclasses.replace(found, body=found.body[:-10])


async def test_an_answer_that_was_cut_off_is_looked_at_twice() -> None:
    store = CutOff()
    async with running(store) as service:
        await service.create()
        verdict = (await service.commit(adding("leaf", await stored(store))))[0]
    assert verdict.kind is VerdictKind.COMMITTED


async def test_a_broken_leaf_is_a_rejection_that_says_what_is_wrong() -> None:
    store = MemoryObjectStore()
    leaf = encoded(3)
    await store.put_if_absent(key_of(TABLE, leaf.location), leaf.body[:100] + b"x" + leaf.body[101:])
    async with running(store) as service:
        await service.create()
        verdict = (await service.commit(adding("broken", manifest_of(leaf, 3))))[0]
    assert told(verdict) == ("rejected", "leaf-invalid")
    assert leaf.location in (verdict.message or "")
    assert "digest" in (verdict.message or "")


async def test_a_leaf_of_some_kilobytes_that_would_take_gigabytes_is_a_rejection_that_says_so() -> None:
    store = MemoryObjectStore()
    location, body = written(repeated("location", "data/" + "x" * 100_000), compression="zstd")
    leaf = EncodedLeaf(Location(location), body, b"")
    await store.put_if_absent(key_of(TABLE, leaf.location), leaf.body)
    async with running(store) as service:
        await service.create()
        verdicts = await service.commit(adding("bomb", manifest_of(leaf, 65_536)), append_intent("one"))
    assert [told(verdict) for verdict in verdicts] == [("rejected", "leaf-invalid"), ("committed", None)]
    assert "column location has a value of 100005 bytes, 4096 are allowed" in (verdicts[0].message or "")


def test_few_bytes_are_decoded_at_once_only_if_they_are_of_few_entries() -> None:
    assert is_quickly_decoded(encoded(1_000).body)
    assert is_quickly_decoded(b"no leaf")
    assert not is_quickly_decoded(written(repeated("location", "data/x", 1_025), compression="zstd")[1])


def _flawed(**columns: pa.Array) -> EncodedLeaf:
    """A leaf with true digests, as a foreign writer's bug may write it."""
    table = leaf_columns(files(3), DEFINITION, 0)
    for name, column in columns.items():
        index = table.schema.get_field_index(name)
        table = table.set_column(index, table.schema.field(index), column)
    return leaf_codec._encoded(table, uuid.UUID(int=5), LeafContent.DATA)


@pytest.mark.parametrize(
    ("name", "column", "reason"),
    [
        ("content_type", pa.array([0, 1, 0], pa.int32()), "content_type"),
        ("file_format", pa.array(["parquet", "csv", "parquet"]), "file_format"),
        ("file_format", pa.array(["parquet", "puffin", "parquet"]), "file_format"),
        ("partition_spec_id", pa.array([0, 1, 0], pa.int32()), "spec"),
        ("record_count", pa.array([10, -1, 10]), "record_count"),
        ("file_size_in_bytes", pa.array([100, None, 100]), "file_size_in_bytes"),
        ("split_offsets", pa.array([None, [9, 4], None], ROW_FIELDS[11].type), "split_offsets"),
        ("equality_ids", pa.array([None, [1], None], ROW_FIELDS[12].type), "equality_ids"),
        ("referenced_file", pa.array([None, "data/x.parquet", None]), "referenced_file"),
        ("location", pa.array(["data/a.parquet", "", "data/b.parquet"]), "empty"),
    ],
)
async def test_a_leaf_whose_rows_are_not_those_of_data_files_is_refused(
    name: str, column: pa.Array, reason: str
) -> None:
    store = MemoryObjectStore()
    leaf = _flawed(**{name: column})
    await store.put_if_absent(key_of(TABLE, leaf.location), leaf.body)
    async with running(store) as service:
        await service.create()
        verdict = (await service.commit(adding("flawed", manifest_of(leaf, 3))))[0]
    assert verdict.kind is VerdictKind.REJECTED
    assert reason in (verdict.message or "")
    assert leaf.location in (verdict.message or "")


async def test_statistics_of_another_type_are_refused_with_the_type_that_is_wanted() -> None:
    other = build_definition(
        pa.schema([pa.field("id", pa.string()), pa.field("k", pa.int32())]),
        table_uuid=DEFINITION.table_uuid,
        partition_by=[],
    )
    texts = pa.StructArray.from_arrays([pa.array(["a"]), pa.array(["b"])], ["lower_bound", "upper_bound"])
    listed = files(1).set_column(3, "content_stats", pa.StructArray.from_arrays([texts], ["_1"]))
    leaf = encode_columns(leaf_columns(listed, other, 0), leaf_uuid=uuid.UUID(int=6), content=LeafContent.DATA)
    store = MemoryObjectStore()
    await store.put_if_absent(key_of(TABLE, leaf.location), leaf.body)
    async with running(store) as service:
        await service.create()
        verdict = (await service.commit(adding("typed", manifest_of(leaf, 1))))[0]
    assert told(verdict) == ("rejected", "statistics-invalid")
    assert "long needs int64" in (verdict.message or "")


def test_a_leaf_is_read_while_the_root_before_it_is_put() -> None:
    async def main() -> None:
        is_read = asyncio.Event()

        async def before(operation: str, key: str) -> None:
            if operation == "get" and "/leaves/" in key:
                is_read.set()
            if operation == "put" and key.endswith("-1.avro"):
                await asyncio.wait_for(is_read.wait(), 5.0)

        store = HookedStore(before=before, after=taking(put=0.02))
        manifest = await stored(store.inner)
        async with owned(store) as table:
            await table.deliver(create_intent(TABLE))
            await table.until_decided(0)
            await table.deliver(append_intent("one"))
            await asyncio.sleep(0.001)
            await table.deliver(adding("leaf", manifest))
            await table.until_decided(2)
        assert [key for operation, key in store.calls if operation == "get" and "/leaves/" in key] == [
            key_of(TABLE, manifest.location)
        ]

    virtually(main())


def test_what_is_read_ahead_is_bounded_and_forgotten_with_its_records() -> None:
    async def main() -> None:
        store = HookedStore()
        small, large = await stored(store.inner, 3, "small"), await stored(store.inner, 300, "large")
        shelf = LeafPrefetch(store, TABLE, bytes_max=small.file_size_in_bytes + 1)
        record = Record(LogPosition(LogId("l"), 0, 0), adding("a", small, large), 1)
        async with asyncio.TaskGroup() as tasks:
            shelf.expect((record,), DEFINITION, tasks)
            found = await shelf.find(small.location)
            assert found is not None
            assert found.proof is not None
            assert found.proof.fault is None
            assert await shelf.find(large.location) is None
            shelf.keep(())
            assert await shelf.find(small.location) is None

    virtually(main())


def test_a_leaf_that_could_not_be_read_ahead_is_read_when_it_is_needed() -> None:
    async def main() -> None:
        failures = iter([Unavailable("store-unavailable", "503")])

        async def fail(operation: str, key: str) -> None:
            if operation == "get" and (error := next(failures, None)) is not None:
                raise error

        store = HookedStore(before=fail)
        manifest = await stored(store.inner)
        shelf = LeafPrefetch(store, TABLE)
        async with asyncio.TaskGroup() as tasks:
            shelf.expect((Record(LogPosition(LogId("l"), 0, 0), adding("a", manifest), 1),), None, tasks)
            need = LeafNeed(manifest.location, DEFINITION)
            found = (await fetch_objects(store, TABLE, Needs.of([need]), shelf)).of(need)
        assert isinstance(found, ReadLeaf)
        assert found.proof is not None
        assert found.proof.fault is None

    virtually(main())


def test_a_leaf_elsewhere_is_not_read_ahead() -> None:
    async def main() -> None:
        store = HookedStore()
        elsewhere = manifest_of(encoded(3), 3).model_copy(update={"location": "../b/metadata/leaves/x.parquet"})
        shelf = LeafPrefetch(store, TABLE)
        async with asyncio.TaskGroup() as tasks:
            shelf.expect((Record(LogPosition(LogId("l"), 0, 0), adding("a", elsewhere), 1),), None, tasks)
        assert store.calls == []

    virtually(main())


def test_an_encoded_leaf_reads_in_any_parquet_reader() -> None:
    read = pq.read_table(pa.BufferReader(encoded(3).body))
    assert read.column("location").to_pylist() == [f"data/leaf-{number}.parquet" for number in range(3)]


async def test_nothing_is_read_ahead_for_records_of_those_who_may_not_write() -> None:
    store = MemoryObjectStore()
    manifest = await stored(store)
    shelf = LeafPrefetch(store, TABLE)
    record = Record(LogPosition(LogId("log"), 0, 0), adding("a", manifest), 1)
    async with asyncio.TaskGroup() as tasks:
        shelf.expect([dataclasses.replace(record, refusal=("not-permitted", "no"))], DEFINITION, tasks)
        assert shelf.buffered_bytes == 0
        shelf.expect([record], DEFINITION, tasks)
        assert shelf.buffered_bytes == manifest.file_size_in_bytes
