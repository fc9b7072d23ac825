"""The coordinator's life: it refuses bad ground, stops cleanly and soon, and may die anywhere."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Coroutine
from typing import Any

import pytest

from rootline.adapters.embedded_feed import EmbeddedFeed
from rootline.adapters.memory import MemoryIntentLog
from rootline.adapters.s3_object_store import S3ObjectStore
from rootline.adapters.settings import S3Settings
from rootline.coordinator.app import CoordinatorService
from rootline.coordinator.protocol.machine_state import Phase
from rootline.coordinator.settings import CoordinatorSettings
from rootline.schemas.bytes.intent_codec import encode_intent
from rootline.schemas.content_entry import ContentType
from rootline.schemas.errors import Corrupt, Fenced, Unavailable
from rootline.schemas.identifiers import TableName
from rootline.schemas.verdict import VerdictKind
from rootline.storage.check.chain import check_table
from rootline.testing.object_stores import Lie, LyingObjectStore
from rootline.testing.seeded_environment import SeededEnvironment
from rootline.testing.virtual_loop import run_virtually
from tests.coordinator.hooked_ports import HookedLog, HookedStore, taking, turning
from tests.coordinator.running_service import TABLE, append_intent, create_intent, running
from tests.services.lying_s3_server import lying_s3_server
from tests.support.loaded_tables import load_table

LATER = TableName("later.t")
_GAP_TURNS = 20  # between the two halves of the script
SETTINGS = CoordinatorSettings(probe_rounds=0, poll_wait_s=0.05, unpublished_roots_max=2, batch_intents_max=4)


def virtually(work: Coroutine[Any, Any, None]) -> None:
    run_virtually(work)


def service_over(store: HookedStore, log: MemoryIntentLog, seed: int = 1) -> CoordinatorService:
    return CoordinatorService(
        store=store, log=EmbeddedFeed(log), settings=SETTINGS, environment=SeededEnvironment(seed)
    )


@pytest.mark.parametrize(
    ("lie", "fault"),
    [(Lie.IGNORES, "it ignores If-None-Match"), (Lie.RACES, "writers win a race for one object")],
)
async def test_it_does_not_start_on_a_store_that_lies_and_names_the_fault(lie: Lie, fault: str) -> None:
    log = MemoryIntentLog()
    await log.publish(b"a.b", encode_intent(create_intent(TABLE)))
    service = CoordinatorService(store=LyingObjectStore(lie), log=EmbeddedFeed(log))
    with pytest.raises(Fenced, match=fault) as refusal:
        await service.run()
    assert refusal.value.code == "store-lies"
    assert await log.first_undecided() == 0, "nothing was decided on that store"
    assert not service.readiness().ready


@pytest.mark.parametrize(("lie", "fault"), [(Lie.IGNORES, "it ignores If-None-Match"), (Lie.RACES, "win a race")])
async def test_it_does_not_start_on_an_s3_server_that_lies(lie: Lie, fault: str) -> None:
    with lying_s3_server(lie) as endpoint:
        settings = S3Settings(endpoint=endpoint, access_key_id="key", secret_access_key="secret")
        store = S3ObjectStore("bucket", "lake", settings)
        with pytest.raises(Fenced, match=f"s3://bucket/lake at {endpoint} cannot store tables: .*{fault}"):
            await CoordinatorService(store=store, log=EmbeddedFeed(MemoryIntentLog())).run()
        await store.close()


async def test_it_starts_on_an_honest_store() -> None:
    async with running(probe_rounds=2) as service:
        await service.create()
        assert service.service.readiness().ready


@pytest.mark.parametrize("error", [Unavailable("log-unavailable", "x"), Corrupt("log-corrupt", "x")])
def test_a_log_that_cannot_be_opened_ends_the_service_with_that_very_error(error: Exception) -> None:
    async def fail(operation: str, key: str) -> None:
        raise error

    async def main() -> None:
        with pytest.raises(type(error)):
            await service_over(HookedStore(), HookedLog(before=fail)).run()

    virtually(main())


def test_a_log_that_ends_before_what_a_root_has_applied_is_refused() -> None:
    async def main() -> None:
        store, log = HookedStore(), MemoryIntentLog()
        async with running(store, log, SeededEnvironment(1)) as service:
            await service.create()
            await service.commit(*(append_intent(f"f-{number}") for number in range(5)))
        restored = MemoryIntentLog()  # the same log by its identity, from a backup that is older than the roots
        restored._identity = log._identity
        await restored.publish(TABLE.encode(), encode_intent(append_intent("new")))
        async with running(store, restored, SeededEnvironment(2)) as service:
            await asyncio.sleep(5.0)
            phase, why = service.service.tables()[TABLE]
            assert phase is Phase.QUARANTINED
            assert "log-behind-root" in why
            assert "offset 6, but the log ends at 1" in why
        assert await restored.first_undecided() == 0, "the new intent was neither applied nor passed over"

    virtually(main())


@pytest.mark.parametrize("burst", [1, 4, 5, 6, 40])
def test_a_log_that_was_restored_and_has_grown_since_decides_nothing_of_the_table(burst: int) -> None:
    async def main() -> None:
        store, log = HookedStore(), MemoryIntentLog()
        async with running(store, log, SeededEnvironment(1)) as service:
            await service.create()
            await service.commit(*(append_intent(f"f-{number}") for number in range(5)))
        restored = MemoryIntentLog()  # a copy of the time after the create, the same log by its identity
        restored._identity = log._identity
        restored._records, restored._verdicts = log._records[:1], {0: log._verdicts[0]}
        lost = [
            await restored.publish(TABLE.encode(), encode_intent(append_intent(f"new-{number}")))
            for number in range(burst)
        ]
        async with running(store, restored, SeededEnvironment(2)) as service:
            await asyncio.sleep(5.0)
            phase, why = service.service.tables()[TABLE]
            assert phase is Phase.QUARANTINED
            assert "log-behind-root" in why
        assert await restored.first_undecided() == 1
        told = [await restored.wait_verdict(position, timeout_s=0.0) for position in lost]
        assert told == [None] * burst, "no answer of the old records is given to new ones"

    virtually(main())


def test_a_log_that_is_read_again_from_its_beginning_is_the_log_that_it_was() -> None:
    async def main() -> None:
        store, log = HookedStore(), MemoryIntentLog()
        async with running(store, log, SeededEnvironment(1)) as service:
            await service.create()
            first = await service.commit(*(append_intent(f"f-{number}") for number in range(5)))
        log._verdicts.clear()
        log._first_undecided = 0
        async with running(store, log, SeededEnvironment(2)) as service:
            await service.commit(append_intent("later"))
            assert service.service.tables()[TABLE][0] is not Phase.QUARANTINED
        assert len(first) == 5

    virtually(main())


@pytest.mark.parametrize("after_s", [0.0, 0.005, 0.012, 0.03, 0.05, 0.2])
def test_a_clean_stop_is_prompt_and_loses_nothing(after_s: float) -> None:
    async def main() -> None:
        store = HookedStore(before=taking(put=0.01, get=0.004, list=0.006))
        log = HookedLog(before=taking(verdicts=0.003))
        await log.publish(TABLE.encode(), encode_intent(create_intent(TABLE)))
        for number in range(40):
            await log.publish(TABLE.encode(), encode_intent(append_intent(f"f-{number}")))
        first = service_over(store, log)
        task = asyncio.ensure_future(first.run())
        await asyncio.sleep(after_s)
        first.request_stop()
        began_s = asyncio.get_running_loop().time()
        assert not first.readiness().ready
        await task
        assert asyncio.get_running_loop().time() - began_s < 0.1
        assert first.readiness().reason == "the service has stopped"
        await _finish(store, log)
        await _judge(store, log, files={f"data/f-{number}.parquet" for number in range(40)})

    virtually(main())


@pytest.mark.parametrize("operation", ["put", "list", "get"])
def test_a_stop_is_prompt_although_the_store_fails_and_the_queue_is_full(operation: str) -> None:
    async def main() -> None:
        async def fail(asked: str, key: str) -> None:
            if asked == operation:
                raise Unavailable("store-unavailable", "503")

        log = HookedLog()
        store = HookedStore()
        async with running(store, log, SeededEnvironment(1)) as service:
            await service.create()
        store.before = fail
        for number in range(100):
            await log.publish(TABLE.encode(), encode_intent(append_intent(f"f-{number}")))
        service_ = CoordinatorService(
            store=store,
            log=EmbeddedFeed(log),
            settings=SETTINGS.model_copy(update={"table_queue_intents_max": 8, "stop_timeout_s": 20.0}),
            environment=SeededEnvironment(2),
        )
        task = asyncio.ensure_future(service_.run())
        await asyncio.sleep(30.0)
        service_.request_stop()
        began_s = asyncio.get_running_loop().time()
        await task
        took_s = asyncio.get_running_loop().time() - began_s
        # a PUT whose outcome is unknown is asked about until the time-out; everything else is dropped at once
        assert took_s <= (20.0 if operation == "put" else 0.01)
        store.before = taking()
        await _finish(store, log)
        await _judge(store, log, files={f"data/f-{number}.parquet" for number in range(100)})

    virtually(main())


def test_a_stop_during_a_probe_that_hangs_is_prompt() -> None:
    async def main() -> None:
        service = CoordinatorService(
            store=HookedStore(before=taking(put=1e6)), log=EmbeddedFeed(HookedLog()), environment=SeededEnvironment(1)
        )
        task = asyncio.ensure_future(service.run())
        await asyncio.sleep(1.0)
        assert service.readiness().reason == "the store has not passed its probe yet"
        service.request_stop()
        await task
        assert asyncio.get_running_loop().time() == pytest.approx(1.0)

    virtually(main())


def test_a_cancelled_service_has_ended_all_its_tasks_when_it_returns() -> None:
    async def main() -> None:
        store, log = HookedStore(before=taking(put=5.0)), HookedLog()
        service = service_over(store, log)
        task = asyncio.ensure_future(service.run())
        await log.publish(TABLE.encode(), encode_intent(create_intent(TABLE)))
        await asyncio.sleep(1.0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert asyncio.all_tasks() == {asyncio.current_task()}

    virtually(main())


def _script() -> list[tuple[str, bytes]]:
    """Everything that a crash may fall between: rejections before a table exists, roots, rejections in roots, junk."""
    again = append_intent("w-1", writer_id="w", writer_sequence=1)
    intents = [
        append_intent("too early", LATER),
        create_intent(TABLE),
        append_intent("f-1"),
        append_intent("bad", location="../outside"),
        again,
        create_intent(LATER),
        append_intent("l-1", LATER),
        again,
        append_intent("f-2"),
    ]
    records = [(intent.table, encode_intent(intent)) for intent in intents]
    return [*records, (TABLE, b"junk")]


async def _crash_after(turns: int, slow: dict[str, int]) -> bool:
    """Run the script, crash after so many turns of the loop, restart, judge; whether there was work left to do."""
    hook = turning(**slow)
    store, log = HookedStore(before=hook, after=hook), HookedLog(before=hook, after=hook)
    task = asyncio.ensure_future(service_over(store, log).run())
    for turn in range(turns + 1):
        if turn in (0, _GAP_TURNS):
            half = _script()[:5] if turn == 0 else _script()[5:]
            await log.publish_many([(table.encode(), value) for table, value in half])
        await asyncio.sleep(0)
    was_at_work = await log.first_undecided() < await log.end_offset()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    if turns < _GAP_TURNS:
        await log.publish_many([(table.encode(), value) for table, value in _script()[5:]])
    await _finish(store, log)
    verdicts = await _judge(store, log, files={f"data/{name}.parquet" for name in ("f-1", "w-1", "f-2")})
    codes = ["table-unknown", None, None, "location-invalid", None, None, None, None, None, "undecodable"]
    assert [verdict.code for verdict in verdicts] == codes
    assert [verdict.kind for verdict in verdicts].count(VerdictKind.DUPLICATE) == 1
    return was_at_work or turns < _GAP_TURNS


@pytest.mark.parametrize("slow", [{}, {"put": 5, "get": 3}, {"verdicts": 40}], ids=["even", "slow store", "slow log"])
def test_a_crash_at_any_await_loses_nothing_and_doubles_nothing(slow: dict[str, int]) -> None:
    for turns in range(2_000):
        if not run_virtually(_crash_after(turns, slow)):
            break
    assert turns > 30, "the script takes many turns, and every one of them was a crash's"


async def _finish(store: HookedStore, log: HookedLog) -> None:
    """A new coordinator decides what is left."""
    heir = service_over(store, log, seed=77)
    task = asyncio.ensure_future(heir.run())
    async with asyncio.timeout(600.0):
        while await log.first_undecided() < await log.end_offset():  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(0.05)
    heir.request_stop()
    await task


async def _judge(store: HookedStore, log: HookedLog, *, files: set[str]) -> list[Any]:
    verdicts = await log.verdicts()
    assert None not in verdicts
    state = await load_table(store, TABLE)
    assert state is not None
    live = Counter(live.entry.location for live in state.live.entries() if live.entry.content_type is ContentType.DATA)
    assert live == Counter(files)
    findings = [finding async for finding in check_table(store, TABLE)]
    assert [finding for finding in findings if "/data/" not in finding.object] == [], "but nobody wrote the data files"
    said: dict[int, set[Any]] = {}
    for verdict in log.published:
        said.setdefault(verdict.offset, set()).add(
            (verdict.kind, verdict.code, verdict.version, verdict.sequence_number)
        )
    assert all(len(each) == 1 for each in said.values()), "every owner repeats the same verdict"
    return verdicts
