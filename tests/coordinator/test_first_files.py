"""A `create` that brings the table's first files, and files outside the warehouse, decided by a real coordinator."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path

import pytest

from rootline.adapters.local_object_store import LocalObjectStore
from rootline.adapters.memory import MemoryIntentLog, MemoryObjectStore
from rootline.client.new_files import dated_files
from rootline.client.session import Session
from rootline.ports.object_store import ObjectStore
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import Version
from rootline.schemas.intent import DataFile, Intent, IntentKind
from rootline.schemas.object_keys import key_of, table_prefix
from rootline.storage.check.chain import check_table
from rootline.storage.check.findings import DataFiles
from rootline.storage.metadata.root_reader import find_head, read_root
from rootline.testing.seeded_environment import SeededEnvironment
from tests.coordinator.running_service import TABLE, append_intent, create_intent, running
from tests.coordinator.test_verified_files import (
    BODY,
    COMMITTED,
    MISSTATED,
    adding,
    creating,
    data_file,
    leaf_at,
    put,
    stored_leaf,
    told,
)
from tests.services.s3_service import S3Service
from tests.support.opened_sessions import nothing_known


def bringing(*files: DataFile, verify: str = "footer", **changes: object) -> Intent:
    return creating(verify).model_copy(update={"add_data_files": files, **changes})


async def findings(store: ObjectStore) -> list[str]:
    return [found.code async for found in check_table(store, TABLE, data_files=DataFiles.LISTED)]


async def test_first_files_are_verified_as_those_of_an_append_are() -> None:
    store = MemoryObjectStore()
    await put(store, "a")
    async with running(store) as service:
        [verdict] = await service.commit(bringing(data_file("a", record_count=11)))
        assert told(verdict) == MISSTATED
        [verdict] = await service.commit(bringing(data_file("a"), data_file("nowhere")))
        assert told(verdict) == ("rejected", "data-file-missing")
        assert await find_head(store, TABLE) is None
        [verdict] = await service.commit(bringing(data_file("a")))
        assert told(verdict) == COMMITTED
        [verdict] = await service.commit(bringing(data_file("a"), intent_id="late"))
        assert told(verdict) == ("rejected", "table-exists")
    root = await read_root(store, TABLE, Version(0))
    assert (root.header.version, root.header.totals.rows, root.header.snapshot.operation) == (0, 10, "append")
    assert await findings(store) == []


async def test_a_refused_create_stores_nothing() -> None:
    store = MemoryObjectStore()
    async with running(store) as service:
        [verdict] = await service.commit(bringing(data_file("a", location="export/a.parquet"), verify="none"))
        assert told(verdict) == ("rejected", "location-invalid")
    assert (await store.list(table_prefix(TABLE))).keys == ()


async def test_files_below_a_prefix_are_read_where_they_are(tmp_path: Path) -> None:
    outside = tmp_path / "path" / "to"
    outside.mkdir(parents=True)
    (outside / "a.parquet").write_bytes(BODY)
    store = LocalObjectStore(tmp_path / "lake")
    named = data_file("a", location=f"{outside}/a.parquet")
    log = MemoryIntentLog()
    async with running(store, log, file_prefixes=(f"{outside}/",)) as service:
        [verdict] = await service.commit(bringing(named))
        assert told(verdict) == COMMITTED
        absent = data_file("b", location=f"{outside}/b.parquet")
        stamped = {"writer_id": "w", "writer_sequence": 0, "add_data_files": (absent,)}
        lying = Intent(intent_id="lie", table=TABLE, kind=IntentKind.APPEND, **stamped)
        [verdict] = await service.commit(lying)
        assert told(verdict) == ("rejected", "data-file-missing")
    async with running(store, log) as service:
        [verdict] = await service.commit(append_intent("no-prefix", location=f"{outside}/c.parquet"))
        assert told(verdict) == ("rejected", "location-invalid")
        [verdict] = await service.commit(lying)
        assert told(verdict) == ("rejected", "data-file-missing"), "what one coordinator decided, the next one repeats"
    assert await findings(store) == []
    await store.close()


async def test_files_in_a_writers_leaf_may_be_below_a_prefix_and_nowhere_else(tmp_path: Path) -> None:
    outside = tmp_path / "path" / "to"
    outside.mkdir(parents=True)
    for name in ("a", "b"):
        (outside / f"{name}.parquet").write_bytes(BODY)
    store = LocalObjectStore(tmp_path / "lake")
    sound = await stored_leaf(store, leaf_at(f"{outside}/a.parquet", f"{outside}/b.parquet"), 2)
    absent = await stored_leaf(store, leaf_at(f"{outside}/absent.parquet"), 1)
    elsewhere = await stored_leaf(store, leaf_at(f"{outside.parent}/c.parquet"), 1)
    async with running(store, file_prefixes=(f"{outside}/",)) as service:
        verdicts = await service.commit(
            creating(),
            adding("sound", leaves=(sound,)),
            adding("absent", leaves=(absent,)),
            adding("elsewhere", leaves=(elsewhere,)),
        )
    refused = ("rejected", "location-invalid")
    assert [told(verdict) for verdict in verdicts] == [COMMITTED, COMMITTED, ("rejected", "data-file-missing"), refused]
    async with running(store) as service:
        assert told((await service.commit(adding("late", leaves=(absent,))))[0]) == refused
    assert await findings(store) == []
    await store.close()


async def close() -> None:
    """Keep everything open."""


@pytest.mark.services
async def test_lengths_and_dates_are_the_stores_own(s3_service: S3Service) -> None:
    store = s3_service.store(f"test-{uuid.uuid4().hex}")
    session = Session(store, MemoryIntentLog(), SeededEnvironment("dates"), close, nothing_known)
    names = [f"data/00000-{number}-{uuid.uuid4()}.parquet" for number in range(100)]
    for number, name in enumerate(names):
        await store.put_if_absent(key_of(TABLE, name), b"x" * number)
    found = await dated_files(session, TABLE, names)
    assert [found[name].length for name in names] == list(range(100))
    dates = await asyncio.gather(*(store.stored_ms(key_of(TABLE, name)) for name in names))
    assert [found[name].stored_ms for name in names] == dates
    added = tuple(data_file("a", location=name) for name in names)
    intent = create_intent(TABLE).model_copy(update={"add_data_files": added})
    assert session.uploads.oldest_of([intent]) == min(date for date in dates if date is not None)
    with pytest.raises(Invalid, match="does not exist"):
        await dated_files(session, TABLE, [*names, "data/absent.parquet"])
    await store.close()
