"""A coordinator's flush of a table, planned and encoded without a pause."""

from __future__ import annotations

from rootline.maintenance.flush_plan import flush_in_steps
from rootline.tree.intents.flush import OwnFlush
from rootline.tree.state.table_state import TableState


def own_flush(state: TableState) -> OwnFlush:
    """The leaves for the rows of `state`; none while its root is short enough."""
    steps = flush_in_steps(state)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: OwnFlush = end.value
            return found
