"""Every effect is answered by one event, whatever the store does."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

import pytest

from rootline.adapters.embedded_feed import EmbeddedFeed
from rootline.adapters.memory import MemoryIntentLog, MemoryObjectStore
from rootline.coordinator.protocol.messages import (
    Event,
    Fetch,
    Fetched,
    HeadListed,
    HeadLoaded,
    ListHead,
    LoadFailed,
    LoadHead,
    ObjectsStored,
    PutReplied,
    PutRoot,
    ReadBack,
    RequestFailed,
    RootReadBack,
    StoreObjects,
)
from rootline.coordinator.runtime.table.effect_runner import EffectRunner, HeadCheck, LogCheck, StoreEffect
from rootline.ports.intent_feed import Partition, Reread
from rootline.ports.object_store import ObjectStore, Predecessor, PutStatus
from rootline.schemas.errors import Corrupt, Fenced, Internal, Invalid, Unavailable
from rootline.schemas.identifiers import CommitId, Location, LogId, LogPosition, LogRecord, Version
from rootline.schemas.object_keys import root_key
from rootline.schemas.parts.log import PartitionOffset
from rootline.schemas.root_header import RootHeader
from rootline.testing.object_stores import Fault, FaultyObjectStore, scripted
from rootline.testing.virtual_loop import run_virtually
from rootline.tree.draft.batch import Absent, Needs
from rootline.tree.intents.restore import RootNeed
from rootline.tree.rules.leaf_rules import LeafNeed
from rootline.tree.rules.vector_rules import VectorNeed
from rootline.tree.state.table_state import PendingObject
from tests.coordinator.hooked_ports import HookedStore, taking
from tests.coordinator.running_service import TABLE, running
from tests.support.loaded_tables import load_table
from tests.tree.tables import append, new_lake

KEY = root_key(TABLE, Version(0))
PUT = PutRoot(Version(0), KEY, b"root", Predecessor(None))
READ_BACK = ReadBack(Version(0), KEY, CommitId("own"))
PENDING = PendingObject(Location("metadata/definitions/x.json"), b"definition")
NEEDS = Needs.of([LeafNeed("metadata/leaves/x.parquet"), VectorNeed("data/x.puffin", 4)])
EFFECTS: list[StoreEffect] = [LoadHead(None), Fetch(NEEDS), StoreObjects((PENDING,)), PUT, READ_BACK, ListHead()]


async def no_check(header: RootHeader, decided: Collection[Partition]) -> None:
    """A log that reaches as far as every root."""


def runner(store: ObjectStore, check: HeadCheck = no_check) -> EffectRunner:
    return EffectRunner(store, TABLE, 10.0, check)


async def stored_table() -> MemoryObjectStore:
    store = MemoryObjectStore()
    async with running(store) as service:
        await service.create()
    return store


def raising(error: BaseException) -> HookedStore:
    async def hook(operation: str, key: str) -> None:
        raise error

    return HookedStore(before=hook)


def says_try_again(event: Event) -> bool:
    match event:
        case PutReplied():
            return event.reply.answer is PutStatus.NO_ANSWER
        case LoadFailed():
            return not event.corrupt
        case _:
            return isinstance(event, RequestFailed)


async def test_an_empty_store_has_no_head_and_takes_roots_and_objects() -> None:
    run = runner(MemoryObjectStore()).run
    assert await run(LoadHead(None)) == HeadLoaded(None, None)
    assert await run(ListHead()) == HeadListed(None, None)
    assert await run(READ_BACK) == RootReadBack(None, None, None)
    assert await run(StoreObjects((PENDING, PENDING))) == ObjectsStored()
    put = await run(PUT)
    assert isinstance(put, PutReplied)
    assert put.reply.answer is PutStatus.CREATED


async def test_a_stored_table_is_loaded_listed_and_read_back() -> None:
    store = await stored_table()
    state = await load_table(store, TABLE)
    assert state is not None
    loaded = await runner(store).run(LoadHead(None))
    assert isinstance(loaded, HeadLoaded)
    assert loaded.state is not None
    assert loaded.state.header == state.header
    assert await runner(store).run(ListHead()) == HeadListed(Version(0), None)
    assert await runner(store).run(READ_BACK) == RootReadBack(state.header.commit_id, None, None)


@pytest.mark.parametrize("effect", EFFECTS, ids=lambda effect: type(effect).__name__)
@pytest.mark.parametrize(
    "error",
    [Unavailable("store-unavailable", "503"), OSError("no route"), RuntimeError("used after close"), KeyError("Date")],
    ids=lambda error: type(error).__name__,
)
async def test_a_request_that_fails_somehow_is_to_be_tried_again(effect: StoreEffect, error: Exception) -> None:
    assert says_try_again(await runner(raising(error)).run(effect))


@pytest.mark.parametrize("effect", EFFECTS, ids=lambda effect: type(effect).__name__)
def test_a_store_that_never_answers_is_given_up_on_after_the_deadline(effect: StoreEffect) -> None:
    async def main() -> tuple[Event, float]:
        store = HookedStore(before=taking(get=1e9, put=1e9, list=1e9))
        return await runner(store).run(effect), asyncio.get_running_loop().time()

    event, elapsed_s = run_virtually(main())
    assert says_try_again(event)
    assert elapsed_s == pytest.approx(10.0)


def test_a_table_that_takes_many_requests_is_loaded_however_long_all_of_them_take() -> None:
    inner = asyncio.run(stored_table())

    async def main() -> tuple[Event, float]:
        store = HookedStore(inner, before=taking(get=6.0, list=6.0))
        return await runner(store).run(LoadHead(None)), asyncio.get_running_loop().time()

    event, elapsed_s = run_virtually(main())
    assert isinstance(event, HeadLoaded)
    assert elapsed_s > 10.0


async def test_cancellation_is_not_swallowed() -> None:
    reached = asyncio.Event()

    async def hang(operation: str, key: str) -> None:
        reached.set()
        await asyncio.Event().wait()

    task = asyncio.ensure_future(runner(HookedStore(before=hang)).run(PUT))
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_answer_that_was_cut_off_once_is_not_corruption() -> None:
    store = await stored_table()
    cut = FaultyObjectStore(store, scripted([Fault.TRUNCATED]))
    assert isinstance(await runner(cut).run(LoadHead(None)), HeadLoaded)
    cut = FaultyObjectStore(store, scripted([Fault.TRUNCATED]))
    assert isinstance(await runner(cut).run(READ_BACK), RootReadBack)


async def test_a_root_that_is_corrupt_at_the_second_look_too_is() -> None:
    store = await stored_table()
    found = await store.get(KEY)
    assert found is not None
    store.place(KEY, found.body[:-1])
    for effect in (LoadHead(None), READ_BACK):
        event = await runner(store).run(effect)
        assert isinstance(event, LoadFailed)
        assert event.corrupt
        assert KEY in event.detail


@pytest.mark.parametrize(
    "error",
    [
        Fenced("log-behind-root", "the log ends before the root"),
        Invalid("file-unreadable", "an Avro leaf"),
        Internal("invariant-broken", "a bug"),
        Corrupt("leaf-corrupt", "a leaf"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_a_head_that_must_not_be_built_on_is_refused_and_not_tried_again(error: Exception) -> None:
    async def check(header: RootHeader, decided: Collection[Partition]) -> None:
        raise error

    event = await runner(await stored_table(), check).run(LoadHead(None))
    assert event == LoadFailed(True, str(error))


async def test_a_head_that_is_rebased_onto_is_not_held_against_the_log_again() -> None:
    async def check(header: RootHeader, decided: Collection[Partition]) -> None:
        raise Fenced("log-behind-root", "asked")

    store = await stored_table()
    state = await load_table(store, TABLE)
    assert isinstance(await runner(store, check).run(LoadHead(state)), HeadLoaded)


@pytest.mark.parametrize("fault", [Fault.LOST_REPLY, Fault.OWN_CONFLICT])
async def test_an_object_that_rests_there_with_the_same_bytes_is_stored_whatever_the_answer_was(fault: Fault) -> None:
    store = FaultyObjectStore(MemoryObjectStore(), scripted([fault]))
    assert await runner(store).run(StoreObjects((PENDING,))) == ObjectsStored()


async def test_an_object_that_did_not_arrive_or_has_other_bytes_is_not_stored() -> None:
    store = FaultyObjectStore(MemoryObjectStore(), scripted([Fault.LOST_REQUEST]))
    assert isinstance(await runner(store).run(StoreObjects((PENDING,))), RequestFailed)
    assert await runner(store).run(StoreObjects((PENDING,))) == ObjectsStored()
    other = PendingObject(PENDING.location, b"other bytes")
    assert isinstance(await runner(store).run(StoreObjects((other,))), RequestFailed)


@pytest.mark.parametrize(
    "location",
    ["data/none.puffin", "data/" + "x" * 300, "data/" + "y/" * 490 + "z" * 40, "data/garbage"],
    ids=["absent", "a name no store takes", "a key no store takes", "garbage"],
)
async def test_what_cannot_be_read_is_looked_for_and_not_found(location: str) -> None:
    store = MemoryObjectStore()
    store.place(f"{TABLE.replace('.', '/')}/data/garbage", b"\x00\x00\x00\x10PAR1" * 40)  # type: ignore[arg-type]
    needs = Needs.of([LeafNeed(location), VectorNeed(location, 0)])
    event = await runner(store).run(Fetch(needs))
    assert isinstance(event, Fetched)
    assert event.fetched.found.keys() == set(needs)
    assert all(isinstance(event.fetched.of(need), Absent) for need in needs)


async def test_an_older_root_is_read_and_one_that_is_absent_or_corrupt_is_looked_for_and_not_found() -> None:
    store = await stored_table()
    store.place(root_key(TABLE, Version(1)), b"no root")
    event = await runner(store).run(Fetch(Needs.of(RootNeed(Version(at)) for at in range(3))))
    assert isinstance(event, Fetched)
    roots = [event.fetched.of(RootNeed(Version(at))) for at in range(3)]
    assert [isinstance(root, Absent) for root in roots] == [False, True, True]


@pytest.mark.parametrize(("not_read", "is_refused"), [("no codec for zstd", False), ("", True)])
async def test_a_decided_record_that_cannot_be_read_here_proves_nothing(not_read: str, is_refused: bool) -> None:
    header = new_lake(append("a")).head.header
    [(log, partition, end)] = header.log.offsets

    class Unreadable(EmbeddedFeed):
        async def end_offset(self, log: LogId, partition: int) -> int | None:
            return end

        async def read_again(self, reader: str, start: PartitionOffset, *, limit: int) -> Reread:
            record = LogRecord(LogPosition(log, partition, end - 1), None, b"", 0, (), not_read)
            return Reread((record,), end)

    check = LogCheck(Unreadable(MemoryIntentLog())).check(header, {(log, partition)})
    if is_refused:
        with pytest.raises(Fenced):
            await check
    else:
        await check
