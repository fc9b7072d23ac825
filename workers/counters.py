"""What a worker has done so far, as plain numbers.

Owns: the counts. Does not own: how they are shown (`rootline.cli`, an HTTP endpoint).
Invariants: all but `tables` and `jobs_running` only grow; written by the worker's own loop only.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from rootline.workers.jobs.job import JobOutcome


@dataclass(slots=True)
class WorkerCounters:
    """Since the process began. `looks`: LIST requests for heads. `outcomes`: by the label of a kind and the outcome.

    `objects_removed`, `bytes_removed`: by what the objects were.
    """

    tables: int = 0
    looks: int = 0
    tasks_refused: int = 0
    jobs_running: int = 0
    jobs_done: int = 0
    leaves_committed: int = 0
    entries_moved: int = 0
    failures: int = 0
    outcomes: Counter[tuple[str, JobOutcome]] = field(default_factory=Counter)
    objects_removed: Counter[str] = field(default_factory=Counter)
    bytes_removed: Counter[str] = field(default_factory=Counter)
