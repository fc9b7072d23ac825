"""The diagrams of the commit machine, generated from its transition table.

Owns: the text of `docs/commit-machine.md`. Does not own: the table (`commit_machine`).
Invariants: The page has exactly the rows of the table. A test compares the committed page with the generated one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from rootline.coordinator.protocol.commit_machine import CHOICES, IN_FLIGHT, TRANSITIONS
from rootline.coordinator.protocol.events import StopRequested
from rootline.coordinator.protocol.machine_state import Decision, Node, Phase

_HEADER: Final = """# The commit machine

Each table has one. `python -m tests.coordinator.commit_machine_diagram` generates this page from the transition table,
and a test keeps it up to date. The theory is in `coordinator/protocol/commit_machine.py`.

Boxes are *phases*, in which the machine waits for an event. Diamonds are *decisions*, which follow immediately from the
machine's state. An arrow from a phase shows its event, an arrow from a decision its condition. Events that do not
change the phase (records that arrive while a request is in flight, acknowledged verdicts, stale timers) are in the
table only.
"""

_TROUBLE: Final = frozenset({Decision.FAILED, Decision.RETRY, Phase.WAITING, Phase.QUARANTINED, Phase.STOPPED})
"""The nodes that a commit without failures does not visit."""


class Arrow(NamedTuple):
    """An arrow between two nodes. `None` stands for any phase in flight."""

    source: Node | None
    target: Node | None
    why: str


def page() -> str:
    """The Markdown page: the diagrams of a commit and of failures, and every row of the table."""
    return "\n".join(
        [
            _HEADER,
            "## A commit",
            "",
            *_mermaid(commit_arrows(), start=Phase.COLD),
            "",
            "## When something fails",
            "",
            "`in flight` is each of " + ", ".join(phase for phase in Phase if phase in IN_FLIGHT) + ".",
            "",
            *_mermaid(trouble_arrows(), end=Phase.STOPPED),
            "",
            "## The table",
            "",
            *_table(),
            "",
            "## The decisions",
            "",
            *_decisions(),
            "",
        ]
    )


def commit_arrows() -> list[Arrow]:
    """The arrows of a commit without failures."""
    return _joined(arrow for arrow in _arrows() if not _TROUBLE & {arrow.source, arrow.target})


def trouble_arrows() -> list[Arrow]:
    """The other arrows, with all phases in flight as one node. A stop at rest is in the table only."""
    arrows: list[Arrow] = []
    for source, target, why in _arrows():
        if not _TROUBLE & {source, target} or (why.startswith(StopRequested.__name__) and source not in _TROUBLE):
            continue
        back = target in IN_FLIGHT or (source is Decision.RETRY and target is Decision.BUILD)
        arrows.append(
            Arrow(
                None if source in IN_FLIGHT else source,
                None if back else target,
                "where it failed" if source is Decision.RETRY else why,
            )
        )
    return _joined(arrows)


def _arrows() -> Iterator[Arrow]:
    for (phase, event), transition in TRANSITIONS.items():
        for following, when in transition.leads_to.items():
            if following is not phase:
                yield Arrow(phase, following, f"{event.__name__}: {when}" if when else event.__name__)
    for decision, choice in CHOICES.items():
        for following, why in choice.leads_to.items():
            yield Arrow(decision, following, why)


def _joined(arrows: Iterable[Arrow]) -> list[Arrow]:
    """Merge the arrows between the same two nodes, and sort them."""
    whys: dict[tuple[Node | None, Node | None], list[str]] = defaultdict(list)
    for source, target, why in arrows:
        whys[source, target].append(why)
    order: list[Node | None] = [*Phase, *Decision, None]
    pairs = sorted(whys, key=lambda pair: (order.index(pair[0]), order.index(pair[1])))
    return [Arrow(source, target, "<br>".join(sorted(set(whys[source, target])))) for source, target in pairs]


def _mermaid(arrows: list[Arrow], *, start: Phase | None = None, end: Phase | None = None) -> Iterator[str]:
    yield "```mermaid"
    yield "flowchart TD"
    nodes = {node for arrow in arrows for node in arrow[:2]}
    for phase in Phase:
        if phase in nodes:
            yield f"    {_name(phase)}[{phase}]" if phase not in (start, end) else f"    {_name(phase)}([{phase}])"
    for decision in Decision:
        if decision in nodes:
            yield f"    {_name(decision)}{{{decision}}}"
    if None in nodes:
        yield f"    {_name(None)}[[in flight]]"
    for arrow in arrows:
        yield f'    {_name(arrow.source)} -->|"{arrow.why}"| {_name(arrow.target)}'
    yield "```"


def _name(node: Node | None) -> str:
    return "in_flight" if node is None else node.name.lower()


def _table() -> Iterator[str]:
    order: list[Node] = [*Phase, *Decision]
    yield "| phase | event | leads to | when |"
    yield "|---|---|---|---|"
    for (phase, event), transition in sorted(
        TRANSITIONS.items(), key=lambda item: (order.index(item[0][0]), item[0][1].__name__)
    ):
        for following, when in transition.leads_to.items():
            yield f"| {phase} | {event.__name__} | {following} | {when} |"


def _decisions() -> Iterator[str]:
    yield "| decision | leads to | when |"
    yield "|---|---|---|"
    for decision, choice in CHOICES.items():
        for following, why in choice.leads_to.items():
            yield f"| {decision} | {following} | {why} |"


if __name__ == "__main__":
    print(page(), end="")
