"""The kinds of maintenance, one row for each, and maintenance of one table on an operator's command.

Owns: the table of kinds, and the choice of those that an operator can run. Does not own: their plans
(`rootline.maintenance`), their execution (`rootline.workers.jobs`).
Invariants: everything else reads this table: the task loop, counters and log lines, `rootline maintenance run`, the
tests of docs. A command publishes the same intents as a worker, so it is safe beside workers and writers.
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

    * `name`: its name in commands.
    * `label`: its name in counters and in the `action` of log lines. Several kinds may share a label.
    * `task`: the kind of task that runs it.
    * `job`: makes the job that plans and executes it.
    * `by_hand`: its description in the help of `rootline maintenance run`, `None` if only the worker runs it.
    """

    name: str
    label: str
    task: TaskKind
    job: Callable[[JobContext], Job]
    by_hand: str | None = None


FLUSH: Final = MaintenanceKind("flush", "flush", TaskKind.ROOT, flush_job, "Move the root's rows to leaves.")
COMPACT: Final = MaintenanceKind(
    "compact", "compaction", TaskKind.LEAVES, leaf_compaction_job, "Merge leaves, and drop their dead entries."
)
COMPACT_VECTORS: Final = MaintenanceKind(
    "compact-vectors",
    "compaction",
    TaskKind.LEAVES,
    vector_compaction_job,
    "Merge deletion vectors into fewer Puffin files.",
)
CONVERT: Final = MaintenanceKind(
    "convert", "conversion", TaskKind.ROWS, conversion_job, "Turn equality deletes into deletion vectors."
)
COMPACT_DATA: Final = MaintenanceKind(
    "compact-data",
    "data-compaction",
    TaskKind.ROWS,
    DataCompactionJob,
    "Rewrite small and delete-heavy data files.",
)
EXPIRE: Final = MaintenanceKind(
    "expire", "expiry", TaskKind.HISTORY, ExpiryJob, "Expire old versions, and remove their roots."
)

SWEEP: Final = MaintenanceKind(
    "sweep",
    "sweep",
    TaskKind.HISTORY,
    SweepJob,
    "Condemn unreferenced objects, and delete them later.",
)

PURGE: Final = MaintenanceKind(
    "purge", "purge", TaskKind.HISTORY, PurgeJob, "Delete a dropped table for good, after its retention."
)

KINDS: Final = (FLUSH, COMPACT, COMPACT_VECTORS, CONVERT, COMPACT_DATA, PURGE, SWEEP, EXPIRE)
"""The kinds of one task are tried in this order until one of them finds work. For `ROWS`, all are tried."""


BY_HAND: Final = {kind.name: kind for kind in KINDS if kind.by_hand is not None}
"""Name → kind, for the kinds that an operator can run."""


@dataclass(frozen=True, slots=True)
class Rights:
    """The means to delete objects and to write data files. Without them such jobs do nothing (see `JobContext`)."""

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
    """Run `kind` on `table` now, regardless of thresholds. `dry_run` only reports the work.

    Raises:
        Unavailable, Corrupt, Invalid: see `Job`.
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
