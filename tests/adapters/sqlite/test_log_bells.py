"""Who waits on the embedded log hears other processes' writes, and does without that where it must."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from rootline.adapters.sqlite import log_watch
from rootline.adapters.sqlite.intent_log import SqliteIntentLog
from rootline.adapters.sqlite.log_bells import LogBells
from rootline.schemas.log_position import LogPosition
from rootline.schemas.verdict import Verdict, VerdictKind

WAIT_S = 60.0


def committed(position: LogPosition) -> Verdict:
    log, partition, offset = position
    kind = VerdictKind.COMMITTED
    return Verdict(intent_id="a", table="demo.a", kind=kind, log=log, partition=partition, offset=offset, version=1)


def bells_in(folder: Path) -> list[str]:
    return [path.name for path in (folder / "waiting").glob("*")]


async def bells_hang(folder: Path, count: int) -> None:
    while len(bells_in(folder)) < count:  # noqa: ASYNC110
        await asyncio.sleep(0)


async def test_a_record_and_its_verdict_wake_other_waiters_that_never_look_by_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_watch, "_PAUSE_MIN_S", 24 * 3600.0)
    writer, coordinator = SqliteIntentLog(tmp_path), SqliteIntentLog(tmp_path)
    reading = asyncio.ensure_future(coordinator.read(0, limit=10, wait_s=WAIT_S))
    await bells_hang(tmp_path, 1)
    position = await writer.publish(b"demo.a", b"one")
    assert [record.value for record in await reading] == [b"one"]
    waiting = asyncio.ensure_future(writer.wait_verdict(position, timeout_s=WAIT_S))
    await bells_hang(tmp_path, 2)
    await coordinator.publish_verdicts([committed(position)], [])
    verdict = await waiting
    assert verdict is not None
    assert verdict.version == 1
    await writer.close()
    await coordinator.close()
    assert bells_in(tmp_path) == []


async def test_where_no_bell_can_be_made_waiters_look_by_themselves(tmp_path: Path) -> None:
    (tmp_path / "waiting").write_text("in the way")
    writer, coordinator = SqliteIntentLog(tmp_path), SqliteIntentLog(tmp_path)
    reading = asyncio.ensure_future(coordinator.read(0, limit=10, wait_s=WAIT_S))
    await asyncio.sleep(0)
    await writer.publish(b"demo.a", b"one")
    assert [record.value for record in await reading] == [b"one"]
    await writer.close()
    await coordinator.close()


async def test_a_bell_that_a_killed_process_left_is_removed_and_strange_files_are_let_alone(tmp_path: Path) -> None:
    waiting = tmp_path / "waiting"
    waiting.mkdir()
    os.mkfifo(waiting / "1-dead.bell")
    os.mkfifo(waiting / ".2-being-made.bell")
    (waiting / "notes.txt").write_text("kept")
    LogBells(tmp_path).ring()
    assert sorted(bells_in(tmp_path)) == [".2-being-made.bell", "notes.txt"]


async def test_a_bell_that_no_one_answers_for_long_never_makes_the_one_who_rings_wait(tmp_path: Path) -> None:
    deaf, ringing = LogBells(tmp_path), LogBells(tmp_path)
    rung = asyncio.Event()
    deaf.hear(rung.set)
    for _ in range(66_000):  # more than a pipe holds, while the loop does not run
        ringing.ring()
    assert not rung.is_set()
    await asyncio.wait_for(rung.wait(), WAIT_S)
    deaf.close()
    ringing.ring()
