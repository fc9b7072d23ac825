"""What the embedded log remembers of its own age, and which offsets may be deleted at that age.

Owns: the choice, and its form as JSON. Does not own: deleting (`log_pruning`), how long things are kept (the settings).
Invariants: an offset may be deleted only if a checkpoint as old as the retention says that every record below it had a
verdict by then; the limits never decrease; a clock that jumps ages the log by at most a day a look.

Theory. A checkpoint is a pair: the log's age, and its first undecided offset at that age. Once a checkpoint is as old
as the retention, everything below its offset was decided at least that long ago. So neither records nor verdicts need a
time of their own, and files of earlier versions can be pruned too.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final, Self

STEP_MS_MAX: Final = 86_400_000
_CHECKPOINTS_MAX: Final = 128
_LOOK_EVERY_MS: Final = 300_000


@dataclass(frozen=True, slots=True)
class LogRetention:
    """How long what was decided is kept, in milliseconds of the log's age; dead letters at least as long as records."""

    records_ms: int
    dead_letters_ms: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """At `age_ms` every record below `decided_below` had a verdict."""

    age_ms: int
    decided_below: int


@dataclass(frozen=True, slots=True)
class PruningState:
    """`seen_ms`: the wall clock at the last look; the two offsets: everything that may go below them is deleted."""

    seen_ms: int = 0
    age_ms: int = 0
    checkpoints: tuple[Checkpoint, ...] = ()
    records_below: int = 0
    dead_letters_below: int = 0

    @classmethod
    def decode(cls, text: str | None) -> Self:
        """From JSON; nothing is known yet for `None`."""
        if text is None:
            return cls()
        said = json.loads(text)
        checkpoints = tuple(Checkpoint(age_ms, below) for age_ms, below in said["checkpoints"])
        return cls(said["seen_ms"], said["age_ms"], checkpoints, said["records_below"], said["dead_letters_below"])

    def encode(self) -> str:
        """As JSON."""
        return json.dumps(
            {
                "seen_ms": self.seen_ms,
                "age_ms": self.age_ms,
                "checkpoints": [[point.age_ms, point.decided_below] for point in self.checkpoints],
                "records_below": self.records_below,
                "dead_letters_below": self.dead_letters_below,
            }
        )


def looked_at(state: PruningState, *, now_ms: int, decided_below: int, retention: LogRetention) -> PruningState:
    """The state after a look at the log: `now_ms` of the wall clock, `decided_below` its first undecided offset."""
    passed_ms = 0 if state.seen_ms == 0 else min(max(now_ms - state.seen_ms, 0), STEP_MS_MAX)
    age_ms = state.age_ms + passed_ms
    spacing_ms = retention.dead_letters_ms // _CHECKPOINTS_MAX
    points = state.checkpoints
    if not points or (points[-1].decided_below < decided_below and age_ms - points[-1].age_ms >= spacing_ms):
        points = (*points, Checkpoint(age_ms, decided_below))
    # of those that are old enough for everything, the newest says all
    old = [point for point in points if age_ms - point.age_ms >= retention.dead_letters_ms]
    return PruningState(now_ms, age_ms, points[max(len(old) - 1, 0) :], state.records_below, state.dead_letters_below)


def is_due(state: PruningState, *, now_ms: int, retention: LogRetention) -> bool:
    """Whether the last look was a while ago, or left something to delete."""
    return (
        abs(now_ms - state.seen_ms) >= _LOOK_EVERY_MS
        or state.records_below < may_go_below(state, retention.records_ms)
        or state.dead_letters_below < may_go_below(state, retention.dead_letters_ms)
    )


def may_go_below(state: PruningState, retention_ms: int) -> int:
    """Everything below this offset has had its verdict for `retention_ms` of the log's age."""
    return max(
        (point.decided_below for point in state.checkpoints if state.age_ms - point.age_ms >= retention_ms), default=0
    )
