"""A page of outcomes: an object with verdicts that may not have been published yet, and that do not fit in the root's
header.

Owns: the rows' form, and finding the outcome of an offset. Does not own: the file around them (`page_codec`), which
outcomes move out of the header (`rootline.tree.parts.outcomes`), the verdicts made from them
(`rootline.tree.commit.verdicts`).
Invariants: Encoded outcomes decode to equal outcomes in the same order. Lookup time does not depend on their number.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final, TypeAlias

from rootline.schemas.bytes.avro_encoding import Unreadable
from rootline.schemas.bytes.root.page_codec import Page, PageKind, RowSchema, record_schema
from rootline.schemas.identifiers import LogId
from rootline.schemas.parts.outcomes import Outcome, OutcomeException, OutcomeRun, Outcomes
from rootline.schemas.parts.page_reference import CoveredOffset

_OPTIONAL_STRING: Final = ("null", "string")
_ROW: Final = RowSchema(
    (
        record_schema(
            "outcome_run",
            log="string",
            partition="long",
            first_offset="long",
            last_offset="long",
            version="long",
            first_sequence_number="long",
        ),
        record_schema(
            "outcome_exception",
            log="string",
            partition="long",
            offset="long",
            decided_in="long",
            code=_OPTIONAL_STRING,
            message=_OPTIONAL_STRING,
            duplicate_of=("null", "long"),
        ),
    )
)
_Place = tuple[str, int]


@dataclass(frozen=True, slots=True)
class PagedOutcomes:
    """Outcomes, oldest first, with lookup by log, partition and offset."""

    outcomes: Outcomes
    _runs: dict[_Place, list[OutcomeRun]] = field(default_factory=dict, compare=False, repr=False)
    _exceptions: dict[tuple[str, int, int], OutcomeException] = field(default_factory=dict, compare=False, repr=False)

    def run_at(self, log: str, partition: int, offset: int) -> OutcomeRun | None:
        """The run of commits that covers an offset."""
        self._index()
        runs = self._runs.get((log, partition), [])
        at = bisect_right(runs, offset, key=_first_offset) - 1
        return runs[at] if at >= 0 and runs[at].last_offset >= offset else None

    def exception_at(self, log: str, partition: int, offset: int) -> OutcomeException | None:
        """The duplicate or rejection at an offset."""
        self._index()
        return self._exceptions.get((log, partition, offset))

    def _index(self) -> None:
        if self._runs or self._exceptions:
            return
        for run in sorted(self.outcomes.runs, key=_first_offset):
            self._runs.setdefault((run.log, run.partition), []).append(run)
        for item in self.outcomes.exceptions:
            self._exceptions[item.log, item.partition, item.offset] = item


OutcomePage: TypeAlias = Page[PagedOutcomes]


def encode_outcome(item: Outcome) -> bytes:
    """An outcome as an encoded row."""
    if isinstance(item, OutcomeRun):
        return _ROW.encode(("outcome_run", item._asdict()))
    if item.message is not None:
        # a message may quote characters that cannot be encoded; it is only for people, so they are escaped
        item = item._replace(message=item.message.encode(errors="backslashreplace").decode())
    return _ROW.encode(("outcome_exception", item._asdict()))


def covers_of(outcomes: Outcomes) -> tuple[CoveredOffset, ...]:
    """The last offset of each log and partition for which `outcomes` has a verdict."""
    last: dict[tuple[LogId, int], int] = {}
    for run in outcomes.runs:
        last[run.log, run.partition] = max(run.last_offset, last.get((run.log, run.partition), 0))
    for item in outcomes.exceptions:
        last[item.log, item.partition] = max(item.offset, last.get((item.log, item.partition), 0))
    return tuple(CoveredOffset(log, partition, offset) for (log, partition), offset in sorted(last.items()))


def _first_offset(run: OutcomeRun) -> int:
    return run.first_offset


def _rows_of(content: PagedOutcomes) -> Iterator[bytes]:
    return map(encode_outcome, content.outcomes.items)


def _content_of(rows: Iterator[tuple[Any, bytes]]) -> PagedOutcomes:
    runs: list[OutcomeRun] = []
    exceptions: list[OutcomeException] = []
    for (kind, value), row in rows:
        item = OutcomeRun(**value) if kind == "outcome_run" else OutcomeException(**value)
        if encode_outcome(item) != row:
            raise Unreadable(f"an outcome is not encoded in the way that the format requires: {item!r:.100}")
        if isinstance(item, OutcomeRun):
            runs.append(item)
        else:
            exceptions.append(item)
    return PagedOutcomes(Outcomes(tuple(runs), tuple(exceptions)))


def _covers_of(content: PagedOutcomes) -> tuple[CoveredOffset, ...]:
    return covers_of(content.outcomes)


OUTCOME_PAGES: Final = PageKind(
    "outcomes", _ROW, _rows_of, _content_of, attrgetter("outcomes.pages"), covers_of=_covers_of
)
