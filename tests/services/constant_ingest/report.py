"""What a run has shown: figures of both lakes, and the judgements.

Owns: counting, what is judged of upkeep, the text. Does not own: what scans are judged by (`row_history`).
Invariants: no time is judged, only told beside that of the other lake in the same run.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tests.services.constant_ingest.side import Sample, Side

LONG_S: Final = 300.0
"""From this length on a run must show all of upkeep, and that what is stored does not grow for ever."""
_GROWTH_MAX: Final = 1.5
_STALE: Final = ("stale", "rejected", "unknown", "failed")


@dataclass(frozen=True)
class Upkeep:
    """By the worker's log: intents committed and what they did; objects and bytes removed; plans that came too late."""

    committed: Counter[str]
    entries: Counter[str]
    removed: Counter[str]
    removed_bytes: Counter[str]
    not_committed: Counter[str]


def upkeep_of(lines: Iterable[Mapping[str, Any]]) -> Upkeep:
    """What a worker logged."""
    found = Upkeep(Counter(), Counter(), Counter(), Counter(), Counter())
    for line in lines:
        action = str(line.get("action", ""))
        label, _, what = action.rpartition("-")
        if what == "committed":
            found.committed[label] += 1
            found.entries[label] += line.get("entries") or 0
        elif what == "removed":
            found.removed[f"{label} {line['kind']}"] += line["objects"]
            found.removed_bytes[f"{label} {line['kind']}"] += line["bytes"]
        elif what in _STALE:
            found.not_committed[f"{label} {what} {line.get('code') or ''}".strip()] += 1
    return found


def wanted_upkeep(seconds: float) -> tuple[str, ...]:
    """What a run of this length must show."""
    return ("expiry", "conversion", "data-compaction", *(("sweep",) if seconds >= LONG_S else ()))


@dataclass
class Report:
    """`sides`: with upkeep, and without."""

    seconds: float
    sides: list[Side]
    has_leaps: bool = True
    """So the horizon has passed what was uploaded before them."""
    late: Counter[str] = field(default_factory=Counter)
    again: Counter[str] = field(default_factory=Counter)
    orphans: tuple[int, int, int] = (0, 0, 0)
    """Files of writers that crashed: all, those older than the horizon, and of these the ones that are still stored."""
    failures: list[str] = field(default_factory=list)

    def hold(self, is_right: bool, otherwise: str) -> None:
        """A judgement."""
        if not is_right:
            self.failures.append(otherwise)

    def judge_upkeep(self) -> None:
        """All kinds of upkeep came through, and what is stored is bounded; of a short run, only that some did."""
        side = self.sides[0]
        upkeep = upkeep_of(side.lines("worker"))
        if self.seconds >= LONG_S:
            removed = Counter(name.split()[0] for name in upkeep.removed.elements())
            self.hold(removed["expiry"] > 0, "no expired root was removed")
            self.hold(removed["sweep"] > 0, "nothing that was swept was deleted")
            if self.has_leaps:
                self.hold(self.late.total() > 0, "no intent was late: the horizon has not moved past any upload")
                _, late, left = self.orphans
                self.hold(left < late, f"{left} of {late} uploads that are older than the horizon are still stored")
            before_leaps, at_the_end = (0.15 * self.seconds, 0.45 * self.seconds), (0.8 * self.seconds, math.inf)
            (earlier, lived), (later, lives) = _peak(side.samples, *before_leaps), _peak(side.samples, *at_the_end)
            self.hold(
                later <= _GROWTH_MAX * earlier * max(1.0, lives / lived),
                f"stored bytes grew from {earlier:,} at most in the first half to {later:,} at most at the end, "
                f"and live ones from {lived:,} to {lives:,}",
            )
        for label in wanted_upkeep(self.seconds):
            self.hold(upkeep.committed[label] > 0, f"no {label} was committed")
        for one in self.sides:
            self.hold(one.writers.history.judged > 0, f"{one.name}: no scan was judged")

    def text(self) -> Iterator[str]:
        """Line by line."""
        yield f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; {self.seconds:.0f} s"
        for side in self.sides:
            yield from _of_side(side)
        mine, bare = (sorted(wait for _, wait in side.writers.told.waits_s) for side in self.sides)
        yield (
            "publish to verdict, with upkeep / without: "
            + ", ".join(f"{name} {_at(mine, q) / _at(bare, q):.2f}" for name, q in (("p50", 0.5), ("p99", 0.99)))
        )
        every, late, left = self.orphans
        yield f"uploads never published: {every}, older than the horizon {late}, of these still stored {left}"
        yield f"published after the horizon: {dict(self.late)}; committed ones again: {dict(self.again)}"
        for failure in self.failures:
            yield f"FAILED: {failure}"


def _of_side(side: Side) -> Iterator[str]:
    told, history, read = side.writers.told, side.writers.history, side.readers.read
    waits = sorted(wait for _, wait in told.waits_s)
    planned = sorted(told.planned_s)
    last = side.samples[-1]
    yield f"== {side.name}: {last.version} commits, {sum(told.verdicts.values())} intents"
    yield "   verdicts: " + ", ".join(f"{name} {count}" for name, count in sorted(told.verdicts.items()))
    said = [line for line in side.lines("coordinator") if line.get("action") == "verdict"]
    refused = Counter(str(line["code"]) for line in said if line["verdict"] == "rejected")
    yield f"   rejected by the coordinator, plans that are made again included: {dict(refused)}"
    yield f"   publish to verdict: p50 {1e3 * _at(waits, 0.5):.0f} ms, p99 {1e3 * _at(waits, 0.99):.0f} ms"
    yield f"   deletes by vectors, with their planning: p50 {1e3 * _at(planned, 0.5):.0f} ms"
    yield (
        f"   scans judged {history.judged} with {history.rows_judged} rows, wrong {len(history.wrong)}: newest "
        f"{read.newest}, older {read.older}, slow {read.slow} of which {read.outlived} outlived their version; "
        f"expired before they began {read.unknown}"
    )
    for sample in side.samples[:: max(1, len(side.samples) // 12)]:
        yield (
            f"   at {sample.at_s:5.0f} s: live {sample.live_bytes / 1e6:7.2f} MB in {sample.rows} rows, stored "
            f"{sample.stored_bytes / 1e6:8.2f} MB "
            + str({name: f"{size / 1e6:.2f}" for name, size in sample.stored.items()})
        )
    upkeep = upkeep_of(side.lines("worker"))
    yield f"   committed by the worker: {dict(upkeep.committed)}; entries {dict(upkeep.entries)}"
    yield f"   removed: {dict(upkeep.removed)}; bytes {dict(upkeep.removed_bytes)}"
    yield f"   came too late or was refused: {dict(upkeep.not_committed)}"


def _at(ascending: list[float], quantile: float) -> float:
    return ascending[min(len(ascending) - 1, int(quantile * len(ascending)))] if ascending else float("nan")


def _peak(samples: list[Sample], first_s: float, last_s: float) -> tuple[int, int]:
    """Between two moments of the run: the most bytes stored, and the most that lived."""
    some = [one for one in samples if first_s <= one.at_s <= last_s] or samples
    return max(one.stored_bytes for one in some), max(1, *(one.live_bytes for one in some))
