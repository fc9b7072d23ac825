"""What was lately computed from leaves, as long as there is room.

Owns: which leaves keep derived columns in memory, oldest out first. Does not own: the columns (`leaf`).
Invariants: what is dropped is computed again when it is asked for; this never keeps a leaf alive; any thread may use
it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence, Sized
from typing import Final, NamedTuple
from weakref import ref

ENTRIES_MAX: Final = 250_000
"""Of all leaves together: five of the usual size, about 250 bytes an entry."""
LEAVES_MAX: Final = 500


class _Held(NamedTuple):
    leaf: ref[Sized]
    entries: int
    total: int
    """Entries of this leaf and of all that were held before it, dropped ones included."""


class KeptColumns:
    """`names`: the cached properties that are dropped when others need the room."""

    def __init__(self, names: Sequence[str], entries_max: int = ENTRIES_MAX, leaves_max: int = LEAVES_MAX) -> None:
        self._names, self._entries_max, self._leaves_max = tuple(names), entries_max, leaves_max
        self._held: deque[_Held] = deque()  # whose operations are atomic

    def add(self, leaf: Sized) -> None:
        """`leaf` is about to compute one of its properties."""
        entries = len(leaf)
        try:
            total = self._held[-1].total + entries
        except IndexError:
            total = entries
        self._held.append(_Held(ref(leaf), entries, total))
        while len(self._held) > 1:
            try:
                first = self._held[0]
                if total - first.total + first.entries <= self._entries_max and len(self._held) <= self._leaves_max:
                    return
                self._held.remove(first)
            except (IndexError, ValueError):
                continue  # another thread did
            gone = first.leaf()
            if gone is not None and gone is not leaf:
                for name in self._names:
                    gone.__dict__.pop(name, None)
