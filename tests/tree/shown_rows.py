"""The rows that roots show as deleted."""

from __future__ import annotations

from rootline.schemas.content_entry import ContentType
from rootline.tree.check.root_diff import diff
from tests.support.vector_changes import vector_changes
from tests.tree.tables import Lake


def shown_rows(lake: Lake, began: int) -> dict[str, set[int]]:
    """The rows that the roots from `began` on show as deleted, of data files that were there before and stayed."""
    found: dict[str, set[int]] = {}
    ages: list[dict[str, int | None]] = []
    for state in (lake.states[began - 1], *lake.states[began:]):
        live = (item.entry for item in state.live.entries() if item.entry.content_type is ContentType.DATA)
        ages.append({entry.location: entry.version_info.file_sequence_number for entry in live})
    for state in lake.states[began:]:
        for change in vector_changes(diff(state.root, state.leaves, state.live.stored)):
            before, after = (
                set() if entry is None else set(lake.positions(entry)) for entry in (change.before, change.after)
            )
            found.setdefault(change.data_location, set()).update(after - before)
    stayed = {name for name, age in ages[0].items() if all(other.get(name) == age for other in ages)}
    return {name: rows for name, rows in found.items() if name in stayed and rows}
