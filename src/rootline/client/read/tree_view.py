"""A version's metadata tree, for people to look at.

Owns: the forms it can take, a notebook's included. Does not own: how they are drawn (`rootline.tree`).
Invariants: a value of one version; nothing is read when it is shown.
"""

from __future__ import annotations

from dataclasses import dataclass

from rootline.tree.state.table_state import TableState
from rootline.tree.view.outline import TreeOutline, outline_of
from rootline.tree.view.picture import tree_svg
from rootline.tree.view.text import tree_text


@dataclass(frozen=True, slots=True)
class TreeView:
    """`print` it, or let a notebook draw it."""

    state: TableState

    def outline(self) -> TreeOutline:
        """The tree in numbers."""
        return outline_of(self.state)

    def text(self) -> str:
        """A few lines for a terminal."""
        return tree_text(self.state)

    def svg(self) -> str:
        """A picture."""
        return tree_svg(self.state)

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        header = self.state.header
        return f"<TreeView {header.table} version {header.version}>"

    def _repr_svg_(self) -> str:
        return self.svg()
