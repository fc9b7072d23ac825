"""What went wrong elsewhere, and what a first draft of the protocol got wrong: each is a test (docs/invariants.md)."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Coroutine
from typing import Any

import pytest

from rootline.adapters.embedded_feed import EmbeddedFeed
from rootline.adapters.memory import MemoryObjectStore
from rootline.coordinator.app import CoordinatorService
from rootline.coordinator.runtime.own_tables import CHECK_EVERY_S
from rootline.coordinator.settings import CoordinatorSettings
from rootline.ports.object_store import Predecessor, PutReply, PutStatus
from rootline.schemas.bytes.intent_codec import encode_intent
from rootline.schemas.content_entry import ContentType
from rootline.schemas.identifiers import ObjectKey, TableName
from rootline.schemas.intent import AddedVector, Intent, IntentKind
from rootline.schemas.object_keys import root_key, roots_prefix
from rootline.schemas.verdict import Verdict, VerdictKind
from rootline.testing.object_stores import Fault, FaultyObjectStore, scripted
from rootline.testing.seeded_environment import SeededEnvironment
from rootline.testing.virtual_loop import run_virtually
from tests.coordinator.hooked_ports import HookedLog, HookedStore, taking
from tests.coordinator.running_service import TABLE, Running, append_intent, create_intent, running
from tests.support.loaded_tables import load_table

ROOTS = roots_prefix(TABLE)
CREATED = (f"create-{TABLE}", 0)


def virtually(work: Coroutine[Any, Any, None]) -> None:
    run_virtually(work)


async def live_files(store: Any) -> list[str]:
    state = await load_table(store, TABLE)
    assert state is not None
    return sorted(live.entry.location for live in state.live.entries() if live.entry.content_type is ContentType.DATA)


async def versions(store: Any) -> int:
    return len((await store.list(ROOTS)).keys)


class ConflictingStore(MemoryObjectStore):
    """Answers the first PUT of root 1 with 409 and stores nothing, as S3 does when another request is under way."""

    refused: bytes | None = None

    async def put_if_absent(self, key: ObjectKey, body: bytes, *, after: Predecessor | None = None) -> PutReply:
        if self.refused is None and key == root_key(TABLE, 1):  # type: ignore[arg-type]
            self.refused = body
            return PutReply(PutStatus.EXISTS, None, "409 ConditionalRequestConflict")
        return await super().put_if_absent(key, body, after=after)


def test_ones_own_retry_got_412() -> None:
    async def main() -> None:
        behind = MemoryObjectStore()
        store = FaultyObjectStore(behind, scripted([None, Fault.OWN_CONFLICT], under=ROOTS))
        async with running(store, HookedLog(), SeededEnvironment(1)) as service:
            await service.create()
            [verdict] = await service.commit(append_intent("one"))
            assert (verdict.kind, verdict.version) == (VerdictKind.COMMITTED, 1)
        assert await versions(behind) == 2, "its own success was not taken for a lost race"

    virtually(main())


def test_409_is_not_taken_for_lost_and_the_identical_bytes_follow() -> None:
    async def main() -> None:
        store = ConflictingStore()
        async with running(store, HookedLog(), SeededEnvironment(1)) as service:
            await service.create()
            [verdict] = await service.commit(append_intent("one"))
            assert (verdict.kind, verdict.version) == (VerdictKind.COMMITTED, 1)
        found = await store.get(root_key(TABLE, 1))  # type: ignore[arg-type]
        assert found is not None
        assert found.body == store.refused

    virtually(main())


@pytest.mark.parametrize("landing_calls", [1, 2, 3, 4, 5])
def test_an_old_commit_landed_after_the_already_done_check(landing_calls: int) -> None:
    async def main() -> None:
        behind = MemoryObjectStore()
        late = scripted([None, Fault.LANDS_LATER, None, Fault.LANDS_LATER], under=ROOTS)
        store = FaultyObjectStore(behind, late, landing_calls=landing_calls)
        async with running(store, HookedLog(), SeededEnvironment(1)) as service:
            await service.create()
            for name in ("one", "two", "three"):
                [verdict] = await service.commit(append_intent(name))
                assert verdict.kind is VerdictKind.COMMITTED
            await store.land()
        assert await live_files(behind) == ["data/one.parquet", "data/three.parquet", "data/two.parquet"]
        assert await versions(behind) == 4, "no number was passed over, and none was made twice"

    virtually(main())


def test_an_unknown_outcome_is_not_cleaned_up_when_the_coordinator_dies_of_it() -> None:
    async def main() -> None:
        store, log = HookedStore(), HookedLog()
        async with running(store, log, SeededEnvironment(1)) as service:
            await service.create()
        store.after = taking(put=1e6)  # it lands, and the answer never comes
        store.before = taking(get=1e6)
        dying = CoordinatorService(
            store=store,
            log=EmbeddedFeed(log),
            settings=CoordinatorSettings(probe_rounds=0),
            environment=SeededEnvironment(2),
        )
        task = asyncio.ensure_future(dying.run())
        position = await log.publish(TABLE.encode(), encode_intent(append_intent("one")))
        store.before = taking()
        await asyncio.sleep(5.0)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        assert await versions(store) == 2
        store.after = taking()
        async with running(store, log, SeededEnvironment(3)):
            verdict = await log.wait_verdict(position, timeout_s=60.0)
        assert verdict is not None
        assert (verdict.kind, verdict.version) == (VerdictKind.COMMITTED, 1), "what landed is what is said"
        assert await versions(store) == 2

    virtually(main())


def test_a_quarantined_table_looks_ill_drops_nothing_and_goes_on_when_its_bytes_are_mended() -> None:
    async def main() -> None:
        store, log = MemoryObjectStore(), HookedLog()
        async with running(store, log, SeededEnvironment(1)) as service:
            await service.create()
        key = root_key(TABLE, 0)  # type: ignore[arg-type]
        found = await store.get(key)
        assert found is not None
        store.place(key, found.body[: len(found.body) // 2])
        async with running(store, log, SeededEnvironment(2)) as service:
            for number in range(5):
                await log.publish(TABLE.encode(), encode_intent(append_intent(f"f-{number}")))
            await asyncio.sleep(10.0)
            assert "root-corrupt" in service.service.tables()[TABLE][1]
            await service.service.measure()
            sample = service.service.metrics.registry.get_sample_value
            assert sample("rootline_table_state", {"table": TABLE, "state": "quarantined"}) == 1
            assert (sample("rootline_oldest_pending_intent_seconds") or 0) > 9
        store.place(key, found.body)
        async with running(store, log, SeededEnvironment(3)) as service:
            [last] = await service.commit(append_intent("last"))
            assert last.kind is VerdictKind.COMMITTED
        assert len(await live_files(store)) == 6

    virtually(main())


def test_a_head_that_is_damaged_under_a_coordinator_is_found_within_minutes_and_the_next_commit_ends_it() -> None:
    async def main() -> None:
        store = MemoryObjectStore()
        async with running(store, environment=SeededEnvironment(1)) as service:
            await service.create()

            def said() -> tuple[str, str]:
                [own] = service.service.own_tables()
                return own.state.value, own.why

            key = root_key(TABLE, 0)  # type: ignore[arg-type]
            found = await store.get(key)
            assert found is not None
            store.place(key, found.body[:-3])
            assert said() == ("idle", ""), "nothing has read it yet"
            await asyncio.sleep(2 * CHECK_EVERY_S)
            assert said()[0] == "damaged"
            assert "version 0, cannot be read back: root-corrupt" in said()[1]
            [verdict] = await service.commit(append_intent("one"))
            assert verdict.kind is VerdictKind.COMMITTED
            assert said() == ("idle", "")
            await asyncio.sleep(2 * CHECK_EVERY_S)
            assert said() == ("idle", "")
            store.discard(root_key(TABLE, 1))  # type: ignore[arg-type]
            await asyncio.sleep(2 * CHECK_EVERY_S)
            assert "object-missing" in said()[1]

    virtually(main())


def test_a_coordinator_paused_past_the_retention_does_not_acknowledge_a_root_on_an_expired_head() -> None:
    async def main() -> None:
        clock = SeededEnvironment(0)
        true, log = MemoryObjectStore(clock.now_ms), HookedLog()
        async with running(true, log, SeededEnvironment(1)) as service:
            await service.create()
        paused = asyncio.Event()

        async def pause(operation: str, key: str) -> None:
            if operation == "put" and paused.is_set():
                await asyncio.sleep(2_000.0)

        sleeper = HookedStore(true, before=pause)
        async with running(sleeper, log, SeededEnvironment(2), request_timeout_s=1e5, poll_wait_s=60.0):
            first = await log.publish(TABLE.encode(), encode_intent(append_intent("wakes it")))
            await log.wait_verdict(first, timeout_s=10.0)
            paused.set()
            slept = await log.publish(TABLE.encode(), encode_intent(append_intent("slept on")))
            await asyncio.sleep(1.0)
            async with running(true, log, SeededEnvironment(3)) as other:
                assert await log.wait_verdict(slept, timeout_s=10.0) is not None
                for number in range(3):
                    await other.commit(append_intent(f"o-{number}"))
            for version in (1, 2, 3):  # the retention passes, and expiry comes by
                await asyncio.sleep(300.0)
                true.discard(root_key(TABLE, version))  # type: ignore[arg-type]
            paused.clear()
            await asyncio.sleep(3_000.0)
            late = await log.publish(TABLE.encode(), encode_intent(append_intent("late")))
            verdict = await log.wait_verdict(late, timeout_s=100.0)
        assert verdict is not None
        assert verdict.version == 6, "built on the head, not on what the sleeper had known"
        said = {(item.intent_id, item.version) for item in log.published}
        assert said == {("wakes it", 1), ("slept on", 2), ("o-0", 3), ("o-1", 4), ("o-2", 5), ("late", 6), CREATED}
        files = await live_files(true)
        assert len(files) == len(set(files)) == 6

    virtually(main())


async def test_a_spark_batch_rejected_mended_and_replayed_at_the_same_sequence() -> None:
    async with running() as service:
        await service.create()
        batch: dict[str, Any] = {"writer_id": "query-7", "writer_sequence": 3}
        [violations] = await service.commit(append_intent("b-1", schema_id=9, **batch))
        assert violations.code == "schema-unknown"
        [again] = await service.commit(append_intent("b-1", schema_id=9, **batch))
        assert (again.code, again.message) == (violations.code, violations.message)
        [mended] = await service.commit(append_intent("b-1-mended", schema_id=0, **batch))
        assert mended.kind is VerdictKind.COMMITTED
        [replayed] = await service.commit(append_intent("b-1-again", schema_id=0, **batch))
        assert (replayed.kind, replayed.version) == (VerdictKind.DUPLICATE, mended.version)


def test_a_crash_between_a_root_that_rejects_and_its_verdict() -> None:
    async def main() -> None:
        store, log = HookedStore(), HookedLog()
        async with running(store, log, SeededEnvironment(1)) as service:
            await service.create()
        log.before = taking(verdicts=1e6)
        settings = CoordinatorSettings(probe_rounds=0)
        dying = CoordinatorService(
            store=store, log=EmbeddedFeed(log), settings=settings, environment=SeededEnvironment(2)
        )
        task = asyncio.ensure_future(dying.run())
        position = await log.publish(TABLE.encode(), encode_intent(append_intent("bad", schema_id=9)))
        await asyncio.sleep(5.0)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        assert await versions(store) == 2, "the root that rejects is there"
        log.before = taking()
        async with running(store, log, SeededEnvironment(3)):
            verdict = await log.wait_verdict(position, timeout_s=60.0)
            assert verdict is not None
            assert verdict.code == "schema-unknown"
        assert [letter.offset for letter in await log.dead_letters()] == [position.offset]
        assert await versions(store) == 2, "the heir answers from the root, it decides nothing again"

    virtually(main())


async def test_a_producer_restarted_with_its_counter_at_zero() -> None:
    async with running() as service:
        await service.create()
        first = append_intent("p-0", writer_id="process/1111", writer_sequence=0)
        restarted = append_intent("q-0", writer_id="process/2222", writer_sequence=0)
        verdicts = await service.commit(first, restarted)
        assert [verdict.kind for verdict in verdicts] == [VerdictKind.COMMITTED] * 2
        supplied: dict[str, Any] = {"writer_id": "ingest-7", "writer_sequence": 0}
        [once] = await service.commit(append_intent("s-0", **supplied))
        [twice] = await service.commit(append_intent("s-0-again", **supplied))
        assert (twice.kind, twice.version) == (VerdictKind.DUPLICATE, once.version)


def test_a_log_that_is_read_again_from_its_start_doubles_nothing() -> None:
    class Forgetful(HookedLog):
        async def first_undecided(self) -> int:
            return 0

    async def main() -> None:
        store, log = MemoryObjectStore(), Forgetful()
        async with running(store, log, SeededEnvironment(1)) as service:
            await service.create()
            for number in range(10):
                await service.commit(append_intent(f"f-{number}"))
        made, before = await versions(store), await log.verdicts()
        async with running(store, log, SeededEnvironment(2)):
            await asyncio.sleep(10.0)
        assert await versions(store) == made
        assert await log.verdicts() == before
        assert len(await live_files(store)) == 10

    virtually(main())


async def test_every_intent_of_a_batch_has_a_sequence_number_of_its_own() -> None:
    async with running() as service:
        await service.create()
        verdicts = await service.commit(*(append_intent(f"f-{number}") for number in range(5)))
        assert {verdict.version for verdict in verdicts} == {1}
        numbers = [verdict.sequence_number or 0 for verdict in verdicts]
        assert numbers == list(range(numbers[0], numbers[0] + 5))


async def test_an_intent_that_names_what_no_store_can_hold_harms_nobody_but_itself() -> None:
    async with running() as service:
        await service.create()
        await service.commit(append_intent("one"))
        vector = AddedVector(
            location=f"data/{'x' * 300}.puffin",
            offset=4,
            size_in_bytes=40,
            file_size_in_bytes=100,
            cardinality=2,
            referenced_file="data/one.parquet",
        )
        bad = Intent(intent_id="bad", table=TABLE, kind=IntentKind.ROW_DELTA, add_vectors=(vector,))
        verdicts = await service.commit(bad, append_intent("two"))
        assert [verdict.kind for verdict in verdicts] == [VerdictKind.REJECTED, VerdictKind.COMMITTED]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_64_closed_loop_writers_do_not_fall_into_two_convoys(seed: int) -> None:
    put_s, writers, rounds = 0.02, 64, 25
    rng = random.Random(seed)

    async def write(service: Running, name: str) -> None:
        await asyncio.sleep(rng.uniform(0, put_s))
        for number in range(rounds):
            [verdict] = await service.commit(append_intent(f"{name}-{number}"))
            assert verdict.kind is VerdictKind.COMMITTED
            await asyncio.sleep(rng.uniform(0, 0.001))

    async def main() -> None:
        store, log = HookedStore(before=taking(put=put_s)), HookedLog(before=taking(verdicts=0.0005))
        async with running(store, log, SeededEnvironment(seed)) as service:
            await service.create()
            began_s = asyncio.get_running_loop().time()
            await asyncio.gather(*(write(service, f"w-{number}") for number in range(writers)))
            elapsed_s = asyncio.get_running_loop().time() - began_s
        ideal_s = rounds * (put_s + 0.0015)
        assert elapsed_s <= ideal_s / 0.9, f"{ideal_s / elapsed_s:.2f} of the ideal throughput"

    virtually(main())


def test_a_table_created_after_a_rejection_takes_what_comes_later() -> None:
    async def main() -> None:
        async with running(HookedStore(), HookedLog(), SeededEnvironment(1)) as service:
            before, created, after = await service.decide(
                encode_intent(append_intent("before")),
                encode_intent(create_intent(TABLE)),
                encode_intent(append_intent("after")),
            )
            verdicts: list[Verdict] = [before, created, after]
            assert [verdict.code for verdict in verdicts] == ["table-unknown", None, None]
            other = TableName("x.y")
            [early] = await service.commit(append_intent("early", other))
            await service.create(other)
            [late] = await service.commit(append_intent("late", other))
            assert (early.code, late.kind) == ("table-unknown", VerdictKind.COMMITTED)

    virtually(main())
