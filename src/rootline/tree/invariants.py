"""What must hold between a root and the next one, checked before every PUT; and in one root, thoroughly.

Owns: the predicates. Does not own: what happens when one is broken (the commit machine refuses to write).
Invariants: pure; `broken` looks at what changed only.

Source: invariants page, numbers 4-8, 10, 11, 17, 20, 21.
"""

from __future__ import annotations

from rootline.tree.table_state import TableState


def broken(old: TableState | None, new: TableState) -> list[str]:
    """The rules that the step from `old` to `new` breaks, in words; empty when all hold. Incremental and cheap."""
    raise NotImplementedError


def broken_thoroughly(state: TableState) -> list[str]:
    """The rules that one version breaks, everything recomputed; reads every leaf."""
    raise NotImplementedError
