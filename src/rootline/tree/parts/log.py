"""The part `log`: offsets, marks, and the log's append time as recorded by roots, which decides which writers are idle.

Owns: how offsets and that time advance, how much of a jump counts, and the oldest last-seen time of a writer that
stays. Does not own: which writers are dropped (`ledger`), bytes (`rootline.schemas.parts.log`).
Invariants: Offsets and time never decrease. No coordinator's clock is used. One step counts as at most a seventh of the
retention, however far the append times jumped, so no single jump drops an idle writer.

Theory. A writer is stamped with the newest append time that its root knew. Where append times advanced by more than one
step from one root to the next, the rest of the jump is *skipped*: it is not idle time for writers seen before the jump.
Each jump still counts as one step, so these writers are dropped eventually, and at most eight jumps must be recorded. A
table without commits for a month has such a jump too. Its writers stay longer, which is harmless.

Source: protocol page, sections 2 and 8. Decision 0012.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from rootline.schemas.identifiers import LogId, LogPosition
from rootline.schemas.parts.log import ClockJump, LogProgress, LogTime, PartitionOffset
from rootline.schemas.root_header import RootHeader
from rootline.tree.parts.part_rules import Advance, PartRules

_STEPS: Final = 7
"""Steps in a retention: with seven days of retention, one step is a day."""
_APART_MS: Final = 24 * 3600 * 1000
"""The difference between clocks from which a warning is logged."""


DecidedRecords = tuple[Sequence[LogPosition], Mapping[tuple[LogId, int], bytes]]
"""The positions of a batch's records, and the mark of the last one of each partition."""


def _advance(records: DecidedRecords, step: Advance) -> LogProgress:
    positions, marks = records
    before = LogProgress() if step.before is None else step.before.log
    time = log_time_after(log_time_of(step.before), step.appended_ms, step.retention_ms)
    offsets = advanced(before.offsets, positions)
    found = [marks.get((log, partition)) or before.mark_at(log, partition) for log, partition, _ in offsets]
    return LogProgress(offsets, time, tuple(found))


def advanced(offsets: Sequence[PartitionOffset], positions: Sequence[LogPosition]) -> tuple[PartitionOffset, ...]:
    """`offsets` after the records at `positions`, in order of log and partition. No offset decreases."""
    nexts = {(offset.log, offset.partition): offset.next_offset for offset in offsets}
    for log, partition, offset in positions:
        if offset >= nexts.get((log, partition), 0):
            nexts[log, partition] = offset + 1
    return tuple(PartitionOffset(log, partition, offset) for (log, partition), offset in sorted(nexts.items()))


def log_time_of(parent: RootHeader | None) -> LogTime:
    """The log time that the parent records, or for a root without it the newest last-seen time of its writers."""
    if parent is None:
        return LogTime(0)
    if parent.log.time is not None:
        return parent.log.time
    return LogTime(max([record.last_seen_ms for record in parent.ledger.writers.values()], default=0))


def log_time_after(before: LogTime, appended_ms: int, retention_ms: int) -> LogTime:
    """The time after a batch whose newest record was appended at `appended_ms` (0: the log has no append times)."""
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
    """The oldest last-seen time within the retention. Writers last seen before it are idle."""
    return _of_interest(time.newest_ms - retention_ms, time.jumps)[0]


def counted_ms(time: LogTime | None) -> int:
    """The newest append time without skipped time: a clock that jumped ahead, or a quiet month, counts as one step.

    Use it for times that must never be ahead of the log.
    """
    return 0 if time is None else time.newest_ms - sum(jump.skipped_ms for jump in time.jumps)


def clocks_apart(before: RootHeader, after: RootHeader) -> str | None:
    """A warning if, from one root to the next, the clocks of log and coordinator advanced by a day more or less."""
    if before.log.time is None or after.log.time is None or not before.log.time.newest_ms:
        return None
    of_log_ms = after.log.time.newest_ms - before.log.time.newest_ms
    of_host_ms = after.snapshot.timestamp_ms - before.snapshot.timestamp_ms
    if abs(of_log_ms - of_host_ms) <= _APART_MS:
        return None
    return (
        f"the log's append times advanced by {of_log_ms / 1000:.0f} s, the coordinator's wall clock by "
        f"{of_host_ms / 1000:.0f} s: compare the clocks of brokers and coordinators; no writer is dropped because of it"
    )


def _of_interest(oldest_ms: int, jumps: tuple[ClockJump, ...]) -> tuple[int, tuple[ClockJump, ...]]:
    """(the oldest last-seen time of writers to keep, the jumps after which some of them were not seen)."""
    for index in range(len(jumps) - 1, -1, -1):
        at_ms, skipped_ms = jumps[index]
        if oldest_ms - skipped_ms > at_ms:
            return oldest_ms, jumps[index + 1 :]
        oldest_ms -= skipped_ms
    return oldest_ms, jumps


def _own_rule(before: RootHeader, after: RootHeader) -> Iterator[str]:
    was, now = before.log, after.log
    if was.time and (now.time is None or now.time.newest_ms < was.time.newest_ms):
        yield f"the log's time decreased from {was.time} to {now.time}"
    nexts = {(offset.log, offset.partition): offset.next_offset for offset in now.offsets}
    for log, partition, offset in was.offsets:
        if nexts.get((log, partition), -1) < offset:
            yield f"the offset of partition {partition} of {log} decreased from {offset}"


LOG: Final = PartRules("log", own_rule=_own_rule, advance=_advance)
