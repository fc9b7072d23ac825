"""The transition table says exactly what the machine does: every arrow is taken by some history, and no other is."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, get_args, get_type_hints

import pytest

from rootline.coordinator.protocol import commit
from rootline.coordinator.protocol.commit_machine import CHOICES, TRANSITIONS, path
from rootline.coordinator.protocol.group_window import BatchLimits
from rootline.coordinator.protocol.machine_state import (
    AtDecision,
    Decision,
    Gathering,
    Kind,
    Paused,
    Phase,
    Policy,
    SelfFlush,
    TableMachine,
    Waiting,
    kind_of,
)
from rootline.coordinator.protocol.messages import (
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
from rootline.coordinator.protocol.put_rules import CONFIRMED_FOR_MS
from rootline.ports.object_store import PutReply, PutStatus
from rootline.ports.retry_policy import RetryPolicy
from rootline.schemas.content_entry import ContentType
from rootline.schemas.identifiers import CommitId, LogPosition, Version
from rootline.schemas.intent import AddedManifest, Intent, IntentKind
from rootline.tree.draft.batch import ABSENT, FetchedObjects, Record
from rootline.tree.intents.flush import OwnFlush
from rootline.tree.rules.leaf_rules import LeafNeed
from rootline.tree.state.table_state import TableState
from tests.coordinator.machine_driver import LOG, TABLE, append_intent, attempt_of, create_intent, with_table

POLICY = Policy("me", BatchLimits(100, 1_000_000, 0.25), RetryPolicy(0.02, 5.0, 2), 2)
LEAF = "metadata/leaves/absent.parquet"
DEPTH = 7
"""Every arrow is taken within four events."""
Arrow = tuple[Kind, type[Event] | None, Kind]


@dataclass(slots=True)
class Explorer:
    """Histories of one table, breadth first; machines that differ in nothing that a rule asks about count as one."""

    heads: list[TableState | None]
    taken: set[Arrow] = field(default_factory=set)
    visited: list[TableMachine] = field(default_factory=list)
    _seen: set[Any] = field(default_factory=set)
    _waiting: deque[tuple[TableMachine, int, int]] = field(default_factory=deque)

    def explore(self, *starts: tuple[TableMachine, int]) -> None:
        for machine, offset in starts:
            self._visit(machine, offset, 0)
        while self._waiting:
            machine, offset, depth = self._waiting.popleft()
            for event, after_offset in self._events(machine, offset):
                tick = Tick(1_700_000_000_000 + 10 * depth, 0.01 * depth, f"{len(self._seen):032x}", 0.5)
                at: Kind = machine.kind
                cause: type[Event] | None = type(event)
                for move in path(machine, event, tick):
                    to = kind_of(move.to)
                    self.taken.add((at, cause, to))
                    at, cause = to, None
                if depth < DEPTH:
                    assert not isinstance(move.to, AtDecision)
                    self._visit(move.machine._replace(phase=move.to), after_offset, depth + 1)

    def _visit(self, machine: TableMachine, offset: int, depth: int) -> None:
        kinds = tuple(record.intent.kind for record in (*machine.batch, *machine.queue[:1]))
        phase = machine.phase
        resume = kind_of(phase.resume) if isinstance(phase, Waiting) else None
        expected = phase.expected if isinstance(phase, Gathering) else 0
        signature = (
            *(machine.kind, resume, machine.stopping, kinds[:2], len(machine.queue) > 1),
            *(machine.head is None, attempt_of(machine) is None, min(machine.publishing, 2), min(machine.losses, 2)),
            *(bool(machine.fetched.found), expected > 1, machine.put_s is None, machine.flush.is_encoding),
        )
        if signature not in self._seen:
            self._seen.add(signature)
            self.visited.append(machine)
            self._waiting.append((machine, offset, depth))

    def _events(self, machine: TableMachine, offset: int) -> Iterator[tuple[Event, int]]:
        for event, after in self._any(machine, offset):
            if (machine.kind, type(event)) in TRANSITIONS:
                yield event, after

    def _any(self, machine: TableMachine, offset: int) -> Iterator[tuple[Event, int]]:
        yield from arrivals(offset)
        own = attempt_of(machine)
        late_ms = 10 * CONFIRMED_FOR_MS
        always: list[Event] = [
            *(LeavesEncoded(OwnFlush()), EncodingFailed("no memory")),
            *(VerdictsPublished(()), StopRequested(), TimerFired(machine.timer), TimerFired(machine.timer - 1)),
            *(HeadLoaded(head, 1_000) for head in self.heads),
            *(LoadFailed(False, "503"), LoadFailed(True, "corrupt"), RequestFailed("503"), ObjectsStored()),
            Fetched(FetchedObjects({LeafNeed(LEAF): ABSENT})),
            *(PutReplied(PutReply(answer, 1_000)) for answer in PutStatus),
            *(PutReplied(PutReply(PutStatus.CREATED, late_ms)), RootReadBack(None, 1_000, None)),
            *(RootReadBack(CommitId("another's"), 1_000, 1_000), HeadListed(None, 1_000)),
        ]
        if own is not None:
            always += [
                RootReadBack(own.commit_id, 1_000, 1_000),
                HeadListed(own.version, 1_000),
                HeadListed(Version(own.version + 1), 1_000),
            ]
        yield from ((event, offset) for event in always)


@cache
def arrivals(offset: int) -> Sequence[tuple[Event, int]]:
    """What the log may bring next, and the offset after it."""
    intents = [create_intent(), append_intent(f"file-{offset}"), of_a_leaf(offset)]
    three = tuple(record(offset + n, append_intent(f"file-{offset + n}")) for n in range(3))
    return (
        *((Arrived((record(offset, intent),)), offset + 1) for intent in intents),
        (Arrived(three), offset + 3),
        (Arrived((record(0, create_intent()),)), offset),  # delivered again
    )


def record(offset: int, intent: Intent) -> Record:
    return Record(LogPosition(LOG, 0, offset), intent, 100)


def of_a_leaf(offset: int) -> Intent:
    """An append that the tree cannot judge before it has seen a leaf."""
    manifest = AddedManifest(
        location=LEAF,
        content_type=ContentType.DATA_MANIFEST,
        file_size_in_bytes=100,
        record_count=1,
        partition_spec_id=0,
    )
    return Intent(intent_id=f"leaf-{offset}", table=TABLE, kind=IntentKind.APPEND, add_manifests=(manifest,))


@dataclass(frozen=True, slots=True)
class World:
    """Two versions of a table, one of a table whose root is long, and the offset after them."""

    old: TableState | None
    young: TableState | None
    long: TableState | None
    offset: int


def a_world() -> World:
    driver = with_table()
    old = driver.machine.head
    driver.arrive(append_intent("one"))
    driver.put_answers(PutStatus.CREATED)
    short, head = driver.machine.head, driver.machine.head
    assert head is not None
    definition = replace(head.definition, properties={"rootline.flush.hard-entries": "1"})
    driver.machine = driver.machine._replace(head=replace(head, definition=definition))
    driver.arrive(append_intent("two"))
    driver.put_answers(PutStatus.CREATED)
    return World(old, short, driver.machine.head, driver.offset)


def arrows_taken(world: World) -> set[Arrow]:
    return explored(world).taken


def machines_visited(world: World) -> list[TableMachine]:
    return explored(world).visited


def explored(world: World) -> Explorer:
    cold = TableMachine(TABLE, POLICY)
    before = (frozenset({None}),)  # the writers wrote the root before, so a batch may stay open for them
    idle = TableMachine(TABLE, POLICY, head=world.young, base_ms=1_000, phase=Phase.IDLE, put_s=0.1, earlier=before)
    # the head is far past a limit of one row, and its leaves are being encoded: commits wait for them
    held = idle._replace(head=world.long, flush=SelfFlush(is_encoding=True))
    paused = idle._replace(phase=Paused("an operator"))  # a loop that is paused begins there
    starts = [(cold, 0), (idle, world.offset), (held, world.offset), (paused, world.offset)]
    explorer = Explorer([None, world.old, world.young])
    explorer.explore(*starts)
    return explorer


def stated() -> set[Arrow]:
    rows: set[Arrow] = {(at, event, to) for (at, event), found in TRANSITIONS.items() for to in found.leads_to}
    return rows | {(at, None, to) for at, choice in CHOICES.items() for to in choice.leads_to}


def test_every_arrow_of_the_table_is_taken_by_some_history_and_no_other_is(monkeypatch: pytest.MonkeyPatch) -> None:
    world = a_world()
    taken = arrows_taken(world)
    broken: Arrow = (Decision.BUILD, None, Phase.QUARANTINED)
    assert broken not in taken
    monkeypatch.setattr(commit, "violations", lambda *_, **__: ["a rule"])
    taken |= arrows_taken(world)
    assert taken - stated() == set()
    assert stated() - taken == set()


def test_most_rows_have_one_next_node_and_every_fork_says_when() -> None:
    following = [transition.leads_to for transition in TRANSITIONS.values()]
    assert sum(len(nodes) == 1 for nodes in following) > 0.8 * len(following)
    forks = [nodes for nodes in (*following, *(choice.leads_to for choice in CHOICES.values())) if len(nodes) > 1]
    assert all(all(nodes.values()) for nodes in forks)
    assert max(map(len, forks)) <= 7


def test_every_decision_is_reached_and_leads_back_to_a_phase() -> None:
    leads_to: dict[Kind, set[Kind]] = defaultdict(set)
    for at, _, to in stated():
        leads_to[at].add(to)
    assert set(Decision) <= set().union(*leads_to.values())
    for decision in Decision:
        reached, edge = {decision}, {decision}
        while edge:
            edge = {to for at in edge if isinstance(at, Decision) for to in leads_to[at]} - reached
            reached |= edge
        assert any(isinstance(node, Phase) for node in reached)


def test_every_handler_is_made_for_the_phases_and_events_of_its_rows() -> None:
    for (phase, event), transition in TRANSITIONS.items():
        hints = get_type_hints(transition.handler)
        assert phase in kinds_of(hints["phase"]), (phase, transition.handler)
        assert event in (get_args(hints["event"]) or (hints["event"],)), (event, transition.handler)
    for decision, choice in CHOICES.items():
        assert kinds_of(get_type_hints(choice.handler)["decision"]) == {decision}


def kinds_of(hint: Any) -> set[Kind]:
    """The kinds of nodes that a type hint admits."""
    if get_args(hint):
        return set().union(*map(kinds_of, get_args(hint)))
    return {hint if isinstance(hint, Phase) else hint.kind}
