"""The moves that the commit machine's handlers are made of: load, gather, build, put, confirm, lose, wait, stop.

Owns: how the machine gets from one phase to the next, and what it asks for on the way. Does not own: which event
brings it there (`machine_handlers`), what a batch does to a table (`rootline.tree.commit.apply`), the outcome rules
(`put_rules`), when a batch closes (`group_window`), delays (`retry_policy`).
Invariants: those of `commit_machine`, where the theory stands.
"""

from __future__ import annotations

from rootline.coordinator.protocol.batch_builder import build, offsets_after, settle
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
    Report,
    StoreObjects,
)
from rootline.coordinator.protocol.events import (
    Arrived,
    Tick,
)
from rootline.coordinator.protocol.group_window import moving_average, next_window, take
from rootline.coordinator.protocol.machine_state import Attempt, Phase, TableMachine
from rootline.coordinator.protocol.put_rules import is_confirmed
from rootline.ports.object_store import Predecessor
from rootline.schemas.errors import Internal
from rootline.schemas.identifiers import Version
from rootline.schemas.object_keys import root_key
from rootline.tree.draft.batch import Applied, FetchedObjects, Needs, NoTable
from rootline.tree.ledger.outcomes import Acknowledged

Step = tuple[TableMachine, list[Effect]]


def load(machine: TableMachine) -> Step:
    """LIST for the head, and read it."""
    return machine._replace(phase=Phase.LOADING), [LoadHead(machine.head)]


def queued(machine: TableMachine, event: Arrived) -> TableMachine:
    """The records behind those that wait."""
    return machine._replace(queue=(*machine.queue, *event.records))


def is_held(machine: TableMachine) -> bool:
    """Whether verdicts must be acknowledged before another root.

    Without a table, any: its first root's offset would pass rejections that no root records, and after a crash
    nobody could give their verdict again.
    """
    return machine.publishing >= (1 if machine.head is None else machine.policy.unpublished_roots_max)


def go_on(machine: TableMachine, tick: Tick, *, served: int) -> Step:
    """What follows when nothing is in flight: stop, hold, open a window, close at once, or rest."""
    if machine.stopping:
        return stopped(machine), []
    if not machine.queue and served == 0:
        return machine._replace(phase=Phase.COLD if machine.head is None else Phase.IDLE), []
    if is_held(machine):
        return machine._replace(phase=Phase.GATHERING), []
    if machine.head is None:
        return load(machine)  # somebody may have created the table meanwhile
    window = next_window(served, len(machine.queue), machine.put_s or 0.0, machine.policy.limits)
    if window is not None:
        gathering = machine._replace(phase=Phase.GATHERING, expected=window.expected, timer=machine.timer + 1)
        return gathering, [ArmTimer(gathering.timer, window.delay_s)]
    if machine.queue:
        return close(machine, tick)
    return machine._replace(phase=Phase.IDLE), []


def close(machine: TableMachine, tick: Tick) -> Step:
    """Take the front of the queue as the next batch."""
    count = take(machine.queue, machine.policy.limits)
    closed = machine._replace(batch=machine.queue[:count], queue=machine.queue[count:], fetched=FetchedObjects())
    return settle_and_build(closed, tick)


def settle_and_build(machine: TableMachine, tick: Tick) -> Step:
    """Answer what the head decided already, then build the next root from the rest of the batch."""
    settled = settle(machine)
    effects: list[Effect] = []
    if settled.decided or (settled.up_to and machine.publishing):
        # also when there is nothing to publish: what is passed over must not overtake verdicts under way
        effects.append(PublishVerdicts(settled.decided, settled.up_to, None))
        machine = machine._replace(publishing=machine.publishing + 1)
    elif settled.up_to:
        passed = {(item.log, item.partition): item.next_offset for item in settled.up_to}
        machine = machine._replace(acknowledged=merged(machine.acknowledged, passed))
    machine = machine._replace(batch=settled.undecided)
    undecided = bool(machine.batch) and not machine.stopping
    after, more = build_root(machine, tick) if undecided else go_on(machine, tick, served=0)
    return after, [*effects, *more]


def build_root(machine: TableMachine, tick: Tick) -> Step:
    """What the tree makes of the batch: a root, a need, rejections without a table, or a broken rule."""
    match build(machine, tick):
        case Applied() as applied:
            return begin_attempt(machine, applied, tick)
        case Needs() as needs:
            return machine._replace(phase=Phase.FETCHING), [Fetch(needs)]
        case NoTable() as rejected:
            decided = tuple(map(Decided, machine.batch, rejected.verdicts))
            publish = PublishVerdicts(decided, offsets_after(machine.batch), None, is_unrecorded=True)
            settled = machine._replace(batch=(), publishing=machine.publishing + 1)
            after, effects = go_on(settled, tick, served=0)
            return after, [publish, *effects]
        case str() as why:
            return quarantined(machine, why)


def begin_attempt(machine: TableMachine, applied: Applied, tick: Tick) -> Step:
    """A root is built: store what it references, then put it."""
    header = applied.state.root.header
    key = root_key(machine.table, header.version)
    attempt = Attempt(applied, header.version, key, header.commit_id)
    if applied.objects:
        return machine._replace(phase=Phase.STAGING, attempt=attempt), [StoreObjects(applied.objects)]
    return put(machine._replace(attempt=attempt), tick)


def put(machine: TableMachine, tick: Tick) -> Step:
    """Send the conditional PUT of the root in flight."""
    attempt = in_flight(machine)
    before = None if attempt.version == 0 else root_key(machine.table, Version(attempt.version - 1))
    putting = machine._replace(phase=Phase.PUTTING, attempt=attempt._replace(put_at_s=tick.monotonic_s))
    return putting, [PutRoot(attempt.version, attempt.key, attempt.applied.body, Predecessor(before))]


def landed(machine: TableMachine, answered_ms: int | None, base_ms: int | None, tick: Tick) -> Step:
    """Own root N is in the store; `answered_ms` is the date of the answer that says so, `base_ms` N's base date."""
    elapsed_s = tick.monotonic_s - in_flight(machine).put_at_s
    landed = machine._replace(put_s=moving_average(machine.put_s, elapsed_s))
    if not is_confirmed(machine.base_ms, answered_ms):
        return landed._replace(phase=Phase.CONFIRMING), [ListHead()]
    return confirmed(landed, base_ms, tick)


def confirmed(machine: TableMachine, base_ms: int | None, tick: Tick) -> Step:
    """The root in flight is the head: publish its verdicts first, then go on."""
    attempt = in_flight(machine)
    state = attempt.applied.state
    decided = tuple(map(Decided, machine.batch, attempt.applied.verdicts))
    served = len(machine.batch)
    after, effects = go_on(
        machine._replace(
            head=state,
            base_ms=base_ms,
            batch=(),
            attempt=None,
            fetched=FetchedObjects(),
            losses=0,
            failures=0,
            publishing=machine.publishing + 1,
        ),
        tick,
        served=served,
    )
    elapsed_s = tick.monotonic_s - attempt.put_at_s
    # not the header's offsets: they name logs and partitions, too, of which this coordinator has published nothing
    publish = PublishVerdicts(decided, offsets_after(machine.batch), attempt.version)
    return after, [publish, Report(Noted.ROOT_LANDED, str(served), attempt.version, elapsed_s), *effects]


def lost(machine: TableMachine, tick: Tick) -> Step:
    """Somebody else made this version: load the head, at once or after a pause."""
    losses = machine.losses + 1
    delay_s = machine.policy.retry.after_loss(losses, tick.jitter)
    lost = machine._replace(attempt=None, losses=losses)
    note = Report(
        Noted.YIELDED if losses > machine.policy.retry.losses_max else Noted.REBASED,
        f"lost {losses} races in a row",
        in_flight(machine).version,
    )
    if machine.stopping:
        return stopped(lost), [note]
    if delay_s == 0.0:
        after, effects = load(lost)
    else:
        after, effects = wait(lost, Phase.LOADING, delay_s)
    return after, [note, *effects]


def stopped(machine: TableMachine) -> TableMachine:
    """The end. What waits has no verdict and stays on the log."""
    return machine._replace(phase=Phase.STOPPED, stopping=True, queue=(), batch=(), attempt=None)


def wait_after_failure(machine: TableMachine, resume: Phase, detail: str, tick: Tick) -> Step:
    """Try `resume` again after a pause that grows."""
    failures = machine.failures + 1
    note = Report(Noted.STORE_FAILED, f"{resume}: {detail}")
    failed = machine._replace(failures=failures)
    if machine.stopping and not is_undecided(machine, resume):
        return stopped(failed), [note]
    after, effects = wait(failed, resume, machine.policy.retry.after_failure(failures, tick.jitter))
    return after, [note, *effects]


def is_undecided(machine: TableMachine, resume: Phase) -> bool:
    """Whether a PUT was sent whose outcome has to be known before a stop; `resume`: what would be taken up again."""
    return machine.attempt is not None and resume is not Phase.STAGING


def wait(machine: TableMachine, resume: Phase, delay_s: float) -> Step:
    """Take `resume` up again in `delay_s` seconds."""
    waiting = machine._replace(phase=Phase.WAITING, resume=resume, timer=machine.timer + 1)
    return waiting, [ArmTimer(waiting.timer, delay_s)]


def quarantined(machine: TableMachine, why: str) -> Step:
    """Commit nothing more. What waits has no verdict and stays on the log."""
    held = machine._replace(
        phase=Phase.QUARANTINED, queue=(), batch=(), attempt=None, fetched=FetchedObjects(), why=why
    )
    return held, [Report(Noted.QUARANTINED, why)]


def merged(old: Acknowledged, new: Acknowledged) -> Acknowledged:
    """Offsets by maximum."""
    if not new:
        return old
    return {**old, **{place: max(offset, old.get(place, 0)) for place, offset in new.items()}}


def in_flight(machine: TableMachine) -> Attempt:
    """The root in flight. Raises `Internal` when there is none."""
    if machine.attempt is None:
        raise Internal("invariant-broken", f"{machine.table}: {machine.phase} without a root in flight")
    return machine.attempt
