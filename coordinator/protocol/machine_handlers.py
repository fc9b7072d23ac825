"""The handlers of events, in the order of a commit.

Owns: one small function for each event and phase of the transition table.
Does not own: the transition table and its theory (`commit_machine`), the handlers of decisions (`machine_moves`).
Invariants: the same as in `commit_machine`.
"""

from __future__ import annotations

from rootline.coordinator.protocol import machine_moves as moves
from rootline.coordinator.protocol.effects import Effect, Noted, Report
from rootline.coordinator.protocol.events import (
    Arrived,
    EncodingFailed,
    Event,
    Fetched,
    HeadListed,
    HeadLoaded,
    LeavesEncoded,
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
from rootline.coordinator.protocol.group_window import is_full, moving_average
from rootline.coordinator.protocol.machine_moves import Move
from rootline.coordinator.protocol.machine_state import Decision, Phase, TableMachine
from rootline.coordinator.protocol.put_rules import Outcome, outcome_of_put, outcome_of_read_back
from rootline.coordinator.protocol.self_flush_rules import ask_for_leaves, with_leaves, without_leaves


def arrived(machine: TableMachine, event: Arrived, tick: Tick) -> Move:
    """Queue records while nothing is in flight, and decide immediately, so that a lone writer never waits."""
    return Move(Decision.NEXT, _queued(machine, event))


def arrived_gathering(machine: TableMachine, event: Arrived, tick: Tick) -> Move:
    """Queue records, and close the open batch if it is full."""
    queued = _queued(machine, event)
    is_due = not moves.is_blocked(queued) and is_full(queued.queue, queued.policy.limits, queued.expected)
    return Move(Decision.BUILD if is_due else Phase.GATHERING, queued)


def arrived_later(machine: TableMachine, event: Arrived, tick: Tick) -> Move:
    """Queue records while a request is in flight."""
    return Move(machine.phase, _queued(machine, event))


def _queued(machine: TableMachine, event: Arrived) -> TableMachine:
    return machine._replace(queue=(*machine.queue, *event.records))


def window_ended(machine: TableMachine, event: TimerFired, tick: Tick) -> Move:
    """Close the open batch at the end of its window."""
    is_over = event.token == machine.timer and not moves.is_blocked(machine)
    return Move(Decision.NEXT if is_over else Phase.GATHERING, machine)


def head_loaded(machine: TableMachine, event: HeadLoaded, tick: Tick) -> Move:
    """Build on the loaded head. If it is older than the known head, the store has lost roots: quarantine the table."""
    known, found = machine.head, event.state
    if known is not None and (found is None or found.root.header.version < known.root.header.version):
        shown = "no root" if found is None else f"version {found.root.header.version}"
        return moves.quarantine(
            machine,
            f"{machine.table}: the store shows {shown}, but version {known.root.header.version} was confirmed; "
            "find the cause that removed the newer roots, restore them and lift the quarantine "
            "(`rootline quarantine lift`)",
        )
    loaded = machine._replace(head=found, base_ms=event.store_ms, failures=0)
    note = Report(Noted.HEAD_LOADED, version=None if found is None else found.root.header.version)
    loaded, more = ask_for_leaves(loaded, tick)
    return Move(Decision.BUILD, loaded, [note, *more])


def fetched(machine: TableMachine, event: Fetched, tick: Tick) -> Move:
    """Build again with the fetched objects."""
    return Move(Decision.BUILD, machine._replace(fetched=machine.fetched.with_more(event.fetched), failures=0))


def objects_stored(machine: TableMachine, event: ObjectsStored, tick: Tick) -> Move:
    """Put the root, now that its objects are stored."""
    return moves.put(machine._replace(failures=0), tick)


def put_replied(machine: TableMachine, event: PutReplied, tick: Tick) -> Move:
    """Interpret the reply to the PUT: the root landed, the race is lost, or the root must be read back."""
    match outcome_of_put(event.reply.answer):
        case Outcome.LANDED:
            return _landed(machine, tick, event.reply.store_ms, event.reply.store_ms)
        case Outcome.LOST:
            return Move(Decision.LOST, machine)
        case _:
            version = moves.in_flight(machine).version
            note = Report(Noted.PUT_ASKED, f"{event.reply.answer.value}: {event.reply.detail}", version)
            reading = moves.read_root_back(machine)
            return reading._replace(effects=[note, *reading.effects])


def read_back(machine: TableMachine, event: RootReadBack, tick: Tick) -> Move:
    """Interpret the root that was read back: it landed, the race is lost, or the PUT must be repeated."""
    match outcome_of_read_back(event.commit_id, moves.in_flight(machine).commit_id):
        case Outcome.LANDED:
            return _landed(machine, tick, event.store_ms, event.last_modified_ms)
        case Outcome.LOST:
            return Move(Decision.LOST, machine)
        case _:
            # the first PUT may still land, so only the identical bytes may be put at this version
            return _failed(machine, Phase.PUTTING, "the store has no such root yet")


def _landed(machine: TableMachine, tick: Tick, answered_ms: int | None, dated_ms: int | None) -> Move:
    attempt = moves.in_flight(machine)._replace(answered_ms=answered_ms, dated_ms=dated_ms)
    put_s = moving_average(machine.put_s, tick.monotonic_s - attempt.put_at_s)
    return Move(Decision.LANDED, machine._replace(attempt=attempt, put_s=put_s))


def head_listed(machine: TableMachine, event: HeadListed, tick: Tick) -> Move:
    """Confirm the root of this attempt if the LIST shows it as the newest. Otherwise load the head."""
    attempt = moves.in_flight(machine)
    if event.version == attempt.version:
        return Move(Decision.CONFIRMED, machine._replace(attempt=attempt._replace(dated_ms=event.store_ms)))
    return moves.load(machine._replace(attempt=None))  # the head has the outcomes of the records that it decided


def published(machine: TableMachine, event: VerdictsPublished, tick: Tick) -> Move:
    """Note acknowledged verdicts, so that the next root may drop their outcomes."""
    return Move(machine.phase, _acknowledged(machine, event))


def published_gathering(machine: TableMachine, event: VerdictsPublished, tick: Tick) -> Move:
    """Note acknowledged verdicts, and continue if the open batch is no longer blocked."""
    return _unblocked(machine, _acknowledged(machine, event))


def _acknowledged(machine: TableMachine, event: VerdictsPublished) -> TableMachine:
    passed = {(item.log, item.partition): item.next_offset for item in event.up_to}
    return machine._replace(
        acknowledged=moves.merged(machine.acknowledged, passed), publishing=max(0, machine.publishing - 1)
    )


def _unblocked(before: TableMachine, after: TableMachine, effects: list[Effect] | None = None) -> Move:
    """Continue if the open batch was blocked and no longer is."""
    is_free = moves.is_blocked(before) and not moves.is_blocked(after)
    return Move(Decision.NEXT if is_free else Phase.GATHERING, after, effects or [])


def leaves_encoded(machine: TableMachine, event: LeavesEncoded, tick: Tick) -> Move:
    """Keep the leaves for the next batch."""
    return Move(machine.phase, with_leaves(machine, event.flush, tick))


def leaves_encoded_gathering(machine: TableMachine, event: LeavesEncoded, tick: Tick) -> Move:
    """Keep the leaves for the next batch, and continue if the open batch is no longer blocked."""
    return _unblocked(machine, with_leaves(machine, event.flush, tick))


def encoding_failed(machine: TableMachine, event: EncodingFailed, tick: Tick) -> Move:
    """Continue without leaves, and repeat the request later."""
    return Move(machine.phase, without_leaves(machine, tick), [_note_of(event)])


def encoding_failed_gathering(machine: TableMachine, event: EncodingFailed, tick: Tick) -> Move:
    """Repeat the request for leaves later, and continue if the open batch is no longer blocked."""
    return _unblocked(machine, without_leaves(machine, tick), [_note_of(event)])


def _note_of(event: EncodingFailed) -> Report:
    return Report(Noted.ENCODING_FAILED, event.detail)


def load_failed(machine: TableMachine, event: LoadFailed, tick: Tick) -> Move:
    """Quarantine the table if its metadata is corrupt, otherwise retry later."""
    if event.corrupt:
        return moves.quarantine(machine, event.detail)
    return _failed(machine, Phase.LOADING, event.detail)


def root_unreadable(machine: TableMachine, event: LoadFailed, tick: Tick) -> Move:
    """Quarantine the table: the root cannot be read, so its owner is unknown until a person intervenes."""
    return moves.quarantine(machine, event.detail)


def request_failed(machine: TableMachine, event: RequestFailed, tick: Tick) -> Move:
    """Retry the phase's request later.

    That is safe: a read decides nothing, and storing an object again is harmless, since its name follows from its
    content.
    """
    return _failed(machine, machine.phase, event.detail)


def _failed(machine: TableMachine, resume: Phase, detail: str) -> Move:
    note = Report(Noted.STORE_FAILED, f"{resume}: {detail}")
    return Move(Decision.FAILED, machine._replace(resume=resume), [note])


def waited(machine: TableMachine, event: TimerFired, tick: Tick) -> Move:
    """Retry at the end of the pause."""
    return Move(Decision.RETRY if event.token == machine.timer else Phase.WAITING, machine)


def stop_now(machine: TableMachine, event: StopRequested, tick: Tick) -> Move:
    """Stop immediately, since nothing is in flight."""
    return moves.stop(machine)


def stop_soon(machine: TableMachine, event: StopRequested, tick: Tick) -> Move:
    """Stop after the request in flight is decided."""
    return Move(machine.phase, machine._replace(stopping=True))


def stop_waiting(machine: TableMachine, event: StopRequested, tick: Tick) -> Move:
    """Stop immediately unless a root is undecided, which is resolved first. Waiting records are still on the log."""
    return stop_soon(machine, event, tick) if moves.is_undecided(machine) else stop_now(machine, event, tick)


def ignore(machine: TableMachine, event: Event, tick: Tick) -> Move:
    """Ignore the event."""
    return Move(machine.phase, machine)
