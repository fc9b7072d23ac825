"""Python's collector of cycles, in a process that serves tables.

Owns: how it is set there. Does not own: what is kept in memory (queues, trees); processes of others that host us.
Invariants: garbage that is young when it becomes garbage is collected as ever; only full collections are rarer.

Theory. A full collection looks at every object and stops the process meanwhile: 0.4 µs an object, 70 ms when nothing is
loaded yet but the libraries, a third of a second with a hundred thousand intents in the queues. It comes whenever the
objects have grown by a quarter, as they do when a backlog arrives, and finds nothing: intents, rows and trees have no
cycles. So what the start has loaded is set aside for good, and the rest is looked at in full a hundred times more
rarely.
"""

from __future__ import annotations

import gc
from typing import Final

_FULL_EVERY: Final = 1_000
"""Middle collections to one full one; Python's own is 10."""


def calm_collector() -> None:
    """For processes that are ours alone, once all is imported."""
    gc.collect()
    gc.freeze()
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, _FULL_EVERY)
