"""What a worker has done so far, as plain numbers.

Owns: the counts. Does not own: how they are shown (`rootline.cli`, an HTTP endpoint).
Invariants: all but `tables` and `jobs_running` only grow; written by the worker's own loop only.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class WorkerCounters:
    """Since the process began. `looks`: LIST requests for heads."""

    tables: int = 0
    looks: int = 0
    tasks_refused: int = 0
    jobs_running: int = 0
    jobs_done: int = 0
    flushes_committed: int = 0
    flushes_stale: int = 0
    flushes_rejected: int = 0
    flushes_unknown: int = 0
    compactions_committed: int = 0
    compactions_stale: int = 0
    compactions_rejected: int = 0
    compactions_unknown: int = 0
    leaves_committed: int = 0
    entries_moved: int = 0
    failures: int = 0

    def count(self, job: str, outcome: str) -> None:
        """One `flush` or `compaction` that came to `outcome`."""
        name = f"{'flushes' if job == 'flush' else 'compactions'}_{outcome}"
        setattr(self, name, getattr(self, name) + 1)
