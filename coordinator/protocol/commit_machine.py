"""The commit machine of one table: a pure function (state, event) → (state, effects).

Owns: the transition table and `step`. Does not own: the handlers in its rows (`gather`, `commit`,
`trouble`), the state (`machine_state`), any I/O.
Invariants: At most one root is in flight. While the outcome of root N is unknown, no PUT is sent except for the
identical bytes of N. A verdict is published only after its root is confirmed. No record is lost, since records without
a verdict are still on the log.

Theory. An Iceberg table's state is a chain of roots, and the only way to extend it is to create root N with one
conditional PUT. Everything that a coordinator must know (offsets, ledger, live set) is in the root that it builds on.
So *any* coordinator may commit at any time: the PUT decides, and the loser loads the new head and applies its batch
again. If the new head has decided some of the records, their verdicts are read from the head. A coordinator must never
mistake an unknown outcome for a known one. Hence after a reply that proves nothing, it reads root N back until it knows
who wrote root N. If there is no root N, it puts the identical bytes again, because the first PUT may still land.

Two more doubts are settled before verdicts are published. A PUT that lands late may create root N a second time, after
N was superseded, expired and deleted. So a late root is confirmed by a LIST. And a log that was restored to an earlier
state would reuse offsets. So before verdicts are read from a head, the log is compared with that head.

The transition table has two kinds of nodes. In a *phase* the machine waits for an event. A *decision* follows
immediately from the machine's state. The two main decisions are `next` (nothing is in flight) and `build` (a batch is
closed). Most events lead to one of them, so the choice among the possible next phases is written once. To follow one
commit, read `TRANSITIONS` first and then `CHOICES`, or see the picture in docs/commit-machine.md.

Two things may forbid the next root although records wait: too many roots whose verdicts the log has not acknowledged,
or a root that is far too long: its rows must first move to other objects, its leaves. Then the machine is in phase
`HELD`. Each event that may release it leads to `next`, so the rule that makes commits wait also releases them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from rootline.coordinator.protocol import commit, gather, trouble
from rootline.coordinator.protocol.machine_state import AtDecision, Decision, Kind, Move, Phase, TableMachine, kind_of
from rootline.coordinator.protocol.messages import (
    Arrived,
    Effect,
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
from rootline.schemas.errors import Internal

Step = tuple[TableMachine, list[Effect]]


def step(machine: TableMachine, event: Event, tick: Tick) -> Step:
    """Handle `event`. Returns the new machine and its effects, in the order in which they must be carried out.

    Raises:
        Internal: the transition table does not have the event in this phase, or not the resulting node.
    """
    effects: list[Effect] = []
    for move in path(machine, event, tick):
        effects += move.effects
    return _in_phase(move), effects


def path(machine: TableMachine, event: Event, tick: Tick) -> Iterator[Move]:
    """The moves from `event`, through any decisions, to the next phase. Raises the errors of `step`."""
    transition = TRANSITIONS.get((machine.kind, type(event)))
    if transition is None:
        raise Internal(
            "invariant-broken",
            f"{machine.table}: {type(event).__name__} arrived in phase {machine.kind}; report a bug",
        )
    move = transition.handler(machine, machine.phase, event, tick)
    yield _allowed(machine.kind, transition.leads_to, move)
    while isinstance(move.to, AtDecision):
        decision = move.to
        choice = CHOICES[decision.kind]
        move = choice.handler(move.machine, decision, tick)
        yield _allowed(decision.kind, choice.leads_to, move)


def quarantine(machine: TableMachine, why: str) -> Step:
    """Quarantine the machine after an internal error, so that other tables can continue."""
    move = trouble.quarantine(machine, why)
    return _in_phase(move), list(move.effects)


def _allowed(at: Kind, leads_to: Iterable[Kind], move: Move) -> Move:
    to = kind_of(move.to)
    if to not in leads_to:
        raise Internal("invariant-broken", f"{move.machine.table}: {at} led to {to}; report a bug")
    return move


def _in_phase(move: Move) -> TableMachine:
    """The machine in the phase in which the move ends."""
    assert not isinstance(move.to, AtDecision), "a path ends in a phase"
    return move.machine if move.to is move.machine.phase else move.machine._replace(phase=move.to)


# The transition table

EventHandler = Callable[[TableMachine, Any, Any, Tick], Move]
"""(machine, its phase, an event, the tick) → the move. A test compares the types of phase and event with the rows."""
DecisionHandler = Callable[[TableMachine, Any, Tick], Move]
"""(machine, a decision, the tick) → the move."""


@dataclass(frozen=True, slots=True)
class Transition:
    """The handler of an event in a phase, and the nodes that may follow, each with its condition."""

    handler: EventHandler
    leads_to: Mapping[Kind, str]


@dataclass(frozen=True, slots=True)
class Choice:
    """The handler of a decision, and the nodes that may follow, each with its condition."""

    handler: DecisionHandler
    leads_to: Mapping[Kind, str]


CHOICES: Final[Mapping[Decision, Choice]] = {
    Decision.NEXT: Choice(
        gather.choose_next,
        {
            Decision.BUILD: "records wait",
            Phase.GATHERING: "more records are expected",
            Phase.HELD: "leaves or acknowledgements are missing",
            Phase.IDLE: "nothing waits",
            Phase.COLD: "nothing waits, no table is known",
            Phase.LOADING: "records wait, no table is known",
            Phase.STOPPED: "stop requested",
        },
    ),
    Decision.BUILD: Choice(
        commit.build_next,
        {
            Phase.PUTTING: "a root without new objects",
            Phase.STAGING: "a root with new objects",
            Phase.FETCHING: "objects are needed",
            Phase.LOADING: "decided by the head, log not compared yet",
            Decision.NEXT: "no root is needed",
            Phase.QUARANTINED: "an invariant is broken, or the log lost records",
        },
    ),
    Decision.LANDED: Choice(
        commit.landed,
        {Decision.CONFIRMED: "in time", Phase.CONFIRMING: "so late that it may be a second root N"},
    ),
    Decision.CONFIRMED: Choice(commit.confirmed, {Decision.NEXT: "its verdicts are published"}),
    Decision.LOST: Choice(
        trouble.lost,
        {Decision.RETRY: "first lost race", Phase.WAITING: "further lost race", Phase.STOPPED: "stop requested"},
    ),
    Decision.FAILED: Choice(
        trouble.failed,
        {Phase.WAITING: "back off", Phase.STOPPED: "stop requested, no undecided PUT"},
    ),
    Decision.RETRY: Choice(  # chosen by the request that failed
        commit.resend,
        {
            Phase.LOADING: "loading the head failed, or a race was lost",
            Decision.BUILD: "a fetch failed",
            Phase.STAGING: "storing an object failed",
            Phase.PUTTING: "the store has no root",
            Phase.READING_BACK: "the GET failed",
            Phase.CONFIRMING: "the LIST failed",
        },
    ),
}
"""The handler of each decision, and the nodes that may follow."""

AT_REST: Final = frozenset({Phase.COLD, Phase.IDLE})
IN_FLIGHT: Final = frozenset(  # a request is in flight, for a root or for anything else
    {Phase.LOADING, Phase.FETCHING, Phase.STAGING, Phase.PUTTING, Phase.READING_BACK, Phase.CONFIRMING}
)
ENDED: Final = frozenset({Phase.QUARANTINED, Phase.PAUSED, Phase.STOPPED})
_ALL: Final = frozenset(Phase)
_ANSWERS: Final = (
    HeadLoaded,
    LoadFailed,
    Fetched,
    ObjectsStored,
    RequestFailed,
    PutReplied,
    RootReadBack,
    HeadListed,
    LeavesEncoded,
    EncodingFailed,
)
_Rows = dict[tuple[Phase, type[Event]], Transition]


def _rows(
    phases: Iterable[Phase], event: type[Event], handler: EventHandler, leads_to: Kind | Mapping[Kind, str]
) -> _Rows:
    following = leads_to if isinstance(leads_to, Mapping) else {leads_to: ""}
    return {(phase, event): Transition(handler, following) for phase in phases}


def _staying(phases: Iterable[Phase], event: type[Event], handler: EventHandler) -> _Rows:
    return {(phase, event): Transition(handler, {phase: ""}) for phase in phases}


TRANSITIONS: Final[Mapping[tuple[Phase, type[Event]], Transition]] = {
    # records arrive
    **_rows(AT_REST, Arrived, gather.arrived, Decision.NEXT),
    **_rows(
        [Phase.GATHERING],
        Arrived,
        gather.arrived_gathering,
        {Decision.BUILD: "full", Phase.GATHERING: "not full"},
    ),
    **_staying(IN_FLIGHT | {Phase.HELD, Phase.WAITING}, Arrived, gather.arrived_later),
    **_rows(
        [Phase.GATHERING],
        TimerFired,
        gather.window_ended,
        {Decision.NEXT: "the window ends", Phase.GATHERING: "an old timer"},
    ),
    # verdicts are acknowledged, and the coordinator's own leaves are encoded: phase `HELD` waits for these
    **_rows([Phase.HELD], VerdictsPublished, gather.published, Decision.NEXT),
    **_rows([Phase.HELD], LeavesEncoded, gather.leaves_encoded, Decision.NEXT),
    **_rows([Phase.HELD], EncodingFailed, gather.encoding_failed, Decision.NEXT),
    **_staying(_ALL - {Phase.HELD}, VerdictsPublished, gather.published),
    **_staying(_ALL - ENDED - {Phase.HELD}, LeavesEncoded, gather.leaves_encoded),
    **_staying(_ALL - ENDED - {Phase.HELD}, EncodingFailed, gather.encoding_failed),
    # a commit
    **_rows(
        [Phase.LOADING],
        HeadLoaded,
        commit.head_loaded,
        {Decision.BUILD: "as new as the known head", Phase.QUARANTINED: "older than the known head"},
    ),
    **_rows([Phase.FETCHING], Fetched, commit.fetched, Decision.BUILD),
    **_rows([Phase.STAGING], ObjectsStored, commit.objects_stored, Phase.PUTTING),
    **_rows(
        [Phase.PUTTING],
        PutReplied,
        commit.put_replied,
        {
            Decision.LANDED: "created",
            Decision.LOST: "stale: root N-1 is not the head any more",
            Phase.READING_BACK: "any other reply",
        },
    ),
    **_rows(
        [Phase.READING_BACK],
        RootReadBack,
        commit.read_back,
        {
            Decision.LANDED: "own root",
            Decision.LOST: "another coordinator's root",
            Decision.FAILED: "no root: put again after a pause",
        },
    ),
    **_rows(
        [Phase.CONFIRMING],
        HeadListed,
        commit.head_listed,
        {Decision.CONFIRMED: "own root", Phase.LOADING: "another root"},
    ),
    # trouble
    **_rows(
        [Phase.LOADING],
        LoadFailed,
        trouble.load_failed,
        {Decision.FAILED: "no answer", Phase.QUARANTINED: "corrupt metadata"},
    ),
    **_rows([Phase.READING_BACK], LoadFailed, trouble.root_unreadable, {Phase.QUARANTINED: "corrupt root"}),
    # a PUT that fails or times out is a `PutReplied`, because its outcome is unknown
    **_rows(IN_FLIGHT - {Phase.LOADING, Phase.PUTTING}, RequestFailed, trouble.request_failed, Decision.FAILED),
    **_rows(
        [Phase.WAITING],
        TimerFired,
        trouble.waited,
        {Decision.RETRY: "the pause is over", Phase.WAITING: "an old timer"},
    ),
    # a stop
    **_rows(AT_REST | ENDED | {Phase.GATHERING, Phase.HELD}, StopRequested, trouble.stop_now, Phase.STOPPED),
    **_staying(IN_FLIGHT, StopRequested, trouble.stop_soon),
    **_rows(
        [Phase.WAITING],
        StopRequested,
        trouble.stop_waiting,
        {Phase.STOPPED: "no undecided PUT", Phase.WAITING: "a root is undecided"},
    ),
    # what means nothing
    **_staying(_ALL - {Phase.GATHERING, Phase.WAITING}, TimerFired, trouble.ignore),
    **{row: found for event in (Arrived, *_ANSWERS) for row, found in _staying(ENDED, event, trouble.ignore).items()},
}
"""The handler of each event in each phase, and the nodes that may follow."""
