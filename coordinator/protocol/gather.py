"""Records arrive, share a batch, or wait: everything that happens to a table between two commits.

Owns: the queue, the window of a batch, phase `HELD`, acknowledged verdicts, and decision `next`. Does not own: the
length of a window (`group_window`), the reasons for phase `HELD` (`held_rules`), building a root (`commit`).
Invariants: A lone record is committed immediately. In phase `HELD` records wait, and each event that may release them
leads to `next`, so the rule that made them wait also releases them. In every other phase such an event is only noted.
"""

from __future__ import annotations

from collections.abc import Sequence

from rootline.coordinator.protocol.commit import load
from rootline.coordinator.protocol.group_window import is_full, next_window
from rootline.coordinator.protocol.held_rules import is_held, with_leaves, without_leaves
from rootline.coordinator.protocol.machine_state import AtPhase, Build, Gathering, Move, Next, Phase, TableMachine
from rootline.coordinator.protocol.messages import (
    ArmTimer,
    Arrived,
    Effect,
    EncodingFailed,
    LeavesEncoded,
    Noted,
    Report,
    Tick,
    TimerFired,
    VerdictsPublished,
)
from rootline.coordinator.protocol.trouble import stop

# Records arrive


def arrived(machine: TableMachine, phase: AtPhase, event: Arrived, tick: Tick) -> Move:
    """Queue records while nothing is in flight, and decide immediately, so that a lone writer never waits."""
    return Move(Next(), _queued(machine, event))


def arrived_gathering(machine: TableMachine, phase: Gathering, event: Arrived, tick: Tick) -> Move:
    """Queue records, and close the open batch if it is full."""
    queued = _queued(machine, event)
    return Move(Build() if is_full(queued.queue, queued.policy.limits, phase.expected) else phase, queued)


def arrived_later(machine: TableMachine, phase: AtPhase, event: Arrived, tick: Tick) -> Move:
    """Queue records while a request is in flight, or in phase `HELD`."""
    return Move(phase, _queued(machine, event))


def _queued(machine: TableMachine, event: Arrived) -> TableMachine:
    return machine._replace(queue=(*machine.queue, *event.records))


def window_ended(machine: TableMachine, phase: Gathering, event: TimerFired, tick: Tick) -> Move:
    """Close the open batch at the end of its window."""
    return Move(Next() if event.token == machine.timer else phase, machine)


# Nothing is in flight


def choose_next(machine: TableMachine, decision: Next, tick: Tick) -> Move:
    """Choose what follows while nothing is in flight.

    The machine stops, rests, enters `HELD`, looks for the table, opens a window, or closes a batch immediately.
    """
    if machine.stopping:
        return stop(machine)
    if not machine.queue and (decision.awaited == 0 or is_held(machine)):
        return Move(Phase.COLD if machine.head is None else Phase.IDLE, machine)
    if is_held(machine):
        return Move(Phase.HELD, machine)
    if machine.head is None:
        return load(machine)  # another coordinator may have created the table meanwhile
    window = next_window(decision.awaited, len(machine.queue), machine.put_s or 0.0, machine.policy.limits)
    if window is not None:
        gathering = machine._replace(timer=machine.timer + 1)
        return Move(Gathering(window.expected), gathering, [ArmTimer(gathering.timer, window.delay_s)])
    return Move(Build() if machine.queue else Phase.IDLE, machine)


# The events that phase `HELD` waits for


def published(machine: TableMachine, phase: AtPhase, event: VerdictsPublished, tick: Tick) -> Move:
    """Note acknowledged verdicts, so that the next root may drop their outcomes."""
    noted = machine.with_acknowledged(event.up_to)
    return _released(noted._replace(publishing=max(0, noted.publishing - 1)), phase)


def leaves_encoded(machine: TableMachine, phase: AtPhase, event: LeavesEncoded, tick: Tick) -> Move:
    """Keep the leaves for the next batch."""
    return _released(with_leaves(machine, event.flush, tick), phase)


def encoding_failed(machine: TableMachine, phase: AtPhase, event: EncodingFailed, tick: Tick) -> Move:
    """Commit without leaves, and repeat the request for them after a pause."""
    return _released(without_leaves(machine, tick), phase, [Report(Noted.ENCODING_FAILED, event.detail)])


def _released(machine: TableMachine, phase: AtPhase, effects: Sequence[Effect] = ()) -> Move:
    """Move from phase `HELD` to `next`, which may choose `HELD` for another reason. Stay in any other phase."""
    return Move(Next() if phase is Phase.HELD else phase, machine, effects)
