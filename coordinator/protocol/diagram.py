"""The commit machine's diagram, generated from its transition table.

Owns: the text of `docs/commit-machine.md`. Does not own: the table (`commit_machine`).
Invariants: nothing is drawn that the table does not hold; a test keeps the page in step.
"""

from __future__ import annotations

from collections import defaultdict

from rootline.coordinator.protocol.commit_machine import TRANSITIONS
from rootline.coordinator.protocol.machine_state import Phase

_HEADER = """# The commit machine

One per table. This page is generated from the transition table (`python -m rootline.coordinator.protocol.diagram`);
a test keeps it in step. The theory stands in `coordinator/protocol/commit_machine.py`.

Events that change no phase (records that arrive while something is in flight, acknowledged verdicts, timers that no
longer count) are left out of the picture and listed in the table below it.
"""


def page() -> str:
    """The Markdown page: a state diagram, and every (phase, event) with what may follow."""
    return f"{_HEADER}\n```mermaid\n{mermaid()}\n```\n\n{_table()}"


def mermaid() -> str:
    """The state diagram."""
    arrows: dict[tuple[Phase, Phase], list[str]] = defaultdict(list)
    for (phase, event), transition in TRANSITIONS.items():
        for following in transition.leads_to - {phase}:
            arrows[phase, following].append(event.__name__)
    lines = ["stateDiagram-v2", f"    [*] --> {Phase.COLD}"]
    for phase, following in sorted(arrows):
        lines.append(f"    {phase} --> {following}: {', '.join(sorted(set(arrows[phase, following])))}")
    lines.append(f"    {Phase.STOPPED} --> [*]")
    return "\n".join(lines)


def _table() -> str:
    rows = ["| phase | event | may lead to |", "|---|---|---|"]
    order = list(Phase)
    for (phase, event), transition in sorted(
        TRANSITIONS.items(), key=lambda item: (order.index(item[0][0]), item[0][1].__name__)
    ):
        following = ", ".join(known for known in order if known in transition.leads_to)
        rows.append(f"| {phase} | {event.__name__} | {following} |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    print(page(), end="")
