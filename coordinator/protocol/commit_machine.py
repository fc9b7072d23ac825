"""The commit machine: (state, event) → (state, effects), for one table. The one file that owns the state machine.

Owns: the transition table and `step`. Does not own: what events do (`machine_handlers`), what is decided between them
(`machine_moves`), any I/O.
Invariants: at most one root is in flight; while root N is undecided nothing but N's identical bytes is put; a verdict
is published only after its root is confirmed; nothing is dropped: what has no verdict is still on the log.

Theory. A table's state is a chain of roots, and creating root N with one conditional PUT is the only way to extend
it. Everything a coordinator must know (offsets, ledger, live set) is in the root it builds on, so *any* coordinator
may commit at any time: the PUT decides, and the loser loads the new head and applies its batch again; records that
the new head already decided are answered from its outcomes. The only thing that must never happen is to take an
unknown outcome for a known one. Hence a PUT that was not answered with 200 is asked about until a GET of N shows
whose root it is, and if it shows none, the identical bytes are put again, because the first PUT may still land.

The table has two kinds of nodes. In a *phase* the machine waits for an event. At a *decision* it goes on at once, by
what it knows; two of them tell most of the story: `next` (nothing is in flight: what follows?) and `build` (a batch is
closed: what is to be written?). So most events lead to one place, and what may come of it is said once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from rootline.coordinator.protocol import machine_handlers as handlers
from rootline.coordinator.protocol import machine_moves as moves
from rootline.coordinator.protocol.effects import Effect
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
from rootline.coordinator.protocol.machine_moves import Move
from rootline.coordinator.protocol.machine_state import Decision, Node, Phase, TableMachine
from rootline.schemas.errors import Internal

Step = tuple[TableMachine, list[Effect]]


def step(machine: TableMachine, event: Event, tick: Tick) -> Step:
    """The machine after `event`, and what it asks of the outside, in order.

    Raises:
        Internal: the event cannot happen in this phase, or led where the transition table does not allow.
    """
    effects: list[Effect] = []
    for move in path(machine, event, tick):
        effects += move.effects
    assert isinstance(move.to, Phase), "a path ends in a phase"
    return move.machine if move.to is machine.phase else move.machine._replace(phase=move.to), effects


def path(machine: TableMachine, event: Event, tick: Tick) -> Iterator[Move]:
    """The moves that follow from `event`: over decisions to the next phase, as the table allows. Raises as `step`."""
    transition = TRANSITIONS.get((machine.phase, type(event)))
    if transition is None:
        raise Internal(
            "invariant-broken", f"{machine.table}: {type(event).__name__} came while {machine.phase}; report a bug"
        )
    move = _allowed(machine, machine.phase, transition.leads_to, transition.handler(machine, event, tick))
    yield move
    while isinstance(move.to, Decision):
        choice = CHOICES[move.to]
        move = _allowed(machine, move.to, choice.leads_to, choice.handler(move.machine, tick))
        yield move


def _allowed(machine: TableMachine, at: Node, leads_to: Iterable[Node], move: Move) -> Move:
    if move.to not in leads_to:
        raise Internal("invariant-broken", f"{machine.table}: {at} led to {move.to}; report a bug")
    return move


def quarantine(machine: TableMachine, why: str) -> Step:
    """The machine after a step of its own failed: it commits nothing more, and its table's neighbours go on."""
    move = moves.quarantine(machine, why)
    return move.machine._replace(phase=Phase.QUARANTINED), list(move.effects)


# The transition table

EventHandler = Callable[[TableMachine, Any, Tick], Move]
DecisionHandler = Callable[[TableMachine, Tick], Move]


@dataclass(frozen=True, slots=True)
class Transition:
    """Who handles an event in a phase, and the nodes that may follow: with when, if there are several."""

    handler: EventHandler
    leads_to: Mapping[Node, str]


@dataclass(frozen=True, slots=True)
class Choice:
    """Who decides, and the nodes that may follow, each with when it does."""

    handler: DecisionHandler
    leads_to: Mapping[Node, str]


CHOICES: Final[Mapping[Decision, Choice]] = {
    Decision.NEXT: Choice(
        moves.choose_next,
        {
            Decision.BUILD: "records wait",
            Phase.GATHERING: "more will come, or verdicts must go out first",
            Phase.IDLE: "nothing waits",
            Phase.COLD: "nothing waits, no table",
            Phase.LOADING: "records wait, no table yet",
            Phase.STOPPED: "stop requested",
        },
    ),
    Decision.BUILD: Choice(
        moves.build_next,
        {
            Phase.PUTTING: "a root",
            Phase.STAGING: "a root that names new objects",
            Phase.FETCHING: "leaves or vectors are needed",
            Phase.LOADING: "decided before, and the log not compared yet",
            Decision.NEXT: "all decided, no root",
            Phase.QUARANTINED: "a rule broke, or the log went back",
        },
    ),
    Decision.LANDED: Choice(
        moves.landed,
        {Decision.CONFIRMED: "answered in time", Phase.CONFIRMING: "answered late"},
    ),
    Decision.CONFIRMED: Choice(moves.confirmed, {Decision.NEXT: "publish its verdicts"}),
    Decision.LOST: Choice(
        moves.lost,
        {Phase.LOADING: "first loss", Phase.WAITING: "lost before", Phase.STOPPED: "stop requested"},
    ),
    Decision.FAILED: Choice(
        moves.failed,
        {Phase.WAITING: "pause, longer each time", Phase.STOPPED: "stop requested, no PUT is out"},
    ),
    Decision.RETRY: Choice(
        moves.again,
        {
            Phase.LOADING: "a LIST or GET, or a lost race",
            Decision.BUILD: "a fetch",
            Phase.STAGING: "an object",
            Phase.PUTTING: "no root is there",
            Phase.READING_BACK: "a GET",
            Phase.CONFIRMING: "a LIST",
        },
    ),
}
"""What is decided where no event is waited for."""

AT_REST: Final = frozenset({Phase.COLD, Phase.IDLE})
IN_FLIGHT: Final = frozenset(
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
    phases: Iterable[Phase], event: type[Event], handler: EventHandler, leads_to: Node | Mapping[Node, str]
) -> _Rows:
    following = leads_to if isinstance(leads_to, Mapping) else {leads_to: ""}
    return {(phase, event): Transition(handler, following) for phase in phases}


def _staying(phases: Iterable[Phase], event: type[Event], handler: EventHandler) -> _Rows:
    return {(phase, event): Transition(handler, {phase: ""}) for phase in phases}


TRANSITIONS: Final[Mapping[tuple[Phase, type[Event]], Transition]] = {
    # records come
    **_rows(AT_REST, Arrived, handlers.arrived, Decision.NEXT),
    **_rows(
        [Phase.GATHERING],
        Arrived,
        handlers.arrived_gathering,
        {Decision.BUILD: "full", Phase.GATHERING: "not full, or held"},
    ),
    **_staying(IN_FLIGHT | {Phase.WAITING}, Arrived, handlers.arrived_later),
    **_rows(
        [Phase.GATHERING],
        TimerFired,
        handlers.window_ended,
        {Decision.NEXT: "the window ends", Phase.GATHERING: "an old timer, or the batch is held"},
    ),
    # a commit
    **_rows(
        [Phase.LOADING],
        HeadLoaded,
        handlers.head_loaded,
        {Decision.BUILD: "no older than before", Phase.QUARANTINED: "older than before"},
    ),
    **_rows([Phase.FETCHING], Fetched, handlers.fetched, Decision.BUILD),
    **_rows([Phase.STAGING], ObjectsStored, handlers.objects_stored, Phase.PUTTING),
    **_rows(
        [Phase.PUTTING],
        PutReplied,
        handlers.put_replied,
        {Decision.LANDED: "created", Decision.LOST: "stale", Phase.READING_BACK: "anything else"},
    ),
    **_rows(
        [Phase.READING_BACK],
        RootReadBack,
        handlers.read_back,
        {Decision.LANDED: "the own root", Decision.LOST: "another's", Decision.FAILED: "no root"},
    ),
    **_rows(
        [Phase.CONFIRMING],
        HeadListed,
        handlers.head_listed,
        {Decision.CONFIRMED: "the own root", Phase.LOADING: "another root"},
    ),
    # its verdicts are acknowledged
    **_rows(
        [Phase.GATHERING],
        VerdictsPublished,
        handlers.published_gathering,
        {Decision.NEXT: "no longer held", Phase.GATHERING: "not held, or held still"},
    ),
    **_staying(_ALL - {Phase.GATHERING}, VerdictsPublished, handlers.published),
    # leaves of its own, which a root that is too long needs
    **_rows(
        [Phase.GATHERING],
        LeavesEncoded,
        handlers.leaves_encoded_gathering,
        {Decision.NEXT: "no longer held", Phase.GATHERING: "not held, or held still"},
    ),
    **_rows(
        [Phase.GATHERING],
        EncodingFailed,
        handlers.encoding_failed_gathering,
        {Decision.NEXT: "no longer held", Phase.GATHERING: "not held, or held still"},
    ),
    **_staying(_ALL - ENDED - {Phase.GATHERING}, LeavesEncoded, handlers.leaves_encoded),
    **_staying(_ALL - ENDED - {Phase.GATHERING}, EncodingFailed, handlers.encoding_failed),
    # trouble
    **_rows(
        [Phase.LOADING],
        LoadFailed,
        handlers.load_failed,
        {Decision.FAILED: "no answer", Phase.QUARANTINED: "corrupt"},
    ),
    **_rows([Phase.READING_BACK], LoadFailed, handlers.root_unreadable, {Phase.QUARANTINED: "corrupt"}),
    **_rows(IN_FLIGHT - {Phase.LOADING, Phase.PUTTING}, RequestFailed, handlers.request_failed, Decision.FAILED),
    **_rows(
        [Phase.WAITING],
        TimerFired,
        handlers.waited,
        {Decision.RETRY: "the pause is over", Phase.WAITING: "an old timer"},
    ),
    **_staying(_ALL - {Phase.GATHERING, Phase.WAITING}, TimerFired, handlers.ignore),
    # the end
    **_rows(
        AT_REST | {Phase.GATHERING, Phase.QUARANTINED, Phase.PAUSED, Phase.STOPPED},
        StopRequested,
        handlers.stop_now,
        Phase.STOPPED,
    ),
    **_staying(IN_FLIGHT, StopRequested, handlers.stop_soon),
    **_rows(
        [Phase.WAITING],
        StopRequested,
        handlers.stop_waiting,
        {Phase.STOPPED: "no PUT is out", Phase.WAITING: "a root is undecided"},
    ),
    **{row: found for event in (Arrived, *_ANSWERS) for row, found in _staying(ENDED, event, handlers.ignore).items()},
}
"""For each phase and event: who handles it, and what may follow."""
