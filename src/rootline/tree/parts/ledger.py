"""The part `ledger`: the decisions on each writer's intents for a table, in the header and in pages.

Owns: how sequences are recorded and looked up, which records move to pages (those not seen for longest), merging them,
the content digests of the newest intents, which show that a writer reuses a sequence for other data. Does not own: the
verdicts that follow (`apply`), bytes (`rootline.schemas.parts.ledger`, `ledger_page`), when a part moves and which
pages are merged (`page_merge`), a writer's header (`rootline.schemas.bytes.record_headers`).
Invariants: The ledger never reports an uncommitted sequence as committed. Runs ascend and do not overlap. A gap can be
filled at any time. When a writer has too many runs, the oldest neighbors without a gap between them become one run
without versions (`VERSION_FORGOTTEN`). Nothing is lost except records of `process/` and `rest/` writers idle beyond
their retention (`OldestSeen`).
At most the `CONTENTS_MAX` newest content digests are recorded. An intent without one is never reported as reused.

A writer's records, one in the header and at most one in each page, are parts of one record. A sequence is in at most
one part. The header's rejections are newer than those of any page, and a page's newer than those of older pages.

Source: protocol page, section 1, and section 2, "The ledger". Format page, "Pages". Decisions 0012 and 0135.
"""

from __future__ import annotations

import uuid
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import pairwise
from typing import Final, NamedTuple

from rootline.schemas.bytes.record_headers import kept_of, said_in
from rootline.schemas.bytes.root.ledger_page import (
    LEDGER_PAGES,
    LedgerPage,
    LedgerRows,
    decode_ledger_row,
    encode_ledger_row,
    last_seen_of,
    record_in,
)
from rootline.schemas.client_commits import CLIENT_WRITER_PREFIX, request_of
from rootline.schemas.content_entry import quick
from rootline.schemas.identifiers import PROCESS_WRITER_PREFIX, Headers, Version, WriterId
from rootline.schemas.intent import Intent
from rootline.schemas.parts.ledger import (
    CommittedRun,
    ContentDigest,
    HeaderLedger,
    RejectedSequence,
    WriterLedger,
    WriterRecord,
    encode_record,
)
from rootline.schemas.parts.log import LOG, LogTime
from rootline.schemas.root_header import RootHeader
from rootline.tree.parts.log import log_time_of, oldest_seen_ms
from rootline.tree.parts.page_merge import Fitted, Spill
from rootline.tree.parts.part_rules import Advance, CheckedStep, PartRules
from rootline.tree.state.table_state import TablePages, TableState, changed_pages

VERSION_FORGOTTEN: Final = Version(-1)
RUNS_MAX: Final = 64
"""The most runs of a writer in the header, if neighbors without a gap can be joined."""
PAGE_RUNS_MAX: Final = 16
"""The most runs of a writer in a page. Versions of old commits are rarely needed, and large pages are rewritten."""
REJECTED_MAX: Final = 32
CONTENTS_MAX: Final = 64
CLIENT_RETENTION_S: Final = 3600
"""Seconds by the log that an idle `rest/` writer stays. Each has one commit, and no client repeats it later."""
_EXPIRING: Final = (PROCESS_WRITER_PREFIX, CLIENT_WRITER_PREFIX)
_SEARCH_MS: Final = 60_000
"""The header is searched for idle `rest/` writers when the log's time enters another minute, not with each commit."""
_Rows = dict[WriterId, bytes]


class OldestSeen(NamedTuple):
    """The times (ms, by the log) before which `process/` and `rest/` writers were last seen if they are idle.

    `client_ms` is not before `process_ms`.
    """

    process_ms: int
    client_ms: int

    @staticmethod
    def at(time: LogTime, retention_ms: int) -> OldestSeen:
        """The times in a root. `retention_ms`: of `process/` writers."""
        client_ms = oldest_seen_ms(time, min(retention_ms, 1000 * CLIENT_RETENTION_S))
        return OldestSeen(oldest_seen_ms(time, retention_ms), client_ms)

    def is_idle(self, writer: WriterId, last_seen_ms: int) -> bool:
        """Whether the writer may be dropped. Writers of other names never are."""
        if writer.startswith(CLIENT_WRITER_PREFIX):
            return last_seen_ms < self.client_ms
        return last_seen_ms < self.process_ms and writer.startswith(PROCESS_WRITER_PREFIX)


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


def refusal_of(parts: Iterable[WriterRecord], writer: WriterId, intent_id: str) -> RejectedSequence | None:
    """The rejection of the client's request that the intent commits."""
    return rejection_of(parts, request_of(intent_id)) if writer.startswith(CLIENT_WRITER_PREFIX) else None


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

    def __init__(
        self,
        parent: Mapping[WriterId, WriterRecord],
        pages: Sequence[LedgerPage] = (),
        contents: tuple[ContentDigest, ...] = (),
    ) -> None:
        self.contents = contents
        """The content digests of the newest intents, also of the batch."""
        self._parent = HeaderLedger.of(parent)
        self._pages = pages[::-1]  # the newest first
        self._touched: dict[WriterId, WriterRecord] = {}

    @staticmethod
    def on(parent: WriterLedger, pages: TablePages) -> LedgerDraft:
        """The ledger of a parent whose pages have been read."""
        return LedgerDraft(parent.writers, pages.of(LEDGER_PAGES), parent.contents)

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
        """Store a writer's record, which also updates the time at which the writer was last seen."""
        self._touched[writer] = record

    def saw(self, writer: WriterId) -> None:
        """Update the time at which the writer was last seen."""
        self._touched[writer] = self.record_of(writer)

    def put_content(self, intent: Intent, headers: Headers) -> None:
        """Record the content digest of a committed intent, if its writer stated one."""
        new = _content_of(intent, headers)
        if new is not None:
            self.contents = (*self.contents, new)[-CONTENTS_MAX:]

    def has_other_content(self, intent: Intent, headers: Headers) -> bool:
        """Whether the writer and sequence of `intent` were committed with another content digest than this record's."""
        new = _content_of(intent, headers)
        return new is not None and any(old.pair == new.pair and old != new for old in self.contents)

    def finished(self, now_ms: int, oldest: OldestSeen) -> HeaderLedger:
        """The next root's ledger before anything moves to pages. Changed records are stamped with `now_ms`, a time of
        the log. Writers that were idle since `oldest` are omitted.
        """
        idle: list[WriterId] = []
        for writer, record in self._parent.records.items():
            if record.last_seen_ms >= oldest.client_ms:
                break  # records are in the order of their last-seen times
            if oldest.is_idle(writer, record.last_seen_ms):
                idle.append(writer)
        if not idle and not self._touched:
            return self._parent
        touched = {
            writer: WriterRecord(record.committed, record.rejected, now_ms) for writer, record in self._touched.items()
        }
        return self._parent.advanced(touched, idle)


def _content_of(intent: Intent, headers: Headers) -> ContentDigest | None:
    value = said_in(headers) if headers else None
    if value is None or intent.writer_id is None or intent.writer_sequence is None:
        return None
    return ContentDigest(*kept_of(intent.writer_id, intent.writer_sequence, value))


def _page_rule(old: TableState | None, new: TableState, step: CheckedStep) -> Iterator[str]:
    if HeaderLedger.of(new.header.ledger.writers).size_in_bytes > step.limits.ledger_bytes:
        yield f"the header has more than {step.limits.ledger_bytes} bytes of the ledger"
    if old is None or step.starts_table:  # each table has its own ledger
        return
    added, dropped = changed_pages(LEDGER_PAGES, old.pages, new.pages)
    after = HeaderLedger.of(new.header.ledger.writers).records
    before = HeaderLedger.of(old.header.ledger.writers).records
    for writer in [writer for writer, record in before.items() if after.get(writer) is not record]:
        in_header = after.get(writer)
        parts = [] if in_header is None else [in_header]
        parts += [part for page in added if (part := record_in(page, writer)) is not None]
        yield from _lost(writer, before[writer], parts)
    for page in dropped:
        for writer, row in page.content.rows.items():
            rows = [other.content.rows[writer] for other in added if writer in other.content.rows]
            if row not in rows:
                yield from _lost(writer, decode_ledger_row(row), [decode_ledger_row(found) for found in rows])


def _lost(writer: WriterId, record: WriterRecord, parts: Sequence[WriterRecord]) -> Iterator[str]:
    """Report sequences and rejections of a writer's old `record` that none of its new `parts` has. The part in the
    header is the first.
    """
    if not parts:
        if not writer.startswith(_EXPIRING):
            yield f"writer {writer} is lost from the ledger"
        return
    if not _continues(record.committed, parts[0].committed):
        for run in lost_runs(record.committed, parts)[:1]:
            yield f"the ledger of {writer} loses sequences {run.first} to {run.last}"
    if record.rejected:
        rejected = {item for part in parts for item in part.rejected}
        missing = [item for item in record.rejected if item not in rejected]
        if missing and all(len(part.rejected) < REJECTED_MAX for part in parts):
            yield f"the ledger of {writer} loses the rejection of intent {missing[0].intent_id}"


def _continues(known: tuple[CommittedRun, ...], now: tuple[CommittedRun, ...]) -> bool:
    """Whether `now` differs from `known` only by a longer last run and newer runs after it, as after most commits."""
    settled = len(known) - 1
    if settled < 0 or known == now:
        return True
    if len(now) <= settled or known[:settled] != now[:settled]:
        return False
    old, new = known[settled], now[settled]
    if old.first == old.last:
        return new.first == old.first and new.version == old.version
    return new.last >= old.last and new._replace(last=old.last) == old


def _own_rule(before: RootHeader, after: RootHeader) -> Iterator[str]:
    was, now = before.ledger.contents, after.ledger.contents
    if len(now) < len(was) and after.table_uuid == before.table_uuid:
        yield f"it records {len(now)} content digests, its parent {len(was)}"


def _advance(batch: LedgerDraft, step: Advance) -> WriterLedger:
    time = step.of(LOG).time or LogTime(0)
    oldest = OldestSeen.at(time, step.retention_ms)
    is_search = time.newest_ms // _SEARCH_MS != log_time_of(step.before).newest_ms // _SEARCH_MS
    fitted = fit_ledger(
        batch.finished(time.newest_ms, oldest if is_search else oldest._replace(client_ms=oldest.process_ms)),
        () if step.starts_table else step.pages.of(LEDGER_PAGES),
        limit_bytes=step.limits.ledger_bytes,
        oldest=oldest,
        table_uuid=step.table_uuid,
        salt=step.salt,
    )
    writers, pages = step.spilled(LEDGER_PAGES, fitted)
    return WriterLedger(writers, pages, batch.contents)


def fit_ledger(
    ledger: HeaderLedger,
    pages: tuple[LedgerPage, ...],
    *,
    limit_bytes: int,
    oldest: OldestSeen,
    table_uuid: uuid.UUID,
    salt: bytes = b"",
) -> Fitted[HeaderLedger, LedgerRows]:
    """`ledger` within `limit_bytes`, with the rest in pages.

    Args:
        ledger: as it would be in the header.
        pages: of the parent.
        limit_bytes: of the header's part, encoded.
        oldest: records of writers that were idle since then are dropped from merged pages.
        table_uuid: of the pages' table.
        salt: of a new page's name.
    """

    def merged(contents: Sequence[LedgerRows], header: HeaderLedger) -> LedgerRows | None:
        rows: _Rows = {}
        for newer in contents:
            rows = _merged(rows, newer.rows)
        rows = _without_idle(rows, header, oldest)
        return LedgerRows(rows) if rows else None

    return _SPILL.fitted(ledger, pages, limit_bytes, merged, table_uuid=table_uuid, salt=salt)


def _fits(ledger: HeaderLedger, limit_bytes: int) -> bool:
    return ledger.size_in_bytes <= limit_bytes


def _divided(ledger: HeaderLedger, target: int) -> tuple[LedgerRows, HeaderLedger]:
    """(the rows to move, the ledger that stays)."""
    spilled, kept = _records_to_move(ledger, target)
    rows = {writer: encode_ledger_row(writer, for_page(record)) for writer, record in spilled.items()}
    return LedgerRows(rows), ledger.advanced(kept, spilled)


def _records_to_move(
    ledger: HeaderLedger, target: int
) -> tuple[dict[WriterId, WriterRecord], dict[WriterId, WriterRecord]]:
    """(the records to move, the remaining parts of split records): least recently seen first, down to `target` bytes.

    The most recently seen record is split if it is too large alone. Its newest runs and rejections stay in the header.
    """
    size_in_bytes = ledger.size_in_bytes
    spilled: dict[WriterId, WriterRecord] = {}
    kept: dict[WriterId, WriterRecord] = {}
    for writer, record in ledger.records.items():
        if size_in_bytes <= target:
            break
        size = ledger.size_of(writer)
        if len(spilled) == len(ledger) - 1:
            newest = _newest_of(writer, record, target - (size_in_bytes - size))
            if newest is not None:
                kept[writer] = newest
                record = _rest_of(record, newest)
        spilled[writer] = record
        size_in_bytes -= size
    return spilled, kept


def _newest_of(writer: WriterId, record: WriterRecord, budget: int) -> WriterRecord | None:
    """The newest rejections (up to half of `budget` bytes) and runs of a record, or `None` if not even one fits."""
    room = budget - len(encode_record(writer, WriterRecord(last_seen_ms=record.last_seen_ms))) - 1
    rejections = runs = 0
    bare = len(encode_record(writer, WriterRecord()))
    for item in reversed(record.rejected):
        size = len(encode_record(writer, WriterRecord(rejected=(item,)))) - bare + 1
        if size > room - (budget - budget // 2):
            break
        room, rejections = room - size, rejections + 1
    for run in reversed(record.committed):
        size = len(encode_record(writer, WriterRecord(committed=(run,)))) - bare + 1
        if size > room:
            break
        room, runs = room - size, runs + 1
    if not rejections and not runs:
        return None
    return WriterRecord(
        record.committed[len(record.committed) - runs :],
        record.rejected[len(record.rejected) - rejections :],
        record.last_seen_ms,
    )


def _rest_of(record: WriterRecord, newest: WriterRecord) -> WriterRecord:
    return WriterRecord(
        record.committed[: len(record.committed) - len(newest.committed)],
        record.rejected[: len(record.rejected) - len(newest.rejected)],
        record.last_seen_ms,
    )


def _merged(older: Mapping[WriterId, bytes], newer: Mapping[WriterId, bytes]) -> _Rows:
    rows = {**older, **newer}
    for writer in older.keys() & newer.keys():
        record = united(decode_ledger_row(older[writer]), decode_ledger_row(newer[writer]))
        rows[writer] = encode_ledger_row(writer, record)
    return rows


def _without_idle(rows: _Rows, header: HeaderLedger, oldest: OldestSeen) -> _Rows:
    idle = [
        writer
        for writer, row in rows.items()
        if writer.startswith(_EXPIRING) and oldest.is_idle(writer, last_seen_of(row)) and writer not in header.records
    ]
    for writer in idle:
        del rows[writer]
    return rows


_SPILL: Final = Spill(LEDGER_PAGES, _fits, _divided)
_NOBODY: Final = WriterRecord()
_unchecked_record: Final = quick(WriterRecord)
LEDGER: Final = PartRules(
    "ledger", own_rule=_own_rule, page_rules={LEDGER_PAGES: _page_rule}, follows=("log",), advance=_advance
)
