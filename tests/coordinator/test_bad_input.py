"""Bad input gets a verdict with a stable code, its bytes are kept, and its neighbours in the batch commit."""

from __future__ import annotations

import asyncio
import json
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyroaring import BitMap64

from rootline.adapters.local_object_store import LocalObjectStore
from rootline.adapters.memory import MemoryObjectStore
from rootline.coordinator.runtime.table.object_fetcher import fetch_objects, vectors_at
from rootline.schemas.bytes.intent_codec import encode_intent
from rootline.schemas.bytes.vector_codec import VECTOR_MAGIC as MAGIC
from rootline.schemas.bytes.vector_codec import VectorBlob, encode_puffin, encode_vector, puffin_name
from rootline.schemas.error_codes import CODES
from rootline.schemas.errors import Corrupt
from rootline.schemas.identifiers import TableName
from rootline.schemas.intent import AddedVector, DataFile, Intent, IntentKind
from rootline.schemas.object_keys import key_of
from rootline.schemas.verdict import Verdict, VerdictKind
from rootline.storage.stored_objects import read_stored
from rootline.tree.draft.batch import ABSENT, Absent, Needs
from rootline.tree.rules.leaf_rules import LeafNeed
from rootline.tree.rules.vector_rules import VectorNeed
from tests.coordinator.running_service import TABLE, Running, running


def added(location: str, **changes: Any) -> DataFile:
    return DataFile(**{"location": location, "record_count": 10, "file_size_in_bytes": 100, **changes})


def append(name: str, *files: DataFile, **changes: Any) -> Intent:
    return Intent(intent_id=name, table=TABLE, kind=IntentKind.APPEND, add_data_files=files, **changes)


def as_json(change: Callable[[dict[str, Any]], object]) -> bytes:
    body = json.loads(append("bad", added("data/bad.parquet")).model_dump_json())
    change(body)
    return json.dumps(body).encode()


def deep() -> bytes:
    return b'{"intent_id":"deep","table":"a.b","kind":"append","summary":' + b"[" * 5_000 + b"]" * 5_000 + b"}"


AVRO_HEADER = encode_intent(append("x", added("data/x.parquet")))[:10]

RECORDS: dict[str, tuple[bytes, str]] = {
    "bytes that are nothing": (b"\x00\x01\x02 nothing", "undecodable"),
    "an empty record": (b"", "undecodable"),
    "a truncated Avro record": (encode_intent(append("x", added("data/x.parquet")))[:-7], "undecodable"),
    "an Avro record that claims a billion files": (AVRO_HEADER + b"\xff\xff\xff\xff\x0f" * 40, "undecodable"),
}

JSON_RECORDS: dict[str, tuple[bytes, str]] = {
    "JSON that is cut off": (b'{"intent_id": "x", "table": ', "undecodable"),
    "JSON that nests too deep": (deep(), "intent-too-large"),
    "an unknown kind": (as_json(lambda body: body.update(kind="teleport")), "kind-unknown"),
    "a field of the wrong type": (as_json(lambda body: body.update(add_data_files="all")), "intent-malformed"),
    "an absent field": (as_json(lambda body: body.pop("intent_id")), "intent-malformed"),
    "an unknown field": (as_json(lambda body: body.update(endpoint="http://evil")), "intent-malformed"),
    "a negative count": (
        as_json(lambda body: body["add_data_files"][0].update(record_count=-1)),
        "intent-malformed",
    ),
    "a writer without a sequence": (as_json(lambda body: body.update(writer_id="w")), "intent-malformed"),
}

INTENTS: dict[str, tuple[Intent, str]] = {
    "a foreign scheme": (append("bad", added("s3://elsewhere/x.parquet")), "location-invalid"),
    "a parent folder": (append("bad", added("data/../../other/x.parquet")), "location-invalid"),
    "an encoded parent folder": (append("bad", added("data/%2e%2e/x.parquet")), "location-invalid"),
    "a control character": (append("bad", added("data/x\n.parquet")), "location-invalid"),
    "a backslash": (append("bad", added("data\\x.parquet")), "location-invalid"),
    "an absolute path": (append("bad", added("/etc/passwd")), "location-invalid"),
    "a file named twice": (append("bad", added("data/x.parquet"), added("data/x.parquet")), "file-named-twice"),
    "a schema id that does not exist": (append("bad", added("data/x.parquet"), schema_id=9), "schema-unknown"),
    "a spec id that does not exist": (append("bad", added("data/x.parquet", partition_spec_id=9)), "spec-unknown"),
    "statistics of another table": (
        append("bad", added("data/x.parquet", content_stats=b"\x00", stats_schema=b"12345678")),
        "statistics-invalid",
    ),
    "another table's uuid": (
        append("bad", added("data/x.parquet"), table_uuid="00000000-0000-0000-0000-000000000001"),
        "table-uuid-mismatch",
    ),
    "a file to remove that is not there": (
        Intent(intent_id="bad", table=TABLE, kind=IntentKind.REMOVE, remove_files=({"location": "data/none.parquet"},)),
        "file-not-live",
    ),
}


async def judge(service: Running, bad: bytes, code: str, **headers: bytes) -> Verdict:
    """Publish the bad record between two good ones."""
    before, after = append("before", added("data/before.parquet")), append("after", added("data/after.parquet"))
    records = [encode_intent(before), bad, encode_intent(after)]
    verdicts = await service.decide(*records)
    assert [verdicts[0].kind, verdicts[2].kind] == [VerdictKind.COMMITTED] * 2, verdicts
    verdict = verdicts[1]
    assert verdict.kind is VerdictKind.REJECTED
    assert verdict.code == code, verdict
    assert verdict.message
    assert code in CODES
    letters = [letter for letter in await service.log.dead_letters() if letter.offset == verdict.offset]
    assert [letter.value for letter in letters] == [bad], "the original bytes are kept"
    return verdict


@pytest.mark.parametrize("case", RECORDS)
async def test_a_record_that_cannot_be_decoded(case: str) -> None:
    async with running() as service:
        await service.create()
        await judge(service, *RECORDS[case])


@pytest.mark.parametrize("case", JSON_RECORDS)
async def test_a_json_record_of_the_wrong_shape(case: str) -> None:
    async with running() as service:
        await service.create()
        await judge(service, *JSON_RECORDS[case])


@pytest.mark.parametrize("case", INTENTS)
async def test_an_intent_that_cannot_be_carried_out(case: str) -> None:
    intent, code = INTENTS[case]
    async with running() as service:
        await service.create()
        await judge(service, encode_intent(intent), code)


async def test_an_oversized_record_and_one_with_too_many_files() -> None:
    async with running() as service:
        await service.create()
        padded = append("bad", added("data/x.parquet"), summary={"padding": "x" * 1_100_000})
        await judge(service, encode_intent(padded), "intent-too-large")
    async with running() as service:
        await service.create()
        many = append("bad", *(added(f"data/{number:06}") for number in range(10_001)))
        await judge(service, encode_intent(many), "intent-too-large")


async def test_a_file_that_is_live_already() -> None:
    async with running() as service:
        await service.create()
        await service.commit(append("first", added("data/x.parquet")))
        await judge(service, encode_intent(append("again", added("data/x.parquet"))), "file-already-live")


async def test_missing_partition_values() -> None:
    async with running() as service:
        await service.create(partition_by=["k"])
        statistics = ({"field_id": 2, "lower_bound": b"\x01\x00\x00\x00"},)
        good = append("good", added("data/good.parquet", statistics=statistics))
        verdicts = await service.commit(append("bad", added("data/bad.parquet")), good)
        assert [verdict.code for verdict in verdicts] == ["statistics-missing", None]


@pytest.mark.parametrize(
    ("positions", "cardinality", "size_change"),
    [((1, 2, 3), 2, 0), ((1, 2), 5, 0), ((8, 9, 10), 3, 0), ((1, 2), 2, 5), ((1, 2), 2, -1)],
    ids=["too low", "too high", "outside the file", "size too large", "size too small"],
)
async def test_a_vector_that_lies(positions: tuple[int, ...], cardinality: int, size_change: int) -> None:
    async with running() as service:
        await service.create()
        await service.commit(append("first", added("data/x.parquet")))
        puffin = encode_puffin([VectorBlob("data/x.parquet", BitMap64(positions))])
        location = f"data/{puffin_name('v', puffin.body)}"
        await service.store.put_if_absent(key_of(TABLE, location), puffin.body)
        await judge(
            service,
            encode_intent(delta(location, puffin.places[0].offset, puffin.places[0].size + size_change, cardinality)),
            "vector-invalid",
        )


async def test_a_vector_that_does_not_exist() -> None:
    async with running() as service:
        await service.create()
        await service.commit(append("first", added("data/x.parquet")))
        await judge(service, encode_intent(delta("data/none.puffin", 4, 40, 2)), "vector-invalid")


def delta(location: str, offset: int, size: int, cardinality: int) -> Intent:
    vector = AddedVector(
        location=location,
        offset=offset,
        size_in_bytes=size,
        file_size_in_bytes=offset + size + 500,
        cardinality=cardinality,
        referenced_file="data/x.parquet",
    )
    return Intent(intent_id="bad", table=TABLE, kind=IntentKind.ROW_DELTA, add_vectors=(vector,))


async def test_a_table_that_does_not_exist_and_names_that_cannot() -> None:
    async with running() as service:
        await service.create()
        stray = append("stray", added("data/x.parquet")).model_copy(update={"table": "no.such"})
        [verdict] = await service.commit(stray)
        assert verdict.code == "table-unknown"
        [again] = await service.commit(stray)
        assert again.code == "table-unknown"
        odd = append("odd", added("data/x.parquet")).model_copy(update={"table": "../etc"})
        [verdict] = await service.commit(odd)
        assert verdict.code == "table-name-invalid"
        assert len(await service.log.dead_letters()) == 3


async def test_a_record_under_another_tables_key_is_refused() -> None:
    async with running() as service:
        await service.create()
        [verdict] = await service.decide(encode_intent(append("x", added("data/x.parquet"))), key=b"c.d")
        assert verdict.code == "intent-malformed"
        assert "c.d" in (verdict.message or "")


async def test_a_definition_that_cannot_be_stored() -> None:
    async with running() as service:
        violations = Intent(intent_id="create", table="n.t", kind=IntentKind.CREATE, definition="{}")
        [verdict] = await service.commit(violations)
        assert verdict.code == "definition-invalid"
        await service.create(TableName("n.t"))
        [verdict] = await service.commit(
            Intent(intent_id="create-again", table="n.t", kind=IntentKind.CREATE, definition="{}")
        )
        assert verdict.code == "table-exists"


def around(blob: bytes) -> bytes:
    """A vector of full containers whose bytes begin with another vector."""
    filled = blob + b"\xff" * (-len(blob) % 8192 + 8192)
    parts = [filled[at : at + 8192] for at in range(0, len(filled), 8192)]
    heads = b"".join(
        key.to_bytes(2, "little") + (int.from_bytes(part, "little").bit_count() - 1).to_bytes(2, "little")
        for key, part in enumerate(parts)
    )
    starts = [8 + 8 * len(parts) + 8192 * number for number in range(len(parts))]
    header = (12346).to_bytes(4, "little") + len(parts).to_bytes(4, "little") + heads
    bitmap = header + b"".join(start.to_bytes(4, "little") for start in starts) + filled
    body = MAGIC + (1).to_bytes(8, "little") + bytes(4) + bitmap
    return len(body).to_bytes(4, "big") + body + zlib.crc32(body).to_bytes(4, "big")


def test_vectors_inside_each_other_are_decoded_a_few_times_only() -> None:
    blob = encode_vector(BitMap64([1]))
    for _ in range(40):
        blob = around(blob)
    body = b"PFA1" + blob
    places = [VectorNeed("f", at - 4) for at in range(len(body)) if body.startswith(MAGIC, at)]
    found = list(vectors_at(body, places).values())
    assert len(found) == 41
    assert found[0] != ABSENT, "the outermost"
    assert 4 <= sum(vector != ABSENT for vector in found) <= 8
    apart = b"".join(encode_vector(BitMap64([number])) for number in range(40))
    each = [VectorNeed("f", at - 4) for at in range(len(apart)) if apart.startswith(MAGIC, at)]
    assert vectors_at(apart, each) == {place: BitMap64([number]) for number, place in enumerate(each)}


async def test_other_work_goes_on_while_a_costly_vector_is_decoded() -> None:
    store, table, turns = MemoryObjectStore(), TableName(TABLE), 0
    body = encode_vector(BitMap64(number << 32 for number in range(20_000)))
    store.place(key_of(table, "metadata/vectors/v.puffin"), body)

    async def turning() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    neighbour = asyncio.ensure_future(turning())
    place = VectorNeed("metadata/vectors/v.puffin", 0)
    fetched = await fetch_objects(store, table, Needs.of([place]))
    neighbour.cancel()
    found = fetched.of(place)
    assert not isinstance(found, Absent)
    assert len(found) == 20_000
    assert turns > 100


async def test_an_object_that_is_far_longer_than_any_is_not_read(tmp_path: Path) -> None:
    store, table, location = LocalObjectStore(tmp_path), TableName(TABLE), "metadata/vectors/v.puffin"
    path = tmp_path / key_of(table, location)
    path.parent.mkdir(parents=True)
    path.touch()
    os.truncate(path, 1 << 42)
    place = VectorNeed(location, 4)
    leaf = LeafNeed(location)
    fetched = await fetch_objects(store, table, Needs.of([leaf, place]))
    assert fetched.found == {leaf: ABSENT, place: ABSENT}
    with pytest.raises(Corrupt, match=f"{1 << 42} bytes are stored, its entry states 100"):
        await read_stored(store, table, location, code="vector-corrupt", length=100)
    await store.close()
