"""The ledger beyond the header's limit: few pages, made rarely, that forget nothing."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from itertools import pairwise

import hypothesis.strategies as st
import pytest
from hypothesis import given

from rootline.schemas.bytes.root.header_codec import encode_header
from rootline.schemas.bytes.root.ledger_page import LEDGER_PAGES, LedgerPage
from rootline.schemas.errors import Internal
from rootline.schemas.identifiers import Version, WriterId
from rootline.schemas.parts.ledger import CommittedRun, HeaderLedger, RejectedSequence, WriterRecord
from rootline.schemas.verdict import VerdictKind
from rootline.tree.parts.header_limits import HEADER_BYTES_MAX, HeaderLimits
from rootline.tree.parts.ledger import (
    REJECTED_MAX,
    RUNS_MAX,
    VERSION_FORGOTTEN,
    LedgerDraft,
    OldestSeen,
    committed_version,
    fit_ledger,
    rejection_of,
    united,
    with_committed,
    with_rejected,
)
from rootline.tree.parts.page_merge import GROWTH, first_to_merge
from tests.tree.tables import TABLE_UUID, append, kinds, new_lake, remove, removed

RETENTION_S = 1_000
CLIENTS_S = 100


@dataclass
class Ledger:
    """A ledger that is advanced as a coordinator does, without the table around it."""

    limit_bytes: int = HEADER_BYTES_MAX
    header: HeaderLedger = field(default_factory=lambda: HeaderLedger.of({}))
    pages: tuple[LedgerPage, ...] = ()
    version: int = 0
    now_ms: int = 0
    written: list[int] = field(default_factory=list)
    pages_most: int = 0
    bodies: dict[str, bytes] = field(default_factory=dict)

    def commit(self, *commits: tuple[str, int]) -> None:
        self.version += 1
        self.now_ms += 1
        draft = LedgerDraft(self.header, self.pages)
        for name, sequence in commits:
            writer = WriterId(name)
            assert committed_version(draft.parts_of(writer), sequence) is None
            draft.put(writer, with_committed(draft.record_of(writer), sequence, Version(self.version)))
        self.finish(draft)

    def reject(self, name: str, intent_id: str, message: str = "") -> None:
        self.now_ms += 1
        draft, writer = LedgerDraft(self.header, self.pages), WriterId(name)
        draft.put(writer, with_rejected(draft.record_of(writer), RejectedSequence(0, intent_id, "c", message)))
        self.finish(draft)

    def finish(self, draft: LedgerDraft) -> None:
        oldest = OldestSeen(self.now_ms - RETENTION_S * 1000, self.now_ms - CLIENTS_S * 1000)
        fitted = fit_ledger(
            draft.finished(self.now_ms, oldest),
            self.pages,
            limit_bytes=self.limit_bytes,
            oldest=oldest,
            table_uuid=TABLE_UUID,
        )
        assert fitted.header.size_in_bytes <= self.limit_bytes
        self.header, self.pages = fitted.header, fitted.pages
        self.pages_most = max(self.pages_most, len(self.pages))
        for pending in fitted.objects:
            self.bodies[pending.location] = pending.body
            self.written.append(len(pending.body))

    def committed(self, name: str, sequence: int) -> int | None:
        return committed_version(LedgerDraft(self.header, self.pages).parts_of(WriterId(name)), sequence)

    def rejected(self, name: str, intent_id: str) -> RejectedSequence | None:
        return rejection_of(LedgerDraft(self.header, self.pages).parts_of(WriterId(name)), intent_id)

    def parts(self, name: str) -> tuple[WriterRecord, ...]:
        return LedgerDraft(self.header, self.pages).parts_of(WriterId(name))


def test_small_commits_of_many_writers_seldom_write_a_page_and_keep_few() -> None:
    """3,000 writers in turn, none of which the header still knows when its turn comes again."""
    ledger, source, commits = Ledger(), random.Random(7), 20_000
    latest: dict[str, tuple[int, int]] = {}
    for number in range(commits):
        name = f"spark/query-{source.randrange(3_000):04d}"
        sequence = number // 7
        if ledger.committed(name, sequence) is None:
            ledger.commit((name, sequence))
            latest[name] = sequence, ledger.version
    assert len(ledger.written) < ledger.version / 75, "one page for many commits"
    assert ledger.pages_most <= 8
    assert sum(ledger.written) / ledger.version < 1_500, "bytes of pages for one commit"
    for name, (sequence, version) in latest.items():
        assert ledger.committed(name, sequence) in (version, VERSION_FORGOTTEN)
        assert ledger.committed(name, 1_000_000) is None


def test_a_busy_writer_without_gaps_takes_no_page_and_no_more_room() -> None:
    ledger = Ledger()
    for sequence in range(3_000):
        ledger.version += sequence % 3
        ledger.commit(("ingest", sequence))
    assert ledger.pages == ()
    assert len(ledger.header[WriterId("ingest")].committed) <= RUNS_MAX
    assert ledger.committed("ingest", 0) == VERSION_FORGOTTEN
    assert ledger.committed("ingest", 2_999) == ledger.version


def test_a_writer_of_gaps_keeps_its_newest_runs_in_the_header_and_every_gap_open() -> None:
    ledger = Ledger()
    for sequence in range(0, 6_000, 2):
        ledger.commit(("gaps", sequence))
    assert list(ledger.header) == ["gaps"]
    in_header = ledger.header[WriterId("gaps")].committed
    assert in_header[-1].last == 5_998
    assert len(in_header) > RUNS_MAX
    assert len(ledger.written) < 15
    for sequence in range(0, 6_000, 97):
        assert ledger.committed("gaps", sequence) == (None if sequence % 2 else sequence // 2 + 1)
    ledger.commit(("gaps", 1))
    assert ledger.committed("gaps", 1) == ledger.version
    assert ledger.committed("gaps", 3) is None


def test_the_coldest_writers_move_and_the_warmest_stay() -> None:
    ledger = Ledger(limit_bytes=2_000)
    before: list[str] = []
    while not ledger.written:
        before.append(f"writer-{len(before):02d}")
        ledger.commit((before[-1], 1))
    assert list(ledger.header) == before[-len(ledger.header) :]
    assert 500 < ledger.header.size_in_bytes <= 1_000
    [page] = ledger.pages
    assert list(page.content.rows) == before[: len(page.content.rows)]


def test_idle_process_writers_leave_when_pages_are_merged_and_named_ones_never() -> None:
    ledger = Ledger(limit_bytes=1_000)
    ledger.commit(("named", 1), ("process/old", 1), ("process/back", 1))
    for number in range(40):
        ledger.commit((f"process/x-{number}", 1))
    assert ledger.committed("process/old", 1) == 1
    ledger.now_ms += RETENTION_S * 1000
    ledger.commit(("process/back", 2))
    for number in range(60):
        ledger.commit((f"process/y-{number}", 1))
    assert ledger.committed("named", 1) == 1
    assert ledger.committed("process/old", 1) is None
    assert ledger.committed("process/back", 2) is not None
    assert ledger.committed("process/y-0", 1) is not None
    assert sum(writer.startswith("process/x") for page in ledger.pages for writer in page.content.rows) == 0


def test_the_writers_of_clients_leave_pages_after_an_hour_and_pages_stay_small() -> None:
    """32 commits a second, of which the pages keep about as many as the retention has."""
    ledger, each = Ledger(limit_bytes=1_000), 32
    ledger.commit(("named", 1), ("process/mine", 1))
    most = 0
    for second in range(6 * CLIENTS_S):
        ledger.commit(*((f"rest/{second * each + number}", 0) for number in range(each)))
        ledger.now_ms += 999
        most = max(most, sum(len(page.content.rows) for page in ledger.pages))
    last = 6 * CLIENTS_S * each - 1
    assert ledger.committed(f"rest/{last}", 0) is not None
    assert ledger.committed(f"rest/{last - CLIENTS_S * each + 2 * each}", 0) is not None
    assert ledger.committed("rest/0", 0) is None
    assert (ledger.committed("named", 1), ledger.committed("process/mine", 1)) == (1, 1)
    assert most < 3 * CLIENTS_S * each


def test_a_process_writer_that_still_sends_keeps_what_pages_know_of_it() -> None:
    ledger = Ledger(limit_bytes=400)
    ledger.commit(("process/steady", 1))
    for round_ in range(30):
        ledger.now_ms += RETENTION_S * 900
        ledger.commit(("process/steady", 2 + round_), (f"named-{round_}", 1))
        for number in range(5):
            ledger.commit((f"process/{round_}-{number}", 1))
    assert [ledger.committed("process/steady", sequence) is None for sequence in (1, 2, 31, 32)] == [False] * 3 + [True]


def test_the_newest_rejections_are_known_wherever_they_rest_and_no_others() -> None:
    ledger = Ledger(limit_bytes=600)
    for number in range(3 * REJECTED_MAX):
        ledger.reject("w", f"i-{number}", "ö" * 20)
        ledger.reject(f"other-{number}", "x", "y" * 30)
        newest = range(max(0, number - REJECTED_MAX + 1), number + 1)
        assert all(ledger.rejected("w", f"i-{one}") for one in newest)
        assert ledger.rejected("w", f"i-{newest[0] - 1}") is None
    assert len(ledger.pages) <= 4


def test_pages_read_back_know_the_same() -> None:
    ledger = Ledger(limit_bytes=500)
    for number in range(200):
        ledger.commit((f"w-{number % 23}", number))
    read = tuple(
        LEDGER_PAGES.decode(ledger.bodies[page.reference.location], page.reference, TABLE_UUID, name="p")
        for page in ledger.pages
    )
    assert read == ledger.pages
    ledger.pages = read
    assert all(ledger.committed(f"w-{number % 23}", number) == number + 1 for number in range(200))


def test_the_same_step_again_makes_the_same_page() -> None:
    one, two = Ledger(limit_bytes=500), Ledger(limit_bytes=500)
    for ledger in (one, two):
        for number in range(100):
            ledger.commit((f"w-{number % 40}", number))
    assert one.bodies == two.bodies


@given(st.lists(st.integers(1, 3_000), min_size=1, max_size=400))
def test_pages_stay_few_whatever_is_added(sizes: list[int]) -> None:
    pages: list[int] = []
    for size in sizes:
        first = first_to_merge(pages, size)
        pages[first:] = [sum(pages[first:]) + size]
        assert all(older >= GROWTH * newer for older, newer in pairwise(pages))
    assert len(pages) <= 11  # 1.2 MB at most, each page a quarter of the one before


def test_parts_of_one_record_become_one_again() -> None:
    older = WriterRecord((CommittedRun(1, 3, Version(1), 1), CommittedRun(8, 8, Version(6), 0)), (), 5)
    newer = WriterRecord((CommittedRun(4, 6, Version(4), 1), CommittedRun(9, 9, Version(9), 0)), (), 9)
    assert united(older, newer) == WriterRecord(
        (CommittedRun(1, 6, Version(1), 1), CommittedRun(8, 8, Version(6), 0), CommittedRun(9, 9, Version(9), 0)), (), 9
    )


@given(st.lists(st.tuples(st.integers(0, 150), st.integers(0, 2), st.booleans()), max_size=200))
def test_a_record_told_in_two_parts_and_united_says_what_it_said(steps: list[tuple[int, int, bool]]) -> None:
    parts = [WriterRecord(), WriterRecord()]
    known: dict[int, int] = {}
    version, side = 0, 0
    for sequence, ahead, turns in steps:
        version += ahead
        side = 1 if turns else side
        if sequence not in known:
            parts[side] = with_committed(parts[side], sequence, Version(version))
            known[sequence] = version
    whole = united(*parts)
    for sequence in range(152):
        found = committed_version((whole,), sequence)
        assert (found is None) == (sequence not in known)
        assert found in (None, VERSION_FORGOTTEN, known.get(sequence))
    firsts = [run.first for run in whole.committed]
    assert firsts == sorted(firsts)


def test_512_rejections_with_long_reasons_in_one_batch_leave_a_small_header() -> None:
    lake = new_lake()
    intents = [
        remove(f"r-{number}", removed(f"data/{'ü' * 300}.parquet"), writer_id=f"w-{number}", writer_sequence=1)
        for number in range(512)
    ]
    records = lake.records(intents)
    verdicts = lake.put_records(records)
    metadata = encode_header(lake.head.header)
    assert len(metadata["rootline.ledger"]) <= HEADER_BYTES_MAX
    assert len(metadata["rootline.outcomes"]) <= HEADER_BYTES_MAX
    assert len(lake.objects) == 3, "the definition, a page of ledger, a page of outcomes"
    again = lake.reloaded_lake().put(*intents)
    assert [(verdict.kind, verdict.code, verdict.message) for verdict in again] == [
        (verdict.kind, verdict.code, verdict.message) for verdict in verdicts
    ]


def test_a_duplicate_of_what_only_a_page_knows_names_its_commit() -> None:
    lake = new_lake()
    lake.limits = HeaderLimits(ledger_bytes=10)
    lake.put(append("a", writer_id="w", writer_sequence=1))
    assert not lake.head.header.ledger.writers
    [verdict] = lake.put(append("again", writer_id="w", writer_sequence=1))
    assert (verdict.kind, verdict.version) == (VerdictKind.DUPLICATE, 1)
    assert kinds(lake.reloaded_lake().put(append("b", writer_id="w", writer_sequence=2))) == [VerdictKind.COMMITTED]


def test_a_state_without_its_pages_decides_nothing() -> None:
    lake = new_lake()
    lake.limits = HeaderLimits(ledger_bytes=10)
    lake.put(append("a", writer_id="w", writer_sequence=1))
    without = type(lake.head).of(lake.head.root, lake.head.definition, lake.head.leaves)
    with pytest.raises(Internal, match="without its pages"):
        replace(lake, state=without).put(append("b"))


def test_maintenance_carries_pages_forward() -> None:
    lake = new_lake()
    lake.limits = HeaderLimits(ledger_bytes=10, outcome_bytes=200)
    lake.put(append("a", writer_id="w", writer_sequence=1), *[append("a") for _ in range(4)])
    before = lake.head.header
    lake.limits = HeaderLimits(ledger_bytes=10, outcome_bytes=4_000)
    lake.put(lake.flush("f", lake.leaf(lake.root_entries())))
    after = lake.head.header
    assert after.ledger.pages == before.ledger.pages != ()
    assert after.outcomes.pages == before.outcomes.pages != ()
