"""The writer ledger: the decisions on each writer's intents for a table.

Owns: how sequences are recorded and looked up. Does not own: the verdicts that follow (`apply`), bytes
(`rootline.schemas.parts.ledger`, `ledger_page`), which records move from the header to pages (`ledger_spill`).
Invariants: The ledger never reports an uncommitted sequence as committed. Runs ascend and do not overlap. A gap can be
filled at any time. When a writer has too many runs, the oldest neighbors without a gap between them become one run
without versions (`VERSION_FORGOTTEN`).

A writer's records, one in the header and at most one in each page, are parts of one record. A sequence is in at most
one part. The header's rejections are newer than those of any page, and a page's newer than those of older pages.

Source: protocol page, section 2, "The ledger".
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from heapq import merge
from itertools import pairwise
from typing import Final

from rootline.schemas.bytes.root.ledger_page import LedgerPage, record_in
from rootline.schemas.content_entry import quick
from rootline.schemas.identifiers import Version, WriterId
from rootline.schemas.intent import PROCESS_WRITER_PREFIX
from rootline.schemas.parts.ledger import CommittedRun, HeaderLedger, RejectedSequence, WriterRecord

VERSION_FORGOTTEN: Final = Version(-1)
RUNS_MAX: Final = 64
"""The most runs of a writer in the header, if neighbors without a gap can be joined."""
PAGE_RUNS_MAX: Final = 16
"""The most runs of a writer in a page. Versions of old commits are rarely needed, and large pages are rewritten."""
REJECTED_MAX: Final = 32


def committed_version(parts: Iterable[WriterRecord], sequence: int) -> Version | None:
    """The version that committed `sequence`, `VERSION_FORGOTTEN` if the version is no longer known, or `None`."""
    for record in parts:
        runs = record.committed
        if not runs or sequence > runs[-1].last:
            continue  # the common case: a sequence above all runs
        run = _run_of(record, sequence)
        if run is not None:
            return Version(run.version + (sequence - run.first) * run.stride)
    return None


def rejection_of(parts: Iterable[WriterRecord], intent_id: str) -> RejectedSequence | None:
    """The earlier rejection of the same intent, if it is among the newest `REJECTED_MAX` of all `parts`."""
    budget = REJECTED_MAX
    for record in parts:
        for rejected in record.rejected[-budget:]:
            if rejected.intent_id == intent_id:
                return rejected
        budget -= len(record.rejected)
        if budget <= 0:
            break
    return None


def with_committed(record: WriterRecord, sequence: int, version: Version) -> WriterRecord:
    """`record` after `version` committed `sequence` for the first time."""
    runs = record.committed
    if not runs or sequence > runs[-1].last:
        last = _extended(runs[-1], sequence, version) if runs else None
        new = (*runs, CommittedRun(sequence, sequence, version, 0)) if last is None else (*runs[:-1], last)
    else:
        new = _filled(runs, sequence, version)
    return _unchecked_record(_bounded(new, RUNS_MAX), record.rejected, record.last_seen_ms)


def with_rejected(record: WriterRecord, rejected: RejectedSequence) -> WriterRecord:
    """`record` after a rejection. It keeps the newest `REJECTED_MAX`. A copy of an older rejected intent is validated
    again.
    """
    return WriterRecord(record.committed, (*record.rejected, rejected)[-REJECTED_MAX:], record.last_seen_ms)


def _first(run: CommittedRun) -> int:
    return run.first


def _extended(run: CommittedRun, sequence: int, version: Version) -> CommittedRun | None:
    """`run` extended by `sequence`, or `None` if `sequence` does not continue the run."""
    first, last, began, stride = run
    if sequence != last + 1 or began == VERSION_FORGOTTEN:
        return None
    if first == last:
        stride = version - began
    if stride not in (0, 1) or version != began + (sequence - first) * stride:
        return None
    return CommittedRun(first, sequence, began, stride)


def _filled(runs: tuple[CommittedRun, ...], sequence: int, version: Version) -> tuple[CommittedRun, ...]:
    """`runs` with `sequence` added in a gap, or before the first run."""
    at = bisect_right(runs, sequence, key=_first)
    before = _extended(runs[at - 1], sequence, version) if at else None
    if before is not None:
        return (*runs[: at - 1], before, *runs[at:])
    return (*runs[:at], CommittedRun(sequence, sequence, version, 0), *runs[at:])


def _bounded(runs: tuple[CommittedRun, ...], runs_max: int) -> tuple[CommittedRun, ...]:
    """At most `runs_max` runs, if enough neighbors without a gap between them can be joined."""
    over = len(runs) - runs_max
    if over <= 0 or not any(older.last + 1 == newer.first for older, newer in pairwise(runs)):
        return runs
    bounded = [runs[0]]
    for run in runs[1:]:
        older = bounded[-1]
        if over > 0 and older.last + 1 == run.first:
            bounded[-1] = CommittedRun(older.first, run.last, VERSION_FORGOTTEN, 0)
            over -= 1
        else:
            bounded.append(run)
    return tuple(bounded)


def for_page(record: WriterRecord) -> WriterRecord:
    """The part of a record that a page stores when the record moves there."""
    return WriterRecord(_bounded(record.committed, PAGE_RUNS_MAX), record.rejected, record.last_seen_ms)


def united(older: WriterRecord, newer: WriterRecord) -> WriterRecord:
    """One record for a page from two parts of a writer's record. `older` moved to a page before `newer` began."""
    runs: list[CommittedRun] = []
    for run in merge(older.committed, newer.committed):
        joined = _joined(runs[-1], run) if runs else None
        if joined is None:
            runs.append(run)
        else:
            runs[-1] = joined
    return WriterRecord(
        _bounded(tuple(runs), PAGE_RUNS_MAX),
        (*older.rejected, *newer.rejected)[-REJECTED_MAX:],
        max(older.last_seen_ms, newer.last_seen_ms),
    )


def _joined(older: CommittedRun, newer: CommittedRun) -> CommittedRun | None:
    """One run for two neighbors, with all versions, or `None` if there is no such run."""
    if newer.first == newer.last:
        return _extended(older, newer.first, newer.version)
    if older.last + 1 != newer.first or VERSION_FORGOTTEN in (older.version, newer.version):
        return None
    if older.first != older.last and older.stride != newer.stride:
        return None
    if older.version + (newer.first - older.first) * newer.stride != newer.version:
        return None
    return CommittedRun(older.first, newer.last, older.version, newer.stride)


def lost_runs(old: Iterable[CommittedRun], kept: Sequence[WriterRecord]) -> list[CommittedRun]:
    """The runs of `old` that the `kept` parts of a record do not report as committed in the same versions."""
    known = {run for record in kept for run in record.committed}
    return [run for run in old if run not in known and not _is_kept(run, kept)]


def _is_kept(run: CommittedRun, kept: Sequence[WriterRecord]) -> bool:
    """Whether runs of `kept` cover `run`, with the same versions where these are known."""
    sequence = run.first
    while sequence <= run.last:
        found = next((each for record in kept if (each := _run_of(record, sequence)) is not None), None)
        if found is None:
            return False
        if VERSION_FORGOTTEN not in (found.version, run.version):
            for probe in (sequence, min(run.last, found.last)):
                then = run.version + (probe - run.first) * run.stride
                if found.version + (probe - found.first) * found.stride != then:
                    return False
        sequence = found.last + 1
    return True


def _run_of(record: WriterRecord, sequence: int) -> CommittedRun | None:
    at = bisect_right(record.committed, sequence, key=_first) - 1
    return record.committed[at] if at >= 0 and sequence <= record.committed[at].last else None


class LedgerDraft:
    """The ledger while a batch is applied: the parent's, in its header and pages, and the records that the batch
    changes.
    """

    def __init__(self, parent: Mapping[WriterId, WriterRecord], pages: Sequence[LedgerPage] = ()) -> None:
        self._parent = HeaderLedger.of(parent)
        self._pages = pages[::-1]  # the newest first
        self._touched: dict[WriterId, WriterRecord] = {}

    def record_of(self, writer: WriterId) -> WriterRecord:
        """The writer's record in the header, so far."""
        found = self._touched.get(writer)
        return found if found is not None else self._parent.records.get(writer, _NOBODY)

    def parts_of(self, writer: WriterId) -> tuple[WriterRecord, ...]:
        """All parts of a writer's record: the header's, so far, then those of pages, newest first."""
        record = self.record_of(writer)
        if not self._pages:
            return (record,)
        return (record, *[part for page in self._pages if (part := record_in(page, writer)) is not None])

    def put(self, writer: WriterId, record: WriterRecord) -> None:
        """Store a writer's record, which also updates the time at which the writer was last seen.

        Call it for a duplicate too, with an unchanged record.
        """
        self._touched[writer] = record

    def finished(self, now_ms: int, oldest_ms: int) -> HeaderLedger:
        """The next root's ledger before anything moves to pages. Changed records are stamped with `now_ms`.

        `process/` writers that were last seen before `oldest_ms` are omitted. Both are times of the log (ms).
        """
        idle: list[WriterId] = []
        for writer, record in self._parent.records.items():
            if record.last_seen_ms >= oldest_ms:
                break  # records are in the order of their last-seen times
            if writer.startswith(PROCESS_WRITER_PREFIX):
                idle.append(writer)
        if not idle and not self._touched:
            return self._parent
        touched = {
            writer: WriterRecord(record.committed, record.rejected, now_ms) for writer, record in self._touched.items()
        }
        return self._parent.advanced(touched, idle)


_NOBODY: Final = WriterRecord()
_unchecked_record: Final = quick(WriterRecord)
