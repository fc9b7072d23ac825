"""`rootline upgrade` of a folder that the released version wrote: what comes after it, and who is kept out."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from rootline.adapters.sqlite.log_file import FILE_NAME
from rootline.adapters.upgraded import Upgraded
from rootline.cli.app import app
from rootline.client.lake import Lake
from rootline.connect import connect, upgrade_lake
from rootline.schemas.errors import Invalid, Unavailable
from tests.upgrade.released_lake import FLIGHTS, PLAIN, unpack

TELLS_A_VERDICT = "INSERT OR IGNORE INTO verdicts (log_offset, body) VALUES (?, ?)"
"""As the released version does it."""
LAYOUT_OF_THE_RELEASE = "1"
"""It reads no other one: "its layout is 2, this version knows 1"."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return unpack("embedded", tmp_path)


@pytest.fixture
def log_file(folder: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(folder / ".rootline" / FILE_NAME, isolation_level=None)) as held:
        yield held


def layout(log_file: sqlite3.Connection) -> str:
    [(found,)] = log_file.execute("SELECT value FROM meta WHERE name = 'layout'").fetchall()
    return str(found)


def add_column(lake: Lake) -> None:
    with lake.table(PLAIN).alter() as change:
        change.add_column("more", "int")


def test_what_the_released_version_does_not_know_waits_for_the_upgrade(folder: Path) -> None:
    with connect(folder) as lake:
        before = [lake.table(name).head().version for name in (FLIGHTS, PLAIN)]
        for refused in (
            lambda: lake.drop_table(FLIGHTS),
            lambda: add_column(lake),
            lambda: lake.create_table("a.b.c", pa.schema([("id", pa.int64())])),
            lambda: lake.create_view(
                "demo.v", sql="select 1 x", dialect="spark", schema=pa.schema([("x", pa.int32())])
            ),
            lambda: lake.table(PLAIN).append(pa.table({"id": [1], "more": [1]}), merge_schema=True),
        ):
            with pytest.raises(Invalid, match="rootline upgrade") as caught:
                refused()
            assert caught.value.code == "upgrade-needed"
        assert [lake.table(name).head().version for name in (FLIGHTS, PLAIN)] == before
        assert lake.list_tables() == ["demo.files", FLIGHTS, PLAIN]


def test_the_released_version_goes_on_with_a_lake_that_was_only_opened(
    folder: Path, log_file: sqlite3.Connection
) -> None:
    with connect(folder) as lake:
        lake.table(PLAIN).append(lake.table(PLAIN).scan().to_arrow())
    assert layout(log_file) == LAYOUT_OF_THE_RELEASE
    assert log_file.execute(TELLS_A_VERDICT, (10**6, "{}")).rowcount == 1


def test_after_the_upgrade_a_lake_is_altered_dropped_and_brought_back(folder: Path) -> None:
    assert upgrade_lake(str(folder), None, apply=True).upgraded is Upgraded.NOW
    with connect(folder) as lake:
        add_column(lake)
        lake.table(PLAIN).append(pa.table({"id": [77], "more": pa.array([5], pa.int32())}))
        assert lake.table(PLAIN).scan(where="more = 5").to_arrow()["id"].to_pylist() == [77]
        lake.drop_table(FLIGHTS)
        assert FLIGHTS not in lake.list_tables()
        lake.restore_table(FLIGHTS)
        assert lake.table(FLIGHTS).scan(version=3).to_arrow().num_rows == 18
        assert list(lake.table(FLIGHTS).check()) == list(lake.table(PLAIN).check()) == []
    run = CliRunner().invoke(app, ["maintenance", "run", "expire", PLAIN, "--warehouse", str(folder), "--json"])
    assert run.exit_code == 0, run.output


def test_after_the_upgrade_the_released_version_tells_nothing_and_opens_nothing(
    folder: Path, log_file: sqlite3.Connection
) -> None:
    upgrade_lake(str(folder), None, apply=True)
    assert layout(log_file) != LAYOUT_OF_THE_RELEASE
    with pytest.raises(sqlite3.IntegrityError, match="use a newer version"):
        log_file.execute(TELLS_A_VERDICT, (10**6, "{}"))


def test_what_was_on_the_log_before_the_upgrade_is_rejected_after_it_too(
    folder: Path, log_file: sqlite3.Connection
) -> None:
    with connect(folder) as lake, pytest.raises(Invalid, match="rootline upgrade"):
        lake.drop_table(FLIGHTS)
    upgrade_lake(str(folder), None, apply=True)
    log_file.execute("DELETE FROM verdicts WHERE log_offset = (SELECT max(log_offset) FROM verdicts)")
    log_file.execute("DELETE FROM meta WHERE name = 'decided-below'")
    with connect(folder) as lake:
        assert lake.table(FLIGHTS).append(lake.table(FLIGHTS).scan().to_arrow()).version > 7
    [(told_again,)] = log_file.execute(
        "SELECT body ->> 'code' FROM verdicts WHERE log_offset = (SELECT max(log_offset) - 1 FROM intents)"
    ).fetchall()
    assert told_again == "upgrade-needed"


def test_a_new_lake_is_made_upgraded(tmp_path: Path) -> None:
    with connect(tmp_path / "new") as lake:
        lake.create_table(PLAIN, pa.schema([("id", pa.int64())]))
        add_column(lake)
    assert upgrade_lake(str(tmp_path / "new"), None, apply=True).upgraded is Upgraded.BEFORE


def test_it_refuses_while_a_process_hosts_the_lake_and_names_it(folder: Path, log_file: sqlite3.Connection) -> None:
    with connect(folder) as lake:
        lake.table(PLAIN).append(lake.table(PLAIN).scan().to_arrow())
        with pytest.raises(Invalid, match=r"process \d+ hosts") as caught:
            upgrade_lake(str(folder), None, apply=True)
    assert caught.value.code == "group-active"
    assert layout(log_file) == LAYOUT_OF_THE_RELEASE


def test_a_dry_run_changes_nothing_and_the_status_is_an_exit_code(folder: Path, log_file: sqlite3.Connection) -> None:
    def said(*words: str) -> tuple[int, str]:
        run = CliRunner().invoke(app, ["upgrade", "--warehouse", str(folder), *words])
        return run.exit_code, run.output

    assert said("--dry-run")[0] == 0
    assert said("--status")[0] == 1
    assert layout(log_file) == LAYOUT_OF_THE_RELEASE
    assert said()[0] == 0
    assert said("--status") == (0, said("--dry-run")[1])


def test_of_two_upgrades_at_once_both_end_well(folder: Path) -> None:
    def upgrade(_: int) -> str:
        try:
            return upgrade_lake(str(folder), None, apply=True).upgraded.value
        except Invalid as error:
            return error.code  # the other one has the lock

    with ThreadPoolExecutor(4) as pool:
        found = set(pool.map(upgrade, range(8)))
    assert found <= {"now", "before", "group-active"}
    assert upgrade_lake(str(folder), None, apply=False).upgraded is Upgraded.BEFORE


def test_a_folder_without_a_log_is_named_and_not_made(tmp_path: Path) -> None:
    run = CliRunner().invoke(app, ["upgrade", "--warehouse", str(tmp_path / "none")])
    assert run.exit_code != 0
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("apply", [True, False])
def test_a_folder_that_is_not_the_logs_is_told_so_and_gets_none(tmp_path: Path, folder: Path, apply: bool) -> None:
    """Else a wrong path reads "was upgraded before", and the lake is still shared."""
    mistaken = tmp_path / "mistaken"
    mistaken.mkdir()
    with pytest.raises(Unavailable, match=r"mistaken.*there is no log") as caught:
        upgrade_lake(str(folder), f"sqlite://{mistaken}", apply=apply)
    assert caught.value.code == "log-unavailable"
    assert list(mistaken.iterdir()) == []
