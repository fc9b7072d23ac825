"""How far each partition is decided: the offset before which every record has an acknowledged verdict.

Owns: the bookkeeping over the tables that share a partition. Does not own: committing it (`consumer_loop`).
Invariants: never passes a record without an acknowledged verdict; memory follows what is undecided, and what was
dropped counts as one offset; never moves back.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rootline.schemas.identifiers import TableName
from rootline.schemas.log_position import LogId
from rootline.schemas.root_header import PartitionOffset

Partition = tuple[LogId, int]


@dataclass(slots=True)
class _Partition:
    next_offset: int
    decided: int
    waiting: dict[TableName, list[int]] = field(default_factory=dict)
    dropped: dict[TableName, int] = field(default_factory=dict)


@dataclass(slots=True)
class Frontier:
    """One process's partitions."""

    _partitions: dict[Partition, _Partition] = field(default_factory=dict)

    def assign(self, starts: Iterable[PartitionOffset]) -> None:
        """Begin at these offsets."""
        for log, partition, offset in starts:
            self._partitions[log, partition] = _Partition(offset, offset)

    def revoke(self, partitions: Iterable[Partition]) -> None:
        """Forget these partitions."""
        for place in partitions:
            self._partitions.pop(place, None)

    def holds(self, place: Partition) -> bool:
        """Whether the partition is this process's."""
        return place in self._partitions

    def next_offset(self, place: Partition) -> int:
        """The offset after the last record that was read."""
        return self._partitions[place].next_offset

    def read(self, place: Partition, offset: int, table: TableName | None) -> None:
        """A record was read; `None`: it has its verdict already."""
        held = self._partitions[place]
        held.next_offset = max(held.next_offset, offset + 1)
        if table is not None and table not in held.dropped:
            held.waiting.setdefault(table, []).append(offset)

    def drop(self, place: Partition, offset: int, table: TableName) -> None:
        """From `offset` on, this table's records are not in memory; they count as undecided."""
        held = self._partitions[place]
        held.dropped.setdefault(table, offset)

    def caught_up(self, place: Partition, table: TableName, waiting: Sequence[int]) -> None:
        """The table takes part in the main reading again; `waiting`: what it read again and is not decided yet."""
        held = self._partitions[place]
        held.dropped.pop(table, None)
        if waiting:
            held.waiting[table] = sorted({*held.waiting.get(table, []), *waiting})

    def decide(self, table: TableName, up_to: Iterable[PartitionOffset]) -> None:
        """Every record of `table` before these offsets has an acknowledged verdict."""
        for log, partition, offset in up_to:
            held = self._partitions.get((log, partition))
            if held is None:
                continue
            waiting = held.waiting.get(table)
            if waiting is not None:
                del waiting[: bisect_left(waiting, offset)]
                if not waiting:
                    del held.waiting[table]

    def moved(self) -> list[PartitionOffset]:
        """The partitions whose frontier has moved since the last call, with the new one."""
        found: list[PartitionOffset] = []
        for (log, partition), held in self._partitions.items():
            undecided = [offsets[0] for offsets in held.waiting.values()]
            undecided += held.dropped.values()
            frontier = min(undecided, default=held.next_offset)
            if frontier > held.decided:
                held.decided = frontier
                found.append(PartitionOffset(log, partition, frontier))
        return found
