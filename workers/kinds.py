"""The kinds of maintenance: one row for each.

Owns: the table. Does not own: what is due (`rootline.maintenance`), how it is carried out (`rootline.workers.jobs`).
Invariants: everything else reads this table: the task loop, counters and log lines, `rootline maintenance run`, the
tests of docs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from rootline.ports.task_queue import TaskKind
from rootline.workers.jobs.conversion_job import conversion_job
from rootline.workers.jobs.data_compaction_job import DataCompactionJob
from rootline.workers.jobs.expiry_job import ExpiryJob
from rootline.workers.jobs.flush_job import flush_job
from rootline.workers.jobs.job import Job, JobContext
from rootline.workers.jobs.leaf_compaction_job import leaf_compaction_job
from rootline.workers.jobs.purge_job import PurgeJob
from rootline.workers.jobs.sweep_job import SweepJob
from rootline.workers.jobs.vector_compaction_job import vector_compaction_job


@dataclass(frozen=True, slots=True)
class MaintenanceKind:
    """One kind of maintenance.

    `name`: what an operator calls it; `label`: in counters and in the `action` of log lines, where kinds may share one;
    `task`: the look at a table that it belongs to; `job`: plans it and carries it out; `by_hand`: what it does, for the
    help of `rootline maintenance run`, `None` when only the worker does it.
    """

    name: str
    label: str
    task: TaskKind
    job: Callable[[JobContext], Job]
    by_hand: str | None = None


FLUSH: Final = MaintenanceKind("flush", "flush", TaskKind.ROOT, flush_job, "The root's rows go to leaves.")
COMPACT: Final = MaintenanceKind(
    "compact", "compaction", TaskKind.LEAVES, leaf_compaction_job, "Few leaves, and nothing dead in them."
)
COMPACT_VECTORS: Final = MaintenanceKind(
    "compact-vectors",
    "compaction",
    TaskKind.LEAVES,
    vector_compaction_job,
    "Vectors are joined in few Puffin files.",
)
CONVERT: Final = MaintenanceKind(
    "convert", "conversion", TaskKind.ROWS, conversion_job, "Equality deletes become deletion vectors."
)
COMPACT_DATA: Final = MaintenanceKind(
    "compact-data",
    "data-compaction",
    TaskKind.ROWS,
    DataCompactionJob,
    "Small and worn data files are written again.",
)
EXPIRE: Final = MaintenanceKind(
    "expire", "expiry", TaskKind.HISTORY, ExpiryJob, "Old versions are given up, and their roots removed."
)

SWEEP: Final = MaintenanceKind(
    "sweep",
    "sweep",
    TaskKind.HISTORY,
    SweepJob,
    "What nothing references is condemned, and deleted later.",
)

PURGE: Final = MaintenanceKind(
    "purge", "purge", TaskKind.HISTORY, PurgeJob, "A table dropped long enough ago is deleted for good."
)

KINDS: Final = (FLUSH, COMPACT, COMPACT_VECTORS, CONVERT, COMPACT_DATA, PURGE, SWEEP, EXPIRE)
"""Those of one look are tried in this order, until one of them finds something to do; of `ROWS`, all of them."""
