"""The loop's threads: every call once, in order, and also when the main thread has ended."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import CancelledError
from pathlib import Path

import pytest

from rootline.client.loop_thread import LoopExecutor
from rootline.connect import connect


def test_calls_run_beside_each_other_and_a_thread_that_waits_takes_the_next() -> None:
    threads = LoopExecutor("calls")
    barrier = threading.Barrier(4)
    together = [threads.submit(barrier.wait, 30) for _ in range(4)]
    assert sorted(future.result(30) for future in together) == [0, 1, 2, 3]
    before = threading.active_count()
    for number in range(50):
        assert threads.submit(lambda number=number: number).result(30) == number
    assert threading.active_count() <= before + 1, "one that has ended a call may not wait yet"
    threads.shutdown()


def test_what_a_call_raises_is_the_callers() -> None:
    threads = LoopExecutor("calls")
    assert isinstance(threads.submit(int, "x").exception(30), ValueError)
    assert isinstance(threads.submit(sys.exit, 3).exception(30), SystemExit)
    assert threads.submit(int, "7", base=8).result(30) == 7
    threads.shutdown()


@pytest.mark.parametrize("cancel", [False, True])
def test_a_shutdown_finishes_or_cancels_what_waits_and_takes_no_more(
    cancel: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rootline.client.loop_thread._THREADS_MAX", 1)
    threads, begun, go_on = LoopExecutor("calls"), threading.Event(), threading.Event()
    first = threads.submit(lambda: (begun.set(), go_on.wait(30)))
    waiting = [threads.submit(str, number) for number in range(3)]
    assert begun.wait(30)
    threads.shutdown(wait=False, cancel_futures=cancel)
    with pytest.raises(RuntimeError, match="calls: the event loop has ended"):
        threads.submit(str)
    go_on.set()
    threads.shutdown()
    assert first.done()
    if cancel:
        for future in waiting:
            with pytest.raises(CancelledError):
                future.result(0)
    else:
        assert [future.result(0) for future in waiting] == ["0", "1", "2"]


PROGRAM = """
import sys, threading
import pyarrow as pa, rootline

table = rootline.connect(sys.argv[1]).create_table("demo.t", pa.schema([("id", pa.int64())]))

def go_on():
    threading.main_thread().join()
    print(*(table.append({"id": [number]}).version for number in range(3)), table.scan().count())

threading.Thread(target=go_on).start()
"""


def test_a_thread_uses_the_lake_after_the_main_thread_has_ended(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "lake")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "1 2 3 3\n", "")
    with connect(tmp_path / "lake") as lake:
        assert lake.table("demo.t").scan().count() == 3


SLOW = """
import asyncio, sys, threading
import rootline.client.loop_thread as loop_thread

def work():
    begun.set()
    sys.stdin.read()
    print("ended")

begun = threading.Event()
loop_thread._EXIT_PATIENCE_S = 0
loop_thread.LoopThread("calls").submit(asyncio.to_thread(work))
begun.wait()
print("at its end", flush=True)
"""


def test_a_program_that_ends_waits_for_a_call_that_has_begun() -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", SLOW], stdin=pipe, stdout=pipe, stderr=pipe, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "at its end\n"
        with pytest.raises(subprocess.TimeoutExpired):
            program.wait(2)
        assert program.communicate(timeout=60) == ("ended\n", "")
        assert program.returncode == 0
