"""What was lately computed from leaves, as long as there is room.

Owns: which leaves keep derived columns in memory, oldest out first. Does not own: the columns (`leaf`).
Invariants: what is dropped is computed again when it is asked for; this never keeps a leaf alive; any thread may use
it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence, Sized
from typing import Final
from weakref import ref

ENTRIES_MAX: Final = 250_000
"""Of all leaves together: five of the usual size, about 250 bytes an entry."""
LEAVES_MAX: Final = 500


class KeptColumns:
    """`names`: the cached properties that are dropped when others need the room."""

    def __init__(self, names: Sequence[str], entries_max: int = ENTRIES_MAX, leaves_max: int = LEAVES_MAX) -> None:
        self._names, self._entries_max, self._leaves_max = tuple(names), entries_max, leaves_max
        self._held: deque[tuple[ref[Sized], int]] = deque()  # whose operations are atomic

    def add(self, leaf: Sized) -> None:
        """`leaf` is about to compute one of its properties."""
        self._held.append((ref(leaf), len(leaf)))
        held = tuple(self._held)
        surplus = sum(entries for _, entries in held) - self._entries_max
        for at, (oldest, entries) in enumerate(held[:-1]):
            if surplus <= 0 and len(held) - at <= self._leaves_max:
                return
            surplus -= entries
            try:
                self._held.remove((oldest, entries))
            except ValueError:
                continue  # another thread did
            gone = oldest()
            if gone is not None and gone is not leaf:
                for name in self._names:
                    gone.__dict__.pop(name, None)
