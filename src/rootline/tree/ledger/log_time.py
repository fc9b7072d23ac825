"""The time by which writers are idle: the log's append times, as roots carry them.

Owns: how that time advances, what a jump of it counts for, since when a writer must have been seen to stay. Does not
own: what leaves the ledger then (`ledger`, `ledger_spill`), bytes (`header_codec`).
Invariants: time never goes back; no clock of a coordinator has a part in it; one step counts for a seventh of the
retention at most, however far the append times jumped, so no single jump makes an idle writer leave.

Theory. A writer is stamped with the newest append time that its root knew. Where append times went forward by more
than a step from one root to the next, the rest of the way is *skipped*: it is no idle time of writers seen before the
jump. A jump counts for one step of idle time and writers seen before it leave in time, so at most eight jumps are of
interest at once. A table that was quiet for a month has made a jump too: its writers stay longer, which does no harm.

Source: protocol page, sections 2 and 8; decision 0012.
"""

from __future__ import annotations

from typing import Final

from rootline.schemas.root_header import ClockJump, LogTime, RootHeader

_STEPS: Final = 7
"""Of a retention: with seven days of it, one step is a day."""
_APART_MS: Final = 24 * 3600 * 1000
"""How far clocks may differ before people are told."""


def log_time_of(parent: RootHeader | None) -> LogTime:
    """The time when a batch begins; a root that does not say it has seen its writers by then."""
    if parent is None:
        return LogTime(0)
    if parent.log_time is not None:
        return parent.log_time
    return LogTime(max([record.last_seen_ms for record in parent.ledger.values()], default=0))


def log_time_after(before: LogTime, appended_ms: int, retention_ms: int) -> LogTime:
    """The time after a batch whose newest record was appended at `appended_ms`; 0: the log does not say."""
    if appended_ms <= before.newest_ms:
        return before
    skipped_ms = appended_ms - before.newest_ms - retention_ms // _STEPS
    jumps = before.jumps
    if before.newest_ms and skipped_ms > 0:
        jumps = (*jumps, ClockJump(before.newest_ms, skipped_ms))
    if not jumps:
        return LogTime(appended_ms)
    return LogTime(appended_ms, _of_interest(appended_ms - retention_ms, jumps)[1])


def oldest_seen_ms(time: LogTime, retention_ms: int) -> int:
    """Writers that were last seen before this are idle for longer than the retention."""
    return _of_interest(time.newest_ms - retention_ms, time.jumps)[0]


def counted_ms(time: LogTime | None) -> int:
    """The newest time without what was skipped: a clock that jumped ahead counts for a step, and so does a quiet month.

    What must never be ahead of the log goes by this.
    """
    return 0 if time is None else time.newest_ms - sum(jump.skipped_ms for jump in time.jumps)


def clocks_apart(before: RootHeader, after: RootHeader) -> str | None:
    """What to tell people when, from one root to the next, the log's and the coordinators' clocks went a day apart."""
    if before.log_time is None or after.log_time is None or not before.log_time.newest_ms:
        return None
    of_log_ms = after.log_time.newest_ms - before.log_time.newest_ms
    of_host_ms = after.snapshot.timestamp_ms - before.snapshot.timestamp_ms
    if abs(of_log_ms - of_host_ms) <= _APART_MS:
        return None
    return (
        f"the log's append times went on by {of_log_ms / 1000:.0f} s, the coordinator's wall clock by "
        f"{of_host_ms / 1000:.0f} s: compare the clocks of brokers and coordinators; no writer is forgotten for it"
    )


def _of_interest(oldest_ms: int, jumps: tuple[ClockJump, ...]) -> tuple[int, tuple[ClockJump, ...]]:
    """(the time of the oldest writers to stay, the jumps that some of them were seen before)."""
    for index in range(len(jumps) - 1, -1, -1):
        at_ms, skipped_ms = jumps[index]
        if oldest_ms - skipped_ms > at_ms:
            return oldest_ms, jumps[index + 1 :]
        oldest_ms -= skipped_ms
    return oldest_ms, jumps
