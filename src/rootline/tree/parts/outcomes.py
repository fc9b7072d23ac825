"""The part `outcomes`: verdicts that are not yet known to be published, and how they advance from root to root.

Owns: recording and dropping. Does not own: verdicts made from them (`verdicts`).
Invariants: An outcome is dropped only when its root's verdicts are known to be published. Every
record of a batch is recorded, whatever its verdict.

Source: protocol page, section 4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from rootline.schemas.identifiers import LogId, LogPosition, SequenceNumber, Version
from rootline.schemas.parts.outcomes import OutcomeException, OutcomeRun, Outcomes

Acknowledged = Mapping[tuple[LogId, int], int]
"""(log, partition) → the offset below which every record of the table has a verdict acknowledged by the log."""

NOTHING_ACKNOWLEDGED: Final[Acknowledged] = {}


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
