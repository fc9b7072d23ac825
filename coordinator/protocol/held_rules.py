"""The rules by which commits wait in phase `HELD`: for acknowledged verdicts, or for leaves that shorten the root.

Owns: the two reasons to wait, requesting leaves for a root that is too long, and keeping them for a batch.
Does not own: the phase (`gather`), the length limit and the content of leaves (`rootline.maintenance.flush_plan`),
committing them (`rootline.tree.intents.flush`).
Invariants: Each reason to wait ends with an event that is certain to arrive: verdicts are published until the log
acknowledges them, and every request for leaves is answered. At most one request for leaves is in flight, and none while
leaves are ready. Commits wait only for the first request, not for a retry after a failure. Leaves stay ready until a
root that was built with them is confirmed.

Theory. A root has a row for each live file. To shorten it, rows are moved to new objects, the leaves, which the root
then references. Leaves are encoded from one head and committed by a later root, while other commits continue. That is
safe for the same reason as a worker's flush: an entry of the leaf is live only if the root still has the row from which
the entry was made, with the same place and file sequence number. Otherwise the entry is dead in the leaf. So a file
that was removed, replaced, moved or rewritten in between stays so. A restored file has a new file sequence number and
stays in the root. A lost race does no harm: the leaves were made from a confirmed head, and every later head descends
from that head. The growth meanwhile is bounded, since a root of twice the limit waits for its leaves.
"""

from __future__ import annotations

from rootline.coordinator.protocol.machine_state import Attempt, Phase, SelfFlush, TableMachine
from rootline.coordinator.protocol.messages import EncodeLeaves, Tick
from rootline.maintenance.flush_plan import RootLength, root_length
from rootline.schemas.parts.name import NameState
from rootline.tree.intents.flush import OwnFlush
from rootline.tree.state.table_state import TableState


def is_held(machine: TableMachine) -> bool:
    """Whether the next root must wait for leaves (the head is far too long) or for acknowledged verdicts.

    The first root of a table must wait for every acknowledgement. Otherwise its offset would pass rejections that no
    root records, and after a crash nobody could publish their verdicts.
    """
    return _is_for_leaves(machine) or machine.publishing >= _publishing_max(machine)


def reason_held(machine: TableMachine) -> str:
    """The reason for phase `HELD`, in words for an operator. Empty in every other phase."""
    if machine.kind is not Phase.HELD:
        return ""
    if _is_for_leaves(machine):
        return "the root is at twice its hard limit: commits wait until the coordinator has encoded leaves"
    if machine.head is None:
        return "the log has not acknowledged the rejections of earlier intents: the first commit waits until it does"
    return f"the log has not acknowledged the verdicts of {machine.publishing} commits: further ones wait until it does"


def _publishing_max(machine: TableMachine) -> int:
    return 1 if machine.head is None else machine.policy.unpublished_roots_max


def ask_for_leaves(machine: TableMachine, tick: Tick) -> tuple[TableMachine, list[EncodeLeaves]]:
    """Request leaves if the head is too long.

    No leaves are requested while some are being encoded or wait for the next batch, or in the pause after a failure.
    """
    head, flush = machine.head, machine.flush
    if head is None or machine.stopping or flush.is_encoding or flush.ready is not None:
        return machine, []
    if not _is_table(head) or tick.monotonic_s < flush.not_before_s or root_length(head) is RootLength.SHORT:
        return machine, []
    return machine._replace(flush=flush._replace(is_encoding=True)), [EncodeLeaves(head)]


def _is_for_leaves(machine: TableMachine) -> bool:
    """Whether the head is far past the limit, and leaves are being encoded for the first time.

    Commits wait for the first try only, because each further one may take minutes and fail too.
    """
    head, flush = machine.head, machine.flush
    if head is None or not flush.is_encoding or flush.failures or not _is_table(head):
        return False
    return root_length(head) is RootLength.FAR_PAST_LIMIT


def with_leaves(machine: TableMachine, flush: OwnFlush, tick: Tick) -> TableMachine:
    """Keep leaves for the next batch. An empty list counts as a failure, so that the next request waits."""
    if not flush.manifests:
        return without_leaves(machine, tick)
    return machine._replace(flush=SelfFlush(ready=flush))


def without_leaves(machine: TableMachine, tick: Tick) -> TableMachine:
    """Allow the next request for leaves after a pause that grows with each failure."""
    failures = machine.flush.failures + 1
    pause_s = machine.policy.retry.after_failure(failures, tick.jitter)
    return machine._replace(flush=SelfFlush(failures=failures, not_before_s=tick.monotonic_s + pause_s))


def after_root(flush: SelfFlush, attempt: Attempt) -> SelfFlush:
    """The state of leaves after the root of `attempt` is confirmed. Leaves that this root references are dropped."""
    return flush._replace(ready=None) if attempt.takes_leaves else flush


def _is_table(head: TableState) -> bool:
    """Whether the head is a table. The rows of a tombstone are never flushed, and a view has no rows."""
    return head.header.name.state is NameState.TABLE
