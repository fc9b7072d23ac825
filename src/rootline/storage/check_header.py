"""Whether one root's header follows from the header before it.

Owns: versions, digests, snapshots, offsets, outcomes, ledger, from root to root. Does not own: entries
(`check_live_set`), the header's bytes (`rootline.schemas.root_codec`).
Invariants: pure; says nothing about a root whose parent cannot be read.

Source: invariants page, numbers 3, 5, 6, 7, 8, 17.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from rootline.schemas.identifiers import snapshot_id_of
from rootline.schemas.intent import PROCESS_WRITER_PREFIX
from rootline.schemas.root_codec import Root
from rootline.schemas.root_header import CommittedRun, OutcomeRun, RootHeader, WriterRecord
from rootline.tree.ledger import VERSION_FORGOTTEN, committed_version


class Fault(NamedTuple):
    """A code and the reason; whoever asked knows the object."""

    code: str
    reason: str


def faults_of_header(header: RootHeader) -> Iterator[Fault]:
    """What is wrong with a header by itself."""
    snapshot = header.snapshot
    expected = snapshot_id_of(header.table_uuid, header.version)
    if snapshot.snapshot_id != expected:
        yield Fault("snapshot-wrong", f"snapshot id {snapshot.snapshot_id} is not that of its version, {expected}")
    if (header.version == 0) != (header.parent_digest is None) or (header.version == 0) != (snapshot.parent_id is None):
        yield Fault("parent-mismatch", "only version 0 has no parent")
    if header.oldest_version > header.version:
        yield Fault("snapshot-wrong", f"oldest addressable version {header.oldest_version} is after its own")
    nexts = {(offset.log, offset.partition): offset.next_offset for offset in header.offsets}
    if len(nexts) != len(header.offsets):
        yield Fault("progress-lost", "one partition has two offsets")
    for run in header.outcomes.runs:
        if run.last_offset >= nexts.get((run.log, run.partition), 0) or run.version > header.version:
            yield Fault("progress-lost", f"an outcome at offset {run.last_offset} is not below the root's offset")
        if run.version == header.version and _last_sequence_number(run) > snapshot.sequence_number:
            yield Fault(
                "snapshot-wrong", f"an outcome has sequence number {_last_sequence_number(run)}, after the snapshot's"
            )
    for item in header.outcomes.exceptions:
        if item.offset >= nexts.get((item.log, item.partition), 0) or item.decided_in > header.version:
            yield Fault("progress-lost", f"an outcome at offset {item.offset} is not below the root's offset")
    for writer, record in header.ledger.items():
        for earlier, later in pairwise(record.committed):
            if later.first <= earlier.last:
                yield Fault("progress-lost", f"the ledger of {writer} commits sequence {later.first} twice")


def faults_of_step(old: Root, new: Root, *, writer_retention_s: int) -> Iterator[Fault]:
    """What is wrong with the header of `new`, given the root of the version before."""
    before, after = old.header, new.header
    if after.parent_digest != old.digest:
        yield Fault("parent-mismatch", f"its parent digest is not the digest of the stored root {before.version}")
    if after.table_uuid != before.table_uuid:
        yield Fault("parent-mismatch", f"table uuid {after.table_uuid} is not its parent's, {before.table_uuid}")
    if after.snapshot.parent_id != before.snapshot.snapshot_id:
        yield Fault("parent-mismatch", f"parent snapshot id {after.snapshot.parent_id} is not the id of its parent")
    if after.snapshot.sequence_number <= before.snapshot.sequence_number:
        yield Fault(
            "snapshot-wrong",
            f"sequence number {after.snapshot.sequence_number} is not above {before.snapshot.sequence_number}",
        )
    if after.snapshot.timestamp_ms <= before.snapshot.timestamp_ms:
        yield Fault(
            "snapshot-wrong",
            f"timestamp {after.snapshot.timestamp_ms} ms is not after {before.snapshot.timestamp_ms} ms",
        )
    if after.next_row_id < before.next_row_id:
        yield Fault("snapshot-wrong", f"next row id {after.next_row_id} is below {before.next_row_id}")
    if after.oldest_version < before.oldest_version:
        yield Fault("snapshot-wrong", f"oldest addressable version {after.oldest_version} went back")
    yield from _faults_of_progress(before, after)
    yield from _faults_of_ledger(before, after, writer_retention_s)


def _faults_of_progress(before: RootHeader, after: RootHeader) -> Iterator[Fault]:
    nexts = {(offset.log, offset.partition): offset.next_offset for offset in after.offsets}
    seen = {(offset.log, offset.partition): offset.next_offset for offset in before.offsets}
    for (log, partition), offset in seen.items():
        now = nexts.get((log, partition))
        if now is None:
            yield Fault("progress-lost", f"the offset of partition {partition} of {log} is gone")
        elif now < offset:
            yield Fault(
                "progress-lost", f"the offset of partition {partition} of {log} went back from {offset} to {now}"
            )
    runs, exceptions = set(before.outcomes.runs), set(before.outcomes.exceptions)
    for run in after.outcomes.runs:
        if run not in runs and (
            run.version != after.version or run.first_offset < seen.get((run.log, run.partition), 0)
        ):
            yield Fault("progress-lost", f"offset {run.first_offset} has another outcome than its parent gave it")
    for item in after.outcomes.exceptions:
        is_new = item.decided_in == after.version and item.offset >= seen.get((item.log, item.partition), 0)
        if item not in exceptions and not is_new:
            yield Fault("progress-lost", f"offset {item.offset} has another outcome than its parent gave it")


def _faults_of_ledger(before: RootHeader, after: RootHeader, writer_retention_s: int) -> Iterator[Fault]:
    oldest_ms = after.snapshot.timestamp_ms - writer_retention_s * 1000
    for writer, known in before.ledger.items():
        kept = after.ledger.get(writer)
        if kept == known:
            continue
        if kept is None:
            if not writer.startswith(PROCESS_WRITER_PREFIX) or known.last_seen_ms >= oldest_ms:
                yield Fault("progress-lost", f"writer {writer} left the ledger")
            continue
        lost = [run for run in known.committed if not _is_kept(run, kept)]
        if lost:
            yield Fault("progress-lost", f"the ledger of {writer} lost sequences {lost[0].first} to {lost[0].last}")
        if kept.last_seen_ms < known.last_seen_ms:
            yield Fault(
                "progress-lost", f"the ledger of {writer} was seen at {kept.last_seen_ms} ms, earlier than before"
            )


def _is_kept(run: CommittedRun, record: WriterRecord) -> bool:
    if not any(kept.first <= run.first and run.last <= kept.last for kept in record.committed):
        # a run may be told apart anew, sequence by sequence, but never shrink
        return all(committed_version(record, sequence) is not None for sequence in range(run.first, run.last + 1))
    for sequence in (run.first, run.last):
        found = committed_version(record, sequence)
        then = run.version + (sequence - run.first) * run.stride
        if found not in (then, VERSION_FORGOTTEN) and run.version != VERSION_FORGOTTEN:
            return False
    return True


def _last_sequence_number(run: OutcomeRun) -> int:
    return run.first_sequence_number + run.last_offset - run.first_offset
