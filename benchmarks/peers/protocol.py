"""The protocol of a driver: a program that reads requests and writes answers, each a line of JSON.

Owns: the requests, the timing of commits, the answers. Does not own: what a peer does (`Peer`), who asks (`driver`).
Invariants: standard output carries answers only, and whatever a library prints there goes to standard error; a failed
commit is an answer, not the end of the driver; only the call of the peer is timed.

| request | answer |
|---|---|
| `{"open": PLACE}` | `{"version": …}` |
| `{"prepare": [first, count]}` | `{}`: whatever must exist before files are committed, exists |
| `{"commit": [first, count], "each": n}` | `{"seconds": […], "failed": [[seconds, reason], …]}` |
| `{"loop": first, "seconds": s, "most": n}` | the same, of `n` commits or until the time is over, and `"elapsed"` |
| the same with `"rows": r, "threads": t` | the same of appends of `r` rows each, and `"landed"`: their numbers |
| `{"plan": [low, high]}` or `{"plan": null}` | `{"seconds": …, "files": …}` |
| `{"append": [first, count], "rows": n}` | as for `commit`, of appends of `n` rows each |
| `{"upkeep": null}` | `{"seconds": …}` |
| `{"close": null}` | `{}`, and the driver ends |

It imports nothing but the standard library. The driver of Iceberg Java has the same in Java.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Protocol, TypedDict

MOST: Final = 100_000
"""Numbers of files or appends that each writer of a table has for itself."""


class Place(TypedDict):
    """A table's place. `creates`: this driver makes the table, else it is there."""

    endpoint: str
    """Of the store, or empty if `warehouse` is a folder."""
    access_key: str
    secret_key: str
    bucket: str
    warehouse: str
    """`s3://bucket/prefix`, or a folder."""
    folder: str
    """A folder for catalogs and logs."""
    table: str
    creates: bool
    options: dict[str, str]


class Peer(Protocol):
    """One writer of one table of one format."""

    version: str

    def open(self, place: Place) -> None:
        """Create or load the table of files with statistics, or the table of rows if its name begins with `rows`."""
        ...

    def prepare(self, numbers: range) -> None:
        """Store what a commit of these files needs to find."""
        ...

    def commit(self, numbers: range) -> None:
        """Commit the files, in one commit."""
        ...

    def plan(self, between: tuple[int, int] | None) -> int:
        """Plan a scan with nothing kept from before, and return the number of its files."""
        ...

    def append(self, number: int, rows: int) -> None:
        """Append `rows` rows of data, whose ids begin with `number`, in one commit."""
        ...

    def upkeep(self) -> None:
        """Do what is due after some hundred commits, as the peer's manual says."""
        ...

    def close(self) -> None:
        """Release everything."""
        ...


def serve(peer: Peer) -> None:
    """Answer requests until `close`, or until nobody asks any more."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        request: dict[str, Any] = json.loads(line)
        [kind] = request.keys() & _ANSWERS.keys()
        try:
            answer = _ANSWERS[kind](peer, request)
        except Exception as error:
            traceback.print_exc()
            answer = {"error": _reason(error)}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
        if kind == "close":
            return
    peer.close()


def _open(peer: Peer, request: dict[str, Any]) -> dict[str, Any]:
    peer.open(request["open"])
    return {"version": peer.version}


def _prepare(peer: Peer, request: dict[str, Any]) -> dict[str, Any]:
    first, count = request["prepare"]
    peer.prepare(range(first, first + count))
    return {}


def _commit(peer: Peer, request: dict[str, Any]) -> dict[str, Any]:
    first, count = request["commit"]
    each = request["each"]
    timed = _Timed()
    for start in range(first, first + count, each):
        timed.take(lambda start=start: peer.commit(range(start, start + each)))
    return timed.answer()


def _loop(peer: Peer, request: dict[str, Any]) -> dict[str, Any]:
    rows, threads = request.get("rows", 0), request.get("threads", 1)
    timed, landed = _Timed(), []
    began = time.perf_counter()

    def once(number: int) -> None:
        if not rows:
            timed.take(lambda: peer.commit(range(number, number + 1)))
        elif timed.take(lambda: peer.append(number * rows, rows)):
            landed.append(number)

    def loop(first: int) -> None:
        number = first
        while time.perf_counter() - began < request["seconds"] and number < first + request["most"]:
            once(number)
            number += 1

    if threads == 1:  # some libraries may be used by the thread that opened them only
        loop(request["loop"])
    else:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(loop, range(request["loop"], request["loop"] + threads * MOST, MOST)))
    return timed.answer() | {"landed": landed, "elapsed": time.perf_counter() - began}


def _plan(peer: Peer, request: dict[str, Any]) -> dict[str, Any]:
    between = None if request["plan"] is None else tuple(request["plan"])
    began = time.perf_counter()
    files = peer.plan(between)
    return {"seconds": time.perf_counter() - began, "files": files}


def _append(peer: Peer, request: dict[str, Any]) -> dict[str, Any]:
    first, count = request["append"]
    rows, timed = request["rows"], _Timed()
    for number in range(first, first + count):
        timed.take(lambda number=number: peer.append(number * rows, rows))
    return timed.answer()


def _upkeep(peer: Peer, request: dict[str, Any]) -> dict[str, Any]:
    began = time.perf_counter()
    peer.upkeep()
    return {"seconds": time.perf_counter() - began}


def _close(peer: Peer, request: dict[str, Any]) -> dict[str, Any]:
    peer.close()
    return {}


_ANSWERS: dict[str, Callable[[Peer, dict[str, Any]], dict[str, Any]]] = {
    "open": _open,
    "prepare": _prepare,
    "commit": _commit,
    "loop": _loop,
    "plan": _plan,
    "append": _append,
    "upkeep": _upkeep,
    "close": _close,
}


class _Timed:
    """Seconds of what succeeded, and seconds and reasons of what did not."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.failed: list[tuple[float, str]] = []

    def take(self, work: Callable[[], None]) -> bool:
        """Whether the work succeeded."""
        began = time.perf_counter()
        try:
            work()
        except Exception as error:
            self.failed.append((time.perf_counter() - began, _reason(error)))
            return False
        self.seconds.append(time.perf_counter() - began)
        return True

    def answer(self) -> dict[str, Any]:
        return {"seconds": self.seconds, "failed": self.failed}


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:300]
