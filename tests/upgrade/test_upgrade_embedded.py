"""A folder that the released version wrote: refused until it was upgraded, and closed to that version from then on."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from rootline.adapters.open import open_archive
from rootline.adapters.sqlite.undecided import FILE_NAME
from rootline.cli.app import app
from rootline.client.lake import Lake
from rootline.connect import connect
from rootline.schemas.errors import Corrupt
from tests.upgrade.released_lake import FLIGHTS, PLAIN, unpack, unpack_upgraded

TELLS_A_VERDICT = "INSERT OR IGNORE INTO verdicts (log_offset, body) VALUES (?, ?)"
"""As the released version does it."""
SCHEMA = "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY rowid"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return unpack_upgraded("embedded", tmp_path)


@pytest.fixture
def log_file(folder: Path) -> Iterator[sqlite3.Connection]:
    with closing(opened(folder)) as held:
        yield held


def opened(folder: Path) -> sqlite3.Connection:
    return sqlite3.connect(folder / ".rootline" / FILE_NAME, isolation_level=None)


def files_in(folder: Path) -> dict[str, bytes]:
    """All files but SQLite's own, which come and go with a reader."""
    found = [path for path in folder.rglob("*") if path.is_file() and not path.name.endswith(("-wal", "-shm"))]
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def add_column(lake: Lake) -> None:
    with lake.table(PLAIN).alter() as change:
        change.add_column("more", "int")


def append(folder: Path) -> None:
    with connect(folder) as lake:
        lake.table(PLAIN).append(pa.table({"id": [77]}))


def drop(folder: Path) -> None:
    with connect(folder) as lake:
        lake.drop_table(PLAIN)


def read_log(folder: Path) -> None:
    open_archive(None, str(folder))


@pytest.mark.parametrize("use", [drop, read_log])
def test_a_log_that_nobody_upgraded_is_refused_and_stays_as_it_is(tmp_path: Path, use: Callable[[Path], None]) -> None:
    folder = unpack("embedded", tmp_path)
    before = files_in(folder)
    with pytest.raises(Corrupt, match=r"log\.sqlite: .*layout 1.*`rootline upgrade` of commit caa9e5f4") as caught:
        use(folder)
    assert caught.value.code == "log-corrupt"
    after = files_in(folder)
    assert {name: after[name] for name in before} == before
    assert after.keys() - before.keys() <= {".rootline/coordinator.lock", ".rootline/log.lock"}, "nothing but locks"


def test_a_log_of_a_layout_that_is_not_known_is_refused(folder: Path, log_file: sqlite3.Connection) -> None:
    log_file.execute("UPDATE meta SET value = '3' WHERE name = 'layout'")
    with pytest.raises(Corrupt, match=r"layout 3, and this version of Rootline reads 2"):
        append(folder)


@pytest.mark.parametrize("column", ["trace", "oldest_file_ms"])
def test_an_upgraded_log_that_was_not_opened_for_long_is_refused(
    folder: Path, log_file: sqlite3.Connection, column: str
) -> None:
    """Versions between the first one with layout 2 and caa9e5f4 lacked columns."""
    log_file.execute(f"ALTER TABLE intents DROP COLUMN {column}")
    with pytest.raises(Corrupt, match=r"lacks columns.*Open it once with that commit"):
        append(folder)


def test_after_the_upgrade_a_lake_is_altered_dropped_and_brought_back(folder: Path) -> None:
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
    append(folder)
    assert dict(log_file.execute("SELECT name, value FROM meta"))["layout"] == "2", "it reads 1, and no other one"
    with pytest.raises(sqlite3.IntegrityError, match="use a newer version"):
        log_file.execute(TELLS_A_VERDICT, (10**6, "{}"))


def test_a_new_lake_is_made_upgraded(tmp_path: Path, log_file: sqlite3.Connection) -> None:
    with connect(tmp_path / "new") as lake:
        lake.create_table(PLAIN, pa.schema([("id", pa.int64())]))
        add_column(lake)
    with closing(opened(tmp_path / "new")) as made:
        old = log_file.execute(SCHEMA).fetchall()
        assert [row for row in made.execute(SCHEMA) if row in old] == old, "as caa9e5f4 makes it"
        meta = dict(made.execute("SELECT name, value FROM meta"))
        assert (meta["layout"], meta["upgraded-from"]) == ("2", "1")
