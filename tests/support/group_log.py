"""A log that several coordinators share as a group: for tests, in virtual time.

Owns: the composition of records, group and readers, and what a test does to them. Does not own: the parts.
Invariants: as `CoordinatorLog` for every reader; whatever a reader does that must never be (another verdict for a
record, an offset remembered past an undecided one) is raised where it happens, and kept in `violations`.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from itertools import count

from tests.support.consumer_group import ConsumerGroup
from tests.support.group_member import READ_MAX, GroupMember, Hook, Hooks, nothing
from tests.support.partitioned_log import PartitionedLog, loop_clock_ms


class GroupLog(PartitionedLog):
    """A `PartitionedLog` with a group of readers.

    `before` and `after`: called around each operation of a reader; they may wait, and they may raise. `wary`: whether
    a reader is told that the one before it ended without leaving.
    """

    def __init__(
        self,
        partitions: int = 1,
        *,
        before: Hook = nothing,
        after: Hook = nothing,
        read_max: int = READ_MAX,
        wary: bool = False,
        retention_s: float | None = None,
        rebalance_timeout_s: float = 60.0,
        session_timeout_s: float = 10.0,
        identity: uuid.UUID | None = None,
        clock_ms: Callable[[], int] = loop_clock_ms,
    ) -> None:
        super().__init__(partitions, identity=identity, clock_ms=clock_ms)
        self.hooks = Hooks(before, after, read_max, wary, retention_s)
        self.group = ConsumerGroup(
            lambda: self.partitions,
            self.changes.tell,
            rebalance_timeout_s=rebalance_timeout_s,
            session_timeout_s=session_timeout_s,
        )
        self._members: dict[str, GroupMember] = {}
        self._numbers = count(1)

    def member(self, name: str) -> GroupMember:
        """A process's connection; it joins with its first `next`. The controls below are for the newest of a name."""
        made = GroupMember(f"{name}.{next(self._numbers)}", self, self.group, self.hooks)
        self._members[name] = made
        return made

    def member_of(self, name: str) -> GroupMember:
        """The newest connection of that name."""
        return self._members[name]

    def remembered(self, partition: int) -> int | None:
        """The offset before which everything is decided, as far as the group knows; `None`: it knows nothing."""
        known = self.group.remembered.get(partition)
        return None if known is None else known[1]

    def owners(self) -> dict[int, str | None]:
        """Whose each partition is."""
        return {partition: self.group.owner_of(partition) for partition in range(self.partitions)}

    def owns(self, name: str) -> list[int]:
        """The partitions of the newest connection of that name."""
        return [partition for partition, owner in self.owners().items() if owner == self._members[name].reader]

    def rebalance(self) -> None:
        """Everybody lets go, and gets other partitions if there are several readers."""
        self.group.rebalance()

    def pause(self, name: str) -> None:
        """The connection to the group stops, both ways; verdicts still go out."""
        member = self._members[name]
        member.hears.clear()
        self.group.fall_silent(member.reader)

    def resume(self, name: str) -> None:
        """It works again; if that took longer than a session lasts, its seat is gone."""
        member = self._members[name]
        if not member.is_dead:
            self.group.speak_again(member.reader)
            member.hears.set()

    def crash(self, name: str) -> None:
        """The process is gone without leaving; its task must be cancelled as well."""
        self._members[name].is_dead = True
        self.pause(name)

    def add_partition(self) -> int:
        """One more; the group finds out at once."""
        number = super().add_partition()
        self.group.rebalance()
        return number

    def expire_offsets(self) -> None:
        """The broker forgets what the group remembered, as it does after days without a reader."""
        self.group.bookmark = None
        self.group.remembered.clear()

    def accept(self) -> None:
        """An operator's word that the log as it is now is the one to read, from what it still holds."""
        self.group.bookmark = None
        for partition in range(self.partitions):
            begin, end = self.span(partition)
            recorded = self.group.recorded.get((self.log_id, partition))
            if recorded is None or not begin <= recorded <= end:
                self.group.recorded[self.log_id, partition] = begin
        self.group.remembered = {
            partition: (log, offset)
            for partition, (log, offset) in self.group.remembered.items()
            if log == self.log_id and self.span(partition)[0] <= offset <= self.span(partition)[1]
        }
