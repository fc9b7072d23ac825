"""Group commit: the rules for closing a batch.

Owns: the limits of a batch and of its window. Does not own: timers and queues.
Invariants: A lone writer never waits. A batch is never open longer than its limits allow.

Theory. Writers in a closed loop publish their next intent after the verdict on the last one. If the next batch closed
immediately, it would take the fast writers only. The others would form a second group, and the two groups would
alternate forever at half the throughput. So after a root, the next batch stays open until the writers of that root have
sent their next intents, but no longer than a quarter of the duration of a PUT. A writer with several intents in flight
waits already, and no batch stays open for it. A writer that publishes at intervals, for example one intent a second,
does not return at once. So a batch stays open only for writers that also wrote one of the two roots before. (Two, or
groups that alternate would never meet.)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from rootline.tree.draft.batch import Record
from rootline.tree.rules.leaf_rules import LEAVES_BYTES_MAX

WINDOW_SHARE_OF_PUT: Final = 0.25
_WEIGHT_OF_NEWEST: Final = 0.2


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """The limits of a batch. Its intents together may also name no more bytes of leaves than one intent may."""

    intents_max: int
    bytes_max: int
    age_s_max: float


@dataclass(frozen=True, slots=True)
class Window:
    """The time for which the next batch stays open, and the number of intents that closes it earlier."""

    expected: int
    delay_s: float


Writers = frozenset[str | None]
"""The writers of a batch. `None` for all that have no id."""


def writers_of(records: Iterable[Record]) -> Writers:
    """The writers of these records."""
    return frozenset([record.intent.writer_id for record in records])


def awaited(batch: Sequence[Record], queue: Sequence[Record], earlier: Iterable[Writers]) -> int:
    """The number of intents of a confirmed batch whose writers are expected to send their next intent at once.

    They have none in the queue yet, and wrote at least one of the `earlier` roots.
    """
    expected = frozenset[str | None]().union(*earlier) - (writers_of(queue) - {None})
    return sum(record.intent.writer_id in expected for record in batch)


def next_window(returning: int, queued: int, put_s: float, limits: BatchLimits) -> Window | None:
    """The window while `returning` intents are awaited and `queued` wait. `None`: close the batch immediately."""
    expected = min(returning + queued, limits.intents_max)
    if expected <= 1 or queued >= expected:
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
    """The number of records, from the front of the queue, in the next batch (at least one)."""
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
    """The exponentially weighted mean of PUT durations, in seconds."""
    return newest_s if average_s is None else average_s + _WEIGHT_OF_NEWEST * (newest_s - average_s)
