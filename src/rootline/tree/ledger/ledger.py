"""The writer ledger: what each writer has had decided on a table.

Owns: how sequences are recorded and looked up. Does not own: what follows from it (`apply`), bytes (`header_ledger`,
`ledger_page`), what moves from the header to pages (`ledger_spill`).
Invariants: no sequence is ever called committed that was not; runs ascend and do not overlap; a gap can be filled at
any time. Where the runs of a writer grow too many, the oldest neighbours become one run that no longer knows its
commits (`VERSION_FORGOTTEN`), never one that swallows a gap.

A writer's records, one in the header and perhaps one in each page, are parts of one: a sequence is in one of them at
most, and the header's rejections are younger than those of any page, a page's younger than those of an older page.

Source: protocol page, section 2, "The ledger".
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from heapq import merge
from itertools import pairwise
from typing import Final

from rootline.schemas.bytes.root.header_ledger import HeaderLedger
from rootline.schemas.bytes.root.ledger_page import LedgerPage
from rootline.schemas.content_entry import quick
from rootline.schemas.identifiers import Version, WriterId
from rootline.schemas.intent import PROCESS_WRITER_PREFIX
from rootline.schemas.root_header import CommittedRun, RejectedSequence, WriterRecord

VERSION_FORGOTTEN: Final = Version(-1)
RUNS_MAX: Final = 64
"""Of a writer in the header, as far as runs touch."""
PAGE_RUNS_MAX: Final = 16
"""Of a writer in a page: commits of long ago seldom need their version, and pages of many writers are rewritten."""
REJECTED_MAX: Final = 32


def committed_version(parts: Iterable[WriterRecord], sequence: int) -> Version | None:
    """The version that committed `sequence`; `VERSION_FORGOTTEN`: committed, but in which is not known any more."""
    for record in parts:
        runs = record.committed
        if not runs or sequence > runs[-1].last:
            continue  # what comes next is new to most records
        run = _run_of(record, sequence)
        if run is not None:
            return Version(run.version + (sequence - run.first) * run.stride)
    return None


def rejection_of(parts: Iterable[WriterRecord], intent_id: str) -> RejectedSequence | None:
    """The rejection that the same intent got before, if it is one of the newest `REJECTED_MAX` of all `parts`."""
    left = REJECTED_MAX
    for record in parts:
        for rejected in record.rejected[-left:]:
            if rejected.intent_id == intent_id:
                return rejected
        left -= len(record.rejected)
        if left <= 0:
            break
    return None


def with_committed(record: WriterRecord, sequence: int, version: Version) -> WriterRecord:
    """`record` after `sequence`, which was not committed before, was committed in `version`."""
    runs = record.committed
    if not runs or sequence > runs[-1].last:
        last = _extended(runs[-1], sequence, version) if runs else None
        new = (*runs, CommittedRun(sequence, sequence, version, 0)) if last is None else (*runs[:-1], last)
    else:
        new = _filled(runs, sequence, version)
    return _unchecked_record(_bounded(new, RUNS_MAX), record.rejected, record.last_seen_ms)


def with_rejected(record: WriterRecord, rejected: RejectedSequence) -> WriterRecord:
    """`record` after a rejection; the newest `REJECTED_MAX` are kept, what is forgotten is validated afresh."""
    return WriterRecord(record.committed, (*record.rejected, rejected)[-REJECTED_MAX:], record.last_seen_ms)


def _first(run: CommittedRun) -> int:
    return run.first


def _extended(run: CommittedRun, sequence: int, version: Version) -> CommittedRun | None:
    """`run` and the sequence after it as one run, if they make one."""
    first, last, began, stride = run
    if sequence != last + 1 or began == VERSION_FORGOTTEN:
        return None
    if first == last:
        stride = version - began
    if stride not in (0, 1) or version != began + (sequence - first) * stride:
        return None
    return CommittedRun(first, sequence, began, stride)


def _filled(runs: tuple[CommittedRun, ...], sequence: int, version: Version) -> tuple[CommittedRun, ...]:
    """`runs` with a gap filled (the one before the first run included)."""
    at = bisect_right(runs, sequence, key=_first)
    before = _extended(runs[at - 1], sequence, version) if at else None
    if before is not None:
        return (*runs[: at - 1], before, *runs[at:])
    return (*runs[:at], CommittedRun(sequence, sequence, version, 0), *runs[at:])


def _bounded(runs: tuple[CommittedRun, ...], runs_max: int) -> tuple[CommittedRun, ...]:
    """At most `runs_max` runs, as far as neighbours without a gap between them allow."""
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
    """What a page keeps of a record that moves there."""
    return WriterRecord(_bounded(record.committed, PAGE_RUNS_MAX), record.rejected, record.last_seen_ms)


def united(older: WriterRecord, newer: WriterRecord) -> WriterRecord:
    """Two parts of one writer's record as one of a page; `older` was put aside before `newer` began."""
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
    """Two runs without a gap between them as one that still knows every commit, if they make one."""
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
    """Those of `old`, ascending, that the `kept` parts of a record do not call committed in the same versions."""
    known = {run for record in kept for run in record.committed}
    return [run for run in old if run not in known and not _is_kept(run, kept)]


def _is_kept(run: CommittedRun, kept: Sequence[WriterRecord]) -> bool:
    """Whether a run that is not theirs is inside one of theirs, or follows from theirs together."""
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
    """The ledger while a batch is applied: the parent's, in its header and its pages, and what the batch touches."""

    def __init__(self, parent: Mapping[WriterId, WriterRecord], pages: Sequence[LedgerPage] = ()) -> None:
        self._parent = HeaderLedger.of(parent)
        self._pages = pages[::-1]  # the newest first
        self._touched: dict[WriterId, WriterRecord] = {}

    def record_of(self, writer: WriterId) -> WriterRecord:
        """What the header will say of a writer, so far."""
        found = self._touched.get(writer)
        return found if found is not None else self._parent.records.get(writer, _NOBODY)

    def parts_of(self, writer: WriterId) -> tuple[WriterRecord, ...]:
        """All that is known of a writer: what the header will say of it, and what pages do, the newest first."""
        record = self.record_of(writer)
        if not self._pages:
            return (record,)
        return (record, *[part for page in self._pages if (part := page.record_of(writer)) is not None])

    def put(self, writer: WriterId, record: WriterRecord) -> None:
        """Note what has become of a writer (for a duplicate, that it was seen)."""
        self._touched[writer] = record

    def finished(self, now_ms: int, oldest_ms: int) -> HeaderLedger:
        """The next root's ledger before anything moves: touched records are stamped with `now_ms`.

        `process/` writers that were last seen before `oldest_ms` are left out. Both are times of the log.
        """
        idle: list[WriterId] = []
        for writer, record in self._parent.records.items():
            if record.last_seen_ms >= oldest_ms:
                break  # they are in the order in which they were seen
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
