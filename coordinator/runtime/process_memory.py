"""How a process that serves tables, and does nothing else, treats memory.

Owns: Python's collector of cycles and Arrow's allocator there. Does not own: what is kept in memory (queues, trees);
the processes of others that host us as a library.
Invariants: nothing is switched off; cycles are found, later.

Theory. Hardly anything here makes cycles: reference counts free a batch when it is done. But Python's collector is
asked after every 700 objects that are still alive, which is every 70 intents, and each time it looks at a batch in
flight; and whenever the objects have grown by a quarter, as they do when a backlog arrives, it looks at all of them:
0.4 µs an object, 70 ms when nothing is loaded yet but the libraries, in which no table commits. So what the start has
loaded is set aside for good, and the rest is looked at seldom. Measured over batches of 512 intents: 8 of 62 µs an
intent, and p99 two and a half times the median.

Arrow's own allocator keeps what each thread has freed for that thread. Leaves are decoded on threads, and what they
left behind was twice what a table of a million files takes; the system's allocator is as fast for such large buffers.
"""

from __future__ import annotations

import gc
from typing import Final

import pyarrow as pa

_YOUNG_OBJECTS: Final = 50_000
_YOUNG_ROUNDS: Final = 20
_MIDDLE_ROUNDS: Final = 1_000


def settle_memory() -> None:
    """Once all is imported: leave that out of every search to come, and search less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS, _YOUNG_ROUNDS, _MIDDLE_ROUNDS)
    pa.set_memory_pool(pa.system_memory_pool())
