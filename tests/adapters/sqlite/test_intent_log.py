"""What the embedded log does beyond the contract: several processes, kills, damaged files, full disks."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from rootline.adapters.embedded_feed import EmbeddedFeed
from rootline.adapters.sqlite.intent_log import SqliteIntentLog
from rootline.adapters.sqlite.log_file import LogWriter
from rootline.adapters.sqlite.undecided import FILE_NAME
from rootline.ports.intent_feed import Delivered
from rootline.schemas.errors import Corrupt, Fenced, Unavailable
from rootline.schemas.verdict import Verdict, VerdictKind

PUBLISHER = """
import asyncio, sys
from pathlib import Path
from rootline.adapters.sqlite.intent_log import SqliteIntentLog

async def main() -> None:
    folder, name, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    print("ready", flush=True)
    sys.stdin.readline()
    log = SqliteIntentLog(folder)
    print(await log.identity(), flush=True)
    for number in range(count):
        position = await log.publish(name.encode(), f"{name} {number}".encode())
        print(position.offset, number, flush=True)
    await log.close()

asyncio.run(main())
"""


def start_publisher(folder: Path, name: str, count: int) -> subprocess.Popen[str]:
    publisher = subprocess.Popen(
        [sys.executable, "-c", PUBLISHER, str(folder), name, str(count)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert publisher.stdout is not None
    assert publisher.stdout.readline() == "ready\n"
    return publisher


def say_go(publisher: subprocess.Popen[str]) -> None:
    assert publisher.stdin is not None
    publisher.stdin.write("go\n")
    publisher.stdin.flush()


def committed(log: str, offset: int) -> Verdict:
    return Verdict(
        intent_id=str(offset),
        table="demo.flights",
        kind=VerdictKind.COMMITTED,
        log=log,
        partition=0,
        offset=offset,
        version=offset,
    )


async def records_of(folder: Path) -> list[tuple[int, bytes]]:
    log = SqliteIntentLog(folder)
    records = await log.read(0, limit=100_000, wait_s=0)
    await log.close()
    return [(record.position.offset, record.value) for record in records]


async def test_processes_that_open_a_new_log_at_once_share_it_and_lose_nothing(tmp_path: Path) -> None:
    folder = tmp_path / ".rootline"
    publishers = {name: start_publisher(folder, name, 150) for name in ("a", "b", "c")}
    for publisher in publishers.values():
        say_go(publisher)
    said = {name: publisher.communicate(timeout=60)[0].splitlines() for name, publisher in publishers.items()}

    identities = {lines[0] for lines in said.values()}
    acknowledged = {
        int(offset): f"{name} {number}".encode()
        for name, lines in said.items()
        for offset, number in (line.split() for line in lines[1:])
    }
    records = await records_of(folder)

    assert len(identities) == 1
    assert len(acknowledged) == 450
    assert dict(records) == acknowledged
    assert [offset for offset, _ in records] == list(range(1, 451))
    for name in publishers:
        own = [value for _, value in records if value.startswith(name.encode())]
        assert own == [f"{name} {number}".encode() for number in range(150)]


async def test_a_publisher_that_is_killed_loses_nothing_that_it_was_told_is_kept(tmp_path: Path) -> None:
    folder = tmp_path / ".rootline"
    other = SqliteIntentLog(folder)
    publisher = start_publisher(folder, "victim", 1_000_000)
    say_go(publisher)
    assert publisher.stdout is not None
    with publisher.stdout as output:
        lines = [output.readline() for _ in range(101)]
        publisher.kill()
        lines += output.read().split("\n")[:-1]
    publisher.communicate(timeout=30)

    acknowledged = {int(offset): f"victim {number}".encode() for offset, number in (x.split() for x in lines[1:])}
    after = await other.publish(b"other", b"after")
    await other.close()
    records = await records_of(folder)

    assert acknowledged.items() <= dict(records).items()
    assert len(records) - len(acknowledged) in (1, 2)  # what was kept without an acknowledgement, and `after`
    assert records[-1] == (after.offset, b"after")
    assert [offset for offset, _ in records] == list(range(1, len(records) + 1))


async def test_a_verdict_of_another_process_reaches_who_waits_for_it(tmp_path: Path) -> None:
    writer, coordinator = SqliteIntentLog(tmp_path), SqliteIntentLog(tmp_path)
    reading = asyncio.ensure_future(coordinator.read(0, limit=10, wait_s=30))
    await asyncio.sleep(0)
    position = await writer.publish(b"k", b"v")
    waiting = asyncio.ensure_future(writer.wait_verdict(position, timeout_s=30))

    [record] = await reading
    await coordinator.publish_verdicts([committed(position.log, record.position.offset)], [])

    assert await waiting == committed(position.log, position.offset)
    await writer.close()
    await coordinator.close()


async def test_the_log_is_the_same_after_it_was_closed(tmp_path: Path) -> None:
    log = SqliteIntentLog(tmp_path)
    identity, position = await log.identity(), await log.publish(b"k", b"v")
    await log.publish_verdicts([committed(identity, position.offset)], [])
    await log.close()

    again = SqliteIntentLog(tmp_path)

    assert await again.identity() == identity
    assert [record.position for record in await again.read(0, limit=10, wait_s=0)] == [position]
    assert await again.first_undecided() == position.offset + 1
    await again.close()


async def test_offsets_are_not_given_again_after_records_were_removed(tmp_path: Path) -> None:
    log = SqliteIntentLog(tmp_path)
    await log.publish_many([(b"k", b"1"), (b"k", b"2")])
    await log.close()
    with sqlite3.connect(tmp_path / "log.sqlite") as connection:
        connection.execute("DELETE FROM intents")
    connection.close()

    again = SqliteIntentLog(tmp_path)

    assert await again.end_offset() == 3
    assert await again.first_undecided() == 3
    assert (await again.publish(b"k", b"3")).offset == 3
    await again.close()


@pytest.mark.parametrize("garbage", [b"this is no database " * 300, b"SQLite format 3\x00" + b"\xff" * 5_000])
def test_a_file_that_is_no_log_is_said_to_be_damaged(tmp_path: Path, garbage: bytes) -> None:
    (tmp_path / "log.sqlite").write_bytes(garbage)

    with pytest.raises(Corrupt, match=r"log\.sqlite") as failure:
        SqliteIntentLog(tmp_path)

    assert failure.value.code == "log-corrupt"
    assert (tmp_path / "log.sqlite").read_bytes() == garbage


def test_another_programs_database_is_not_taken_for_a_log(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "log.sqlite")
    connection.execute("CREATE TABLE accounts (id INTEGER)")
    connection.close()

    with pytest.raises(Corrupt, match="another program"):
        SqliteIntentLog(tmp_path)


async def test_a_log_whose_pages_are_damaged_is_said_to_be(tmp_path: Path) -> None:
    log = SqliteIntentLog(tmp_path)
    for _ in range(40):
        await log.publish(b"k", b"v" * 4_000)
    await log.close()
    path = tmp_path / "log.sqlite"
    whole = path.read_bytes()
    path.write_bytes(whole[:20_000] + b"\xa5" * (len(whole) - 20_000))

    with pytest.raises(Corrupt) as failure:
        await records_of(tmp_path)

    assert failure.value.code == "log-corrupt"


async def test_a_closed_log_says_so(tmp_path: Path) -> None:
    log = SqliteIntentLog(tmp_path)
    waiting = asyncio.ensure_future(log.read(0, limit=1, wait_s=30))
    await asyncio.sleep(0)
    await log.close()
    await log.close()

    with pytest.raises(Unavailable, match="closed"):
        await waiting
    with pytest.raises(Unavailable, match="closed"):
        await log.publish(b"k", b"v")


async def test_a_publisher_that_is_cancelled_may_be_on_the_log_and_harms_nobody(tmp_path: Path) -> None:
    log = SqliteIntentLog(tmp_path)
    cancelled = asyncio.ensure_future(log.publish(b"k", b"cancelled"))
    kept = asyncio.ensure_future(log.publish(b"k", b"kept"))
    await asyncio.sleep(0)
    cancelled.cancel()

    position = await kept

    values = Counter(record.value for record in await log.read(0, limit=10, wait_s=0))
    assert position.offset in (1, 2)
    assert values in (Counter([b"kept"]), Counter([b"cancelled", b"kept"]))
    await log.close()


def test_a_disk_that_is_full_is_said_to_be_and_the_log_goes_on_afterwards(tmp_path: Path) -> None:
    # the system's limit on file sizes fails a write half way, as a full disk does
    script = """
import asyncio, resource, sys
from pathlib import Path
from rootline.adapters.sqlite.intent_log import SqliteIntentLog
from rootline.schemas.errors import OutcomeUnknown, Unavailable

async def main() -> None:
    log = SqliteIntentLog(Path(sys.argv[1]))
    await log.publish(b"k", b"before")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
    try:
        await log.publish(b"k", b"x" * 400_000)
    except (Unavailable, OutcomeUnknown) as error:
        print(error.code)
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    await log.publish(b"k", b"after")
    print([record.value for record in await log.read(0, limit=10, wait_s=0)])
    await log.close()

asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )

    code, values = done.stdout.splitlines()
    assert code in ("log-unavailable", "publish-unknown")
    assert values == "[b'before', b'after']"
    assert done.stderr == ""


async def test_thousands_of_waiters_are_all_answered(tmp_path: Path) -> None:
    writer, coordinator = SqliteIntentLog(tmp_path), SqliteIntentLog(tmp_path)
    positions = await writer.publish_many([(b"k", str(number).encode()) for number in range(2_000)])
    waiting = asyncio.gather(*(writer.wait_verdict(position, timeout_s=60) for position in positions))
    await asyncio.sleep(0)

    await coordinator.publish_verdicts([committed(place.log, place.offset) for place in positions], [])

    assert await waiting == [committed(place.log, place.offset) for place in positions]
    await writer.close()
    await coordinator.close()


async def test_a_process_that_stood_still_does_not_blame_another_one(tmp_path: Path) -> None:
    log = SqliteIntentLog(tmp_path)
    asyncio.get_running_loop().call_soon(time.sleep, 2.1)  # as while a million entries are decoded
    await log.check_writable(2.0)
    await log.close()


def test_who_tells_a_second_verdict_is_given_the_stored_one_for_those_who_wait(tmp_path: Path) -> None:
    writer = LogWriter.open(tmp_path)
    try:
        writer.in_one_transaction([lambda log: log.append([(b"a.b", b"intent", None)])])
        first, second = committed(writer.identity, 1), committed(writer.identity, 1).model_copy(update={"version": 9})
        for told in (first, second):
            [stored] = writer.in_one_transaction([lambda log, told=told: log.decide([told], [])])  # type: ignore[misc]
            assert stored == [first]
    finally:
        writer.close()


async def test_a_file_that_an_older_copy_overwrote_in_place_is_not_read_on_however_far_it_has_grown(
    tmp_path: Path,
) -> None:
    log = SqliteIntentLog(tmp_path / "log")
    feed = EmbeddedFeed(log)
    await log.publish_many([(b"a.b", b"old")] * 2)
    with contextlib.closing(sqlite3.connect(tmp_path / "log" / FILE_NAME)) as now:
        with contextlib.closing(sqlite3.connect(tmp_path / "copy.sqlite")) as copy:
            now.backup(copy)
        await log.publish_many([(b"a.b", b"later")] * 3)
        read = 0
        while read < 5:
            event = await feed.next(wait_s=0.0)
            read += len(event.records) if isinstance(event, Delivered) else 0
        with contextlib.closing(sqlite3.connect(tmp_path / "copy.sqlite")) as copy:
            copy.backup(now)
    assert await log.end_offset() == 3
    await log.publish_many([(b"a.b", b"new")] * 6)
    with contextlib.closing(sqlite3.connect(tmp_path / "log" / FILE_NAME)) as now:
        now.execute("UPDATE intents SET appended_ms = appended_ms + 1000 WHERE log_offset > 2")  # it takes a while
        now.commit()
    with pytest.raises(Fenced, match="the record at offset 5 was read") as refusal:
        await feed.next(wait_s=0.0)
    assert refusal.value.code == "log-behind-root"
    await log.close()


@pytest.mark.parametrize("has_read", [True, False])
async def test_a_file_that_an_older_copy_overwrote_in_place_is_noticed_before_it_has_grown(
    tmp_path: Path, has_read: bool
) -> None:
    """Its next records are below what its host reads: no one would decide them."""
    log = SqliteIntentLog(tmp_path / "log")
    with (
        contextlib.closing(sqlite3.connect(tmp_path / "log" / FILE_NAME)) as now,
        contextlib.closing(sqlite3.connect(":memory:")) as copy,
    ):
        await log.publish_many([(b"a.b", b"old")] * 2)
        now.backup(copy)
        later = await log.publish_many([(b"a.b", b"later")] * 3)
        if not has_read:
            offsets = range(1, later[-1].offset + 1)
            told = [
                Verdict(
                    intent_id="i", table="a.b", kind=VerdictKind.COMMITTED, log=later[0].log, partition=0, offset=at
                )
                for at in offsets
            ]
            await log.publish_verdicts(told, [])
        feed = EmbeddedFeed(log)
        while not (isinstance(event := await feed.next(wait_s=0.0), Delivered) and event.at_end):
            pass
        copy.backup(now)
    await log.publish(b"a.b", b"new")
    with pytest.raises(Fenced, match=r"at offset 5 was read|ends before offset 6") as refusal:
        await feed.next(wait_s=0.0)
    assert refusal.value.code == "log-behind-root"
    await log.close()


async def test_verdicts_that_were_under_way_while_an_older_copy_overwrote_the_file_are_on_no_other_records(
    tmp_path: Path,
) -> None:
    log = SqliteIntentLog(tmp_path / "log")
    feed = EmbeddedFeed(log)
    with (
        contextlib.closing(sqlite3.connect(tmp_path / "log" / FILE_NAME)) as now,
        contextlib.closing(sqlite3.connect(":memory:")) as copy,
    ):
        now.backup(copy)
        [lost] = await log.publish_many([(b"a.b", b"lost")])
        while not (isinstance(event := await feed.next(wait_s=0.0), Delivered) and event.records):
            pass
        copy.backup(now)
        late = Verdict(
            intent_id="lost", table="a.b", kind=VerdictKind.COMMITTED, log=lost.log, partition=0, offset=lost.offset
        )
        with pytest.raises(Fenced, match="the record at offset 1 was read"):
            await feed.publish_verdicts([late], [])
        again = await log.publish(b"a.b", b"new")
        now.execute("UPDATE intents SET appended_ms = appended_ms + 1000")  # it takes a while
        now.commit()
        with pytest.raises(Fenced, match="the record at offset 1 was read"):
            await feed.publish_verdicts([late], [])
    assert again == lost
    assert await log.first_undecided() == 1
    await log.close()
