"""A log line for each verdict and each commit, and one line that counts the rest when there are too many.

Owns: what a line says, at which level, and how many there are in a second. Does not own: when a verdict has been told
(`verdict_outbox`, `rejection_outbox`), the metrics.
Invariants: every verdict and every commit is in exactly one line, its own or a count; rejections have lines of their
own to spend, so that a flood of commits hides none; a line that counts comes within a second, although nothing follows.
"""

from __future__ import annotations

import asyncio
from collections import Counter as Counts
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Final

import structlog

from rootline.coordinator.protocol.effects import Report
from rootline.schemas.bytes.record_headers import TraceContext
from rootline.schemas.identifiers import TableName
from rootline.schemas.verdict import Verdict, VerdictKind

_WINDOW_S: Final = 1.0
VerdictCounts = Mapping[tuple[VerdictKind, str], int]
"""(kind, code, or an empty one) → how many."""


@dataclass(slots=True)
class VerdictLines:
    """At most `per_s_max` lines a second for rejections, and as many for the other verdicts; `commits_per_s_max`.

    They are at `info`: a rejection is its writer's affair. Those of records that are no intents are at `warning`,
    because perhaps no writer waits for them.
    """

    per_s_max: int
    commits_per_s_max: int
    _commits: int = 0
    _rejected: int = 0
    _others: int = 0
    _rest: Counts[tuple[VerdictKind, str, bool]] = field(default_factory=Counts)
    _rest_warns: bool = False
    _window: asyncio.TimerHandle | None = None

    def landed(self, table: TableName, report: Report) -> None:
        """A root is confirmed."""
        self._open()
        self._commits += 1
        if self._commits > self.commits_per_s_max:
            return
        traces = {"trace_ids": report.traces} if report.traces else {}
        what = {"table": table, "version": report.version, "intents": int(report.detail or 0)}
        structlog.get_logger().info("root committed", action="commit", seconds=report.elapsed_s, **what, **traces)

    def told(
        self,
        verdicts: Sequence[Verdict],
        counts: VerdictCounts,
        is_repeated: bool,
        *,
        of_intents: bool = True,
        traces: Sequence[TraceContext | None] = (),
    ) -> None:
        """The log has acknowledged these, so many of each; not `of_intents`: of records that are none.

        `traces`: of each, or none at all.
        """
        if not verdicts:
            return
        self._open()
        rest = Counts(counts)
        is_any_rejected = any(kind is VerdictKind.REJECTED for kind, _ in counts)
        if self._others < self.per_s_max or (is_any_rejected and self._rejected < self.per_s_max):
            for verdict, trace in zip_longest(verdicts, traces):
                if self._has_room_for(verdict):
                    _write_one(verdict, is_repeated, of_intents, trace)
                    rest[verdict.kind, verdict.code or ""] -= 1
        for (kind, code), count in rest.items():
            if count:
                self._rest[kind, code, is_repeated] += count
                self._rest_warns |= not of_intents

    def close(self) -> None:
        """Count what had no line of its own, and begin again."""
        if self._window is not None:
            self._window.cancel()
        left_out = self._commits - self.commits_per_s_max
        self._window, self._rejected, self._others, self._commits = None, 0, 0, 0
        if left_out > 0:
            structlog.get_logger().info("commits without a line of their own", action="commits", count=left_out)
        if self._rest:
            counts = {_in_words(*what): count for what, count in sorted(self._rest.items())}
            self._rest.clear()
            log = structlog.get_logger()
            write, self._rest_warns = log.warning if self._rest_warns else log.info, False
            write("verdicts without a line of their own", action="verdicts", counts=counts)

    def _open(self) -> None:
        if self._window is None:
            self._window = asyncio.get_running_loop().call_later(_WINDOW_S, self.close)

    def _has_room_for(self, verdict: Verdict) -> bool:
        """Whether it gets a line, which is counted."""
        if verdict.kind is VerdictKind.REJECTED:
            self._rejected += 1
            return self._rejected <= self.per_s_max
        self._others += 1
        return self._others <= self.per_s_max


def _write_one(verdict: Verdict, is_repeated: bool, of_intents: bool, trace: TraceContext | None) -> None:
    log = structlog.get_logger()
    of_trace = {} if trace is None else {"trace_id": trace.trace_id, "span_id": trace.span_id}
    write = log.info if of_intents else log.warning
    write(
        f"intent {verdict.kind.value}",
        action="verdict",
        verdict=verdict.kind.value,
        code=verdict.code,
        table=verdict.table,
        intent_id=verdict.intent_id,
        version=verdict.version,
        partition=verdict.partition,
        offset=verdict.offset,
        reason=verdict.message,
        told_again=is_repeated,
        **of_trace,
    )


def _in_words(kind: VerdictKind, code: str, is_repeated: bool) -> str:
    return " ".join([kind.value, *([code] if code else []), *(["told again"] if is_repeated else [])])
