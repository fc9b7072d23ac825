"""The part `outcomes`: verdicts that are not yet known to be published, in the header and in pages.

Owns: recording and dropping, which outcomes move to pages (the oldest first), merging pages. Does not own: verdicts
made from them (`verdicts`), pages' bytes (`rootline.schemas.bytes.root.outcome_page`), when a part moves and which
pages are merged (`page_merge`).
Invariants: An outcome is dropped only when its root's verdicts are known to be published. Every record of a batch is
recorded, whatever its verdict. A page is dropped when all of it is acknowledged, or when its remaining outcomes are
merged into a new page.

Source: protocol page, sections 1 and 4. Format page, "Pages".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import is_
from typing import Final

from rootline.schemas.bytes.root.outcome_page import OUTCOME_PAGES, OutcomePage, PagedOutcomes
from rootline.schemas.identifiers import Acknowledged, LogPosition, SequenceNumber, Version
from rootline.schemas.parts.outcomes import (
    Outcome,
    OutcomeException,
    OutcomeRun,
    Outcomes,
    RecordedOutcomes,
    encode_outcomes,
)
from rootline.tree.parts.page_merge import Spill
from rootline.tree.parts.part_rules import Advance, CheckedStep, PartRules
from rootline.tree.state.table_state import TableState, changed_pages

_NUMBERS_BYTES: Final = 5 * 20 + 16  # of one outcome: numbers of 64 bits, brackets, commas, quotes


def kept(outcomes: Outcomes, acknowledged: Acknowledged) -> Outcomes:
    """The outcomes whose verdicts are not known to be acknowledged."""
    if not outcomes.runs and not outcomes.exceptions:
        return outcomes
    return Outcomes(
        tuple(run for run in outcomes.runs if run.last_offset >= acknowledged.get((run.log, run.partition), 0)),
        tuple(item for item in outcomes.exceptions if item.offset >= acknowledged.get((item.log, item.partition), 0)),
    )


def joined(parts: Sequence[Outcomes]) -> Outcomes:
    """All outcomes of `parts`, which are in order."""
    return Outcomes(
        tuple([run for part in parts for run in part.runs]), tuple([item for part in parts for item in part.exceptions])
    )


class OutcomeDraft:
    """The outcomes of one batch, in the order of the decisions."""

    def __init__(self, version: Version) -> None:
        self._version = version
        self._runs: list[OutcomeRun] = []
        self._exceptions: list[OutcomeException] = []

    def committed(self, position: LogPosition, sequence_number: SequenceNumber) -> None:
        """Record a committed intent. It extends the last run, or begins a new one."""
        log, partition, offset = position
        if self._runs:
            same_log, same_partition, first, last, version, number = self._runs[-1]
            if (
                offset == last + 1
                and sequence_number == number + offset - first
                and partition == same_partition
                and log == same_log
            ):
                self._runs[-1] = OutcomeRun(log, partition, first, offset, version, number)
                return
        self._runs.append(OutcomeRun(log, partition, offset, offset, self._version, sequence_number))

    def duplicate(self, position: LogPosition, duplicate_of: Version | None) -> None:
        """Record an intent that was committed before, in `duplicate_of` if known."""
        self._exceptions.append(OutcomeException(*position, self._version, None, None, duplicate_of))

    def rejected(self, position: LogPosition, code: str, message: str) -> None:
        """Record a rejection."""
        self._exceptions.append(OutcomeException(*position, self._version, code, message, None))

    def after(self, earlier: Outcomes) -> Outcomes:
        """`earlier`, followed by this batch's outcomes."""
        return Outcomes((*earlier.runs, *self._runs), (*earlier.exceptions, *self._exceptions))


def _advance(batch: OutcomeDraft, step: Advance) -> RecordedOutcomes:
    earlier, pages = Outcomes(), step.pages.of(OUTCOME_PAGES)
    if step.before is not None:
        earlier = kept(step.before.outcomes.newest, step.acknowledged)
    if step.starts_table:  # a new table writes its own pages
        earlier, pages = joined([*(kept(page.content.outcomes, step.acknowledged) for page in pages), earlier]), ()
    pages = tuple(page for page in pages if not is_acknowledged(page, step.acknowledged)) if pages else pages

    def merged(contents: Sequence[PagedOutcomes], _: Outcomes) -> PagedOutcomes:
        *earlier, moved = [content.outcomes for content in contents]
        return PagedOutcomes(joined([*(kept(outcomes, step.acknowledged) for outcomes in earlier), moved]))

    limit_bytes = step.limits.outcome_bytes
    fitted = _SPILL.fitted(batch.after(earlier), pages, limit_bytes, merged, table_uuid=step.table_uuid, salt=step.salt)
    newest, references = step.spilled(OUTCOME_PAGES, fitted)
    return RecordedOutcomes(newest, references)


def is_acknowledged(page: OutcomePage, acknowledged: Acknowledged) -> bool:
    """Whether all outcomes of a page are acknowledged. The page is not read: its reference states the offsets that it
    covers.
    """
    covers = page.reference.covers
    return all(item.last_offset < acknowledged.get((item.log, item.partition), 0) for item in covers)


def are_within(outcomes: Outcomes, limit_bytes: int) -> bool:
    """Whether these outcomes fit in the header. Encodes them only if an upper bound exceeds the limit."""
    if _most_bytes(outcomes.runs) + _most_bytes(outcomes.exceptions) <= limit_bytes:
        return True
    return len(encode_outcomes(outcomes)) <= limit_bytes


def _most_bytes(items: Iterable[Outcome]) -> int:
    most = 8
    for item in items:
        most += _NUMBERS_BYTES + _most_bytes_of(item.log)
        if isinstance(item, OutcomeException):
            most += _most_bytes_of(item.code or "") + _most_bytes_of(item.message or "")
    return most


def _most_bytes_of(text: str) -> int:
    return len(text) * (2 if text.isascii() and text.isprintable() else 12)  # up to two escaped surrogates


def _divided(outcomes: Outcomes, target: int) -> tuple[PagedOutcomes, Outcomes]:
    """(the outcomes to move, the outcomes that stay): oldest first, down to `target` bytes."""
    size = len(encode_outcomes(outcomes))
    moved: set[Outcome] = set()
    for item in sorted(outcomes.items, key=_age):
        if size <= target:
            break
        size -= len(_encoded(item)) - _EMPTY_BYTES + 1
        moved.add(item)
    return (
        PagedOutcomes(_those(outcomes, lambda item: item in moved)),
        _those(outcomes, lambda item: item not in moved),
    )


def _those(outcomes: Outcomes, wanted: Callable[[Outcome], bool]) -> Outcomes:
    return Outcomes(tuple(filter(wanted, outcomes.runs)), tuple(filter(wanted, outcomes.exceptions)))


def _age(item: Outcome) -> tuple[int, str, int, int]:
    version = item.version if isinstance(item, OutcomeRun) else item.decided_in
    return version, item.log, item.partition, item[2]


def _encoded(item: Outcome) -> bytes:
    return encode_outcomes(Outcomes((item,)) if isinstance(item, OutcomeRun) else Outcomes((), (item,)))


def _page_rule(old: TableState | None, new: TableState, step: CheckedStep) -> Iterator[str]:
    if not are_within(new.header.outcomes.newest, step.limits.outcome_bytes):
        yield f"the header has more than {step.limits.outcome_bytes} bytes of outcomes"
    if old is None:
        return
    added, dropped = changed_pages(OUTCOME_PAGES, old.pages, new.pages)
    for outcomes in [old.header.outcomes.newest, *[page.content.outcomes for page in dropped]]:
        yield from _lost_outcomes(kept(outcomes, step.acknowledged), new.header.outcomes.newest, added)


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


def _begins(longer: tuple[object, ...], shorter: tuple[object, ...]) -> bool:
    return len(longer) >= len(shorter) and all(map(is_, longer, shorter))


_EMPTY_BYTES: Final = len(encode_outcomes(Outcomes()))
_SPILL: Final = Spill(OUTCOME_PAGES, are_within, _divided)
OUTCOMES: Final = PartRules("outcomes", page_rules={OUTCOME_PAGES: _page_rule}, advance=_advance)
