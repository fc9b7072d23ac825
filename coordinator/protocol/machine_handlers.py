"""What each event does in each phase: the handlers behind the transition table.

Owns: one small function per row of the table. Does not own: which row applies (`commit_machine`), what a batch does
to a table (`rootline.tree.apply`), the outcome rules (`put_rules`), when a batch closes (`group_window`), delays
(`retry_policy`), any I/O.
Invariants: those of `commit_machine`, where the theory stands.
"""

from __future__ import annotations

from dataclasses import replace

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
    ReadBack,
    Report,
    StoreObjects,
)
from rootline.coordinator.protocol.events import (
    Arrived,
    Event,
    Fetched,
    HeadListed,
    HeadLoaded,
    LoadFailed,
    ObjectsStored,
    PutReplied,
    RequestFailed,
    RootReadBack,
    StopRequested,
    Tick,
    TimerFired,
    VerdictsPublished,
)
from rootline.coordinator.protocol.group_window import is_full, moving_average, next_window, take
from rootline.coordinator.protocol.machine_state import Attempt, Phase, TableMachine
from rootline.coordinator.protocol.put_rules import Outcome, is_confirmed, outcome_of_put, outcome_of_read_back
from rootline.ports.object_store import Predecessor
from rootline.schemas.errors import Internal
from rootline.schemas.object_keys import root_key
from rootline.tree.batch import Applied, Library, Needs, NoTable
from rootline.tree.outcomes import Acknowledged

Step = tuple[TableMachine, list[Effect]]


# Beginning: load the head


def arrived_cold(machine: TableMachine, event: Arrived, tick: Tick) -> Step:
    """The first records of a table: load its head."""
    return _load(_queued(machine, event))


def _load(machine: TableMachine) -> Step:
    return replace(machine, phase=Phase.LOADING), [LoadHead(machine.head)]


def head_loaded(machine: TableMachine, event: HeadLoaded, tick: Tick) -> Step:
    """Go on with the batch that lost a race, or with what waits. A head that went back is a store that lost a root."""
    known, found = machine.head, event.state
    if known is not None and (found is None or found.root.header.version < known.root.header.version):
        shown = "none" if found is None else f"version {found.root.header.version}"
        return quarantined(machine, f"the store shows {shown}, but version {known.root.header.version} was confirmed")
    loaded = replace(machine, head=found, base_ms=event.store_ms, failures=0)
    note = Report(Noted.HEAD_LOADED, version=None if found is None else found.root.header.version)
    after, effects = _go_on(loaded, tick) if machine.batch else _next(loaded, tick, served=0)
    return after, [note, *effects]


def load_failed(machine: TableMachine, event: LoadFailed, tick: Tick) -> Step:
    """Corrupt bytes quarantine the table; an absent store is asked again."""
    if event.corrupt:
        return quarantined(machine, event.detail)
    return _wait_after_failure(machine, Phase.LOADING, event.detail, tick)


# Gathering and closing a batch


def _queued(machine: TableMachine, event: Arrived) -> TableMachine:
    return replace(machine, queue=(*machine.queue, *event.records))


def arrived_later(machine: TableMachine, event: Arrived, tick: Tick) -> Step:
    """Something is in flight: wait in the queue."""
    return _queued(machine, event), []


def arrived_idle(machine: TableMachine, event: Arrived, tick: Tick) -> Step:
    """Nothing is in flight: a lone writer never waits."""
    return _next(_queued(machine, event), tick, served=0)


def arrived_gathering(machine: TableMachine, event: Arrived, tick: Tick) -> Step:
    """Close the open batch when it is full."""
    queued = _queued(machine, event)
    if _is_held(queued) or not is_full(queued.queue, queued.policy.limits, queued.expected):
        return queued, []
    return _close(queued, tick)


def window_ended(machine: TableMachine, event: TimerFired, tick: Tick) -> Step:
    """The open batch has waited long enough."""
    if event.token != machine.timer or _is_held(machine):
        return machine, []
    return _next(machine, tick, served=0)


def _is_held(machine: TableMachine) -> bool:
    return machine.publishing >= machine.policy.unpublished_roots_max


def _next(machine: TableMachine, tick: Tick, *, served: int) -> Step:
    """What follows when nothing is in flight: stop, hold, open a window, close at once, or rest."""
    if machine.stopping:
        return replace(machine, phase=Phase.STOPPED, queue=(), batch=()), []
    if not machine.queue and served == 0:
        return replace(machine, phase=Phase.COLD if machine.head is None else Phase.IDLE), []
    if _is_held(machine):
        return replace(machine, phase=Phase.GATHERING), []
    window = next_window(served, len(machine.queue), machine.put_s or 0.0, machine.policy.limits)
    if window is not None:
        gathering = replace(machine, phase=Phase.GATHERING, expected=window.expected, timer=machine.timer + 1)
        return gathering, [ArmTimer(gathering.timer, window.delay_s)]
    if machine.queue:
        return _close(machine, tick)
    return replace(machine, phase=Phase.IDLE), []


def _close(machine: TableMachine, tick: Tick) -> Step:
    count = take(machine.queue, machine.policy.limits)
    closed = replace(machine, batch=machine.queue[:count], queue=machine.queue[count:], library=Library())
    return _go_on(closed, tick)


# From a batch to a root in flight


def _go_on(machine: TableMachine, tick: Tick) -> Step:
    """Answer what the head decided already, then build the next root from the rest of the batch."""
    settled = settle(machine)
    effects: list[Effect] = []
    if settled.decided:
        effects.append(PublishVerdicts(settled.decided, settled.up_to, None))
    machine = replace(
        machine,
        batch=settled.undecided,
        acknowledged=_merged(machine.acknowledged, settled.passed),
        publishing=machine.publishing + bool(settled.decided),
    )
    after, more = _build(machine, tick) if machine.batch else _next(machine, tick, served=0)
    return after, [*effects, *more]


def _build(machine: TableMachine, tick: Tick) -> Step:
    match build(machine, tick):
        case Applied() as applied:
            return _begin_attempt(machine, applied, tick)
        case Needs() as needs:
            return replace(machine, phase=Phase.FETCHING), [Fetch(needs)]
        case NoTable() as rejected:
            decided = tuple(map(Decided, machine.batch, rejected.verdicts))
            publish = PublishVerdicts(decided, offsets_after(machine.batch), None)
            # whatever waits looks for the table afresh: somebody may have created it meanwhile
            settled = replace(machine, batch=(), publishing=machine.publishing + 1)
            after, effects = (
                _load(settled) if settled.queue and not settled.stopping else _next(settled, tick, served=0)
            )
            return after, [publish, *effects]
        case str() as why:
            return quarantined(machine, why)


def _begin_attempt(machine: TableMachine, applied: Applied, tick: Tick) -> Step:
    header = applied.state.root.header
    key = root_key(machine.table, header.version)
    attempt = Attempt(applied, header.version, key, header.commit_id)
    if applied.objects:
        return replace(machine, phase=Phase.STAGING, attempt=attempt), [StoreObjects(applied.objects)]
    return _put(replace(machine, attempt=attempt), tick)


def fetched(machine: TableMachine, event: Fetched, tick: Tick) -> Step:
    """What the batch needed is here: build again."""
    library = Library(
        leaves={**machine.library.leaves, **event.library.leaves},
        vectors={**machine.library.vectors, **event.library.vectors},
    )
    return _go_on(replace(machine, library=library, failures=0), tick)


def fetch_failed(machine: TableMachine, event: RequestFailed, tick: Tick) -> Step:
    """Nothing is decided by a failed read: again, later."""
    return _wait_after_failure(machine, Phase.FETCHING, event.detail, tick)


def objects_stored(machine: TableMachine, event: ObjectsStored, tick: Tick) -> Step:
    """What the root references rests in the store: put the root."""
    return _put(replace(machine, failures=0), tick)


def staging_failed(machine: TableMachine, event: RequestFailed, tick: Tick) -> Step:
    """The names follow from the content, so storing again does no harm."""
    return _wait_after_failure(machine, Phase.STAGING, event.detail, tick)


def _put(machine: TableMachine, tick: Tick) -> Step:
    attempt = _in_flight(machine)
    before = None if attempt.version == 0 else root_key(machine.table, type(attempt.version)(attempt.version - 1))
    putting = replace(machine, phase=Phase.PUTTING, attempt=replace(attempt, put_at_s=tick.monotonic_s))
    return putting, [PutRoot(attempt.version, attempt.key, attempt.applied.body, Predecessor(before))]


# The three outcomes


def put_replied(machine: TableMachine, event: PutReplied, tick: Tick) -> Step:
    """Landed, lost, or ask."""
    match outcome_of_put(event.reply.answer):
        case Outcome.LANDED:
            return _landed(machine, event.reply.store_ms, event.reply.store_ms, tick)
        case Outcome.LOST:
            return _lost(machine, tick)
        case _:
            attempt = _in_flight(machine)
            asking = replace(machine, phase=Phase.ASKING)
            note = Report(Noted.PUT_ASKED, f"{event.reply.answer.value}: {event.reply.detail}", attempt.version)
            return asking, [note, ReadBack(attempt.version, attempt.key, attempt.commit_id)]


def read_back(machine: TableMachine, event: RootReadBack, tick: Tick) -> Step:
    """Own, another's, or nobody's yet."""
    match outcome_of_read_back(event.commit_id, _in_flight(machine).commit_id):
        case Outcome.LANDED:
            return _landed(machine, event.store_ms, event.last_modified_ms, tick)
        case Outcome.LOST:
            return _lost(machine, tick)
        case _:
            # the first PUT may still land: the identical bytes again, at the same version, after a pause
            return _wait_after_failure(machine, Phase.PUTTING, "the root is not there yet", tick)


def read_back_failed(machine: TableMachine, event: RequestFailed, tick: Tick) -> Step:
    """Still unknown: ask again."""
    return _wait_after_failure(machine, Phase.ASKING, event.detail, tick)


def _landed(machine: TableMachine, answered_ms: int | None, base_ms: int | None, tick: Tick) -> Step:
    """Own root N is in the store; `answered_ms` is the date of the answer that says so, `base_ms` N's base date."""
    elapsed_s = tick.monotonic_s - _in_flight(machine).put_at_s
    landed = replace(machine, put_s=moving_average(machine.put_s, elapsed_s))
    if not is_confirmed(machine.base_ms, answered_ms):
        return replace(landed, phase=Phase.CONFIRMING), [ListHead()]
    return _confirmed(landed, base_ms, tick)


def head_listed(machine: TableMachine, event: HeadListed, tick: Tick) -> Step:
    """Confirmed when the LIST shows the own root as the newest; else load the head and see what it decided."""
    if event.version == _in_flight(machine).version:
        return _confirmed(machine, event.store_ms, tick)
    return _load(replace(machine, attempt=None))  # the head's own outcomes say what of the batch is decided


def confirm_failed(machine: TableMachine, event: RequestFailed, tick: Tick) -> Step:
    """Landed, not yet confirmed: LIST again."""
    return _wait_after_failure(machine, Phase.CONFIRMING, event.detail, tick)


def _confirmed(machine: TableMachine, base_ms: int | None, tick: Tick) -> Step:
    attempt = _in_flight(machine)
    state = attempt.applied.state
    decided = tuple(map(Decided, machine.batch, attempt.applied.verdicts))
    served = len(machine.batch)
    after, effects = _next(
        replace(
            machine,
            head=state,
            base_ms=base_ms,
            batch=(),
            attempt=None,
            library=Library(),
            losses=0,
            failures=0,
            publishing=machine.publishing + 1,
        ),
        tick,
        served=served,
    )
    elapsed_s = tick.monotonic_s - attempt.put_at_s
    publish = PublishVerdicts(decided, state.root.header.offsets, attempt.version)
    return after, [publish, Report(Noted.ROOT_LANDED, str(served), attempt.version, elapsed_s), *effects]


def _lost(machine: TableMachine, tick: Tick) -> Step:
    losses = machine.losses + 1
    delay_s = machine.policy.retry.after_loss(losses, tick.jitter)
    lost = replace(machine, attempt=None, losses=losses)
    note = Report(
        Noted.YIELDED if losses > machine.policy.retry.losses_max else Noted.REBASED,
        f"lost {losses} races in a row",
        _in_flight(machine).version,
    )
    if machine.stopping:
        return replace(lost, phase=Phase.STOPPED, queue=(), batch=()), [note]
    if delay_s == 0.0:
        after, effects = _load(lost)
    else:
        after, effects = _wait(lost, Phase.LOADING, delay_s)
    return after, [note, *effects]


# Waiting, trouble, the end


def _wait_after_failure(machine: TableMachine, resume: Phase, detail: str, tick: Tick) -> Step:
    failures = machine.failures + 1
    note = Report(Noted.STORE_FAILED, f"{resume}: {detail}")
    failed = replace(machine, failures=failures)
    if machine.stopping and machine.attempt is None:
        return replace(failed, phase=Phase.STOPPED, queue=(), batch=()), [note]
    after, effects = _wait(failed, resume, machine.policy.retry.after_failure(failures, tick.jitter))
    return after, [note, *effects]


def _wait(machine: TableMachine, resume: Phase, delay_s: float) -> Step:
    waiting = replace(machine, phase=Phase.WAITING, resume=resume, timer=machine.timer + 1)
    return waiting, [ArmTimer(waiting.timer, delay_s)]


def waited(machine: TableMachine, event: TimerFired, tick: Tick) -> Step:
    """Take up what was put off."""
    if event.token != machine.timer:
        return machine, []
    match machine.resume:
        case Phase.FETCHING:
            return _build(machine, tick)
        case Phase.STAGING:
            return replace(machine, phase=Phase.STAGING), [StoreObjects(_in_flight(machine).applied.objects)]
        case Phase.PUTTING:
            return _put(machine, tick)
        case Phase.ASKING:
            attempt = _in_flight(machine)
            return replace(machine, phase=Phase.ASKING), [ReadBack(attempt.version, attempt.key, attempt.commit_id)]
        case Phase.CONFIRMING:
            return replace(machine, phase=Phase.CONFIRMING), [ListHead()]
        case _:
            return _load(machine)


def quarantined(machine: TableMachine, why: str) -> Step:
    """Commit nothing more. What waits has no verdict and stays on the log."""
    held = replace(machine, phase=Phase.QUARANTINED, queue=(), batch=(), attempt=None, library=Library(), why=why)
    return held, [Report(Noted.QUARANTINED, why)]


def published(machine: TableMachine, event: VerdictsPublished, tick: Tick) -> Step:
    """The log has acknowledged verdicts: the next root may drop their outcomes."""
    passed = {(item.log, item.partition): item.next_offset for item in event.up_to}
    known = replace(
        machine,
        acknowledged=_merged(machine.acknowledged, passed),
        publishing=max(0, machine.publishing - 1),
    )
    if machine.phase is Phase.GATHERING and _is_held(machine) and not _is_held(known):
        return _next(known, tick, served=0)
    return known, []


def _merged(old: Acknowledged, new: Acknowledged) -> Acknowledged:
    if not new:
        return old
    return {**old, **{place: max(offset, old.get(place, 0)) for place, offset in new.items()}}


def stop_now(machine: TableMachine, event: StopRequested, tick: Tick) -> Step:
    """Nothing is in flight: stop."""
    return replace(machine, phase=Phase.STOPPED, stopping=True, queue=(), batch=()), []


def stop_soon(machine: TableMachine, event: StopRequested, tick: Tick) -> Step:
    """Something is in flight: stop once it is decided."""
    return replace(machine, stopping=True), []


def stop_waiting(machine: TableMachine, event: StopRequested, tick: Tick) -> Step:
    """An undecided root is resolved first; anything else is still on the log."""
    return stop_soon(machine, event, tick) if machine.attempt is not None else stop_now(machine, event, tick)


def ignore(machine: TableMachine, event: Event, tick: Tick) -> Step:
    """Nothing follows."""
    return machine, []


def _in_flight(machine: TableMachine) -> Attempt:
    if machine.attempt is None:
        raise Internal("invariant-broken", f"{machine.table}: {machine.phase} without a root in flight")
    return machine.attempt
