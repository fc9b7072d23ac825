"""A lake's life: opening, sharing between processes, closing."""

from __future__ import annotations

import asyncio
import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rootline.client.lake import Lake
from rootline.client.table_handle import TableHandle
from rootline.connect import connect
from rootline.schemas.errors import Invalid, RootlineError, Unavailable
from tests.support.forking import waiting_child

pytestmark = pytest.mark.slow

ROW = {"id": [1], "carrier": ["UA"], "delay": [0.0]}


def test_a_closed_lake_refuses_further_use_and_closes_twice(lake: Lake, flights: TableHandle) -> None:
    lake.close()
    lake.close()
    with pytest.raises(Invalid) as caught:
        flights.append(ROW)
    assert caught.value.code == "lake-closed"


def test_what_was_committed_is_there_when_the_lake_is_opened_again(
    folder: Path, lake: Lake, flights: TableHandle
) -> None:
    flights.append(ROW)
    lake.close()
    with connect(f"file://{folder}") as again:
        assert again.table("demo.flights").scan().count() == 1


def test_a_second_lake_on_the_folder_commits_through_the_first_ones_coordinator(
    folder: Path, lake: Lake, flights: TableHandle
) -> None:
    with connect(folder) as guest:
        guest.table("demo.flights").append(ROW)
    assert flights.scan().count() == 1


def test_when_the_host_goes_another_open_lake_takes_over(folder: Path, lake: Lake, flights: TableHandle) -> None:
    with connect(folder) as guest:
        table = guest.table("demo.flights")
        lake.close()
        table.append(ROW)
        assert table.scan().count() == 1


def test_threads_may_append_at_the_same_time(flights: TableHandle) -> None:
    with ThreadPoolExecutor(6) as threads:
        commits = list(threads.map(lambda _: flights.append(ROW), range(12)))
    assert len({commit.sequence_number for commit in commits}) == 12
    assert flights.scan().count() == 12


def test_a_notebook_with_a_loop_of_its_own_calls_it_plainly(flights: TableHandle) -> None:
    async def cell() -> int:
        flights.append(ROW)
        return flights.scan().count()

    assert asyncio.run(cell()) == 1


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_uses_the_lake_through_connections_of_its_own(flights: TableHandle) -> None:
    flights.append(ROW)
    child = os.fork()
    if child == 0:
        try:
            flights.append(ROW)
            os._exit(0 if flights.scan().count() == 2 else 1)
        except BaseException:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    flights.append(ROW)
    assert flights.scan().count() == 3


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_that_lives_on_does_not_keep_the_coordinators_place(
    folder: Path, lake: Lake, flights: TableHandle
) -> None:
    with waiting_child():
        lake.close()
        with connect(folder) as successor:
            successor.table("demo.flights").append(ROW)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_what_a_forked_child_publishes_after_its_parent_has_closed_the_lake_is_on_the_log(
    folder: Path, lake: Lake, flights: TableHandle
) -> None:
    flights.append(ROW)
    (child_ends, parent_goes_on), (parent_closes, child_goes_on) = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        try:
            for _ in range(2):
                flights.append(ROW)
                os.write(child_goes_on, b"1")
                os.read(child_ends, 1)
            os._exit(0)
        except BaseException:
            os._exit(1)
    os.read(parent_closes, 1)
    lake.close()
    os.write(parent_goes_on, b"1")
    os.read(parent_closes, 1)
    try:
        with connect(folder) as successor:
            table = successor.table("demo.flights")
            table.append(ROW)
            assert table.scan().count() == 4
    finally:
        os.write(parent_goes_on, b"1")
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with connect(folder) as last:
        last.table("demo.flights").append(ROW)


def test_a_pickled_lake_opens_itself_in_another_process(folder: Path, lake: Lake, flights: TableHandle) -> None:
    flights.append(ROW)
    program = "import pickle, sys; print(pickle.load(sys.stdin.buffer).scan().count())"
    done = subprocess.run([sys.executable, "-c", program], input=pickle.dumps(flights), capture_output=True, check=True)
    assert done.stdout == b"1\n"


NO_MORE_THREADS = """
import threading
def refused(_):
    raise RuntimeError("can't create new thread at interpreter shutdown")
threading.Thread.start = refused
"""
"""As Python 3.12.0 and 3.12.1 are from the end of the program's last line on."""


@pytest.mark.parametrize("end", ["", NO_MORE_THREADS])
def test_a_program_that_forgets_to_close_ends_cleanly_and_loses_nothing(folder: Path, end: str) -> None:
    program = (
        "import sys, pyarrow as pa, rootline\n"
        "table = rootline.connect(sys.argv[1]).create_table('demo.t', pa.schema([('id', pa.int64())]))\n"
        f"print(table.append({{'id': [1, 2]}}).version)\n{end}"
    )
    done = subprocess.run([sys.executable, "-c", program, str(folder)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")
    with connect(folder) as lake:
        assert lake.table("demo.t").scan().count() == 2


def test_importing_the_package_imports_nothing_else() -> None:
    program = "import sys, rootline; print(sorted({'pyarrow', 'pydantic', 'asyncio', 'pyiceberg'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("url", "options", "kind"),
    [
        ("", {}, Invalid),
        ("ftp://host/dir", {}, Invalid),
        ("nowhere/at/all", {"coordinator": "elsewhere"}, Unavailable),
        ("lake", {"coordinator": "here"}, Invalid),
    ],
)
def test_a_lake_that_cannot_be_opened_says_why(
    url: str,
    options: dict[str, str],
    kind: type[RootlineError],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ROOTLINE_WAREHOUSE", raising=False)
    with pytest.raises(kind), connect(url, **options) as lake:  # type: ignore[arg-type]
        lake.list_tables()
    assert list(tmp_path.iterdir()) == []


def test_the_environment_names_the_warehouse(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOTLINE_WAREHOUSE", str(folder))
    with connect() as lake:
        assert lake.list_tables() == []
        lake.create_table("demo.t", {"id": "long"})
    assert folder.is_dir()


def test_a_chain_of_calls_keeps_its_lake_open(folder: Path, flights: TableHandle) -> None:
    flights.append(ROW)
    assert connect(folder).table("demo.flights").scan().count() == 1


APPENDER = """
import sys, pyarrow as pa, rootline
table = rootline.connect(sys.argv[1]).table("demo.flights")
for number in range(int(sys.argv[2]), 1_000_000):
    table.append({"id": [number], "carrier": ["UA"], "delay": [0.0]})
    print(number, flush=True)
"""


def _appender(folder: Path, first: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", APPENDER, str(folder), str(first)], stdout=subprocess.PIPE, text=True
    )


@pytest.mark.slow
def test_killing_writers_that_host_the_coordinator_loses_no_acknowledged_row(
    folder: Path, lake: Lake, flights: TableHandle
) -> None:
    lake.close()
    acknowledged: set[int] = set()
    for round_number in range(2):
        both = [_appender(folder, round_number * 10_000 + side * 1_000) for side in (0, 5)]
        for process in both:  # the first to go may be the host: the other one must then go on by itself
            assert process.stdout is not None
            acknowledged |= {int(process.stdout.readline()) for _ in range(5)}
            process.kill()
            acknowledged |= {int(line) for line in process.communicate()[0].splitlines()}
    with connect(folder) as survivor:
        table = survivor.table("demo.flights")
        table.append({"id": [-1], "carrier": ["UA"], "delay": [0.0]})
        found = table.scan().to_arrow().column("id").to_pylist()
        assert len(found) == len(set(found))
        assert acknowledged <= set(found)
        assert list(table.check()) == []
