"""Leaves are encoded away from the commits: other tables commit meanwhile, and nothing waits for ever."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator

import pytest

from rootline.adapters.embedded_feed import EmbeddedFeed
from rootline.adapters.memory import MemoryIntentLog, MemoryObjectStore
from rootline.coordinator.app import CoordinatorService
from rootline.coordinator.protocol.messages import EncodeLeaves, EncodingFailed, LeavesEncoded
from rootline.coordinator.runtime.table import effect_runner as leaf_encoder
from rootline.coordinator.runtime.table import table_loop
from rootline.coordinator.runtime.table.effect_runner import EffectRunner, ThreadLeafEncoder
from rootline.coordinator.settings import CoordinatorSettings
from rootline.schemas.bytes.intent_codec import encode_intent
from rootline.schemas.errors import Corrupt, RootlineError
from rootline.schemas.identifiers import TableName
from rootline.schemas.intent import Intent, IntentKind
from rootline.schemas.verdict import VerdictKind
from rootline.testing.virtual_loop import run_virtually
from rootline.tree.intents.flush import OwnFlush
from rootline.tree.state.table_state import TableState
from tests.coordinator.test_table_loop import no_check
from tests.maintenance.table_builder import TableBuilder, data_file, location_of
from tests.support.loaded_tables import load_table
from tests.support.own_flush import own_flush

LIMIT = 10


class HookedEncoder:
    """Tells when it is asked, and answers when it may."""

    def __init__(self) -> None:
        self.asked, self.may_answer = asyncio.Event(), asyncio.Event()

    async def encode(self, head: TableState) -> OwnFlush:
        self.asked.set()
        await self.may_answer.wait()
        return own_flush(head)


class Coordinator:
    """A service over memory whose encoder is the test's, and tables that flush from ten rows on."""

    def __init__(self, encoder: HookedEncoder) -> None:
        self.store, self.log = MemoryObjectStore(), MemoryIntentLog()
        self.service = CoordinatorService(
            store=self.store, log=EmbeddedFeed(self.log), settings=CoordinatorSettings(probe_rounds=0)
        )
        self.service._encoder = encoder
        self.running = asyncio.ensure_future(self.service.run())

    async def table(self, name: str) -> TableBuilder:
        builder = TableBuilder(self.store, name, **{"rootline.flush.hard-entries": str(LIMIT)})
        definition = builder.definition.to_json().decode()
        await self.commit(builder, builder.intent(IntentKind.CREATE, definition=definition))
        return builder

    async def append(self, builder: TableBuilder, *numbers: int) -> None:
        files = tuple(data_file(number) for number in numbers)
        await self.commit(builder, builder.intent(IntentKind.APPEND, add_data_files=files))

    async def commit(self, builder: TableBuilder, intent: Intent) -> None:
        position = await self.log.publish(builder.table.encode(), encode_intent(intent))
        verdict = await self.log.wait_verdict(position, timeout_s=60.0)
        assert verdict is not None
        assert verdict.kind is VerdictKind.COMMITTED, verdict

    async def state(self, builder: TableBuilder) -> TableState:
        state = await load_table(self.store, builder.table)
        assert state is not None
        return state

    async def stop(self) -> None:
        self.service.request_stop()
        await self.running


async def test_two_tables_commit_while_the_leaves_of_one_are_encoded() -> None:
    encoder = HookedEncoder()
    coordinator = Coordinator(encoder)
    flushing, beside = await coordinator.table("demo.flushing"), await coordinator.table("demo.beside")
    await coordinator.append(flushing, *range(LIMIT))
    await encoder.asked.wait()
    for number in range(3):
        await coordinator.append(beside, number)
        await coordinator.append(flushing, LIMIT + number)
    assert len((await coordinator.state(flushing)).live.rows) == LIMIT + 3
    encoder.may_answer.set()
    while not (await coordinator.state(flushing)).leaves:
        number += 1
        await coordinator.append(flushing, LIMIT + number)
    state = await coordinator.state(flushing)
    assert {item.entry.location for item in state.live.entries()} == set(map(location_of, range(LIMIT + number + 1)))
    await coordinator.stop()


async def test_a_stop_does_not_wait_for_leaves() -> None:
    encoder = HookedEncoder()
    coordinator = Coordinator(encoder)
    flushing = await coordinator.table("demo.flushing")
    await coordinator.append(flushing, *range(LIMIT))
    await encoder.asked.wait()
    async with asyncio.timeout(60.0):
        await coordinator.stop()


async def test_a_step_that_matches_many_entries_is_made_away_from_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: set[int] = set()
    right = table_loop.step

    def noting(*args: object) -> object:
        threads.add(threading.get_ident())
        return right(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(table_loop, "step", noting)
    monkeypatch.setattr(table_loop, "HEAVY_ENTRIES", LIMIT)
    encoder = HookedEncoder()
    encoder.may_answer.set()
    coordinator = Coordinator(encoder)
    flushing = await coordinator.table("demo.flushing")
    await coordinator.append(flushing, *range(LIMIT))
    assert threads == {threading.get_ident()}
    number = LIMIT
    while not (await coordinator.state(flushing)).leaves:
        await coordinator.append(flushing, number)
        number += 1
    assert len(threads) > 1
    await coordinator.stop()


async def a_long_root() -> TableState:
    builder = TableBuilder(**{"rootline.flush.hard-entries": str(LIMIT)})
    await builder.create()
    await builder.append(*range(LIMIT))
    return builder.state


async def test_the_thread_makes_the_leaves_that_the_plan_makes() -> None:
    head = await a_long_root()
    made, planned = await ThreadLeafEncoder().encode(head), own_flush(head)
    assert (made.manifests, made.encoded) == (planned.manifests, planned.encoded)


@pytest.mark.parametrize(
    "error", [Corrupt("vector-corrupt", "a vector"), MemoryError(), KeyError("x")], ids=lambda e: type(e).__name__
)
async def test_whatever_fails_in_the_thread_is_told_as_a_failure(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(head: TableState) -> Generator[None, None, OwnFlush]:
        yield
        raise error

    monkeypatch.setattr(leaf_encoder, "flush_in_steps", fails)
    head = await a_long_root()
    event = await EffectRunner(MemoryObjectStore(), TableName("a.b"), 10.0, no_check).run(EncodeLeaves(head))
    assert isinstance(event, EncodingFailed)
    assert (str(error) if isinstance(error, RootlineError) else type(error).__name__) in event.detail


def test_an_encoding_that_takes_too_long_ends_as_a_failure() -> None:
    class Hangs:
        async def encode(self, head: TableState) -> OwnFlush:
            async with asyncio.timeout(300.0):
                await asyncio.Event().wait()
            raise AssertionError("it never answers")

    async def main() -> None:
        head = await a_long_root()
        event = await EffectRunner(MemoryObjectStore(), TableName("a.b"), 10.0, no_check, Hangs()).run(
            EncodeLeaves(head)
        )
        assert isinstance(event, EncodingFailed)

    run_virtually(main())


async def test_work_that_no_one_waits_for_any_more_ends_at_its_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
    began, ended = threading.Event(), threading.Event()

    def endless(head: TableState) -> Generator[None, None, OwnFlush]:
        try:
            while True:
                began.set()
                yield
        finally:
            ended.set()

    monkeypatch.setattr(leaf_encoder, "flush_in_steps", endless)
    head = await a_long_root()
    with pytest.raises(TimeoutError):
        await ThreadLeafEncoder(encoding_s_max=0.05).encode(head)
    assert began.is_set()
    assert await asyncio.to_thread(ended.wait, 10.0)


async def test_tables_take_turns_at_the_encoder() -> None:
    head = await a_long_root()
    encoder = ThreadLeafEncoder()
    runner = EffectRunner(MemoryObjectStore(), TableName("a.b"), 10.0, no_check, encoder)
    events = await asyncio.gather(*(runner.run(EncodeLeaves(head)) for _ in range(3)))
    assert all(isinstance(event, LeavesEncoded) for event in events)


async def test_the_deadline_counts_the_wait_for_other_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(head: TableState) -> Generator[None, None, OwnFlush]:
        while True:
            yield

    monkeypatch.setattr(leaf_encoder, "flush_in_steps", endless)
    head = await a_long_root()
    encoder = ThreadLeafEncoder(encoding_s_max=0.2)
    asked = [asyncio.ensure_future(encoder.encode(head)) for _ in range(200)]
    async with asyncio.timeout(30.0):
        failures = await asyncio.gather(*asked, return_exceptions=True)
    assert {type(failure) for failure in failures} == {TimeoutError}
