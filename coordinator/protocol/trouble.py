"""A request fails, a race is lost, a stop is requested, or the table cannot continue.

Owns: the pause before a retry, lost races, stopping, and quarantine. Does not own: the delays
(`rootline.ports.retry_policy`), the interpretation of a reply (`put_rules`), repeating a request (`commit`).
Invariants: No failure decides the outcome of a PUT. A machine with an undecided PUT does not stop before it is decided.
Records without a verdict are dropped from memory only, since they are still on the log.
"""

from __future__ import annotations

from rootline.coordinator.protocol.machine_state import (
    AtPhase,
    Failed,
    Lost,
    Move,
    Phase,
    Quarantined,
    ReadingBack,
    Request,
    Retry,
    TableMachine,
    Undecided,
    Waiting,
    kind_of,
)
from rootline.coordinator.protocol.messages import (
    ArmTimer,
    Event,
    LoadFailed,
    Noted,
    Report,
    RequestFailed,
    StopRequested,
    Tick,
    TimerFired,
)
from rootline.tree.draft.batch import NOTHING_FETCHED

# A request fails


def load_failed(machine: TableMachine, phase: Request, event: LoadFailed, tick: Tick) -> Move:
    """Quarantine the table if its metadata is corrupt, otherwise retry later."""
    return quarantine(machine, event.detail) if event.corrupt else Move(Failed(phase, event.detail), machine)


def root_unreadable(machine: TableMachine, phase: ReadingBack, event: LoadFailed, tick: Tick) -> Move:
    """Quarantine the table: the root at this version cannot be read, so nobody knows whether the own PUT landed."""
    return quarantine(machine, event.detail)


def request_failed(machine: TableMachine, phase: Request, event: RequestFailed, tick: Tick) -> Move:
    """Retry the phase's request later.

    That is safe for a read, and for storing an object, whose name follows from its content. A PUT of a root never
    arrives here, because its failure is a reply with an unknown outcome.
    """
    return Move(Failed(phase, event.detail), machine)


def failed(machine: TableMachine, decision: Failed, tick: Tick) -> Move:
    """Wait before a retry, or stop if a stop was requested and no root is undecided."""
    note = Report(Noted.STORE_FAILED, f"{kind_of(decision.resume)}: {decision.detail}")
    failures = machine.failures + 1
    machine = machine._replace(failures=failures)
    if machine.stopping and not isinstance(decision.resume, Undecided):
        move = stop(machine)
    else:
        move = _pause(machine, decision.resume, machine.policy.retry.after_failure(failures, tick.jitter))
    return move._replace(effects=[note, *move.effects])


# A race is lost


def lost(machine: TableMachine, decision: Lost, tick: Tick) -> Move:
    """Load the head that another coordinator made, after a pause unless it is the first lost race in a row."""
    losses = machine.losses + 1
    noted = Noted.YIELDED if losses > machine.policy.retry.losses_max else Noted.REBASED
    note = Report(noted, f"lost {losses} races in a row", decision.attempt.version)
    machine = machine._replace(losses=losses)
    delay_s = machine.policy.retry.after_loss(losses, tick.jitter)
    if machine.stopping:
        move = stop(machine)
    elif delay_s == 0.0:
        move = Move(Retry(Phase.LOADING), machine)
    else:
        move = _pause(machine, Phase.LOADING, delay_s)
    return move._replace(effects=[note, *move.effects])


# A pause before a retry


def _pause(machine: TableMachine, resume: Request, delay_s: float) -> Move:
    waiting = machine._replace(timer=machine.timer + 1)
    return Move(Waiting(resume), waiting, [ArmTimer(waiting.timer, delay_s)])


def waited(machine: TableMachine, phase: Waiting, event: TimerFired, tick: Tick) -> Move:
    """Retry at the end of the pause."""
    return Move(Retry(phase.resume) if event.token == machine.timer else phase, machine)


# The end


def stop_now(machine: TableMachine, phase: AtPhase, event: StopRequested, tick: Tick) -> Move:
    """Stop immediately, since nothing is in flight."""
    return stop(machine)


def stop_soon(machine: TableMachine, phase: Request, event: StopRequested, tick: Tick) -> Move:
    """Stop after the request in flight is decided."""
    return Move(phase, machine._replace(stopping=True))


def stop_waiting(machine: TableMachine, phase: Waiting, event: StopRequested, tick: Tick) -> Move:
    """Stop immediately unless a root is undecided, which is resolved first."""
    return Move(phase, machine._replace(stopping=True)) if isinstance(phase.resume, Undecided) else stop(machine)


def stop(machine: TableMachine) -> Move:
    """Stop the machine. Waiting records get no verdict and stay on the log."""
    return Move(Phase.STOPPED, machine._replace(stopping=True, queue=(), batch=()))


def quarantine(machine: TableMachine, why: str) -> Move:
    """Quarantine the table: it commits nothing more. Waiting records get no verdict and stay on the log."""
    ended = machine._replace(queue=(), batch=(), fetched=NOTHING_FETCHED)
    return Move(Quarantined(why), ended, [Report(Noted.QUARANTINED, why)])


def ignore(machine: TableMachine, phase: AtPhase, event: Event, tick: Tick) -> Move:
    """Ignore the event."""
    return Move(phase, machine)
