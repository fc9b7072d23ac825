"""When a table's own leaves are asked for, and when commits wait for them.

Owns: the wait for leaves beside the commits. Does not own: when a root is too long and what its leaves hold
(`rootline.maintenance.flush_plan`), how a batch takes them over (`rootline.tree.intents.self_flush`).
Invariants: at most one request for leaves is out, and none while leaves are ready; commits wait only while one is out,
which ends with an event always, and not again after a failure; leaves stay ready until a root that was built with them
is confirmed.

Theory. Leaves are made from one head and taken over by a later one, and commits go on meanwhile. That is safe for the
reason that a worker's flush is: an entry counts while the root has the row that it came from, of that place and file
sequence number, and is dead in the leaf otherwise. So what was removed, replaced, moved or rewritten since
does not come back, and what a restore brought back has a new file sequence number and stays in the root. A lost race
spoils nothing: the leaves were made from a confirmed head, and every later head follows from it. What grows meanwhile
is bounded: a root of twice the limit waits for its leaves, and one batch comes on top of that.
"""

from __future__ import annotations

from rootline.coordinator.protocol.effects import EncodeLeaves
from rootline.coordinator.protocol.events import Tick
from rootline.coordinator.protocol.machine_state import Attempt, SelfFlush, TableMachine
from rootline.maintenance.flush_plan import RootLength, root_length
from rootline.schemas.root_header import NameState
from rootline.tree.intents.self_flush import OwnFlush
from rootline.tree.state.table_state import TableState


def ask_for_leaves(machine: TableMachine, tick: Tick) -> tuple[TableMachine, list[EncodeLeaves]]:
    """Ask once, when the head's root is too long; after a failure not before a pause that grows."""
    head, flush = machine.head, machine.flush
    if head is None or machine.stopping or flush.is_encoding or flush.ready is not None:
        return machine, []
    if not _is_table(head) or tick.monotonic_s < flush.not_before_s or root_length(head) is RootLength.SHORT:
        return machine, []
    return machine._replace(flush=flush._replace(is_encoding=True)), [EncodeLeaves(head)]


def is_awaited(machine: TableMachine) -> bool:
    """Whether the next root must wait for leaves: its parent is far past the limit, and they are on their way.

    Only for the first try: where encoding fails again and again, each try may take minutes.
    """
    head, flush = machine.head, machine.flush
    if head is None or not flush.is_encoding or flush.failures or not _is_table(head):
        return False
    return root_length(head) is RootLength.FAR_PAST_LIMIT


def with_leaves(machine: TableMachine, flush: OwnFlush, tick: Tick) -> TableMachine:
    """Leaves are ready for the next batch. None at all is as good as a failure: asking again at once is no use."""
    if not flush.manifests:
        return without_leaves(machine, tick)
    return machine._replace(flush=SelfFlush(ready=flush))


def without_leaves(machine: TableMachine, tick: Tick) -> TableMachine:
    """Ask again later."""
    failures = machine.flush.failures + 1
    pause_s = machine.policy.retry.after_failure(failures, tick.jitter)
    return machine._replace(flush=SelfFlush(failures=failures, not_before_s=tick.monotonic_s + pause_s))


def after_root(flush: SelfFlush, attempt: Attempt) -> SelfFlush:
    """After the root of `attempt` is confirmed: leaves that it was built with have done their work."""
    return flush._replace(ready=None) if attempt.takes_leaves else flush


def _is_table(head: TableState) -> bool:
    """A tombstone's rows stay where they are, and a view has none, however long its metadata makes the root."""
    return head.header.name_is is NameState.TABLE
