"""Where a coordinator gets its records: partitions that come and go, in order within each.

Owns: the port and its events. Does not own: which table a record is for, when its verdict is known.
Invariants: after `Assigned` for a partition, its records come from `next_offset` on, each once, in order, until
`Revoked`; everything before `next_offset` has an acknowledged verdict; `decided` never moves a partition back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from rootline.schemas.log_position import LogRecord
from rootline.schemas.root_header import PartitionOffset


@dataclass(frozen=True, slots=True)
class Assigned:
    """These partitions are this process's now; each `next_offset` is the first record that may lack a verdict."""

    starts: tuple[PartitionOffset, ...]


@dataclass(frozen=True, slots=True)
class Delivered:
    """Records, in order within each partition. `at_end`: there were no more at that moment."""

    records: tuple[LogRecord, ...]
    at_end: bool


@dataclass(frozen=True, slots=True)
class Revoked:
    """These partitions are somebody else's soon: call `released` when nothing of them is in flight any more."""

    partitions: tuple[tuple[str, int], ...]


FeedEvent = Assigned | Delivered | Revoked


class IntentFeed(Protocol):
    """One reader among those that share the log."""

    async def next(self, *, wait_s: float) -> FeedEvent:
        """The next event; an empty `Delivered` when none came in `wait_s` seconds. Safe to cancel.

        Raises:
            Unavailable: the log cannot be reached; asking again is safe.
            Fenced: `log-replaced`, `log-behind-root`, `offset-out-of-range`; this log must not be read on.
        """
        ...

    async def released(self, partitions: Sequence[tuple[str, int]]) -> None:
        """Answer `Revoked`: nothing of these partitions is in flight here."""
        ...

    async def decided(self, up_to: Sequence[PartitionOffset]) -> None:
        """Every record before these offsets has an acknowledged verdict: remember it for whoever reads next."""
        ...

    async def read_again(self, log: str, partition: int, from_offset: int, *, limit: int) -> list[LogRecord]:
        """Records of a partition once more, beside the main reading; fewer than `limit` only at its end."""
        ...

    async def end_offset(self, log: str, partition: int) -> int:
        """The offset that the next record of a partition will get."""
        ...
