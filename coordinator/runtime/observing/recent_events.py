"""What a coordinator did lately, for people who look: commits, verdicts, rejections, and how lag went.

Owns: the rings and their bounds, numbers that tell a reader what is new. Does not own: what is observed (`app`),
metrics and log lines of the same, how it is shown (`rootline.coordinator.http`).
Invariants: memory is bounded whatever comes, in entries and in characters; noting costs the caller a few appends and
never waits; a flood of commits pushes no rejection out.
"""

from __future__ import annotations

from collections import Counter as Counts
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from typing import Final

from rootline.coordinator.protocol.effects import Report
from rootline.coordinator.runtime.observing.verdict_lines import VerdictCounts
from rootline.schemas.identifiers import TableName
from rootline.schemas.verdict import Verdict, VerdictKind

EVENTS_MAX: Final = 300
REJECTIONS_MAX: Final = 200
REJECTIONS_AT_ONCE_MAX: Final = 20
"""Of what is told at once; the rest is only counted."""
SAMPLES_MAX: Final = 720
_CODES_MAX: Final = 500
_NAME_CHARS_MAX: Final = 300
_REASON_CHARS_MAX: Final = 1_000


class EventKind(StrEnum):
    """What an event is about."""

    COMMIT = "commit"
    VERDICTS = "verdicts"
    REJECTION = "rejection"


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened. `number`: ascending in this process; `at_ms`: since the epoch.

    `intents`: of a commit or of verdicts; `seconds`: from the PUT of a commit until it was confirmed; `counts`:
    verdicts of each kind; `code`, `reason`, `intent_id`, `where` (log, partition, offset): of a rejection.
    """

    number: int
    at_ms: int
    kind: EventKind
    table: str
    version: int | None = None
    intents: int = 0
    seconds: float | None = None
    counts: tuple[tuple[str, int], ...] = ()
    told_again: bool = False
    code: str = ""
    reason: str = ""
    intent_id: str = ""
    where: tuple[str, int, int] | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """Lag at a moment: records on the log not handed to their tables (`None`: the log did not say), seconds that the
    oldest undecided intent waits, and how much was decided since the process began.
    """

    at_ms: int
    lag: int | None
    oldest_s: float
    commits: int
    verdicts: int
    rejections: int


@dataclass(frozen=True, slots=True)
class CodeCount:
    """How often a code was the reason of a rejection, and when it was last."""

    code: str
    count: int
    last_ms: int


@dataclass(slots=True)
class RecentEvents:
    """For one process."""

    commits: int = 0
    verdicts: int = 0
    rejections: int = 0
    _number: int = 0
    _events: deque[Event] = field(default_factory=lambda: deque(maxlen=EVENTS_MAX))
    _rejected: deque[Event] = field(default_factory=lambda: deque(maxlen=REJECTIONS_MAX))
    _samples: deque[Sample] = field(default_factory=lambda: deque(maxlen=SAMPLES_MAX))
    _codes: dict[str, CodeCount] = field(default_factory=dict)

    @property
    def number(self) -> int:
        """Of the newest event; 0: there was none."""
        return self._number

    def landed(self, table: TableName, report: Report, at_ms: int) -> None:
        """A root is confirmed."""
        self.commits += 1
        self._number += 1
        intents = int(report.detail or 0)
        self._events.append(
            Event(self._number, at_ms, EventKind.COMMIT, table, report.version, intents, report.elapsed_s)
        )

    def told(self, verdicts: Sequence[Verdict], counts: VerdictCounts, told_again: bool, at_ms: int) -> None:
        """The log has acknowledged these, so many of each; they are of one table, or of records of none."""
        if not verdicts:
            return
        self.verdicts += len(verdicts)
        self._number += 1
        kinds: Counts[str] = Counts()
        for (kind, code), count in counts.items():
            kinds[kind.value] += count
            if kind is VerdictKind.REJECTED and not told_again:
                self.rejections += count
                self._count(code, count, at_ms)
        first = verdicts[0]
        self._events.append(
            Event(
                self._number,
                at_ms,
                EventKind.VERDICTS,
                first.table[:_NAME_CHARS_MAX],
                first.version,
                len(verdicts),
                counts=tuple(sorted(kinds.items())),
                told_again=told_again,
            )
        )
        if kinds[VerdictKind.REJECTED.value]:
            rejected = (verdict for verdict in verdicts if verdict.kind is VerdictKind.REJECTED)
            for verdict in islice(rejected, REJECTIONS_AT_ONCE_MAX):
                self._reject(verdict, told_again, at_ms)

    def sample(self, at_ms: int, lag: int | None, oldest_s: float) -> None:
        """Note how things are now."""
        self._samples.append(Sample(at_ms, lag, oldest_s, self.commits, self.verdicts, self.rejections))

    def events_after(self, number: int) -> list[Event]:
        """What is kept of what came after the event with that number, ascending."""
        found = [event for ring in (self._events, self._rejected) for event in ring if event.number > number]
        return sorted(found, key=lambda event: event.number)

    def rejections_of(self, table: str) -> list[Event]:
        """What is kept of a table's rejections, the newest first."""
        return [event for event in reversed(self._rejected) if event.table == table]

    def samples_after(self, at_ms: int) -> list[Sample]:
        """What is kept of later samples, in their order."""
        return [sample for sample in self._samples if sample.at_ms > at_ms]

    def codes(self) -> list[CodeCount]:
        """How often each code was the reason, the newest first."""
        return sorted(self._codes.values(), key=lambda found: (-found.last_ms, found.code))

    def _count(self, code: str, count: int, at_ms: int) -> None:
        known = self._codes.get(code)
        if known is None and len(self._codes) >= _CODES_MAX:
            return
        self._codes[code] = CodeCount(code, count + (0 if known is None else known.count), at_ms)

    def _reject(self, verdict: Verdict, told_again: bool, at_ms: int) -> None:
        self._number += 1
        self._rejected.append(
            Event(
                self._number,
                at_ms,
                EventKind.REJECTION,
                verdict.table[:_NAME_CHARS_MAX],
                told_again=told_again,
                code=(verdict.code or "")[:_NAME_CHARS_MAX],
                reason=(verdict.message or "")[:_REASON_CHARS_MAX],
                intent_id=verdict.intent_id[:_NAME_CHARS_MAX],
                where=(verdict.log[:_NAME_CHARS_MAX], verdict.partition, verdict.offset),
            )
        )
