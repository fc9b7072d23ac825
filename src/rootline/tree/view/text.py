"""The tree of a table as lines of text, for `rootline tree`.

Owns: the wording of lines. Does not own: the numbers (`outline`), the picture (`picture`).
Invariants: There is one line for each group of root rows and for each leaf, with ASCII branches and without colour.
"""

from __future__ import annotations

from typing import Final

from rootline.schemas.content_entry import ContentType, Status
from rootline.tree.state.table_state import TableState
from rootline.tree.view.outline import LeafOutline, RootGroup, outline_of

_GROUP_WORDS: Final = {
    ContentType.DATA: "data files",
    ContentType.POSITION_DELETE: "deletion vectors",
    ContentType.EQUALITY_DELETE: "equality deletes",
}


def tree_text(state: TableState, *, leaves_max: int = 200) -> str:
    """The tree of a version as text. It has at most `leaves_max` leaves, and one line for the rest."""
    outline = outline_of(state)
    lines = [
        f"{outline.table}  version {outline.version}  {outline.operation}  snapshot {outline.snapshot_id}",
        f"{outline.data_files:,} data files, {outline.rows:,} rows, {outline.deleted_rows:,} of them deleted",
        f"root  {outline.size_in_bytes:,} bytes, {outline.blocks} blocks",
    ]
    branches = [[_group_line(group)] for group in outline.groups]
    branches += [_leaf_lines(leaf) for leaf in outline.leaves[:leaves_max]]
    rest = outline.leaves[leaves_max:]
    if rest:
        branches.append([f"and {len(rest):,} more leaves with {sum(leaf.live for leaf in rest):,} live entries"])
    for number, branch in enumerate(branches):
        is_last = number == len(branches) - 1
        lines.append(f"{'`-' if is_last else '|-'} {branch[0]}")
        lines += [f"{'  ' if is_last else '| '} {line}" for line in branch[1:]]
    return "\n".join(lines) + "\n"


def group_words(group: RootGroup) -> str:
    """The noun for a group of root rows, in the plural."""
    return _GROUP_WORDS[group.content_type]


def _group_line(group: RootGroup) -> str:
    change = "".join(
        f", {count:,} {word}" for count, word in ((group.added, "added"), (group.removed, "removed")) if count
    )
    return f"{group.files:,} {group_words(group)} in the root, {group.rows:,} rows{change}"


def _leaf_lines(leaf: LeafOutline) -> list[str]:
    kind = "data leaf" if leaf.content_type is ContentType.DATA_MANIFEST else "delete leaf"
    parts = [f"{kind} {short_name(leaf.location)}", f"{leaf.live:,} of {leaf.entries:,} entries live"]
    if leaf.newly_dead:
        parts.append(f"{leaf.newly_dead:,} removed here")
    parts.append(f"{leaf.rows:,} rows, spec {leaf.spec_id}, {leaf.size_in_bytes:,} bytes")
    if leaf.status is Status.ADDED:
        parts.append("added here")
    lines = [", ".join(parts)]
    lines += [f"`- {line}" for child in leaf.deletes for line in _leaf_lines(child)]
    return lines


def short_name(location: str) -> str:
    """The first eight characters of a leaf's file name."""
    return location.rsplit("/", 1)[-1][:8]
