"""One-row appends of several table formats in turn: `python -m benchmarks.one_row_appends --beside pyiceberg,ducklake`.

Owns: whose turn it is, what each holds, the table that is printed. Does not own: how each appends (`one_row_peers`).
Invariants: each has a process of its own, and only one of them appends at a time, a hundred rows in turn, so that the
machine's load is the same for all; who has used up its time stops, and is compared at the count that it came to. The
first one, Rootline, goes on to the end. An interrupt ends the turns, and what came of them is told.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

from benchmarks.measure import Spread, load_average
from benchmarks.one_row_peers import SUBJECTS, Subject, timed

TURN: Final = 100
_REST_S: Final = 10.0
_LOOK_EVERY: Final = 20
_COLUMNS: Final = (
    "",
    "appends",
    "s",
    "CPU s",
    "p50 of the first tenth, ms",
    "of the last, ms",
    "last ÷ first",
    "metadata at its peak, MB",
    "then, MB",
    f"{_REST_S:g} s later, MB",
    "everything then, MB",
    "objects then",
)


@dataclass(frozen=True, slots=True)
class Turn:
    """What came of some appends: seconds of each, CPU seconds of the process, bytes of metadata at most and now."""

    seconds: list[float]
    cpu_s: float
    peak: int
    metadata: int
    everything: int
    objects: int


@dataclass(slots=True)
class Course:
    """All turns of one subject."""

    name: str
    turns: list[Turn] = field(default_factory=list)
    at_rest: Turn | None = None
    reason: str = ""

    @property
    def count(self) -> int:
        """Appends so far."""
        return sum(len(turn.seconds) for turn in self.turns)

    @property
    def spent_s(self) -> float:
        """Time so far."""
        return sum(sum(turn.seconds) for turn in self.turns)

    def line(self, appends: int) -> str:
        """A row of the table, about the first `appends`."""
        turns = self.turns[: appends // TURN]
        seconds = [one for turn in turns for one in turn.seconds]
        tenth = max(1, len(seconds) // 10)
        first, last = Spread.of(seconds[:tenth]).median, Spread.of(seconds[-tenth:]).median
        rest = self.at_rest if appends == self.count else None
        cells = (
            self.name,
            f"{appends:,}",
            f"{sum(seconds):.0f}",
            f"{sum(turn.cpu_s for turn in turns):.0f}",
            f"{1e3 * first:.1f}",
            f"{1e3 * last:.1f}",
            f"{last / first:.2f}",
            f"{max(turn.peak for turn in turns) / 1e6:.1f}",
            f"{turns[-1].metadata / 1e6:.1f}",
            "–" if rest is None else f"{rest.metadata / 1e6:.1f}",
            f"{turns[-1].everything / 1e6:.1f}",
            f"{turns[-1].objects:,}",
        )
        return f"| {' | '.join(cells)} |"


def compare(names: Sequence[str], appends: int, minutes: float, keep: int) -> None:
    """Let them append in turn, and print what came of it."""
    courses = [Course(name) for name in names]
    with tempfile.TemporaryDirectory(prefix="rootline-bench-", dir=".", ignore_cleanup_errors=True) as folder:
        _take_turns(courses, Path(folder).resolve(), appends, minutes * 60, keep)
    print(f"load average {load_average()}; snapshots kept: {keep:,}")
    for course in courses:
        if course.reason:
            print(f"{course.name} stopped: {course.reason}")
    print(f"| {' | '.join(_COLUMNS)} |\n{'|---' * len(_COLUMNS)}|")
    for count in sorted({course.count for course in courses if course.count}):
        for course in courses:
            if course.count >= count:
                print(course.line(count))


def _take_turns(courses: list[Course], folder: Path, appends: int, budget_s: float, keep: int) -> None:
    spawn = multiprocessing.get_context("spawn")
    ways: dict[str, Connection] = {}
    processes = []
    for course in courses:
        place = folder / course.name
        place.mkdir()
        ways[course.name], there = spawn.Pipe()
        process = spawn.Process(target=_serve, args=(course.name, place, keep, there), daemon=True)
        process.start()
        there.close()
        processes.append(process)
    with contextlib.suppress(KeyboardInterrupt):
        _all_turns(courses, ways, appends, budget_s)
    time.sleep(_REST_S)
    for course in courses:
        if course.turns and not course.reason:
            course.at_rest = _asked(ways[course.name], range(0))
            ways[course.name].send(None)
    for process in processes:
        process.join(30)


def _all_turns(courses: list[Course], ways: dict[str, Connection], appends: int, budget_s: float) -> None:
    for first in range(0, appends, TURN):
        for course in courses:
            if course.reason or (course.spent_s >= budget_s and course is not courses[0]):
                continue
            try:
                course.turns.append(_asked(ways[course.name], range(first, min(first + TURN, appends))))
            except EOFError:
                course.reason = f"it failed after {course.count:,} appends"
        if first % 1_000 == 0:
            print(", ".join(f"{one.name} {one.count:,} in {one.spent_s:.0f} s" for one in courses), flush=True)


def _asked(way: Connection, numbers: range) -> Turn:
    way.send(numbers)
    while True:
        turn: Turn = way.recv()
        if len(turn.seconds) == len(numbers):  # the answer to a turn that was interrupted may come first
            return turn


def _serve(name: str, folder: Path, keep: int, way: Connection) -> None:
    """The process of one subject."""
    subject = SUBJECTS[name](folder, keep)
    while (numbers := way.recv()) is not None:
        seconds: list[float] = []
        peak, cpu_s = _metadata(subject, folder), 0.0
        for start in range(numbers.start, numbers.stop, _LOOK_EVERY):
            began_s = time.process_time()
            seconds += timed(subject, range(start, min(start + _LOOK_EVERY, numbers.stop)))
            cpu_s += time.process_time() - began_s
            peak = max(peak, _metadata(subject, folder))
        sizes = list(_sizes(folder))
        way.send(Turn(seconds, cpu_s, peak, _metadata(subject, folder), sum(sizes), len(sizes)))
    subject.close()


def _metadata(subject: Subject, folder: Path) -> int:
    """Bytes."""
    return sum(size for place in subject.metadata for size in _sizes(folder / place))


def _sizes(place: Path) -> Iterator[int]:
    """Of the files below a folder that others change meanwhile; or of one file."""
    if place.is_file():
        yield place.stat().st_size
    for parent, _, names in os.walk(place):
        for name in names:
            try:
                yield (Path(parent) / name).stat().st_size
            except FileNotFoundError:
                continue
