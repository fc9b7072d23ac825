"""A log line for each verdict, and one line that counts the rest when there are too many.

Owns: what a line says, at which level, and how many there are in a second. Does not own: when a verdict has been told
(`verdict_outbox`, `rejection_outbox`), the metrics.
Invariants: every verdict is in exactly one line, its own or a count; rejections have lines of their own to spend, so
that a flood of commits hides none; a line that counts comes within a second, although nothing follows.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

import structlog

from rootline.schemas.verdict import Verdict, VerdictKind

_WINDOW_S: Final = 1.0


@dataclass(slots=True)
class VerdictLines:
    """At most `per_s_max` lines a second for rejections, and as many for the other verdicts."""

    per_s_max: int
    _rejected: int = 0
    _others: int = 0
    _rest: Counter[str] = field(default_factory=Counter)
    _window: asyncio.TimerHandle | None = None

    def told(self, verdicts: Sequence[Verdict], is_told_again: bool) -> None:
        """The log has acknowledged these."""
        if not verdicts:
            return
        if self._window is None:
            self._window = asyncio.get_running_loop().call_later(_WINDOW_S, self.close)
        rejected = [verdict for verdict in verdicts if verdict.kind is VerdictKind.REJECTED]
        others = verdicts if not rejected else [item for item in verdicts if item.kind is not VerdictKind.REJECTED]
        self._rejected += self._write(rejected, self.per_s_max - self._rejected, is_told_again)
        self._others += self._write(others, self.per_s_max - self._others, is_told_again)

    def close(self) -> None:
        """Count what had no line of its own, and begin again."""
        if self._window is not None:
            self._window.cancel()
        self._window, self._rejected, self._others = None, 0, 0
        if self._rest:
            counts, self._rest = dict(sorted(self._rest.items())), Counter()
            log = structlog.get_logger()
            write = log.warning if any(name.startswith(VerdictKind.REJECTED) for name in counts) else log.info
            write("verdicts without a line of their own", action="verdicts", counts=counts)

    def _write(self, verdicts: Sequence[Verdict], room: int, is_told_again: bool) -> int:
        """How many lines were written."""
        count = min(room, len(verdicts))
        for verdict in verdicts[:count]:
            _write_one(verdict, is_told_again)
        if count < len(verdicts):
            self._rest.update([_summed_as(verdict, is_told_again) for verdict in islice(verdicts, count, None)])
        return count


def _write_one(verdict: Verdict, is_told_again: bool) -> None:
    log = structlog.get_logger()
    write = log.warning if verdict.kind is VerdictKind.REJECTED else log.info
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
        told_again=is_told_again,
    )


def _summed_as(verdict: Verdict, is_told_again: bool) -> str:
    words = [verdict.kind.value, *([verdict.code] if verdict.code else []), *(["told again"] if is_told_again else [])]
    return " ".join(words)
