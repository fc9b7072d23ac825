"""A table that asks for it has its new data files compared with what is stored, before they are accepted."""

from __future__ import annotations

import asyncio
import dataclasses
import io
import uuid

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rootline.adapters.memory import MemoryObjectStore
from rootline.client.create_drop import build_definition
from rootline.coordinator.runtime.table.object_fetcher import FooterPrefetch, fetch_objects
from rootline.maintenance.file_leaves import leaf_columns
from rootline.ports.object_store import ObjectStore
from rootline.schemas.bytes.leaf_codec import EncodedLeaf, LeafContent, encode_columns
from rootline.schemas.content_entry import ContentType, FileFormat
from rootline.schemas.errors import Unavailable
from rootline.schemas.identifiers import LogId, LogPosition, ObjectKey
from rootline.schemas.intent import AddedManifest, DataFile, Intent, IntentKind, RemovedFile
from rootline.schemas.object_keys import key_of
from rootline.schemas.table_definition import TableDefinition
from rootline.schemas.verdict import Verdict
from rootline.storage.rows.file_footers import FooterReader
from rootline.testing.virtual_loop import run_virtually
from rootline.tree.draft.batch import FetchedObjects, Needs, Record
from rootline.tree.evolution.changes import DefinitionChanges, SetProperties
from rootline.tree.proof.file_proof import VERIFY_PROPERTY, StatedFile
from rootline.tree.rules.leaf_rules import LeafNeed, ReadLeaf
from tests.coordinator.hooked_ports import HookedStore, taking
from tests.coordinator.running_service import TABLE, running
from tests.coordinator.test_table_loop import owned


def definition(verify: str = "footer") -> TableDefinition:
    return build_definition(
        pa.schema([pa.field("id", pa.int64()), pa.field("k", pa.int32())]),
        table_uuid=uuid.uuid5(uuid.NAMESPACE_DNS, TABLE),
        properties={VERIFY_PROPERTY: verify},
    )


def creating(verify: str = "footer") -> Intent:
    made = dataclasses.replace(
        definition(), properties={VERIFY_PROPERTY: verify}
    )  # the client would refuse a wrong value sooner
    text = made.to_json().decode()
    return Intent(intent_id="create", table=TABLE, kind=IntentKind.CREATE, definition=text)


def parquet(rows: int) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"id": range(rows)}), sink)
    return sink.getvalue()


BODY = parquet(10)


def data_file(name: str, **changes: object) -> DataFile:
    stated = {"location": f"data/{name}.parquet", "record_count": 10, "file_size_in_bytes": len(BODY), **changes}
    return DataFile.model_validate(stated)


def adding(name: str, *files: DataFile, leaves: tuple[AddedManifest, ...] = ()) -> Intent:
    return Intent(intent_id=name, table=TABLE, kind=IntentKind.APPEND, add_data_files=files or (), add_manifests=leaves)


async def put(store: ObjectStore, name: str, body: bytes = BODY) -> None:
    await store.put_if_absent(key_of(TABLE, f"data/{name}.parquet"), body)


def told(verdict: Verdict) -> tuple[str, str | None]:
    return verdict.kind.value, verdict.code


def stated(name: str, **changes: object) -> StatedFile:
    file = StatedFile(f"data/{name}.parquet", FileFormat.PARQUET, 10, len(BODY), is_encrypted=False)
    return file._replace(**changes)  # type: ignore[arg-type]


COMMITTED = ("committed", None)
MISSTATED = ("rejected", "data-file-misstated")


async def test_a_lie_about_one_file_rejects_its_intent_and_no_other() -> None:
    store = MemoryObjectStore()
    for name in ("a", "b", "c", "d", "e"):
        await put(store, name)
    await put(store, "text", b"x" * len(BODY))
    async with running(store) as service:
        verdicts = await service.commit(
            creating(),
            adding("sound", data_file("a")),
            adding("more-rows", data_file("b", record_count=2**20)),
            adding("fewer-rows", data_file("b", record_count=9)),
            adding("too-long", data_file("c", file_size_in_bytes=len(BODY) + 1)),
            adding("too-short", data_file("c", file_size_in_bytes=len(BODY) - 1)),
            adding("absent", data_file("nowhere")),
            adding("no-parquet", data_file("text")),
            adding("one-of-two", data_file("d"), data_file("nowhere")),
            adding("sound-too", data_file("e")),
        )
    assert [told(verdict) for verdict in verdicts] == [
        COMMITTED,
        COMMITTED,
        MISSTATED,
        MISSTATED,
        MISSTATED,
        MISSTATED,
        ("rejected", "data-file-missing"),
        ("rejected", "file-unreadable"),
        ("rejected", "data-file-missing"),
        COMMITTED,
    ]
    messages = {verdict.intent_id: verdict.message or "" for verdict in verdicts}
    assert "'data/b.parquet': record_count is 9, but its footer counts 10 rows" in messages["fewer-rows"]
    assert f"file_size_in_bytes is {len(BODY) + 1}, but {len(BODY)} bytes are stored" in messages["too-long"]


async def test_an_overwrite_is_looked_at_too() -> None:
    store = MemoryObjectStore()
    await put(store, "a")
    await put(store, "b")
    removed = (RemovedFile(location="data/a.parquet"),)
    lying = Intent(
        intent_id="lie",
        table=TABLE,
        kind=IntentKind.OVERWRITE,
        add_data_files=(data_file("b", record_count=11),),
        remove_files=removed,
    )
    true = lying.model_copy(update={"intent_id": "true", "add_data_files": (data_file("b"),)})
    async with running(store) as service:
        verdicts = await service.commit(creating(), adding("first", data_file("a")), lying, true)
    assert [told(verdict) for verdict in verdicts] == [COMMITTED, COMMITTED, MISSTATED, COMMITTED]


async def test_a_table_that_does_not_ask_for_it_reads_no_data_file() -> None:
    store = HookedStore()
    async with running(store) as service:
        verdicts = await service.commit(creating("none"), adding("absent", data_file("nowhere", record_count=7)))
    assert [told(verdict) for verdict in verdicts] == [COMMITTED, COMMITTED]
    assert [key for _, key in store.calls if "/data/" in key] == []


async def test_a_store_that_is_away_for_a_while_rejects_nothing() -> None:
    failures = 3

    async def fail(operation: str, key: str) -> None:
        nonlocal failures
        if operation == "get" and "/data/" in key and failures:
            failures -= 1
            raise Unavailable("store-unavailable", "503")

    store = HookedStore(before=fail)
    await put(store.inner, "a")
    async with running(store) as service:
        verdicts = [*await service.commit(creating()), *await service.commit(adding("sound", data_file("a")))]
    assert [told(verdict) for verdict in verdicts] == [COMMITTED, COMMITTED]
    assert failures == 0


class CutOff(MemoryObjectStore):
    """Cuts off its first answer about a part."""

    cuts = 1

    async def part_of(self, key: ObjectKey, start: int, length: int) -> bytes | None:
        found = await super().part_of(key, start, length)
        if found is None or not self.cuts:
            return found
        self.cuts -= 1
        return found[:-3]


async def test_an_answer_that_was_cut_off_is_looked_at_twice() -> None:
    store = CutOff()
    await put(store, "a")
    assert await FooterReader(store, TABLE).fault_of(stated("a")) is None
    assert store.cuts == 0


@pytest.mark.parametrize("bad", ["", "Footer", "all"])
async def test_another_value_of_the_property_is_refused_at_create(bad: str) -> None:
    async with running() as service:
        (verdict,) = await service.commit(creating(bad))
    assert told(verdict) == ("rejected", "property-invalid")
    assert "none or footer" in (verdict.message or "")


# files in leaves


def leaf_of(*names: str, rows: int = 10) -> EncodedLeaf:
    return leaf_at(*(f"data/{name}.parquet" for name in names), rows=rows)


def leaf_at(*locations: str, rows: int = 10) -> EncodedLeaf:
    files = pa.table(
        {
            "location": locations,
            "record_count": [10] * (len(locations) - 1) + [rows],
            "file_size_in_bytes": [len(BODY)] * len(locations),
        }
    )
    columns = leaf_columns(files, definition(), 0)
    return encode_columns(columns, leaf_uuid=uuid.uuid5(uuid.NAMESPACE_OID, str(locations)), content=LeafContent.DATA)


async def stored_leaf(store: ObjectStore, leaf: EncodedLeaf, entries: int) -> AddedManifest:
    await store.put_if_absent(key_of(TABLE, leaf.location), leaf.body)
    return AddedManifest(
        location=leaf.location,
        content_type=ContentType.DATA_MANIFEST,
        file_size_in_bytes=len(leaf.body),
        record_count=entries,
        partition_spec_id=0,
    )


async def test_the_files_of_a_writers_leaf_are_looked_at_one_by_one() -> None:
    store = MemoryObjectStore()
    for name in ("a", "b", "c", "d"):
        await put(store, name)
    sound, lying = leaf_of("a", "b"), leaf_of("c", "d", rows=12)
    manifests = [await stored_leaf(store, leaf, 2) for leaf in (sound, lying)]
    async with running(store) as service:
        await service.commit(creating())
        verdicts = await service.commit(
            *(adding(f"leaf-{at}", leaves=(manifest,)) for at, manifest in enumerate(manifests))
        )
    assert [told(verdict) for verdict in verdicts] == [COMMITTED, MISSTATED]
    assert verdicts[1].message is not None
    assert lying.location in verdicts[1].message
    assert "data/d.parquet" in verdicts[1].message


@pytest.mark.parametrize("name", ["größe", "asked=x%3F/b", "a:b", "day=2020%2F01/absent"])
async def test_a_file_of_a_leaf_is_looked_at_whatever_its_name(name: str) -> None:
    store = MemoryObjectStore()
    manifest = await stored_leaf(store, leaf_of(name), 1)
    async with running(store) as service:
        await service.commit(creating())
        [verdict] = await service.commit(adding("leaf", leaves=(manifest,)))
    assert told(verdict) == ("rejected", "data-file-missing")


async def test_a_leaf_that_comes_with_the_creation_of_its_table_is_looked_at_too() -> None:
    store = MemoryObjectStore()
    await put(store, "a")
    manifest = await stored_leaf(store, leaf_of("a", "absent"), 2)
    async with running(store) as service:
        verdicts = await service.commit(creating(), adding("leaf", leaves=(manifest,)))
    assert [told(verdict) for verdict in verdicts] == [COMMITTED, ("rejected", "data-file-missing")]


def altering(name: str, verify: str) -> Intent:
    text = DefinitionChanges(None, (SetProperties({VERIFY_PROPERTY: verify}),)).to_json()
    return Intent(intent_id=name, table=TABLE, kind=IntentKind.ALTER, definition=text)


async def test_files_are_looked_at_from_the_intent_on_that_asks_for_it_to_the_one_that_does_not() -> None:
    store = MemoryObjectStore()
    await put(store, "a")
    manifest = await stored_leaf(store, leaf_of("a", "absent"), 2)
    async with running(store) as service:
        verdicts = await service.commit(
            creating("none"),
            adding("taken", data_file("one")),
            altering("on", "footer"),
            adding("refused", data_file("two")),
            adding("leaf-refused", leaves=(manifest,)),
            altering("odd", "often"),
            altering("off", "none"),
            adding("taken-too", data_file("three")),
            adding("leaf-taken", leaves=(manifest,)),
        )
    missing = ("rejected", "data-file-missing")
    assert [told(verdict) for verdict in verdicts] == [
        COMMITTED,
        COMMITTED,
        COMMITTED,
        missing,
        missing,
        ("rejected", "property-invalid"),
        COMMITTED,
        COMMITTED,
        COMMITTED,
    ]


def test_two_definitions_in_one_batch_never_ask_for_a_leaf_in_turn() -> None:
    async def main() -> None:
        store = MemoryObjectStore()
        await put(store, "a")
        manifest = await stored_leaf(store, leaf_of("a", "absent"), 2)
        first, second = definition(), definition("footer")
        second = dataclasses.replace(second, properties={**second.properties, "owner": "tests"})
        fetched = FetchedObjects()
        for asked in (first, second, first, second):
            need = LeafNeed(manifest.location, asked)
            fetched = fetched.with_more(await fetch_objects(store, TABLE, Needs.of([need])))
            found = fetched.of(need)
            assert isinstance(found, ReadLeaf)
            proof = found.proof
            assert proof is not None
            assert proof.file_faults is not None  # which is all that either of them waits for
            assert proof.fault is None
            assert [fault.code for fault in proof.file_faults] == ["data-file-missing"]

    run_virtually(main())


async def test_no_place_is_looked_at_where_a_writer_may_not_put_a_file() -> None:
    store = HookedStore()
    places = ["metadata/definitions/x.parquet", "s3://other/x.parquet", "../b/data/x.parquet", "/etc/passwd"]
    async with running(store) as service:
        await service.commit(creating())
        verdicts = await service.commit(
            *(adding(f"at-{at}", data_file("x", location=place)) for at, place in enumerate(places))
        )
    assert {told(verdict) for verdict in verdicts} == {("rejected", "location-invalid")}
    assert [key for operation, key in store.calls if operation == "get" and "x.parquet" in key] == []
    assert [key for operation, key in store.calls if "passwd" in key] == []


# when they are looked at


def test_files_are_looked_at_while_the_root_before_is_put_and_only_once() -> None:
    async def main() -> None:
        is_read = asyncio.Event()

        async def before(operation: str, key: str) -> None:
            if operation == "get" and key.endswith("/data/b.parquet"):
                is_read.set()
            if operation == "put" and key.endswith("-1.avro"):
                await asyncio.wait_for(is_read.wait(), 5.0)

        store = HookedStore(before=before, after=taking(put=0.02))
        await put(store.inner, "a")
        await put(store.inner, "b")
        async with owned(store) as table:
            await table.deliver(creating())
            await table.until_decided(0)
            await table.deliver(adding("a", data_file("a")))
            await asyncio.sleep(0.001)
            await table.deliver(adding("b", data_file("b")))
            await table.until_decided(2)
        looks = [key for operation, key in store.calls if operation == "get" and "/data/" in key]
        assert sorted(looks) == [key_of(TABLE, f"data/{name}.parquet") for name in ("a", "b")]

    run_virtually(main())


def test_a_file_that_was_stored_after_its_record_arrived_is_found_when_it_is_needed() -> None:
    async def main() -> None:
        store = MemoryObjectStore()
        shelf = FooterPrefetch(store, TABLE)
        record = Record(LogPosition(LogId("l"), 0, 0), adding("a", data_file("a")), 1)
        async with asyncio.TaskGroup() as tasks:
            shelf.expect([record], definition(), tasks)
        await put(store, "a")
        assert await shelf.fault_of(stated("a")) is None

    run_virtually(main())


def test_what_was_looked_at_ahead_is_forgotten_with_the_last_record() -> None:
    async def main() -> None:
        store = HookedStore()
        await put(store.inner, "a")
        shelf = FooterPrefetch(store, TABLE)
        record = Record(LogPosition(LogId("l"), 0, 0), adding("a", data_file("a")), 1)
        async with asyncio.TaskGroup() as tasks:
            shelf.expect([record, record], definition(), tasks)
        assert len(store.calls) == 1
        shelf.keep([record])
        assert await shelf.fault_of(stated("a")) is None
        assert len(store.calls) == 1
        async with asyncio.TaskGroup() as tasks:
            shelf.expect([record], definition(), tasks)
        shelf.keep([])
        assert await shelf.fault_of(stated("a")) is None
        assert len(store.calls) == 3

    run_virtually(main())
