"""When the coordinator flushes a table by itself, and what it writes then.

Owns: that choice, and the leaves' names and bytes. Does not own: thresholds (`flush_limits`), how the leaves become
part of a root (`rootline.tree.intents.self_flush`).
Invariants: pure: the same head gives the same leaves under the same names, so a commit that is tried again stores
nothing twice; a root that cannot be made shorter is left alone.

Source: architecture page, "The way of a flush"; decision 0025.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Final

from rootline.maintenance.flush_limits import FlushLimits
from rootline.maintenance.flush_plan import plan_flush
from rootline.maintenance.planned_leaf import PlannedLeaf, manifest_of
from rootline.schemas.bytes.leaf.leaf_codec import decode_leaf, encode_leaf
from rootline.schemas.errors import Invalid
from rootline.tree.intents.self_flush import OwnLeaf
from rootline.tree.state.table_state import TableState

DELETE_LEAVES: Final = 4
"""Of single data leaves: each leaf is a request before the root's."""
_FEW: Final = 10
"""A large root with less than a tenth of the entries that are too many is large for another reason."""


def own_leaves(state: TableState) -> tuple[OwnLeaf, ...]:
    """The leaves that the commit after `state` writes; none while its root is short enough.

    Raises:
        Corrupt: a manifest vector or a leaf of the table cannot be read.

    """
    limits = _limits(state)
    rows = len(state.live.rows)
    is_large = state.root.size_in_bytes >= limits.hard_bytes and rows * _FEW >= limits.hard_entries
    if rows < limits.hard_entries and not is_large:
        return ()
    now = replace(limits, data_files=1, vectors=1, delete_leaves=DELETE_LEAVES)
    plan = plan_flush(state.root, state.definition, now, leaves=state.leaves, dead=state.live.dead)
    written: list[OwnLeaf] = []
    for planned in plan.leaves:
        written.append(_written(state, planned, written))
    return tuple(written)


def _limits(state: TableState) -> FlushLimits:
    try:
        return FlushLimits.of_properties(state.definition.properties)
    except Invalid:  # the worker says so; commits go on
        return FlushLimits()


def _written(state: TableState, planned: PlannedLeaf, before: list[OwnLeaf]) -> OwnLeaf:
    name = f"self-flush/{state.root.digest.hex()}/{len(before)}"
    leaf_uuid = uuid.uuid5(state.header.table_uuid, name)
    leaf = encode_leaf(planned.entries, state.definition, leaf_uuid=leaf_uuid, content=planned.content)
    manifest = manifest_of(planned, leaf, [own.manifest for own in before])
    return OwnLeaf(manifest, leaf.body, decode_leaf(leaf.body, location=leaf.location))
