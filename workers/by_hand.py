"""Maintenance of one table, once, because an operator asks for it.

Owns: which kinds can be asked for. Does not own: the kinds (`rootline.workers.kinds`), the jobs
(`rootline.workers.jobs`).
Invariants: the same intents as the worker's own: safe beside it, and beside writers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rootline.ports.environment import Environment
from rootline.ports.intent_log import AskLogKeeps
from rootline.ports.object_remover import ObjectRemover
from rootline.ports.object_store import ObjectStore
from rootline.schemas.identifiers import TableName
from rootline.workers.jobs.job import JobContext, JobReport, WorkerLog, WriteRows
from rootline.workers.kinds import KINDS, MaintenanceKind
from rootline.workers.settings import worker_settings

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
