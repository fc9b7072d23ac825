"""Maintenance of one table, once, because somebody asks for it.

Owns: which job a name means, and that thresholds do not matter then. Does not own: the jobs (`rootline.workers.jobs`).
Invariants: the same intents as the worker's own: safe beside it, and beside writers.
"""

from __future__ import annotations

from enum import StrEnum

from rootline.maintenance.flush_limits import FLUSH_NOW
from rootline.ports.environment import Environment
from rootline.ports.object_store import ObjectStore
from rootline.schemas.identifiers import TableName
from rootline.workers.jobs.flush_job import flush_job
from rootline.workers.jobs.leaf_compaction_job import leaf_compaction_job
from rootline.workers.jobs.maintenance_job import JobReport, WorkerLog
from rootline.workers.settings import WorkerSettings


class ByHand(StrEnum):
    """What can be asked for."""

    FLUSH = "flush"
    COMPACT = "compact"


async def maintain(
    store: ObjectStore, log: WorkerLog, environment: Environment, table: TableName, what: ByHand, *, dry_run: bool
) -> JobReport:
    """Flush or compact `table` now; `dry_run`: say what would be done.

    Raises:
        Unavailable, Corrupt, Invalid: as a job does.

    """
    settings = WorkerSettings()
    if what is ByHand.FLUSH:
        job = flush_job(store, log, environment, settings, limits=FLUSH_NOW)
    else:
        job = leaf_compaction_job(store, log, environment, settings, now=True)
    return await (job.dry_run(table) if dry_run else job.run(table))
