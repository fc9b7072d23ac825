"""Where a coordinator gets its records: partitions that come and go, in order within each.

Owns: the port and its events. Does not own: which table a record is for, when its verdict is known.
Invariants: after `Assigned`, a partition's records come from its `next_offset` on, each once, in order, until
`Revoked`, which takes them all; everything before that offset has an acknowledged verdict; what is remembered of a
partition never goes back; an empty answer never stands for the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from rootline.ports.intent_log import VerdictSink
from rootline.schemas.log_position import LogId, LogRecord
from rootline.schemas.root_header import PartitionOffset

Partition = tuple[LogId, int]
"""One partition of one log."""


@dataclass(frozen=True, slots=True)
class Assigned:
    """These partitions are this process's now, and no others; each start is the first record that may lack a verdict.

    Empty when there are more readers than partitions. `poison_candidates`: where a reader ended without leaving the
    group, the records before these offsets may have been the ones that it was decoding.
    """

    starts: tuple[PartitionOffset, ...]
    poison_candidates: tuple[PartitionOffset, ...] = ()


@dataclass(frozen=True, slots=True)
class Delivered:
    """Records, in order within each partition; none when none came. `at_end`: there were no more at that moment.

    `passed`: what follows the records and is none, a transaction's end for instance, is behind the reading as well.
    """

    records: tuple[LogRecord, ...]
    at_end: bool
    passed: tuple[PartitionOffset, ...] = ()


@dataclass(frozen=True, slots=True)
class Revoked:
    """All partitions are somebody else's soon: call `released` once nothing of them is in flight here.

    Who does not answer within `deadline_s` seconds loses them all the same.
    """

    deadline_s: float


FeedEvent = Assigned | Delivered | Revoked


@dataclass(frozen=True, slots=True)
class Reread:
    """Records read once more, and the offset to go on from: unchanged when nothing was read."""

    records: tuple[LogRecord, ...]
    next_offset: int


class IntentFeed(Protocol):
    """One reader among those that share a log. For one event loop; connects with the first `next`."""

    async def next(self, *, wait_s: float, hold: bool = False) -> FeedEvent:
        """The next event, or an empty `Delivered` after about `wait_s` seconds. Safe to cancel: no record is lost.

        With `hold` no records come: the caller has no room, and yet wants to hear of assignments.

        Raises:
            Unavailable: `log-unavailable`; asking again is safe.
            Fenced: `log-replaced`, `log-behind-root`, `offset-out-of-range`: this log must not be read on.
        """
        ...

    async def released(self) -> None:
        """Answer `Revoked`: nothing is in flight here any more. What was decided has been said before."""
        ...

    async def decided(self, up_to: Sequence[PartitionOffset]) -> None:
        """Every record before these offsets has an acknowledged verdict: remember it for whoever reads next.

        Raises:
            Unavailable: `log-unavailable`, not remembered (perhaps the partitions are somebody else's now).
        """
        ...

    async def concluded(self, up_to: Sequence[PartitionOffset]) -> None:
        """As `decided`, and this reader ends here in good order: the next one need not be wary of what follows.

        Raises:
            Unavailable: as `decided`.
        """
        ...

    async def read_again(self, reader: str, start: PartitionOffset, *, limit: int) -> Reread:
        """Up to `limit` records of a partition from an offset on, beside the main reading.

        `reader`: who asks; one reader's reads that follow each other share a connection.

        Raises:
            Unavailable: `log-unavailable`. Fenced: `offset-out-of-range`.
        """
        ...

    async def forget_reader(self, reader: str) -> None:
        """That reader asks no more."""
        ...

    async def end_offset(self, log: LogId, partition: int) -> int | None:
        """The offset that the next record of a partition gets; `None`: another log.

        Not an older answer: a root that has applied more than there is, or was, shows that the log lost records.

        Raises:
            Unavailable: `log-unavailable`.
        """
        ...

    async def lag(self) -> Mapping[Partition, int]:
        """Records of each assigned partition that were not delivered yet, as far as is known.

        Raises:
            Unavailable: `log-unavailable`.
        """
        ...


class CoordinatorLog(IntentFeed, VerdictSink, Protocol):
    """A coordinator's side of a log."""

    async def close(self) -> None:
        """Leave at once, so that others need not wait to take over; give back connections."""
        ...
