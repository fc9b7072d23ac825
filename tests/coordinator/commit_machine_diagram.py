"""The diagrams of the commit machine, generated from its transition table.

Owns: the text of `docs/commit-machine.md`. Does not own: the table (`commit_machine`).
Invariants: The page has exactly the rows of the table. A test compares the committed page with the generated one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from textwrap import wrap
from typing import Final, NamedTuple

from rootline.coordinator.protocol import commit, gather
from rootline.coordinator.protocol.commit_machine import CHOICES, IN_FLIGHT, TRANSITIONS
from rootline.coordinator.protocol.machine_state import Decision, Kind, Phase
from rootline.coordinator.protocol.messages import StopRequested

_HEADER: Final = """# The commit machine

Each table has one. `python -m tests.coordinator.commit_machine_diagram` generates this page from the transition table,
and a test keeps it up to date. The theory is in `coordinator/protocol/commit_machine.py`.

Boxes are *phases*, in which the machine waits for an event. Diamonds are *decisions*, which follow immediately from the
machine's state. An arrow from a phase shows its event, an arrow from a decision its condition. Events that do not
change the phase (records that arrive while a request is in flight, acknowledged verdicts, stale timers) are in the
table only.
"""

_TROUBLE: Final = frozenset(
    {Decision.LOST, Decision.FAILED, Decision.RETRY, Phase.WAITING, Phase.QUARANTINED, Phase.STOPPED}
)
"""The nodes that a commit without failures does not visit."""


_SPACED: Final = '%%{init: {"flowchart": {"nodeSpacing": 90, "rankSpacing": 70}}}%%'
_LABEL_CHARS_MAX: Final = 18
"""Without these two the labels of neighboring arrows cover each other."""


class Arrow(NamedTuple):
    """An arrow between two nodes. `None` stands for any phase in flight. `room` is the module of its handler."""

    source: Kind | None
    target: Kind | None
    why: str
    room: str = ""


def page() -> str:
    """The Markdown page: a diagram for each module of handlers, and every row of the table."""
    return "\n".join(
        [
            _HEADER,
            "## Between two commits",
            "",
            "The handlers are in `gather.py`. `build` and `loading` continue in the next picture.",
            "",
            *_mermaid(arrows_without_failures(gather.__name__), "LR", start=Phase.COLD),
            "",
            "## A commit",
            "",
            "The handlers are in `commit.py`. `next` continues in the picture above.",
            "",
            *_mermaid(arrows_without_failures(commit.__name__), "TD"),
            "",
            "## When something fails",
            "",
            "The handlers are in `trouble.py`. `in flight` is each of "
            + ", ".join(phase for phase in Phase if phase in IN_FLIGHT)
            + ".",
            "",
            *_mermaid(trouble_arrows(), "TD", end=Phase.STOPPED),
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


def arrows_without_failures(room: str) -> list[Arrow]:
    """The arrows of the handlers in one module, without failures."""
    return _joined(arrow for arrow in _arrows() if arrow.room == room and not _TROUBLE & {arrow.source, arrow.target})


def trouble_arrows() -> list[Arrow]:
    """The other arrows, with all phases in flight as one node. A stop at rest is in the table only."""
    arrows: list[Arrow] = []
    for source, target, why, _ in _arrows():
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
                why = f"{event.__name__}: {when}" if when else event.__name__
                yield Arrow(phase, following, why, transition.handler.__module__)
    for decision, choice in CHOICES.items():
        for following, why in choice.leads_to.items():
            yield Arrow(decision, following, why, choice.handler.__module__)


def _joined(arrows: Iterable[Arrow]) -> list[Arrow]:
    """Merge the arrows between the same two nodes, and sort them."""
    whys: dict[tuple[Kind | None, Kind | None], list[str]] = defaultdict(list)
    for source, target, why, _ in arrows:
        whys[source, target].append(why)
    order: list[Kind | None] = [*Phase, *Decision, None]
    pairs = sorted(whys, key=lambda pair: (order.index(pair[0]), order.index(pair[1])))
    return [Arrow(source, target, "<br>".join(sorted(set(whys[source, target])))) for source, target in pairs]


def _mermaid(
    arrows: list[Arrow], direction: str, *, start: Phase | None = None, end: Phase | None = None
) -> Iterator[str]:
    yield "```mermaid"
    yield _SPACED
    yield f"flowchart {direction}"
    nodes = {node for arrow in arrows for node in (arrow.source, arrow.target)}
    for phase in Phase:
        if phase in nodes:
            yield f"    {_name(phase)}[{phase}]" if phase not in (start, end) else f"    {_name(phase)}([{phase}])"
    for decision in Decision:
        if decision in nodes:
            yield f"    {_name(decision)}{{{decision}}}"
    if None in nodes:
        yield f"    {_name(None)}[[in flight]]"
    for arrow in arrows:
        words = "<br>".join(line for why in arrow.why.split("<br>") for line in wrap(why, _LABEL_CHARS_MAX))
        yield f'    {_name(arrow.source)} -->|"{words}"| {_name(arrow.target)}'
    yield "```"


def _name(node: Kind | None) -> str:
    return "in_flight" if node is None else node.name.lower()


def _table() -> Iterator[str]:
    order: list[Kind] = [*Phase, *Decision]
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
