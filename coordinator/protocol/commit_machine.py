"""The commit machine: (state, event) → (state, effects), for one table. The one file that owns the state machine.

Owns: the transition table and `step`. Does not own: the handlers (`machine_handlers`), any I/O.
Invariants: at most one root is in flight; while root N is undecided nothing but N's identical bytes is put; a verdict
is published only after its root is confirmed; nothing is dropped: what has no verdict is still on the log.

Theory. A table's state is a chain of roots, and creating root N with one conditional PUT is the only way to extend
it. Everything a coordinator must know (offsets, ledger, live set) is in the root it builds on, so *any* coordinator
may commit at any time: the PUT decides, and the loser loads the new head and applies its batch again; records that
the new head already decided are answered from its outcomes. The only thing that must never happen is to take an
unknown outcome for a known one. Hence a PUT that was not answered with 200 is asked about until a GET of N shows
whose root it is, and if it shows none, the identical bytes are put again, because the first PUT may still land.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from rootline.coordinator.protocol import machine_handlers as handlers
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
from rootline.coordinator.protocol.machine_moves import Step
from rootline.coordinator.protocol.machine_state import Phase, TableMachine
from rootline.schemas.errors import Internal


def step(machine: TableMachine, event: Event, tick: Tick) -> Step:
    """The machine after `event`, and what it asks of the outside, in order.

    Raises:
        Internal: the event cannot happen in this phase, or led where the transition table does not allow.
    """
    transition = TRANSITIONS.get((machine.phase, type(event)))
    if transition is None:
        raise Internal("invariant-broken", f"{machine.table}: {type(event).__name__} came while {machine.phase}")
    after, effects = transition.handler(machine, event, tick)
    if after.phase not in transition.leads_to:
        raise Internal("invariant-broken", f"{machine.table}: {machine.phase} led to {after.phase}")
    return after, effects


# The transition table

Handler = Callable[[TableMachine, Any, Tick], Step]


@dataclass(frozen=True, slots=True)
class Transition:
    """Who handles an event in a phase, and the phases that may follow."""

    handler: Handler
    leads_to: frozenset[Phase]


_AT_REST: Final = frozenset({Phase.COLD, Phase.IDLE, Phase.GATHERING, Phase.STOPPED})
_BUILT: Final = frozenset({Phase.FETCHING, Phase.STAGING, Phase.PUTTING, Phase.LOADING, Phase.QUARANTINED})
_TROUBLE: Final = frozenset({Phase.WAITING, Phase.STOPPED})
_LOST: Final = frozenset({Phase.LOADING, Phase.WAITING, Phase.STOPPED})
_DONE: Final = _AT_REST | _BUILT


def _rows(
    handler: Handler, event: type, phases: set[Phase], leads_to: frozenset[Phase]
) -> dict[tuple[Phase, type], Transition]:
    return {(phase, event): Transition(handler, leads_to) for phase in phases}


def _staying(handler: Handler, event: type, phases: set[Phase]) -> dict[tuple[Phase, type], Transition]:
    return {(phase, event): Transition(handler, frozenset({phase})) for phase in phases}


_BUSY: Final = {
    Phase.LOADING,
    Phase.FETCHING,
    Phase.STAGING,
    Phase.PUTTING,
    Phase.READING_BACK,
    Phase.CONFIRMING,
}
_ALL: Final = set(Phase)
_ANSWERS: Final = (
    HeadLoaded,
    LoadFailed,
    Fetched,
    ObjectsStored,
    RequestFailed,
    PutReplied,
    RootReadBack,
    HeadListed,
)

TRANSITIONS: Final[Mapping[tuple[Phase, type], Transition]] = {
    **_staying(handlers.published, VerdictsPublished, _ALL - {Phase.GATHERING}),
    **_staying(handlers.ignore, TimerFired, _ALL - {Phase.GATHERING, Phase.WAITING}),
    **{
        (phase, event): Transition(handlers.ignore, frozenset({phase}))
        for phase in (Phase.QUARANTINED, Phase.STOPPED)
        for event in (Arrived, *_ANSWERS)
    },
    **_staying(handlers.arrived_later, Arrived, _BUSY | {Phase.WAITING}),
    **_staying(handlers.stop_soon, StopRequested, _BUSY),
    **_staying(handlers.ignore, StopRequested, {Phase.STOPPED}),
    **_rows(
        handlers.stop_now,
        StopRequested,
        {Phase.COLD, Phase.IDLE, Phase.GATHERING, Phase.QUARANTINED},
        frozenset({Phase.STOPPED}),
    ),
    **_rows(handlers.stop_waiting, StopRequested, {Phase.WAITING}, frozenset({Phase.WAITING, Phase.STOPPED})),
    **_rows(handlers.arrived_cold, Arrived, {Phase.COLD}, frozenset({Phase.LOADING, Phase.GATHERING})),
    **_rows(handlers.arrived_idle, Arrived, {Phase.IDLE}, _DONE),
    **_rows(handlers.arrived_gathering, Arrived, {Phase.GATHERING}, _DONE),
    **_rows(handlers.window_ended, TimerFired, {Phase.GATHERING}, _DONE),
    **_rows(handlers.published, VerdictsPublished, {Phase.GATHERING}, _DONE),
    **_rows(handlers.head_loaded, HeadLoaded, {Phase.LOADING}, _DONE),
    **_rows(handlers.load_failed, LoadFailed, {Phase.LOADING}, _TROUBLE | {Phase.QUARANTINED}),
    **_rows(handlers.fetched, Fetched, {Phase.FETCHING}, _DONE),
    **_rows(handlers.fetch_failed, RequestFailed, {Phase.FETCHING}, _TROUBLE),
    **_rows(handlers.objects_stored, ObjectsStored, {Phase.STAGING}, frozenset({Phase.PUTTING})),
    **_rows(handlers.staging_failed, RequestFailed, {Phase.STAGING}, _TROUBLE),
    **_rows(handlers.put_replied, PutReplied, {Phase.PUTTING}, _DONE | _LOST | {Phase.READING_BACK, Phase.CONFIRMING}),
    **_rows(handlers.read_back, RootReadBack, {Phase.READING_BACK}, _DONE | _LOST | {Phase.CONFIRMING}),
    **_rows(handlers.root_unreadable, LoadFailed, {Phase.READING_BACK}, frozenset({Phase.QUARANTINED})),
    **_rows(handlers.read_back_failed, RequestFailed, {Phase.READING_BACK}, _TROUBLE),
    **_rows(handlers.head_listed, HeadListed, {Phase.CONFIRMING}, _DONE | {Phase.LOADING}),
    **_rows(handlers.confirm_failed, RequestFailed, {Phase.CONFIRMING}, _TROUBLE),
    **_rows(
        handlers.waited,
        TimerFired,
        {Phase.WAITING},
        _DONE | {Phase.WAITING, Phase.LOADING, Phase.READING_BACK, Phase.CONFIRMING},
    ),
}
