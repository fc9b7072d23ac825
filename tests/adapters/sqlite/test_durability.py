"""What the embedded log asks of SQLite and of the file system, so that what it acknowledged survives a power cut."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rootline.adapters.sqlite.intent_log import SqliteIntentLog
from rootline.schemas.verdict import Verdict, VerdictKind
from tests.support.power_cut import PowerCut

FULL = 2
_WRITES = ("INSERT", "UPDATE", "DELETE", "COMMIT")


class Watched(sqlite3.Connection):
    """A connection that notes what it wrote, and how durable SQLite made it at that moment."""

    noted: list[tuple[str, str, int]]

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        word = sql.split(" ")[0]
        if word in _WRITES:
            journal = super().execute("PRAGMA journal_mode").fetchone()[0]
            synchronous = super().execute("PRAGMA synchronous").fetchone()[0]
            Watched.noted.append((word, journal, synchronous))
        return super().execute(sql, parameters)


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, str, int]]]:
    Watched.noted = []
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *given, **options: connect(*given, **options, factory=Watched))
    yield Watched.noted
    Watched.noted = []


def verdict(log: str, offset: int) -> Verdict:
    return Verdict(
        intent_id="1",
        table="demo.flights",
        kind=VerdictKind.COMMITTED,
        log=log,
        partition=0,
        offset=offset,
        version=1,
    )


@pytest.mark.parametrize("life", ["the first", "the second"])
async def test_every_transaction_of_the_log_is_synced_before_it_is_answered(
    noted: list[tuple[str, str, int]], tmp_path: Path, life: str
) -> None:
    if life == "the second":
        await SqliteIntentLog(tmp_path).close()
        noted.clear()
    log = SqliteIntentLog(tmp_path)
    in_creation = len(noted)
    position = await log.publish(b"k", b"v")
    published = len(noted)
    await log.publish_verdicts([verdict(position.log, position.offset)], [])
    await log.first_undecided()
    await log.close()

    assert (in_creation > 0) == (life == "the first")
    assert in_creation < published < len(noted)
    assert {(journal, synchronous) for _, journal, synchronous in noted} == {("wal", FULL)}
    assert noted[published - 1][0] == noted[-1][0] == "COMMIT"


@pytest.mark.parametrize("folder", ["lake/.rootline", "made/on/demand/.rootline"])
async def test_the_name_of_a_new_log_is_durable_before_anything_is_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    (tmp_path / "disk" / "lake").mkdir(parents=True)
    disk = PowerCut(tmp_path / "disk", monkeypatch)

    log = await asyncio.to_thread(SqliteIntentLog, disk.top / folder)

    assert (disk.left_in(tmp_path / "after-the-cut") / folder / "log.sqlite").is_file()
    await log.close()
