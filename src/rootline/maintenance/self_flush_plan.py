"""When the coordinator flushes a table by itself, and what it writes then.

Owns: that choice, and the leaves' names and bytes. Does not own: thresholds (`flush_limits`), how the leaves become
part of a root (`rootline.tree.intents.self_flush`).
Invariants: pure: the same head gives the same leaves under the same names; a root that cannot be made shorter is left
alone; it is made in steps, so that a thread may give way between them.

Source: architecture page, "The way of a flush"; decisions 0025 and 0039.
"""

from __future__ import annotations

import uuid
from collections.abc import Generator
from dataclasses import replace
from enum import Enum
from functools import lru_cache
from typing import Final

from rootline.maintenance.flush_limits import FlushLimits
from rootline.maintenance.flush_plan import plan_flush
from rootline.maintenance.planned_leaf import manifest_of
from rootline.maintenance.stepwise_encoding import encode_in_steps
from rootline.schemas.bytes.leaf_codec import EncodedLeaf, Leaf, decode_leaf
from rootline.schemas.intent import AddedManifest
from rootline.tree.intents.self_flush import OwnFlush
from rootline.tree.state.table_state import TableState

DELETE_LEAVES: Final = 4
"""Of single data leaves: each leaf is a request before the root's."""
FAR_PAST: Final = 2
"""Times a hard limit: so long a root waits for its leaves."""
_FEW: Final = 10
"""A large root with less than a tenth of the entries that are too many is large for another reason."""


class RootLength(Enum):
    """How long a root is, by the table's hard limits."""

    SHORT = "short"
    PAST_LIMIT = "past its limit"  # the coordinator flushes
    FAR_PAST_LIMIT = "far past its limit"  # commits wait for that


def root_length(state: TableState) -> RootLength:
    """How long the head's root is."""
    limits = _limits(state)
    if _is_past(state, limits, FAR_PAST):
        return RootLength.FAR_PAST_LIMIT
    return RootLength.PAST_LIMIT if _is_past(state, limits, 1) else RootLength.SHORT


def flush_in_steps(state: TableState) -> Generator[None, None, OwnFlush]:
    """Encode the leaves for the rows of `state`, with a pause for the caller after each plan and a thousand entries.

    The flush has no leaves while the root is short enough.

    Raises:
        Corrupt: a manifest vector or a leaf of the table cannot be read.

    """
    limits = _limits(state)
    if not _is_past(state, limits, 1):
        return OwnFlush()
    now = replace(limits, data_files=1, vectors=1, delete_leaves=DELETE_LEAVES)
    plan = plan_flush(state.root, state.definition, now, leaves=state.leaves, dead=state.live.dead)
    manifests: list[AddedManifest] = []
    encoded: list[EncodedLeaf] = []
    leaves: dict[str, Leaf] = {}
    for planned in plan.leaves:
        yield
        name = f"self-flush/{state.root.digest.hex()}/{len(manifests)}"
        leaf_uuid = uuid.uuid5(state.header.table_uuid, name)
        leaf = yield from encode_in_steps(
            planned.entries, state.definition, leaf_uuid=leaf_uuid, content=planned.content
        )
        manifests.append(manifest_of(planned, leaf, manifests))
        encoded.append(leaf)
        yield
        leaves[leaf.location] = decode_leaf(leaf.body, location=leaf.location)
    return OwnFlush(tuple(manifests), tuple(encoded), leaves)


def _is_past(state: TableState, limits: FlushLimits, times: int) -> bool:
    rows = len(state.live.rows)
    is_large = state.root.size_in_bytes >= times * limits.hard_bytes and rows * _FEW >= limits.hard_entries
    return rows >= times * limits.hard_entries or is_large


def _limits(state: TableState) -> FlushLimits:
    return _limits_of(tuple(state.definition.properties.items()))


@lru_cache(maxsize=256)
def _limits_of(properties: tuple[tuple[str, str], ...]) -> FlushLimits:
    return FlushLimits.of_properties(dict(properties))
