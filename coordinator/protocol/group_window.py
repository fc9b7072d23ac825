"""When a batch closes.

Owns: the arithmetic of group commit. Does not own: timers and queues.
Invariants: a lone writer never waits; a batch never stays open longer than its limits say.

Theory. Writers in a closed loop publish again when they hear their verdict. If the next batch closed at once, it
would take only those who were quick, the rest would form a second convoy, and the two would alternate for ever at
half the throughput. So after a root that served several intents, the next batch waits until as many have come back,
but no longer than a quarter of what a PUT takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rootline.tree.draft.batch import Record
from rootline.tree.rules.writer_leaves import LEAVES_BYTES_MAX

WINDOW_SHARE_OF_PUT: Final = 0.25
_WEIGHT_OF_NEWEST: Final = 0.2


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """A batch closes at any of these, and at the bytes of leaves that one intent may name."""

    intents_max: int
    bytes_max: int
    age_s_max: float


@dataclass(frozen=True, slots=True)
class Window:
    """How long to hold the next batch open, for how many intents."""

    expected: int
    delay_s: float


def next_window(served: int, queued: int, put_s: float, limits: BatchLimits) -> Window | None:
    """After a root with `served` intents, with `queued` waiting; `None`: close at once."""
    expected = min(served + queued, limits.intents_max)
    if served + queued <= 1 or queued >= expected:
        return None
    delay_s = min(put_s * WINDOW_SHARE_OF_PUT, limits.age_s_max)
    return Window(expected, delay_s) if delay_s > 0 else None


def is_full(queue: Sequence[Record], limits: BatchLimits, expected: int) -> bool:
    """Whether an open batch should close before its window ends."""
    return (
        len(queue) >= min(expected, limits.intents_max)
        or sum(record.size_in_bytes for record in queue) >= limits.bytes_max
    )


def take(queue: Sequence[Record], limits: BatchLimits) -> int:
    """How many records from the front make the next batch: at least one."""
    size = leaves = 0
    for count, record in enumerate(queue):
        size += record.size_in_bytes
        if record.refusal is None:
            for manifest in record.intent.add_manifests:
                leaves += manifest.file_size_in_bytes
        if count > 0 and (count >= limits.intents_max or size > limits.bytes_max or leaves > LEAVES_BYTES_MAX):
            return count
    return len(queue)


def moving_average(average_s: float | None, newest_s: float) -> float:
    """Exponentially weighted mean of PUT durations, seconds."""
    return newest_s if average_s is None else average_s + _WEIGHT_OF_NEWEST * (newest_s - average_s)
