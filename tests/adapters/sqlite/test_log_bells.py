"""Who waits on the embedded log hears other processes' writes, and does without that where it must."""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path

import pytest

from rootline.adapters.sqlite import wakeups as log_watch
from rootline.adapters.sqlite.intent_log import SqliteIntentLog
from rootline.adapters.sqlite.log_file import LogReader, LogWriter
from rootline.adapters.sqlite.wakeups import LogWatch, Wakeups, wakeups_folder
from rootline.schemas.identifiers import LogPosition
from rootline.schemas.verdict import Verdict, VerdictKind
from rootline.testing.virtual_loop import run_virtually

WAIT_S = 60.0


def committed(position: LogPosition) -> Verdict:
    log, partition, offset = position
    kind = VerdictKind.COMMITTED
    return Verdict(intent_id="a", table="demo.a", kind=kind, log=log, partition=partition, offset=offset, version=1)


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*"))


def bells_below(folder: Path) -> list[Path]:
    return list(folder.rglob("*.bell"))


async def bells_hang(folder: Path, count: int) -> None:
    while len(names_in(folder)) < count:  # noqa: ASYNC110
        await asyncio.sleep(0)


async def test_a_record_and_its_verdict_wake_other_waiters_that_never_look_by_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_watch, "_PAUSE_MIN_S", 24 * 3600.0)
    writer, coordinator = SqliteIntentLog(tmp_path), SqliteIntentLog(tmp_path)
    folder = wakeups_folder(await writer.identity())
    reading = asyncio.ensure_future(coordinator.read(0, limit=10, wait_s=WAIT_S))
    await bells_hang(folder, 1)
    position = await writer.publish(b"demo.a", b"one")
    assert [record.value for record in await reading] == [b"one"]
    waiting = asyncio.ensure_future(writer.wait_verdict(position, timeout_s=WAIT_S))
    await bells_hang(folder, 2)
    await coordinator.publish_verdicts([committed(position)], [])
    verdict = await waiting
    assert verdict is not None
    assert verdict.version == 1
    await writer.close()
    await coordinator.close()
    assert not folder.exists()


async def test_a_record_wakes_who_reads_records_and_a_verdict_wakes_everyone(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    waiting, reading, ringing = Wakeups(folder), Wakeups(folder), Wakeups(folder)
    rung: list[str] = []
    waiting.hear(lambda: rung.append("waiting"), records=False)
    for records in (False, True, True):  # it waits for a verdict before it becomes the reader
        reading.hear(lambda: rung.append("reading"), records=records)
    assert len(names_in(folder)) == 2
    for only_records, woken in ((True, ["reading"]), (False, ["reading", "waiting"])):
        rung.clear()
        ringing.ring(only_records=only_records)
        while len(rung) < len(woken):  # noqa: ASYNC110
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert sorted(rung) == woken
    waiting.close()
    reading.close()
    assert not folder.exists()


class CountingReader(LogReader):
    """Counts how often it was asked whether others have written."""

    looks = 0

    def data_version(self) -> int:
        self.looks += 1
        return super().data_version()


def test_records_of_others_do_not_count_as_unheard_writes_for_who_waits_for_a_verdict(tmp_path: Path) -> None:
    writer = LogWriter.open(tmp_path)
    reader = CountingReader(tmp_path / "log.sqlite")

    async def looks() -> int:
        watch = LogWatch(reader, Wakeups(tmp_path / "bells"))
        waiting = asyncio.ensure_future(watch.verdict(9, timeout_s=3600))
        for _ in range(60):
            await asyncio.sleep(1)
            writer.in_one_transaction([lambda to: to.append([(b"demo.a", b"one", None)], None, None)])
        await watch.close("the end")
        await asyncio.gather(waiting, return_exceptions=True)
        return reader.looks

    assert run_virtually(looks()) <= 600
    reader.close()
    writer.close()


def test_who_has_a_bell_looks_by_itself_seldom_once_all_is_quiet_and_often_while_others_write(tmp_path: Path) -> None:
    writer = LogWriter.open(tmp_path)
    reader = CountingReader(tmp_path / "log.sqlite")

    async def watched() -> tuple[int, int, int]:
        watch = LogWatch(reader, Wakeups(tmp_path / "bells"))
        waiting = asyncio.ensure_future(watch.records(9, limit=1, wait_s=3600))
        await asyncio.sleep(2)
        first = reader.looks
        await asyncio.sleep(60)
        rest = reader.looks - first
        writer.in_one_transaction([lambda to: to.append([(b"demo.a", b"one", None)], None, None)])  # and rings nothing
        await asyncio.sleep(10)
        unheard = reader.looks - first - rest
        await watch.close("the end")
        await asyncio.gather(waiting, return_exceptions=True)
        return first, rest, unheard

    first, rest, unheard = run_virtually(watched())
    assert first > 150
    assert rest <= 400
    assert unheard > 1_000
    reader.close()
    writer.close()


@pytest.mark.parametrize("way", ["a file", "open to all", "a link"])
async def test_where_no_bell_can_be_made_safely_waiters_look_by_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    of_user = tmp_path / f"rootline-{os.getuid()}"
    match way:
        case "a file":
            of_user.write_text("in the way")
        case "a link":
            (tmp_path / "elsewhere").mkdir()
            of_user.symlink_to(tmp_path / "elsewhere")
        case _:
            of_user.mkdir()
            of_user.chmod(0o777)
    writer, coordinator = SqliteIntentLog(tmp_path / "log"), SqliteIntentLog(tmp_path / "log")
    reading = asyncio.ensure_future(coordinator.read(0, limit=10, wait_s=WAIT_S))
    await asyncio.sleep(0)
    await writer.publish(b"demo.a", b"one")
    assert [record.value for record in await reading] == [b"one"]
    assert bells_below(tmp_path) == []
    await writer.close()
    await coordinator.close()


async def test_a_bell_that_a_killed_process_left_is_removed_and_strange_files_are_let_alone(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    folder.mkdir()
    os.mkfifo(folder / "1-dead.bell")
    os.mkfifo(folder / ".2-being-made.bell")
    (folder / "notes.bell").write_text("kept")
    (tmp_path / "aim").write_text("kept")
    (folder / "link.bell").symlink_to(tmp_path / "aim")
    Wakeups(folder).ring(only_records=False)
    assert names_in(folder) == [".2-being-made.bell", "link.bell", "notes.bell"]
    assert (folder / "notes.bell").read_text() == (tmp_path / "aim").read_text() == "kept"


async def test_a_bell_that_no_one_answers_for_long_never_makes_the_one_who_rings_wait(tmp_path: Path) -> None:
    deaf, ringing = Wakeups(tmp_path / "log"), Wakeups(tmp_path / "log")
    rung = asyncio.Event()
    deaf.hear(rung.set, records=True)
    for _ in range(66_000):  # more than a pipe holds, while the loop does not run
        ringing.ring(only_records=True)
    assert not rung.is_set()
    await asyncio.wait_for(rung.wait(), WAIT_S)
    deaf.close()
    ringing.ring(only_records=True)
