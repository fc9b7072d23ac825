"""The part `outcomes`: verdicts that may not have been published yet, in the header and in pages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from rootline.schemas.identifiers import LogId, SequenceNumber, Version
from rootline.schemas.parts.header_part import HeaderPart, count_of, json_of, list_in, string_of
from rootline.schemas.parts.page_reference import PageReference, encode_pages, pages_in

OUTCOMES_KEY: Final = "rootline.outcomes"
OUTCOME_PAGES_KEY: Final = "rootline.outcome-pages"


class OutcomeRun(NamedTuple):
    """Consecutive offsets whose intents were committed in `version`, with consecutive sequence numbers."""

    log: LogId
    partition: int
    first_offset: int
    last_offset: int
    version: Version
    first_sequence_number: SequenceNumber


class OutcomeException(NamedTuple):
    """One offset that was not committed: a duplicate (of `version`, where known) or a rejection (`code`).

    `decided_in` is the version of the root that recorded it. The outcome may be dropped once the log contains that
    root's verdicts.
    """

    log: LogId
    partition: int
    offset: int
    decided_in: Version
    code: str | None
    message: str | None
    duplicate_of: Version | None


Outcome = OutcomeRun | OutcomeException


@dataclass(frozen=True, slots=True)
class Outcomes:
    """The verdicts in one header or in one page."""

    runs: tuple[OutcomeRun, ...] = ()
    exceptions: tuple[OutcomeException, ...] = ()

    @property
    def items(self) -> list[Outcome]:
        """All outcomes: the runs, then the exceptions."""
        return [*self.runs, *self.exceptions]


@dataclass(frozen=True, slots=True)
class RecordedOutcomes:
    """Verdicts that may not have been published yet: the `newest` in the header, earlier ones in `pages`, the oldest
    first.
    """

    newest: Outcomes = Outcomes()
    pages: tuple[PageReference, ...] = ()


def encode_outcomes(outcomes: Outcomes) -> bytes:
    """The value of `rootline.outcomes`, whose length the header's limit applies to."""
    return json_of([outcomes.runs, outcomes.exceptions])


def _decode(metadata: Mapping[str, bytes]) -> RecordedOutcomes:
    runs, exceptions = list_in(metadata, OUTCOMES_KEY)
    newest = Outcomes(tuple(_run(*run) for run in runs), tuple(_exception(*exception) for exception in exceptions))
    return RecordedOutcomes(newest, pages_in(metadata, OUTCOME_PAGES_KEY))


def _run(log: Any, partition: Any, first: Any, last: Any, version: Any, sequence_number: Any) -> OutcomeRun:
    return OutcomeRun(
        LogId(string_of(log)),
        count_of(partition),
        count_of(first),
        count_of(last),
        Version(count_of(version)),
        SequenceNumber(count_of(sequence_number)),
    )


def _exception(
    log: Any, partition: Any, offset: Any, decided_in: Any, code: Any, message: Any, duplicate_of: Any
) -> OutcomeException:
    return OutcomeException(
        LogId(string_of(log)),
        count_of(partition),
        count_of(offset),
        Version(count_of(decided_in)),
        None if code is None else string_of(code),
        None if message is None else string_of(message),
        None if duplicate_of is None else Version(count_of(duplicate_of)),
    )


OUTCOMES: Final[HeaderPart[RecordedOutcomes]] = HeaderPart(
    "outcomes",
    {
        OUTCOMES_KEY: lambda outcomes: encode_outcomes(outcomes.newest),
        OUTCOME_PAGES_KEY: lambda outcomes: encode_pages(outcomes.pages),
    },
    _decode,
)
