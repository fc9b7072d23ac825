"""The kinds of maintenance, one row for each, and maintenance of one table by an operator's command.

Owns: the table of kinds, and which of them can be run by hand. Does not own: their plans (`rootline.maintenance`),
their execution (`rootline.workers.jobs`).
Invariants: everything else reads this table: the task loop, counters and log lines, `rootline maintenance run`, the
tests of docs. Maintenance by hand publishes the same intents as a worker, so it is safe beside one, and beside
writers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from rootline.ports.environment import Environment
from rootline.ports.intent_log import AskLogKeeps
from rootline.ports.object_remover import ObjectRemover
from rootline.ports.object_store import ObjectStore
from rootline.ports.task_queue import TaskKind
from rootline.schemas.identifiers import TableName
from rootline.workers.jobs.data_jobs import DataCompactionJob, conversion_job
from rootline.workers.jobs.expiry_job import ExpiryJob, PurgeJob
from rootline.workers.jobs.job import Job, JobContext, JobReport, WorkerLog, WriteRows
from rootline.workers.jobs.metadata_jobs import flush_job, leaf_compaction_job, vector_compaction_job
from rootline.workers.jobs.sweep_job import SweepJob
from rootline.workers.settings import worker_settings


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


BY_HAND: Final = {kind.name: kind for kind in KINDS if kind.by_hand is not None}
"""Name → kind, of all that can be asked for."""


@dataclass(frozen=True, slots=True)
class Rights:
    """What a kind of maintenance needs that deletes, or writes data files; as in `JobContext`."""

    remover: ObjectRemover | None = None
    keeps: AskLogKeeps | None = None
    write_rows: WriteRows | None = None


NO_RIGHTS: Final = Rights()


async def maintain(
    store: ObjectStore,
    log: WorkerLog,
    environment: Environment,
    table: TableName,
    kind: MaintenanceKind,
    *,
    dry_run: bool,
    rights: Rights = NO_RIGHTS,
) -> JobReport:
    """Do now what `kind` can do to `table`, whatever the thresholds are; `dry_run`: say what would be done.

    Raises:
        Unavailable, Corrupt, Invalid: as a job does.

    """
    settings = worker_settings()
    job = kind.job(
        JobContext.of(
            store,
            log,
            environment,
            settings,
            now=True,
            remover=rights.remover,
            keeps=rights.keeps,
            write_rows=rights.write_rows,
        )
    )
    return await (job.dry_run(table) if dry_run else job.run(table))
