"""The net change of every range of a lake's versions, held against the two live sets at its ends."""

from __future__ import annotations

from rootline.schemas.content_entry import ContentEntry, ContentType, EntryPlace
from rootline.tree.check.net_changes import NetChange, NetChanges
from rootline.tree.check.rewrite_rules import states_rewrites
from rootline.tree.check.root_diff import diff
from rootline.tree.state.table_state import TableState
from tests.tree.tables import Lake

Identity = tuple[EntryPlace, int | None]


def check_every_range(lake: Lake) -> None:
    """Raises `AssertionError` unless each range's fold is the difference of the versions at its ends.

    A range ends at a rewrite: what that replaces is in no change, and yet other files are live. So it does where the
    table is purged, or another begins.
    """
    parts = [diff(state.root, state.leaves, state.live.stored) for state in lake.states]
    live = [_live(state) for state in lake.states]
    for first in range(len(parts)):
        changes = NetChanges()
        for last in range(first + 1, len(parts)):
            header = lake.states[last].header
            is_another = header.table_uuid != lake.states[last - 1].header.table_uuid
            is_purged = header.is_tombstone and header.name.drops[-1].is_purged
            if states_rewrites(header.snapshot.summary) or is_another or is_purged:
                break
            changes.take(parts[last])
            _compare(changes.net(), live[first], live[last])


def _compare(net: NetChange, before: dict[Identity, ContentEntry], after: dict[Identity, ContentEntry]) -> None:
    removed = {_identity(file.entry) for file in net.removed_files} | set(map(_identity, net.removed_deletes))
    added = {_identity(file.entry) for file in net.added_files} | set(map(_identity, net.added_deletes))
    for change in net.vectors:
        removed |= set(map(_identity, change.before))
        added |= set(map(_identity, change.after))
    removed |= {_identity(vector) for file in net.removed_files for vector in file.vectors}
    added |= {_identity(vector) for file in net.added_files for vector in file.vectors}
    assert removed == before.keys() - after.keys()
    assert added == after.keys() - before.keys()
    data = {entry.location for entry in after.values() if entry.content_type is ContentType.DATA}
    assert {change.data_location for change in net.vectors} <= data


def _live(state: TableState) -> dict[Identity, ContentEntry]:
    return {_identity(live.entry): live.entry for live in state.live.entries()}


def _identity(entry: ContentEntry) -> Identity:
    return entry.place, entry.version_info.sequence_number
