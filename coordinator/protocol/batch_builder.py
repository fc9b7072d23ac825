"""Building the next root from a batch of records.

Owns: splitting a batch into decided and undecided records, the calls into the tree, and the interpretation of their
results.
Does not own: the tree's rules (`rootline.tree.commit.apply`), the moves that follow (`commit`).
Invariants: A record below the head's offset gets its verdict and is never applied again. A root that fails the tree's
own checks is never written.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rootline.coordinator.protocol.effects import Decided
from rootline.coordinator.protocol.events import Tick
from rootline.coordinator.protocol.machine_state import TableMachine
from rootline.schemas.identifiers import CommitId, LogId
from rootline.schemas.intent_rules import BEGINNING_KINDS
from rootline.schemas.root_header import PartitionOffset, RootHeader
from rootline.tree.check.invariants import violations
from rootline.tree.check.read_back import read_back_faults
from rootline.tree.commit.apply import apply_batch
from rootline.tree.commit.verdicts import answer, is_last_decided, log_went_back, next_offset
from rootline.tree.draft.batch import Applied, Needs, NoTable, Record, Stamp


@dataclass(frozen=True, slots=True)
class Settled:
    """A batch split by the head: verdicts to publish again, and records that still need a root.

    `up_to` has the offset after the last decided record of each partition. Decided records that are not in `decided`
    have verdicts that were acknowledged earlier.
    """

    decided: tuple[Decided, ...]
    undecided: tuple[Record, ...]
    up_to: tuple[PartitionOffset, ...] = ()


def settle(machine: TableMachine) -> Settled | str:
    """Split the batch by the head's offsets.

    Returns a reason for quarantine if the batch has another record at the offset that the head decided last.
    """
    if machine.head is None:
        return Settled((), machine.batch)
    header = machine.head.header
    below: list[Record] = []
    undecided: list[Record] = []
    for record in machine.batch:
        position = record.position
        end = next_offset(header, position.log, position.partition)
        if position.offset == end - 1 and not is_last_decided(header, position, record.value, record.appended_ms):
            return f"log-behind-root: {log_went_back(header, position)}"
        (below if position.offset < end else undecided).append(record)
    answers = [(record, answer(machine.head, record)) for record in below]
    decided = tuple(Decided(record, verdict) for record, verdict in answers if verdict is not None)
    return Settled(decided, tuple(undecided), up_to=offsets_after(below))


def lowest_of(records: Iterable[Record]) -> tuple[PartitionOffset, ...]:
    """The offset of the first record of each partition."""
    first: dict[tuple[LogId, int], int] = {}
    for record in records:
        log, partition, offset = record.position
        if offset < first.get((log, partition), offset + 1):
            first[log, partition] = offset
    return tuple(PartitionOffset(log, partition, offset) for (log, partition), offset in sorted(first.items()))


def decided_of(header: RootHeader, lowest: Iterable[PartitionOffset]) -> frozenset[tuple[LogId, int]]:
    """The partitions in which the root has decided a record at or after these offsets."""
    return frozenset(
        [(log, partition) for log, partition, offset in lowest if offset < next_offset(header, log, partition)]
    )


def first_root_count(records: Sequence[Record]) -> int:
    """The number of records, from the front, that may share the first root of a name.

    After a `create`, only records of the same partition may follow. Another coordinator may already have rejected
    records of other partitions, since it found neither a table nor a view.
    """
    create: Record | None = None
    for count, record in enumerate(records):
        if create is not None and record.position[:2] != create.position[:2]:
            return count
        if create is None and record.intent.kind in BEGINNING_KINDS:
            create = record
    return len(records)


def offsets_after(records: Iterable[Record]) -> tuple[PartitionOffset, ...]:
    """The offset after the last record of each partition."""
    last: dict[tuple[LogId, int], int] = {}
    for record in records:
        log, partition, offset = record.position
        place = (log, partition)
        if offset > last.get(place, -1):
            last[place] = offset
    return tuple(PartitionOffset(log, partition, offset + 1) for (log, partition), offset in sorted(last.items()))


def build(machine: TableMachine, tick: Tick) -> Applied | Needs | NoTable | str:
    """Build the next root from the batch.

    Returns the root, the objects that must be fetched first, the rejections if there is no table, or the reason why
    the root must not be written.
    """
    stamp = Stamp(CommitId(tick.fresh_id), machine.policy.coordinator_id, tick.now_ms)
    limits = machine.policy.header_limits
    result = apply_batch(
        machine.head,
        machine.table,
        machine.batch,
        machine.fetched,
        stamp,
        acknowledged=machine.acknowledged,
        limits=limits,
        relief=machine.flush.ready,
    )
    if isinstance(result, Applied):
        rules = violations(machine.head, result.state, acknowledged=machine.acknowledged, limits=limits)
        if rules:
            return f"the next root would break an invariant: {'; '.join(rules)}"
        faults = read_back_faults(machine.head, result)
        if faults:
            return f"the next root is refused: {'; '.join(faults)}"
    return result
