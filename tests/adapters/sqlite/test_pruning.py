"""The embedded log is pruned below what its readers need, and keeps everything else."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rootline.adapters.embedded_feed import EmbeddedFeed
from rootline.adapters.sqlite.intent_log import SqliteIntentLog
from rootline.adapters.sqlite.log_archive import SqliteLogArchive
from rootline.adapters.sqlite.log_file import LogReader, LogWriter
from rootline.adapters.sqlite.log_pruning import LogRetention, Pruned, pruning_loop
from rootline.ports.intent_feed import Assigned, Delivered
from rootline.schemas.errors import Fenced, Unavailable
from rootline.schemas.parts.log import PartitionOffset
from rootline.schemas.verdict import DeadLetter, Verdict, VerdictKind
from tests.support.examples import examples

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
RETENTION = LogRetention(records_ms=DAY_MS, dead_letters_ms=3 * DAY_MS)
NOW_MS = 1_700_000_000_000


def verdict(log: str, offset: int, *, code: str | None = None) -> Verdict:
    kind = VerdictKind.COMMITTED if code is None else VerdictKind.REJECTED
    return Verdict(
        intent_id=str(offset), table="demo.flights", kind=kind, log=log, partition=0, offset=offset, code=code
    )


def letter(log: str, offset: int) -> DeadLetter:
    return DeadLetter(
        log=log,
        partition=0,
        offset=offset,
        intent_id=str(offset),
        table="demo.flights",
        code="table-unknown",
        message="no such table",
        key=b"k",
        value=b"v",
    )


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[SqliteIntentLog]:
    made = SqliteIntentLog(tmp_path)
    yield made
    await made.close()


async def publish(log: SqliteIntentLog, count: int) -> list[int]:
    return [position.offset for position in await log.publish_many([(b"k", b"v")] * count)]


async def decide(log: SqliteIntentLog, offsets: list[int]) -> None:
    identity = await log.identity()
    await log.publish_verdicts([verdict(identity, offset) for offset in offsets], [])


async def reject(log: SqliteIntentLog, offset: int) -> None:
    identity = await log.identity()
    await log.publish_verdicts([verdict(identity, offset, code="table-unknown")], [letter(identity, offset)])


async def prune(log: SqliteIntentLog, now_ms: int) -> int:
    while (pruned := await log.prune(RETENTION, now_ms=now_ms)).more:
        pass
    return pruned.beginning


async def offsets_of(log: SqliteIntentLog) -> list[int]:
    return [record.position.offset for record in await log.read(0, limit=10_000, wait_s=0)]


async def pass_days(log: SqliteIntentLog, from_ms: int, days: float) -> int:
    """The host looks every six hours; the time afterwards."""
    for hour in range(0, int(days * 24) + 1, 6):
        await prune(log, from_ms + hour * HOUR_MS)
    return from_ms + int(days * DAY_MS)


async def test_what_was_decided_longer_ago_than_the_retention_goes_and_nothing_else(log: SqliteIntentLog) -> None:
    old = await publish(log, 5)
    await decide(log, old)
    now_ms = await pass_days(log, NOW_MS, 0.75)
    young = await publish(log, 5)
    await decide(log, young)
    assert await offsets_of(log) == old + young
    await pass_days(log, now_ms, 0.5)

    assert await offsets_of(log) == young
    assert await log.beginning() == young[0]


async def test_a_record_that_waited_long_for_its_verdict_stays_as_long_after_it_as_any_other(
    log: SqliteIntentLog,
) -> None:
    late = await publish(log, 1)
    now_ms = await pass_days(log, NOW_MS, 30)
    await decide(log, late)
    now_ms = await pass_days(log, now_ms, 0.75)
    position = (await log.read(0, limit=1, wait_s=0))[0].position

    assert await log.wait_verdict(position, timeout_s=0) == verdict(position.log, late[0])


async def test_an_undecided_record_keeps_itself_and_what_follows_it(log: SqliteIntentLog) -> None:
    before, stuck, after = await publish(log, 3), await publish(log, 1), await publish(log, 3)
    await decide(log, before + after)
    now_ms = await pass_days(log, NOW_MS, 10)
    assert await offsets_of(log) == stuck + after
    assert await log.first_undecided() == stuck[0]

    await decide(log, stuck)
    await pass_days(log, now_ms, 10)
    assert await offsets_of(log) == []
    assert await log.first_undecided() == await log.end_offset() == after[-1] + 1
    assert await publish(log, 1) == [after[-1] + 1]


async def test_a_rejected_record_stays_with_its_verdict_as_long_as_its_dead_letter(
    log: SqliteIntentLog, tmp_path: Path
) -> None:
    offsets = await publish(log, 5)
    await reject(log, offsets[2])
    await decide(log, [*offsets[:2], *offsets[3:]])
    now_ms = await pass_days(log, NOW_MS, 2.5)
    assert await offsets_of(log) == [offsets[2]]
    archive = SqliteLogArchive(tmp_path)
    [[record]] = [portion async for portion in archive.records()]
    told = await archive.verdict_on(record)
    assert told is not None
    assert told.code == "table-unknown"
    assert await archive.dead_letter_of(record) == letter(record.position.log, offsets[2])
    await archive.close()

    await pass_days(log, now_ms, 1)
    assert await offsets_of(log) == []
    assert await log.dead_letters() == []


async def test_a_clock_that_jumps_ages_the_log_by_a_day_and_no_more(log: SqliteIntentLog) -> None:
    offsets = await publish(log, 3)
    await reject(log, offsets[0])
    await decide(log, offsets[1:])
    await prune(log, NOW_MS)
    await prune(log, NOW_MS + 8 * DAY_MS)
    await prune(log, NOW_MS)
    await prune(log, NOW_MS + HOUR_MS)

    assert await offsets_of(log) == [offsets[0]], "the dead letter is not three days old"


async def test_a_log_of_an_earlier_version_is_pruned_from_when_it_is_first_looked_at(
    log: SqliteIntentLog, tmp_path: Path
) -> None:
    offsets = await publish(log, 3)
    await decide(log, offsets)
    with sqlite3.connect(tmp_path / "log.sqlite") as connection:
        connection.execute("DELETE FROM meta WHERE name IN ('decided-below', 'pruning')")
    connection.close()

    await pass_days(log, NOW_MS, 0.75)
    assert await offsets_of(log) == offsets
    await pass_days(log, NOW_MS, 2)
    assert await offsets_of(log) == []


async def test_a_step_deletes_only_so_many_and_says_that_there_are_more(log: SqliteIntentLog) -> None:
    offsets = await publish(log, 1_200)
    await decide(log, offsets)
    await prune(log, NOW_MS)
    left = []
    for _ in range(3):
        pruned = await log.prune(RETENTION, now_ms=NOW_MS + 2 * DAY_MS)
        left.append((len(await offsets_of(log)), pruned.more))

    assert left == [(700, True), (200, True), (0, False)]


async def test_a_look_soon_after_another_writes_nothing(log: SqliteIntentLog, tmp_path: Path) -> None:
    reader = LogReader(tmp_path / "log.sqlite")
    before = reader.data_version()
    await log.prune(RETENTION, now_ms=NOW_MS)
    assert reader.data_version() == before, "there is nothing on the log"
    await decide(log, await publish(log, 1))
    await log.prune(RETENTION, now_ms=NOW_MS)
    before = reader.data_version()
    await log.prune(RETENTION, now_ms=NOW_MS + 1_000)
    assert reader.data_version() == before
    reader.close()


async def test_who_reads_again_from_below_the_beginning_is_refused_and_told_where_it_is(log: SqliteIntentLog) -> None:
    feed = EmbeddedFeed(log)
    assert isinstance(await feed.next(wait_s=0), Assigned)
    offsets = await publish(log, 4)
    await decide(log, offsets[:2])
    await pass_days(log, NOW_MS, 3)
    start = PartitionOffset(await log.identity(), 0, offsets[0])

    with pytest.raises(Fenced, match=f"the log begins at {offsets[2]}") as again:
        await feed.read_again("a table", start, limit=10)
    assert isinstance(await feed.next(wait_s=0), Delivered), "the log was at its end when the feed began"
    with pytest.raises(Fenced, match=f"the log begins at {offsets[2]}"):
        await feed.next(wait_s=0)
    reread = await feed.read_again("a table", start._replace(next_offset=offsets[2]), limit=10)

    assert again.value.code == "offset-out-of-range"
    assert [record.position.offset for record in reread.records] == offsets[2:]


async def test_the_file_stops_growing_when_what_comes_in_is_as_much_as_what_goes(
    log: SqliteIntentLog, tmp_path: Path
) -> None:
    sizes = []
    now_ms = NOW_MS
    for _ in range(12):
        positions = await log.publish_many([(b"k", os.urandom(2_000))] * 200)
        await decide(log, [position.offset for position in positions])
        now_ms = await pass_days(log, now_ms, 1)
        with sqlite3.connect(tmp_path / "log.sqlite") as connection:
            sizes.append(connection.execute("PRAGMA page_count").fetchone()[0])
        connection.close()

    assert sizes[-1] == sizes[4] < 2.5 * sizes[0]


async def test_the_loop_goes_on_after_a_failure() -> None:
    answers = [Unavailable("log-unavailable", "the disk is full"), Pruned(3, True), Pruned(5, False)]
    done = asyncio.Event()

    async def step() -> Pruned:
        answer = answers.pop(0)
        if isinstance(answer, Unavailable):
            raise answer
        if not answers:
            done.set()
            await asyncio.Event().wait()
        return answer

    loop = asyncio.ensure_future(pruning_loop(step, interval_s=0, pause_s=0))
    await asyncio.wait_for(done.wait(), 60)
    loop.cancel()
    await asyncio.wait({loop})
    assert loop.cancelled()


Event = tuple[str, int]
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(1, 4)),
        st.tuples(st.just("commit"), st.integers(0, 30)),
        st.tuples(st.just("reject"), st.integers(0, 30)),
        st.tuples(st.just("hours"), st.integers(1, 40)),
    ),
    max_size=60,
)


@settings(max_examples=examples(60), deadline=None)
@given(EVENTS)
def test_nothing_that_someone_may_still_ask_for_is_ever_deleted(
    tmp_path_factory: pytest.TempPathFactory, events: list[Event]
) -> None:
    writer = LogWriter.open(tmp_path_factory.mktemp("log"))
    reader = LogReader(writer.path)
    now_ms, undecided = NOW_MS, list[int]()
    decided: dict[int, tuple[int, bool]] = {}
    for what, number in events:
        if what == "publish":
            [offsets] = writer.in_one_transaction([lambda at, n=number: at.append([(b"k", b"v")] * n)])  # type: ignore[misc]
            assert isinstance(offsets, list)
            undecided += offsets
        elif what == "hours":
            for _ in range(number):
                now_ms += HOUR_MS
                writer.in_one_transaction([lambda at, now=now_ms: at.prune(RETENTION, now_ms=now, limit=3)])  # type: ignore[misc]
        elif undecided:
            offset = undecided.pop(number % len(undecided))
            decided[offset] = (now_ms, what == "reject")
            told = verdict(writer.identity, offset, code="table-unknown" if what == "reject" else None)
            letters = [letter(writer.identity, offset)] if what == "reject" else []
            writer.in_one_transaction([lambda at, told=told, letters=letters: at.decide([told], letters)])  # type: ignore[misc]

        kept = {record.position.offset for record in reader.records(0, 10_000)}
        verdicts = {found.offset for found in reader.verdicts(list(decided))}
        letters_kept = {found.offset for found in reader.dead_letters_before(1 << 60, 10_000)}
        needed = {
            offset
            for offset, (told_ms, is_rejected) in decided.items()
            if now_ms - told_ms < (RETENTION.dead_letters_ms if is_rejected else RETENTION.records_ms)
        }
        assert needed | set(undecided) <= kept
        assert needed <= verdicts
        assert {offset for offset in needed if decided[offset][1]} <= letters_kept
        assert kept <= verdicts | set(undecided), "a record without its verdict would be decided again"
        below = reader.pruning_state().records_below
        assert all(offset in kept for offset in [*decided, *undecided] if offset >= below)
        [first] = writer.in_one_transaction([lambda at: at.first_undecided()])
        assert first == min(undecided, default=reader.end_offset())
    reader.close()
    writer.close()
