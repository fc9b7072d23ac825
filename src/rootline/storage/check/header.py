"""The check of a root's header against the header before it: versions, digests, offsets, outcomes, ledger.

*Outcomes* are verdicts that the log may not have yet. The *ledger* records which intents of each writer are decided. A
*page* is an object that the header references, with parts of both that were too large for it.

Owns: these rules, within one root and its pages, and between a root and its parent. Does not own: entries (`live_set`),
reading pages (`objects`), the header's bytes (`root_codec`).
Invariants: pure. Independent of the code that makes roots. No fault is reported for a root whose parent cannot be read,
nor for the content of an unreadable page. Roots do not record which verdicts the log acknowledged, so a state is a
fault only if it is wrong for every possible set of acknowledgements.

Source: invariants page, numbers 2, 3, 5, 6, 7, 8, 17.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from rootline.schemas.bytes.root.ledger_page import LEDGER_PAGES, LedgerPage, record_in
from rootline.schemas.bytes.root.outcome_page import OUTCOME_PAGES, OutcomePage
from rootline.schemas.bytes.root.root_codec import Root
from rootline.schemas.identifiers import WriterId, snapshot_id_of
from rootline.schemas.parts.ledger import CommittedRun, HeaderLedger, WriterRecord
from rootline.schemas.parts.outcomes import Outcome, OutcomeRun, Outcomes, encode_outcomes
from rootline.schemas.root_header import RootHeader
from rootline.storage.check.findings import Fault
from rootline.tree.parts.header_limits import HEADER_LIMITS
from rootline.tree.parts.ledger import (
    CLIENT_RETENTION_S,
    REJECTED_MAX,
    VERSION_FORGOTTEN,
    OldestSeen,
    committed_version,
)
from rootline.tree.parts.name import starts_new_table
from rootline.tree.parts.part_table import part_violations
from rootline.tree.proof.adoption import ADOPTED_SNAPSHOT
from rootline.tree.state.table_state import TablePages, changed_pages


def faults_of_header(header: RootHeader) -> Iterator[Fault]:
    """Yield faults within one header."""
    snapshot = header.snapshot
    expected = snapshot_id_of(header.table_uuid, header.version)
    if snapshot.snapshot_id != expected:
        yield Fault("snapshot-wrong", f"snapshot id {snapshot.snapshot_id} is not that of its version, {expected}")
    is_first = snapshot.parent_id is None or ADOPTED_SNAPSHOT in snapshot.summary
    may_begin = header.version == 0 or (header.name.drops and header.versions.oldest == header.version)
    if (header.version == 0) != (header.parent_digest is None) or (header.version == 0 or is_first) != is_first:
        yield Fault("parent-mismatch", "only version 0 has no parent")
    elif is_first and not may_begin:
        yield Fault("parent-mismatch", "its snapshot has no parent, but it is not the first of a table")
    if snapshot.summary.get(ADOPTED_SNAPSHOT, str(snapshot.parent_id)) != str(snapshot.parent_id):
        yield Fault(
            "parent-mismatch", f"its parent, {snapshot.parent_id}, is not the snapshot that it was adopted from"
        )
    if header.versions.oldest > header.version:
        yield Fault("snapshot-wrong", f"oldest addressable version {header.versions.oldest} is after its own")


def faults_of_step(old: Root, new: Root) -> Iterator[Fault]:
    """Yield faults of the header of `new`, compared with `old`, the root of the version before."""
    before, after = old.header, new.header
    if after.parent_digest != old.digest:
        yield Fault("parent-mismatch", f"its parent digest is not the digest of the stored root {before.version}")
    is_another = starts_new_table(before, after)
    if after.table_uuid != before.table_uuid and not is_another:
        yield Fault("parent-mismatch", f"table uuid {after.table_uuid} is not its parent's, {before.table_uuid}")
    if after.snapshot.parent_id != before.snapshot.snapshot_id and not is_another:
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
    if after.row_ids.next < before.row_ids.next:
        yield Fault("snapshot-wrong", f"next row id {after.row_ids.next} is below {before.row_ids.next}")
    if after.versions.oldest < before.versions.oldest:
        yield Fault(
            "snapshot-wrong", f"oldest addressable version {after.versions.oldest} is below {before.versions.oldest}"
        )
    if after.row_ids.next_of_parent not in (None, before.row_ids.next):
        yield Fault(
            "parent-mismatch",
            f"it states next row id {after.row_ids.next_of_parent} for its parent, which has {before.row_ids.next}",
        )
    kept = before.earlier_bytes + old.size_in_bytes
    if after.earlier_bytes != kept:
        yield Fault(
            "totals-wrong", f"it states {after.earlier_bytes} bytes of earlier roots, which are {kept} by its parent"
        )
    for code, sentence in part_violations(before, after, is_own=False):
        yield Fault(code, sentence)


_CODE = "progress-lost"


class Decided(NamedTuple):
    """A root's header and its pages, which are `None` if one of them cannot be read."""

    header: RootHeader
    pages: TablePages | None


def faults_of_decided(header: RootHeader) -> Iterator[Fault]:
    """Yield faults of offsets, outcomes and ledger within one header."""
    nexts = _next_offsets(header)
    if len(nexts) != len(header.log.offsets):
        yield Fault(_CODE, "one partition has two offsets")
    size = HeaderLedger.of(header.ledger.writers).size_in_bytes
    if size > HEADER_LIMITS.ledger_bytes:
        yield Fault(
            "header-too-large", f"the ledger has {size} bytes, at most {HEADER_LIMITS.ledger_bytes} are allowed"
        )
    size = len(encode_outcomes(header.outcomes.newest))
    if size > HEADER_LIMITS.outcome_bytes:
        yield Fault(
            "header-too-large", f"the outcomes have {size} bytes, at most {HEADER_LIMITS.outcome_bytes} are allowed"
        )
    yield from faults_of_outcomes(header.outcomes.newest, header)
    for writer, record in header.ledger.writers.items():
        yield from faults_of_record(writer, record, header)


def faults_of_outcomes(outcomes: Outcomes, header: RootHeader) -> Iterator[Fault]:
    """Yield faults of outcomes in a header or in a page that it names."""
    nexts = _next_offsets(header)
    for item in outcomes.items:
        last, version = _last(item), item.version if isinstance(item, OutcomeRun) else item.decided_in
        if last >= nexts.get((item.log, item.partition), 0) or version > header.version:
            yield Fault(_CODE, f"an outcome at offset {last} is not below the root's offset")
        if isinstance(item, OutcomeRun) and item.version == header.version:
            number = item.first_sequence_number + item.last_offset - item.first_offset
            if number > header.snapshot.sequence_number:
                yield Fault("snapshot-wrong", f"an outcome has sequence number {number}, after the snapshot's")


def faults_of_record(writer: WriterId, record: WriterRecord, header: RootHeader) -> Iterator[Fault]:
    """Yield faults of one writer's record in a header or in a page that it names."""
    for run in record.committed:
        if run.last < run.first or run.version > header.version:
            yield Fault(_CODE, f"the ledger of {writer} has sequences {run.first} to {run.last} in {run.version}")
    for earlier, later in pairwise(record.committed):
        if later.first <= earlier.last:
            yield Fault(_CODE, f"the ledger of {writer} commits sequence {later.first} twice")


def faults_of_progress(before: Decided, after: Decided, *, writer_retention_s: int) -> Iterator[Fault]:
    """Yield faults of a root's offsets, outcomes and ledger, compared with those of the version before."""
    yield from _faults_of_offsets(before.header, after.header)
    if before.pages is None or after.pages is None:
        return
    added, removed = changed_pages(OUTCOME_PAGES, before.pages, after.pages)
    old = [before.header.outcomes.newest, *(page.content.outcomes for page in removed)]
    new = [after.header.outcomes.newest, *(page.content.outcomes for page in added)]
    stay = [page for page in after.pages.of(OUTCOME_PAGES) if page not in added]
    yield from _faults_of_outcomes(before.header, after.header, old, new, stay)
    yield from _Ledger(before, after, before.pages, after.pages, writer_retention_s).faults()


def _faults_of_offsets(before: RootHeader, after: RootHeader) -> Iterator[Fault]:
    nexts = _next_offsets(after)
    for log, partition, offset in before.log.offsets:
        now = nexts.get((log, partition))
        if now is None:
            yield Fault(_CODE, f"the offset of partition {partition} of {log} was removed")
        elif now < offset:
            yield Fault(_CODE, f"the offset of partition {partition} of {log} decreased from {offset} to {now}")


def _faults_of_outcomes(
    before: RootHeader, after: RootHeader, old: list[Outcomes], new: list[Outcomes], stay: Sequence[OutcomePage]
) -> Iterator[Fault]:
    seen = _next_offsets(before)
    was = {item for outcomes in old for item in outcomes.items}
    now = {item for outcomes in new for item in outcomes.items}
    for item in now - was:
        version, first = (item.version if isinstance(item, OutcomeRun) else item.decided_in), item[2]
        if version != after.version or first < seen.get((item.log, item.partition), 0):
            yield Fault(_CODE, f"offset {first} has a different outcome than in its parent")
    # outcomes are removed from the lowest offset on: if one is still recorded, none above it was acknowledged
    floors: dict[tuple[str, int], int] = {}
    for item in was & now:
        place = item.log, item.partition
        floors[place] = min(_last(item), floors.get(place, _last(item)))
    for page in stay:
        if len(page.reference.covers) == 1:
            log, partition, last = page.reference.covers[0]
            floors[log, partition] = min(last, floors.get((log, partition), last))
    for item in was - now:
        if _last(item) >= floors.get((item.log, item.partition), _last(item) + 1):
            yield Fault(
                _CODE, f"the outcome of offset {_last(item)} was removed, although an earlier one is still recorded"
            )


class _Ledger:
    """One step of the ledger: the changes in header and pages, for each writer."""

    def __init__(
        self, before: Decided, after: Decided, old_pages: TablePages, new_pages: TablePages, writer_retention_s: int
    ) -> None:
        self._old, self._new = before.header.ledger.writers, after.header.ledger.writers
        self._old_pages, self._new_pages = old_pages.of(LEDGER_PAGES), new_pages.of(LEDGER_PAGES)
        self._added, self._removed = changed_pages(LEDGER_PAGES, old_pages, new_pages)
        retention_ms, time = writer_retention_s * 1000, after.header.log.time
        if time is None:  # a root of an old coordinator: by the wall clock
            now_ms = after.header.snapshot.timestamp_ms
            self._oldest = OldestSeen(now_ms - retention_ms, now_ms - 1000 * CLIENT_RETENTION_S)
        else:
            self._oldest = OldestSeen.at(time, retention_ms)

    def faults(self) -> Iterator[Fault]:
        writers = {writer for writer, record in self._old.items() if self._new.get(writer) != record}
        writers |= {writer for writer in self._new if writer not in self._old}
        for page in (*self._added, *self._removed):
            writers |= page.content.rows.keys()
        for writer in sorted(writers):
            yield from self._faults_of(writer)

    def _faults_of(self, writer: WriterId) -> Iterator[Fault]:
        was = _parts(writer, self._old.get(writer), self._removed)
        now = _parts(writer, self._new.get(writer), self._added)
        if was == now:
            return
        whole = _parts(writer, self._new.get(writer), self._new_pages)
        yield from _doubled(writer, whole)
        known = _parts(writer, self._old.get(writer), self._old_pages)
        seen_ms = max((part.last_seen_ms for part in known), default=0)
        if self._oldest.is_idle(writer, seen_ms):
            return  # it may expire, with all of its record or a part
        if known and not whole:
            yield Fault(_CODE, f"writer {writer} was removed from the ledger")
            return
        if known and max(part.last_seen_ms for part in whole) < seen_ms:
            yield Fault(_CODE, f"the ledger's last time of {writer} decreased, it was {seen_ms} ms")
        for run in [run for part in was for run in part.committed if not _is_kept(run, now)][:1]:
            yield Fault(_CODE, f"the ledger of {writer} lost sequences {run.first} to {run.last}")
        rejected = {item for part in now for item in part.rejected}
        lost = [item for part in was for item in part.rejected if item not in rejected]
        if lost and sum(len(part.rejected) for part in now) < REJECTED_MAX:
            yield Fault(_CODE, f"the ledger of {writer} lost the rejection of intent {lost[0].intent_id}")


def _parts(writer: WriterId, in_header: WriterRecord | None, pages: Sequence[LedgerPage]) -> list[WriterRecord]:
    found = [record_in(page, writer) for page in pages]
    return [part for part in (in_header, *found) if part is not None]


def _doubled(writer: WriterId, parts: Sequence[WriterRecord]) -> Iterator[Fault]:
    runs = sorted(run for part in parts for run in part.committed)
    for earlier, later in pairwise(runs):
        if later.first <= earlier.last:
            yield Fault(_CODE, f"the ledger of {writer} commits sequence {later.first} twice")
            return


def _is_kept(run: CommittedRun, parts: Sequence[WriterRecord]) -> bool:
    if not any(kept.first <= run.first and run.last <= kept.last for part in parts for kept in part.committed):
        # a run may be split, even into single sequences, but never shrink
        return all(committed_version(parts, sequence) is not None for sequence in range(run.first, run.last + 1))
    for sequence in (run.first, run.last):
        found = committed_version(parts, sequence)
        then = run.version + (sequence - run.first) * run.stride
        if found not in (then, VERSION_FORGOTTEN) and run.version != VERSION_FORGOTTEN:
            return False
    return True


def _last(item: Outcome) -> int:
    return item.last_offset if isinstance(item, OutcomeRun) else item.offset


def _next_offsets(header: RootHeader) -> dict[tuple[str, int], int]:
    """(log, partition) → the first offset that the root has not applied."""
    return {(offset.log, offset.partition): offset.next_offset for offset in header.log.offsets}
