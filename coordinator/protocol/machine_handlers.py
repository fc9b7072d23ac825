"""What each event does in each phase: the handlers behind the transition table.

Owns: one small function per row of the table. Does not own: which row applies (`commit_machine`), the moves that
handlers are made of (`machine_moves`).
Invariants: those of `commit_machine`, where the theory stands.
"""

from __future__ import annotations

from rootline.coordinator.protocol import machine_moves as moves
from rootline.coordinator.protocol.effects import (
    ListHead,
    Noted,
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
from rootline.coordinator.protocol.group_window import is_full
from rootline.coordinator.protocol.machine_moves import Step
from rootline.coordinator.protocol.machine_state import Phase, TableMachine
from rootline.coordinator.protocol.put_rules import Outcome, outcome_of_put, outcome_of_read_back


def arrived_cold(machine: TableMachine, event: Arrived, tick: Tick) -> Step:
    """The first records of a table: load its head, unless rejections of earlier ones are still to be acknowledged."""
    return moves.go_on(moves.queued(machine, event), tick, served=0)


def head_loaded(machine: TableMachine, event: HeadLoaded, tick: Tick) -> Step:
    """Go on with the batch that lost a race, or with what waits. A head that went back is a store that lost a root."""
    known, found = machine.head, event.state
    if known is not None and (found is None or found.root.header.version < known.root.header.version):
        shown = "none" if found is None else f"version {found.root.header.version}"
        return moves.quarantined(
            machine, f"the store shows {shown}, but version {known.root.header.version} was confirmed"
        )
    loaded = machine._replace(head=found, base_ms=event.store_ms, failures=0)
    note = Report(Noted.HEAD_LOADED, version=None if found is None else found.root.header.version)
    if loaded.batch:
        after, effects = moves.settle_and_build(loaded, tick)
    elif loaded.queue and not loaded.stopping and not moves.is_held(loaded):
        after, effects = moves.close(loaded, tick)
    else:
        after, effects = moves.go_on(loaded, tick, served=0)
    return after, [note, *effects]


def load_failed(machine: TableMachine, event: LoadFailed, tick: Tick) -> Step:
    """Corrupt bytes quarantine the table; an absent store is asked again."""
    if event.corrupt:
        return moves.quarantined(machine, event.detail)
    return moves.wait_after_failure(machine, Phase.LOADING, event.detail, tick)


def root_unreadable(machine: TableMachine, event: LoadFailed, tick: Tick) -> Step:
    """Whose root rests there cannot be read: nothing is decided, and nothing can be until a person has looked."""
    return moves.quarantined(machine, event.detail)


def arrived_later(machine: TableMachine, event: Arrived, tick: Tick) -> Step:
    """Something is in flight: wait in the queue."""
    return moves.queued(machine, event), []


def arrived_idle(machine: TableMachine, event: Arrived, tick: Tick) -> Step:
    """Nothing is in flight: a lone writer never waits."""
    return moves.go_on(moves.queued(machine, event), tick, served=0)


def arrived_gathering(machine: TableMachine, event: Arrived, tick: Tick) -> Step:
    """Close the open batch when it is full."""
    queued = moves.queued(machine, event)
    if moves.is_held(queued) or not is_full(queued.queue, queued.policy.limits, queued.expected):
        return queued, []
    return moves.close(queued, tick)


def window_ended(machine: TableMachine, event: TimerFired, tick: Tick) -> Step:
    """The open batch has waited long enough."""
    if event.token != machine.timer or moves.is_held(machine):
        return machine, []
    return moves.go_on(machine, tick, served=0)


def fetched(machine: TableMachine, event: Fetched, tick: Tick) -> Step:
    """What the batch needed is here: build again."""
    fetched = machine.fetched.with_more(event.fetched)
    return moves.settle_and_build(machine._replace(fetched=fetched, failures=0), tick)


def fetch_failed(machine: TableMachine, event: RequestFailed, tick: Tick) -> Step:
    """Nothing is decided by a failed read: again, later."""
    return moves.wait_after_failure(machine, Phase.FETCHING, event.detail, tick)


def objects_stored(machine: TableMachine, event: ObjectsStored, tick: Tick) -> Step:
    """What the root references rests in the store: put the root."""
    return moves.put(machine._replace(failures=0), tick)


def staging_failed(machine: TableMachine, event: RequestFailed, tick: Tick) -> Step:
    """The names follow from the content, so storing again does no harm."""
    return moves.wait_after_failure(machine, Phase.STAGING, event.detail, tick)


def put_replied(machine: TableMachine, event: PutReplied, tick: Tick) -> Step:
    """Landed, lost, or ask."""
    match outcome_of_put(event.reply.answer):
        case Outcome.LANDED:
            return moves.landed(machine, event.reply.store_ms, event.reply.store_ms, tick)
        case Outcome.LOST:
            return moves.lost(machine, tick)
        case _:
            attempt = moves.in_flight(machine)
            asking = machine._replace(phase=Phase.READING_BACK)
            note = Report(Noted.PUT_ASKED, f"{event.reply.answer.value}: {event.reply.detail}", attempt.version)
            return asking, [note, ReadBack(attempt.version, attempt.key, attempt.commit_id)]


def read_back(machine: TableMachine, event: RootReadBack, tick: Tick) -> Step:
    """Own, another's, or nobody's yet."""
    match outcome_of_read_back(event.commit_id, moves.in_flight(machine).commit_id):
        case Outcome.LANDED:
            return moves.landed(machine, event.store_ms, event.last_modified_ms, tick)
        case Outcome.LOST:
            return moves.lost(machine, tick)
        case _:
            # the first PUT may still land: the identical bytes again, at the same version, after a pause
            return moves.wait_after_failure(machine, Phase.PUTTING, "the root is not there yet", tick)


def read_back_failed(machine: TableMachine, event: RequestFailed, tick: Tick) -> Step:
    """Still unknown: ask again."""
    return moves.wait_after_failure(machine, Phase.READING_BACK, event.detail, tick)


def head_listed(machine: TableMachine, event: HeadListed, tick: Tick) -> Step:
    """Confirmed when the LIST shows the own root as the newest; else load the head and see what it decided."""
    if event.version == moves.in_flight(machine).version:
        return moves.confirmed(machine, event.store_ms, tick)
    return moves.load(machine._replace(attempt=None))  # the head's own outcomes say what of the batch is decided


def confirm_failed(machine: TableMachine, event: RequestFailed, tick: Tick) -> Step:
    """Landed, not yet confirmed: LIST again."""
    return moves.wait_after_failure(machine, Phase.CONFIRMING, event.detail, tick)


def waited(machine: TableMachine, event: TimerFired, tick: Tick) -> Step:
    """Take up what was put off."""
    if event.token != machine.timer:
        return machine, []
    match machine.resume:
        case Phase.FETCHING:
            return moves.build_root(machine, tick)
        case Phase.STAGING:
            return machine._replace(phase=Phase.STAGING), [StoreObjects(moves.in_flight(machine).applied.objects)]
        case Phase.PUTTING:
            return moves.put(machine, tick)
        case Phase.READING_BACK:
            attempt = moves.in_flight(machine)
            return machine._replace(phase=Phase.READING_BACK), [
                ReadBack(attempt.version, attempt.key, attempt.commit_id)
            ]
        case Phase.CONFIRMING:
            return machine._replace(phase=Phase.CONFIRMING), [ListHead()]
        case _:
            return moves.load(machine)


def published(machine: TableMachine, event: VerdictsPublished, tick: Tick) -> Step:
    """The log has acknowledged verdicts: the next root may drop their outcomes."""
    passed = {(item.log, item.partition): item.next_offset for item in event.up_to}
    known = machine._replace(
        acknowledged=moves.merged(machine.acknowledged, passed),
        publishing=max(0, machine.publishing - 1),
    )
    if machine.phase is Phase.GATHERING and moves.is_held(machine) and not moves.is_held(known):
        return moves.go_on(known, tick, served=0)
    return known, []


def stop_now(machine: TableMachine, event: StopRequested, tick: Tick) -> Step:
    """Nothing is in flight: stop."""
    return moves.stopped(machine), []


def stop_soon(machine: TableMachine, event: StopRequested, tick: Tick) -> Step:
    """Something is in flight: stop once it is decided."""
    return machine._replace(stopping=True), []


def stop_waiting(machine: TableMachine, event: StopRequested, tick: Tick) -> Step:
    """An undecided root is resolved first; anything else is still on the log."""
    undecided = moves.is_undecided(machine, machine.resume)
    return stop_soon(machine, event, tick) if undecided else stop_now(machine, event, tick)


def ignore(machine: TableMachine, event: Event, tick: Tick) -> Step:
    """Nothing follows."""
    return machine, []
