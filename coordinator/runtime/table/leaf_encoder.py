"""Encodes the leaves of a root that is too long, on a thread that gives way.

Owns: the thread, its pauses, its deadline. Does not own: what is encoded (`rootline.maintenance.flush_plan`), when
(`rootline.coordinator.protocol.self_flush_rules`).
Invariants: one table at a time in the whole process; no single call holds the interpreter for more than some
milliseconds, so that the event loop is never far from its turn; when the caller stops waiting, the work stops too; no
caller waits longer than the deadline, however many tables are before it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Final, Protocol

from rootline.maintenance.flush_plan import flush_in_steps
from rootline.tree.intents.self_flush import OwnFlush
from rootline.tree.state.table_state import TableState

ENCODING_S_MAX: Final = 300.0
"""For one table, its wait for other tables included: fifty times what 50,000 entries take on a quiet machine."""
_PAUSE_S: Final = 0.002


class LeafEncoder(Protocol):
    """Makes the leaves that `EncodeLeaves` asks for."""

    async def encode(self, head: TableState) -> OwnFlush:
        """The leaves for the rows of `head`; none when no leaf could take any.

        Raises:
            TimeoutError: it took too long.
            RootlineError: the table cannot be planned or encoded.

        """
        ...


class ThreadLeafEncoder:
    """One for each process."""

    def __init__(self, encoding_s_max: float = ENCODING_S_MAX) -> None:
        self._encoding_s_max = encoding_s_max
        self._one_at_a_time = asyncio.Lock()

    async def encode(self, head: TableState) -> OwnFlush:
        """As `LeafEncoder` says."""
        is_over = threading.Event()
        try:
            async with asyncio.timeout(self._encoding_s_max), self._one_at_a_time:
                return await asyncio.to_thread(_encode, head, is_over)
        finally:
            is_over.set()


def _encode(head: TableState, is_over: threading.Event) -> OwnFlush:
    steps = flush_in_steps(head)
    while not is_over.is_set():
        try:
            next(steps)
        except StopIteration as end:
            found: OwnFlush = end.value
            return found
        time.sleep(_PAUSE_S)
    return OwnFlush()
