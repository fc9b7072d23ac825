"""Leaves that hold nothing live any more leave with the next maintenance.

Owns: which ones. Does not own: when (`apply` asks while a batch holds maintenance).
Invariants: no live entry leaves; a data leaf stays while a live delete leaf names it; a leaf whose last entries this
very batch removes stays, so that its root shows the change.

Source: format page, "Manifest vectors".
"""

from __future__ import annotations

from rootline.tree.draft import Draft


def drop_dead_leaves(draft: Draft) -> None:
    """Take the leaves out that were dead as a whole in the parent."""
    index = draft.live
    dead = {
        location for location, mask in index.dead.items() if len(mask) >= index.leaf_rows[location].entry.record_count
    }
    staying = [row.entry for location, row in index.leaf_rows.items() if location not in dead]
    staying += [flushed.row.entry for flushed in draft.flushed.values()]
    named = {entry.referenced_file for entry in staying}
    for location in sorted(dead - named):
        draft.drop_leaf(location)
