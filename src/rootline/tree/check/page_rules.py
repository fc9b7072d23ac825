"""The rules for ledger, outcomes and pages in the step from a root to the next one, checked before every PUT.

A page is an object of rows that do not fit in the header of a root. The root references it.

Owns: the predicates, and their table by kind of page. Does not own: the other rules on two versions (`invariants`), how
parts move to pages (`page_merge`).
Invariants: Pure. Reads only what changed: records that differ from the parent's, pages that were added or dropped.

Source: invariants page, numbers 2, 3 and 5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import is_
from typing import Any, Final

from rootline.schemas.bytes.root.ledger_page import LEDGER_PAGES, decode_ledger_row, record_in
from rootline.schemas.bytes.root.location_pages import CONDEMNED_PAGES, RETIRED_PAGES, RetiredPage
from rootline.schemas.bytes.root.outcome_page import OUTCOME_PAGES, OutcomePage
from rootline.schemas.bytes.root.page_codec import PageKind
from rootline.schemas.bytes.root.retained_page import RETAINED_PAGES
from rootline.schemas.content_entry import LEAF_TYPES, ContentEntry, Status
from rootline.schemas.identifiers import WriterId
from rootline.schemas.intent import PROCESS_WRITER_PREFIX
from rootline.schemas.location_hashes import LocationHashes, location_hash
from rootline.schemas.parts.ledger import CommittedRun, HeaderLedger, WriterRecord
from rootline.schemas.parts.outcomes import Outcomes
from rootline.tree.parts.header_limits import HeaderLimits
from rootline.tree.parts.ledger import REJECTED_MAX, lost_runs
from rootline.tree.parts.locations import LOCATIONS_MAX
from rootline.tree.parts.log import counted_ms
from rootline.tree.parts.name import starts_new_table
from rootline.tree.parts.outcomes import Acknowledged, are_within, kept
from rootline.tree.parts.restores import RESTORED_VERSIONS
from rootline.tree.state.table_pages import changed_pages
from rootline.tree.state.table_state import TableState


def page_violations(
    old: TableState | None, new: TableState, acknowledged: Acknowledged, limits: HeaderLimits
) -> Iterator[str]:
    """The rules that the step from `old` to `new` breaks, as sentences. Outcomes whose verdicts are `acknowledged` may
    be dropped.
    """
    if not new.pages.are_those_of(new.header):
        yield "the pages are not those that the header references"
    if HeaderLedger.of(new.header.ledger.writers).size_in_bytes > limits.ledger_bytes:
        yield f"the header has more than {limits.ledger_bytes} bytes of the ledger"
    if not are_within(new.header.outcomes.newest, limits.outcome_bytes):
        yield f"the header has more than {limits.outcome_bytes} bytes of outcomes"
    for rule in PAGE_RULES.values():
        yield from rule(old, new, acknowledged)


def _retained(_old: TableState | None, new: TableState, _acknowledged: Acknowledged) -> Iterator[str]:
    page = new.pages.newest(RETAINED_PAGES)
    for name, version in new.header.tags.items() if new.header.versions.expiry is not None else ():
        if version < new.header.versions.oldest and (page is None or page.content.find(version) is None):
            yield f"version {version}, which has tag {name!r}, is not among the retained versions"


def _ledger(old: TableState | None, new: TableState, _acknowledged: Acknowledged) -> Iterator[str]:
    if old is None or starts_new_table(old.header, new.header):  # each table has its own ledger
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
        if not writer.startswith(PROCESS_WRITER_PREFIX):
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


def _outcomes(old: TableState | None, new: TableState, acknowledged: Acknowledged) -> Iterator[str]:
    if old is None:
        return
    added, dropped = changed_pages(OUTCOME_PAGES, old.pages, new.pages)
    for outcomes in [old.header.outcomes.newest, *[page.content.outcomes for page in dropped]]:
        yield from _lost_outcomes(kept(outcomes, acknowledged), new.header.outcomes.newest, added)


def _lost_outcomes(before: Outcomes, after: Outcomes, added: Iterable[OutcomePage]) -> Iterator[str]:
    if _begins(after.runs, before.runs) and _begins(after.exceptions, before.exceptions):
        return
    places = (after, *(page.content.outcomes for page in added))
    runs = {run for place in places for run in place.runs}
    exceptions = {item for place in places for item in place.exceptions}
    for run in before.runs:
        if run not in runs:
            yield f"the outcomes of offsets {run.first_offset} to {run.last_offset} of {run.log} are lost"
    for item in before.exceptions:
        if item not in exceptions:
            yield f"the outcome of offset {item.offset} of {item.log} is lost"


def _condemned(old: TableState | None, new: TableState, _acknowledged: Acknowledged) -> Iterator[str]:
    """Check that no condemned location is added, and that a page of condemned locations stays until the horizon has
    passed its time.
    """
    if old is None:
        return
    added, dropped = changed_pages(CONDEMNED_PAGES, old.pages, new.pages)
    since = {item.page: item.since_ms for item in old.header.locations.condemned}
    for page in dropped:
        if since[page.reference] > new.header.locations.horizon_ms:
            known = [other.content.locations for other in added]
            if any(all(item not in locations for locations in known) for item in page.content.locations):
                yield f"page {page.reference.location} is lost, but the horizon has not passed it"
    if not old.pages.of(CONDEMNED_PAGES) or RESTORED_VERSIONS in new.header.snapshot.summary:
        return
    for ordinal in new.live.unsettled:
        for row in new.root.blocks[ordinal].rows:
            entry = row.entry
            if entry.version_info.status is Status.ADDED or entry.location not in old.live.leaf_rows:
                yield from _not_added(entry, old)


def _retired(old: TableState | None, new: TableState, _acknowledged: Acknowledged) -> Iterator[str]:
    """Check that a page of retired locations stays until the horizon has passed its time, or there are more than
    `LOCATIONS_MAX` locations.
    """
    if old is None or starts_new_table(old.header, new.header):  # each table has its own files
        return
    added, dropped = changed_pages(RETIRED_PAGES, old.pages, new.pages)
    header, since = new.header, {item.page: item.since_ms for item in old.header.locations.retired.pages}
    known = [hashes for page in added for hashes in _sets(page)]
    for page in dropped:
        if since[page.reference] < (header.locations.horizon_ms or counted_ms(header.log.time)):
            continue
        is_full = sum(len(each.content) for each in (page, *new.pages.of(RETIRED_PAGES))) > LOCATIONS_MAX
        locations = (item for hashes in _sets(page) for item in hashes)
        if not is_full and any(all(item not in hashes for hashes in known) for item in locations):
            yield f"page {page.reference.location} is lost, but its locations were removed only recently"


def _sets(page: RetiredPage) -> tuple[LocationHashes, LocationHashes]:
    return page.content.removed, page.content.rewritten


def _not_added(entry: ContentEntry, old: TableState) -> Iterator[str]:
    wanted = location_hash(entry.location)
    is_new = entry.version_info.status is Status.ADDED or entry.content_type in LEAF_TYPES
    if is_new and any(wanted in page.content.locations for page in old.pages.of(CONDEMNED_PAGES)):
        yield f"{entry.location} is added, but was condemned"


def _begins(longer: tuple[object, ...], shorter: tuple[object, ...]) -> bool:
    return len(longer) >= len(shorter) and all(map(is_, longer, shorter))


PAGE_RULES: Final[Mapping[PageKind[Any], Callable[[TableState | None, TableState, Acknowledged], Iterator[str]]]] = {
    RETAINED_PAGES: _retained,
    LEDGER_PAGES: _ledger,
    OUTCOME_PAGES: _outcomes,
    CONDEMNED_PAGES: _condemned,
    RETIRED_PAGES: _retired,
}
"""The rule of each kind of page and of the part of the header that moves to it, in the order of the sentences."""
