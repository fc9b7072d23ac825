"""The handlers of decisions, in the order of a commit, and the moves that handlers share.

Owns: next, build, put, landed and confirmed, then the failures: lost, failed, retry, quarantine and stop.
Does not own: the transition table and its theory (`commit_machine`), events (`machine_handlers`), building a root
(`batch_builder`), the interpretation of replies (`put_rules`), closing a batch (`group_window`), delays
(`rootline.ports.retry_policy`).
Invariants: the same as in `commit_machine`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from rootline.coordinator.protocol.batch_builder import (
    Settled,
    build,
    first_root_count,
    lowest_of,
    offsets_after,
    settle,
)
from rootline.coordinator.protocol.effects import (
    ArmTimer,
    Decided,
    Effect,
    Fetch,
    ListHead,
    LoadHead,
    Noted,
    PublishVerdicts,
    PutRoot,
    ReadBack,
    Report,
    StoreObjects,
)
from rootline.coordinator.protocol.events import Tick
from rootline.coordinator.protocol.group_window import next_window, take
from rootline.coordinator.protocol.machine_state import Attempt, Decision, Node, Phase, TableMachine
from rootline.coordinator.protocol.put_rules import is_confirmed
from rootline.coordinator.protocol.self_flush_rules import after_root, ask_for_leaves, is_awaited
from rootline.ports.object_store import Predecessor
from rootline.schemas.bytes.record_headers import distinct_traces, trace_of
from rootline.schemas.errors import Internal
from rootline.schemas.identifiers import Version
from rootline.schemas.object_keys import root_key
from rootline.tree.draft.batch import NOTHING_FETCHED, Applied, Needs, NoTable
from rootline.tree.ledger.log_time import clocks_apart
from rootline.tree.ledger.outcomes import Acknowledged

_TRACES_MAX: Final = 8


class Move(NamedTuple):
    """One step along an arrow of the diagram: the next node, the new machine, and its effects."""

    to: Node
    machine: TableMachine
    effects: Sequence[Effect] = ()


def choose_next(machine: TableMachine, tick: Tick) -> Move:
    """Choose what follows while nothing is in flight.

    The machine stops, rests, is blocked, looks for the table, opens a window, or closes a batch immediately.
    """
    served = machine.served
    if served:
        machine = machine._replace(served=0)
    if machine.stopping:
        return stop(machine)
    if not machine.queue and served == 0:
        return Move(Phase.COLD if machine.head is None else Phase.IDLE, machine)
    if is_blocked(machine):
        return Move(Phase.GATHERING, machine)
    if machine.head is None:
        return load(machine)  # another coordinator may have created the table meanwhile
    window = next_window(served, len(machine.queue), machine.put_s or 0.0, machine.policy.limits)
    if window is not None:
        gathering = machine._replace(expected=window.expected, timer=machine.timer + 1)
        return Move(Phase.GATHERING, gathering, [ArmTimer(gathering.timer, window.delay_s)])
    return Move(Decision.BUILD if machine.queue else Phase.IDLE, machine)


def is_blocked(machine: TableMachine) -> bool:
    """Whether the next root must wait for leaves (the head is far too long) or for acknowledged verdicts.

    Without a table, it must wait for every acknowledgement. Otherwise the offset of its first root would pass
    rejections that no root records, and nobody could publish their verdicts again after a crash.
    """
    return is_awaited(machine) or machine.publishing >= (
        1 if machine.head is None else machine.policy.unpublished_roots_max
    )


def load(machine: TableMachine) -> Move:
    """Load the head, and compare the log with it if it has decided waiting records."""
    lowest = lowest_of((*machine.batch, *machine.queue))
    compared = machine.compared.union([(log, partition) for log, partition, _ in lowest])
    return Move(Phase.LOADING, machine._replace(compared=compared), [LoadHead(machine.head, lowest)])


def build_next(machine: TableMachine, tick: Tick) -> Move:
    """Build the next root from the present batch or from a new one.

    Records that the head has decided are removed from the batch, and their verdicts are published.
    """
    if not machine.batch:
        if not machine.queue or machine.stopping or is_blocked(machine):
            return Move(Decision.NEXT, machine)
        machine = _with_a_batch(machine)
    settled = settle(machine)
    if isinstance(settled, str):
        return quarantine(machine, settled)
    if not machine.compared.issuperset([(log, partition) for log, partition, _ in settled.up_to]):
        return load(machine)
    machine, published = _settled(machine, settled)
    if not machine.batch or machine.stopping:
        return Move(Decision.NEXT, machine, published)
    move = _built(machine, tick)
    return move._replace(effects=[*published, *move.effects])


def _with_a_batch(machine: TableMachine) -> TableMachine:
    """Take the next batch from the front of the queue."""
    count = take(machine.queue, machine.policy.limits)
    if machine.head is None:
        count = first_root_count(machine.queue[:count])
    return machine._replace(batch=machine.queue[:count], queue=machine.queue[count:], fetched=NOTHING_FETCHED)


def _settled(machine: TableMachine, settled: Settled) -> tuple[TableMachine, list[Effect]]:
    """Remove the records that the head decided from the batch, and publish their verdicts again."""
    if not settled.up_to:
        return machine, []
    machine = machine._replace(batch=settled.undecided)
    if settled.decided or machine.publishing:
        # also without verdicts, so that these offsets are not acknowledged before earlier ones that are being published
        publish = PublishVerdicts(settled.decided, settled.up_to, None)
        return machine._replace(publishing=machine.publishing + 1), [publish]
    passed = {(item.log, item.partition): item.next_offset for item in settled.up_to}
    return machine._replace(acknowledged=merged(machine.acknowledged, passed)), []


def _built(machine: TableMachine, tick: Tick) -> Move:
    """Build a root from the batch, and choose the move for the result."""
    match build(machine, tick):
        case Applied() as applied:
            return _started(machine, applied, tick)
        case Needs() as needs:
            return Move(Phase.FETCHING, machine, [Fetch(needs)])
        case NoTable() as rejected:
            decided = tuple(map(Decided, machine.batch, rejected.verdicts))
            publish = PublishVerdicts(decided, offsets_after(machine.batch), None, is_unrecorded=True)
            return Move(Decision.NEXT, machine._replace(batch=(), publishing=machine.publishing + 1), [publish])
        case str() as why:
            return quarantine(machine, why)


def _started(machine: TableMachine, applied: Applied, tick: Tick) -> Move:
    """Start committing a root: store the objects that it references, then put it."""
    header = applied.state.root.header
    attempt = Attempt(
        applied,
        header.version,
        root_key(machine.table, header.version),
        header.commit_id,
        takes_leaves=machine.flush.ready is not None,
    )
    count = len(applied.verdicts)
    if count < len(machine.batch):  # the other records wait for the next root
        machine = machine._replace(batch=machine.batch[:count], queue=(*machine.batch[count:], *machine.queue))
    machine = machine._replace(attempt=attempt)
    return store_objects(machine) if applied.objects else put(machine, tick)


def store_objects(machine: TableMachine) -> Move:
    """Store the objects that the root in flight will reference."""
    return Move(Phase.STAGING, machine, [StoreObjects(in_flight(machine).applied.objects)])


def put(machine: TableMachine, tick: Tick) -> Move:
    """Send the conditional PUT of the root in flight."""
    attempt = in_flight(machine)
    before = None if attempt.version == 0 else root_key(machine.table, Version(attempt.version - 1))
    putting = machine._replace(attempt=attempt._replace(put_at_s=tick.monotonic_s))
    return Move(
        Phase.PUTTING, putting, [PutRoot(attempt.version, attempt.key, attempt.applied.body, Predecessor(before))]
    )


def read_root_back(machine: TableMachine) -> Move:
    """Read the root in flight, since the outcome of its PUT is unknown."""
    attempt = in_flight(machine)
    return Move(Phase.READING_BACK, machine, [ReadBack(attempt.version, attempt.key, attempt.commit_id)])


def landed(machine: TableMachine, tick: Tick) -> Move:
    """Confirm the own root, which is in the store, or list the head if the answer was too late to prove it."""
    if is_confirmed(machine.base_ms, in_flight(machine).answered_ms):
        return Move(Decision.CONFIRMED, machine)
    return list_head(machine)


def list_head(machine: TableMachine) -> Move:
    """List the newest version, to learn whether it is the root in flight."""
    return Move(Phase.CONFIRMING, machine, [ListHead()])


def confirmed(machine: TableMachine, tick: Tick) -> Move:
    """Make the root in flight the head, and publish its verdicts."""
    attempt = in_flight(machine)
    decided = tuple(map(Decided, machine.batch, attempt.applied.verdicts))
    served = len(machine.batch)
    # the header's offsets would include partitions for which this coordinator has published nothing
    publish = PublishVerdicts(decided, offsets_after(machine.batch), attempt.version)
    traces = distinct_traces((trace_of(record.headers) for record in machine.batch if record.headers), _TRACES_MAX)
    landed = Report(Noted.ROOT_LANDED, str(served), attempt.version, tick.monotonic_s - attempt.put_at_s, traces)
    apart = None if machine.head is None else clocks_apart(machine.head.header, attempt.applied.state.header)
    notes = [landed] if apart is None else [landed, Report(Noted.CLOCKS_APART, apart, attempt.version)]
    after = machine._replace(
        head=attempt.applied.state,
        base_ms=attempt.dated_ms,
        batch=(),
        attempt=None,
        fetched=NOTHING_FETCHED,
        losses=0,
        failures=0,
        publishing=machine.publishing + 1,
        served=served,
        flush=after_root(machine.flush, attempt),
    )
    after, more = ask_for_leaves(after, tick)
    return Move(Decision.NEXT, after, [publish, *notes, *more])


def lost(machine: TableMachine, tick: Tick) -> Move:
    """Load the head that another coordinator made, after a pause unless it is the first lost race in a row."""
    losses = machine.losses + 1
    noted = Noted.YIELDED if losses > machine.policy.retry.losses_max else Noted.REBASED
    note = Report(noted, f"lost {losses} races in a row", in_flight(machine).version)
    machine = machine._replace(attempt=None, losses=losses)
    delay_s = machine.policy.retry.after_loss(losses, tick.jitter)
    if machine.stopping:
        move = stop(machine)
    elif delay_s == 0.0:
        move = load(machine)
    else:
        move = _pause(machine._replace(resume=Phase.LOADING), delay_s)
    return move._replace(effects=[note, *move.effects])


def failed(machine: TableMachine, tick: Tick) -> Move:
    """Wait before a retry of phase `resume`, or stop if a stop was requested and no root is undecided."""
    failures = machine.failures + 1
    machine = machine._replace(failures=failures)
    if machine.stopping and not is_undecided(machine):
        return stop(machine)
    return _pause(machine, machine.policy.retry.after_failure(failures, tick.jitter))


def is_undecided(machine: TableMachine) -> bool:
    """Whether a PUT was sent whose outcome must be known before a stop."""
    return machine.attempt is not None and machine.resume is not Phase.STAGING


def _pause(machine: TableMachine, delay_s: float) -> Move:
    waiting = machine._replace(timer=machine.timer + 1)
    return Move(Phase.WAITING, waiting, [ArmTimer(waiting.timer, delay_s)])


def retry(machine: TableMachine, tick: Tick) -> Move:
    """Retry the phase that failed."""
    match machine.resume:
        case Phase.FETCHING:
            return Move(Decision.BUILD, machine)
        case Phase.STAGING:
            return store_objects(machine)
        case Phase.PUTTING:
            return put(machine, tick)
        case Phase.READING_BACK:
            return read_root_back(machine)
        case Phase.CONFIRMING:
            return list_head(machine)
        case _:
            return load(machine)


def quarantine(machine: TableMachine, why: str) -> Move:
    """Quarantine the table: it commits nothing more. Waiting records get no verdict and stay on the log."""
    ended = machine._replace(queue=(), batch=(), attempt=None, fetched=NOTHING_FETCHED, why=why)
    return Move(Phase.QUARANTINED, ended, [Report(Noted.QUARANTINED, why)])


def stop(machine: TableMachine) -> Move:
    """Stop the machine. Waiting records get no verdict and stay on the log."""
    return Move(Phase.STOPPED, machine._replace(stopping=True, queue=(), batch=(), attempt=None))


def merged(old: Acknowledged, new: Acknowledged) -> Acknowledged:
    """The greater of the two offsets of each partition."""
    if not new:
        return old
    return {**old, **{place: max(offset, old.get(place, 0)) for place, offset in new.items()}}


def in_flight(machine: TableMachine) -> Attempt:
    """The root in flight. Raises `Internal` if there is no root in flight."""
    if machine.attempt is None:
        raise Internal("invariant-broken", f"{machine.table}: {machine.phase} without a root in flight; report a bug")
    return machine.attempt
