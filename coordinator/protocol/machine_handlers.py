"""What each event does in each phase, in the order of a commit.

Owns: one small function for each row of the table that an event leads into. Does not own: which row applies
(`commit_machine`), what follows where no event is waited for (`machine_moves`).
Invariants: those of `commit_machine`, where the theory is.
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
    """Nothing is in flight: a lone writer never waits."""
    return Move(Decision.NEXT, _queued(machine, event))


def arrived_gathering(machine: TableMachine, event: Arrived, tick: Tick) -> Move:
    """Close the open batch when it is full."""
    queued = _queued(machine, event)
    is_due = not moves.is_held(queued) and is_full(queued.queue, queued.policy.limits, queued.expected)
    return Move(Decision.BUILD if is_due else Phase.GATHERING, queued)


def arrived_later(machine: TableMachine, event: Arrived, tick: Tick) -> Move:
    """Something is in flight: wait in the queue."""
    return Move(machine.phase, _queued(machine, event))


def _queued(machine: TableMachine, event: Arrived) -> TableMachine:
    return machine._replace(queue=(*machine.queue, *event.records))


def window_ended(machine: TableMachine, event: TimerFired, tick: Tick) -> Move:
    """The open batch has waited long enough."""
    is_over = event.token == machine.timer and not moves.is_held(machine)
    return Move(Decision.NEXT if is_over else Phase.GATHERING, machine)


def head_loaded(machine: TableMachine, event: HeadLoaded, tick: Tick) -> Move:
    """Go on with the batch that lost a race, or with what waits. A head that went back is a store that lost a root."""
    known, found = machine.head, event.state
    if known is not None and (found is None or found.root.header.version < known.root.header.version):
        shown = "no root" if found is None else f"version {found.root.header.version}"
        return moves.quarantine(
            machine,
            f"{machine.table}: the store shows {shown}, but version {known.root.header.version} was confirmed; "
            "find out what removed the newer roots, restore them and lift the quarantine (`rootline quarantine lift`)",
        )
    loaded = machine._replace(head=found, base_ms=event.store_ms, failures=0)
    note = Report(Noted.HEAD_LOADED, version=None if found is None else found.root.header.version)
    loaded, more = ask_for_leaves(loaded, tick)
    return Move(Decision.BUILD, loaded, [note, *more])


def fetched(machine: TableMachine, event: Fetched, tick: Tick) -> Move:
    """What the batch needed is here: build again."""
    return Move(Decision.BUILD, machine._replace(fetched=machine.fetched.with_more(event.fetched), failures=0))


def objects_stored(machine: TableMachine, event: ObjectsStored, tick: Tick) -> Move:
    """What the root references is in the store: put the root."""
    return moves.put(machine._replace(failures=0), tick)


def put_replied(machine: TableMachine, event: PutReplied, tick: Tick) -> Move:
    """Landed, lost, or ask."""
    match outcome_of_put(event.reply.answer):
        case Outcome.LANDED:
            return _landed(machine, tick, event.reply.store_ms, event.reply.store_ms)
        case Outcome.LOST:
            return Move(Decision.LOST, machine)
        case _:
            version = moves.in_flight(machine).version
            note = Report(Noted.PUT_ASKED, f"{event.reply.answer.value}: {event.reply.detail}", version)
            asking = moves.ask_whose(machine)
            return asking._replace(effects=[note, *asking.effects])


def read_back(machine: TableMachine, event: RootReadBack, tick: Tick) -> Move:
    """The own root, another's, or none yet."""
    match outcome_of_read_back(event.commit_id, moves.in_flight(machine).commit_id):
        case Outcome.LANDED:
            return _landed(machine, tick, event.store_ms, event.last_modified_ms)
        case Outcome.LOST:
            return Move(Decision.LOST, machine)
        case _:
            # the first PUT may still land: the identical bytes again, at the same version, after a pause
            return _failed(machine, Phase.PUTTING, "the root is not there yet")


def _landed(machine: TableMachine, tick: Tick, answered_ms: int | None, dated_ms: int | None) -> Move:
    attempt = moves.in_flight(machine)._replace(answered_ms=answered_ms, dated_ms=dated_ms)
    put_s = moving_average(machine.put_s, tick.monotonic_s - attempt.put_at_s)
    return Move(Decision.LANDED, machine._replace(attempt=attempt, put_s=put_s))


def head_listed(machine: TableMachine, event: HeadListed, tick: Tick) -> Move:
    """Confirmed when the LIST shows the own root as the newest; else load the head and see what it decided."""
    attempt = moves.in_flight(machine)
    if event.version == attempt.version:
        return Move(Decision.CONFIRMED, machine._replace(attempt=attempt._replace(dated_ms=event.store_ms)))
    return moves.load(machine._replace(attempt=None))  # the head's own outcomes say what of the batch is decided


def published(machine: TableMachine, event: VerdictsPublished, tick: Tick) -> Move:
    """The log has acknowledged verdicts: the next root may drop their outcomes."""
    return Move(machine.phase, _acknowledged(machine, event))


def published_gathering(machine: TableMachine, event: VerdictsPublished, tick: Tick) -> Move:
    """The same; and a batch that was held for these acknowledgements goes on."""
    return _released(machine, _acknowledged(machine, event))


def _acknowledged(machine: TableMachine, event: VerdictsPublished) -> TableMachine:
    passed = {(item.log, item.partition): item.next_offset for item in event.up_to}
    return machine._replace(
        acknowledged=moves.merged(machine.acknowledged, passed), publishing=max(0, machine.publishing - 1)
    )


def _released(before: TableMachine, after: TableMachine, effects: list[Effect] | None = None) -> Move:
    """Go on, if the open batch was held until now."""
    is_free = moves.is_held(before) and not moves.is_held(after)
    return Move(Decision.NEXT if is_free else Phase.GATHERING, after, effects or [])


def leaves_encoded(machine: TableMachine, event: LeavesEncoded, tick: Tick) -> Move:
    """The next batch takes the leaves over."""
    return Move(machine.phase, with_leaves(machine, event.flush, tick))


def leaves_encoded_gathering(machine: TableMachine, event: LeavesEncoded, tick: Tick) -> Move:
    """The same; and a batch that was held for them goes on."""
    return _released(machine, with_leaves(machine, event.flush, tick))


def encoding_failed(machine: TableMachine, event: EncodingFailed, tick: Tick) -> Move:
    """Commits go on without leaves, which are asked for again later."""
    return Move(machine.phase, without_leaves(machine, tick), [_note_of(event)])


def encoding_failed_gathering(machine: TableMachine, event: EncodingFailed, tick: Tick) -> Move:
    """The same; and a batch that was held for them goes on."""
    return _released(machine, without_leaves(machine, tick), [_note_of(event)])


def _note_of(event: EncodingFailed) -> Report:
    return Report(Noted.ENCODING_FAILED, event.detail)


def load_failed(machine: TableMachine, event: LoadFailed, tick: Tick) -> Move:
    """Corrupt bytes quarantine the table; an absent store is asked again."""
    if event.corrupt:
        return moves.quarantine(machine, event.detail)
    return _failed(machine, Phase.LOADING, event.detail)


def root_unreadable(machine: TableMachine, event: LoadFailed, tick: Tick) -> Move:
    """Whose root is there cannot be read: nothing is decided, and nothing can be until a person has looked."""
    return moves.quarantine(machine, event.detail)


def request_failed(machine: TableMachine, event: RequestFailed, tick: Tick) -> Move:
    """The phase's request decided nothing: again, later.

    Reads decide nothing, names of side objects follow from their content, and a root that may have landed is asked
    for again.
    """
    return _failed(machine, machine.phase, event.detail)


def _failed(machine: TableMachine, resume: Phase, detail: str) -> Move:
    note = Report(Noted.STORE_FAILED, f"{resume}: {detail}")
    return Move(Decision.FAILED, machine._replace(resume=resume), [note])


def waited(machine: TableMachine, event: TimerFired, tick: Tick) -> Move:
    """The pause is over."""
    return Move(Decision.RETRY if event.token == machine.timer else Phase.WAITING, machine)


def stop_now(machine: TableMachine, event: StopRequested, tick: Tick) -> Move:
    """Nothing is in flight: stop."""
    return moves.stop(machine)


def stop_soon(machine: TableMachine, event: StopRequested, tick: Tick) -> Move:
    """Something is in flight: stop once it is decided."""
    return Move(machine.phase, machine._replace(stopping=True))


def stop_waiting(machine: TableMachine, event: StopRequested, tick: Tick) -> Move:
    """An undecided root is resolved first; anything else is still on the log."""
    return stop_soon(machine, event, tick) if moves.is_undecided(machine) else stop_now(machine, event, tick)


def ignore(machine: TableMachine, event: Event, tick: Tick) -> Move:
    """Nothing follows."""
    return Move(machine.phase, machine)
