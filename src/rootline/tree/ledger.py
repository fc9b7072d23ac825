"""The writer ledger: what each writer has had decided on a table.

Owns: how sequences are recorded and looked up. Does not own: what follows from it (`apply`), bytes (`header_codec`).
Invariants: no sequence is ever called committed that was not; runs ascend and do not overlap; a gap can be filled at
any time. Where the runs of a writer grow too many, the oldest neighbours become one run that no longer knows its
commits (`VERSION_FORGOTTEN`), never one that swallows a gap.

Source: protocol page, section 2, "The ledger".
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from typing import Final

from rootline.schemas.identifiers import Version, WriterId
from rootline.schemas.intent import PROCESS_WRITER_PREFIX
from rootline.schemas.root_header import CommittedRun, RejectedSequence, WriterRecord

VERSION_FORGOTTEN: Final = Version(-1)
RUNS_MAX: Final = 64
REJECTED_MAX: Final = 32


def committed_version(record: WriterRecord, sequence: int) -> Version | None:
    """The version that committed `sequence`; `VERSION_FORGOTTEN`: committed, but in which is not known any more."""
    runs = record.committed
    if not runs:
        return None
    run = runs[-1]
    if sequence < run.first:
        at = bisect_right(runs, sequence, key=_first) - 1
        if at < 0:
            return None
        run = runs[at]
    if sequence > run.last:
        return None
    return Version(run.version + (sequence - run.first) * run.stride)


def rejection_of(record: WriterRecord, intent_id: str) -> RejectedSequence | None:
    """The rejection that this very intent got before."""
    for rejected in record.rejected:
        if rejected.intent_id == intent_id:
            return rejected
    return None


def with_committed(record: WriterRecord, sequence: int, version: Version) -> WriterRecord:
    """`record` after `sequence`, which was not committed before, was committed in `version`."""
    runs = record.committed
    if not runs or sequence > runs[-1].last:
        last = _extended(runs[-1], sequence, version) if runs else None
        new = (*runs, CommittedRun(sequence, sequence, version, 0)) if last is None else (*runs[:-1], last)
    else:
        new = _filled(runs, sequence, version)
    return WriterRecord(_bounded(new), record.rejected, record.last_seen_ms)


def with_rejected(record: WriterRecord, rejected: RejectedSequence) -> WriterRecord:
    """`record` after a rejection; the newest `REJECTED_MAX` are kept, what is forgotten is validated afresh."""
    return WriterRecord(record.committed, (*record.rejected, rejected)[-REJECTED_MAX:], record.last_seen_ms)


def _first(run: CommittedRun) -> int:
    return run.first


def _extended(run: CommittedRun, sequence: int, version: Version) -> CommittedRun | None:
    """`run` and the sequence after it as one run, if they make one."""
    if sequence != run.last + 1 or run.version == VERSION_FORGOTTEN:
        return None
    stride = run.stride if run.first != run.last else version - run.version
    if stride not in (0, 1) or version != run.version + (sequence - run.first) * stride:
        return None
    return CommittedRun(run.first, sequence, run.version, stride)


def _filled(runs: tuple[CommittedRun, ...], sequence: int, version: Version) -> tuple[CommittedRun, ...]:
    """`runs` with a gap filled (the one before the first run included)."""
    at = bisect_right(runs, sequence, key=_first)
    before = _extended(runs[at - 1], sequence, version) if at else None
    if before is not None:
        return (*runs[: at - 1], before, *runs[at:])
    return (*runs[:at], CommittedRun(sequence, sequence, version, 0), *runs[at:])


def _bounded(runs: tuple[CommittedRun, ...]) -> tuple[CommittedRun, ...]:
    """At most `RUNS_MAX` runs, as far as neighbours without a gap between them allow."""
    if len(runs) <= RUNS_MAX:
        return runs
    for at in range(len(runs) - 1):
        older, newer = runs[at], runs[at + 1]
        if older.last + 1 == newer.first:
            return (*runs[:at], CommittedRun(older.first, newer.last, VERSION_FORGOTTEN, 0), *runs[at + 2 :])
    return runs


class LedgerDraft:
    """The ledger while a batch is applied: the parent's, and the records that the batch touches."""

    def __init__(self, parent: Mapping[WriterId, WriterRecord]) -> None:
        self._parent = parent
        self._touched: dict[WriterId, WriterRecord] = {}

    def record_of(self, writer: WriterId) -> WriterRecord:
        """What is known of a writer so far."""
        found = self._touched.get(writer)
        return found if found is not None else self._parent.get(writer, _NOBODY)

    def put(self, writer: WriterId, record: WriterRecord) -> None:
        """Note what has become of a writer (for a duplicate, that it was seen)."""
        self._touched[writer] = record

    def finished(self, timestamp_ms: int, writer_retention_s: int) -> Mapping[WriterId, WriterRecord]:
        """The next root's ledger: touched records stamped, idle `process/` writers left out."""
        oldest_ms = timestamp_ms - writer_retention_s * 1000
        ledger = {
            writer: record
            for writer, record in self._parent.items()
            if record.last_seen_ms >= oldest_ms or not writer.startswith(PROCESS_WRITER_PREFIX)
        }
        for writer, record in self._touched.items():
            ledger[writer] = WriterRecord(record.committed, record.rejected, timestamp_ms)
        return ledger


_NOBODY: Final = WriterRecord()
