"""Who reads which partition: a group of readers with eager rebalancing, as Kafka's classic protocol has it.

Owns: seats, rebalances and their deadline, sessions, what is remembered of each partition. Does not own: records
(`partitioned_log`), what a reader believes (`group_member`).
Invariants: a partition has one owner in each generation; a generation begins only when all members of the last
one have let go, have left, or were thrown out; what is remembered moves forward only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from rootline.ports.intent_feed import Pause, RecordedRejection
from rootline.schemas.identifiers import LogId
from tests.support.group_parking import ParkedRecords

NOBODY: Final = -1


@dataclass(slots=True)
class _Seat:
    """`generation`: the last in which it was given partitions. `waits`: it has let go and waits for the next one."""

    generation: int = NOBODY
    waits: bool = True
    session: asyncio.TimerHandle | None = None


class ConsumerGroup:
    """`partitions` says how many there are; `changed` is called whenever a reader should look again.

    A rebalance waits `rebalance_timeout_s` seconds for all; one that is silent for `session_timeout_s` is thrown out.
    """

    def __init__(
        self,
        partitions: Callable[[], int],
        changed: Callable[[], None],
        *,
        rebalance_timeout_s: float,
        session_timeout_s: float,
    ) -> None:
        self._partitions = partitions
        self._changed = changed
        self._rebalance_timeout_s = rebalance_timeout_s
        self._session_timeout_s = session_timeout_s
        self._seats: dict[str, _Seat] = {}
        self._assignment: dict[str, tuple[int, ...]] = {}
        self._deadline: asyncio.TimerHandle | None = None
        self.generation = 0
        self.remembered: dict[int, tuple[LogId, int]] = {}
        self.recorded: dict[tuple[LogId, int], int] = {}
        """What outlives the group: how far each partition of a log is decided, a lower bound."""
        self.answered: dict[tuple[LogId, int], dict[int, RecordedRejection]] = {}
        """Rejections that no root records, by offset; they outlive the group as well."""
        self.parked = ParkedRecords()
        self.paused: list[Pause] = []
        self.bookmark: LogId | None = None
        """The identity of the log that was read last."""
        self.in_hand: set[int] = set()
        """Partitions whose last reader has not said that it ended in good order."""

    @property
    def is_rebalancing(self) -> bool:
        """Whether readers are asked to let go."""
        return self._deadline is not None

    @property
    def deadline_s(self) -> float:
        """How long a reader that is told now may take to let go, seconds."""
        if self._deadline is None:
            return self._rebalance_timeout_s
        return max(0.0, self._deadline.when() - asyncio.get_running_loop().time())

    def owner_of(self, partition: int) -> str | None:
        """Whose it is in this generation."""
        owners = (reader for reader, own in self._assignment.items() if partition in own and reader in self._seats)
        return next(owners, None)

    def has_seat(self, reader: str) -> bool:
        """Whether the group counts on this reader."""
        return reader in self._seats

    def is_owner(self, reader: str, generation: int) -> bool:
        """Whether what `reader` was given in `generation` is still its own; also while it is asked to let go."""
        seat = self._seats.get(reader)
        return seat is not None and not seat.waits and seat.generation == generation == self.generation

    def given_to(self, reader: str) -> tuple[int, ...] | None:
        """The partitions that await `reader`; `None` while it has to wait."""
        seat = self._seats.get(reader)
        return self._assignment[reader] if seat is not None and not seat.waits else None

    def join(self, reader: str) -> None:
        """Join, and make all members let go."""
        self._seats[reader] = _Seat()
        self.rebalance()

    def let_go(self, reader: str) -> None:
        """Nothing of `reader` is in flight any more; a member that was thrown out joins again."""
        seat = self._seats.get(reader)
        if seat is None:
            self.join(reader)
            return
        seat.waits = True
        self._go_on()

    def leave(self, reader: str) -> None:
        """Stand up: its partitions go to others."""
        seat = self._seats.pop(reader, None)
        if seat is not None:
            _cancel(seat.session)
            self.rebalance()

    def rebalance(self) -> None:
        """All members let go; partitions are shared out again."""
        if self._deadline is None:
            loop = asyncio.get_running_loop()
            self._deadline = loop.call_later(self._rebalance_timeout_s, self._throw_out_late_ones)
        self._go_on()

    def fall_silent(self, reader: str) -> None:
        """No heartbeat comes from `reader` from now on."""
        seat = self._seats.get(reader)
        if seat is not None and seat.session is None:
            loop = asyncio.get_running_loop()
            seat.session = loop.call_later(self._session_timeout_s, self.leave, reader)

    def speak_again(self, reader: str) -> None:
        """Heartbeats come again."""
        seat = self._seats.get(reader)
        if seat is not None:
            _cancel(seat.session)
            seat.session = None

    def _throw_out_late_ones(self) -> None:
        for reader in [reader for reader, seat in self._seats.items() if not seat.waits]:
            _cancel(self._seats.pop(reader).session)
        self._go_on()

    def _go_on(self) -> None:
        """Share out once all members wait. Every generation moves every partition on, if there is another member."""
        if self._deadline is not None and all(seat.waits for seat in self._seats.values()):
            _cancel(self._deadline)
            self._deadline = None
            self.generation += 1
            readers = sorted(self._seats)
            shares: dict[str, list[int]] = {reader: [] for reader in readers}
            for partition in range(self._partitions() if readers else 0):
                shares[readers[(partition + self.generation) % len(readers)]].append(partition)
            self._assignment = {reader: tuple(share) for reader, share in shares.items()}
            for seat in self._seats.values():
                seat.generation, seat.waits = self.generation, False
        self._changed()


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
