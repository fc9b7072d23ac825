"""What every job works with, and what it says came of a look at a table.

Owns: `Job`, `JobContext`, `JobReport`. Does not own: the jobs (`*_job`), which kinds there are
(`rootline.workers.kinds`).
Invariants: a context and a report are values; making a context starts nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol

import pyarrow as pa

from rootline.ports.environment import Environment
from rootline.ports.intent_log import AskLogKeeps, IntentSink, VerdictSource
from rootline.ports.object_remover import ObjectRemover
from rootline.ports.object_store import ObjectStore
from rootline.schemas.identifiers import TableName
from rootline.schemas.intent import DataFile
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.stored_objects import TimedReads
from rootline.workers.leaf_cache import LeafCache
from rootline.workers.settings import WorkerSettings


class WrittenRows(Protocol):
    """A data file to add, and its bytes."""

    @property
    def data_file(self) -> DataFile:
        """What the intent says of it."""
        ...

    @property
    def body(self) -> bytes:
        """What is stored under its location."""
        ...


class WriteRows(Protocol):
    """Makes the data files of rows that a table has; their lineage, the last two columns, goes into the files."""

    def __call__(
        self,
        rows: pa.Table,
        definition: TableDefinition,
        fresh_ids: Iterable[uuid.UUID],
        *,
        target_file_size_bytes: int,
    ) -> Sequence[WrittenRows]:
        """Raises `Invalid` (`rows-invalid`)."""
        ...


@dataclass(frozen=True, slots=True)
class HandedOver:
    """What a cluster made of a table's data files: `files` were replaced, as of `version`; `None`: nothing was due.

    `refused`: how often a group of files came too late.
    """

    version: int | None
    files: int
    refused: int


class HandOver(Protocol):
    """Has a cluster compact a table's data files where the table's properties say that they are due."""

    async def __call__(self, table: TableName) -> HandedOver:
        """Raises `Unavailable` (`spark-unavailable`), and what the compaction raises."""
        ...


class WorkerLog(IntentSink, VerdictSource, Protocol):
    """The two sides of a log that a worker needs."""


@dataclass(frozen=True, slots=True)
class JobContext:
    """Ports, settings, and the leaves that all jobs of a process keep in memory.

    `now`: an operator asked for it, so thresholds do not matter. `remover`: without one, no job removes anything.
    `keeps`: asks how long the log keeps what it holds; without it, no table is swept. `write_rows`: without it, no data
    file is written. `hand_over`: without it, no data compaction is given to a cluster.
    """

    store: ObjectStore
    log: WorkerLog
    environment: Environment
    settings: WorkerSettings
    leaves: LeafCache
    now: bool = False
    remover: ObjectRemover | None = None
    keeps: AskLogKeeps | None = None
    write_rows: WriteRows | None = None
    hand_over: HandOver | None = None

    @staticmethod
    def of(
        store: ObjectStore,
        log: WorkerLog,
        environment: Environment,
        settings: WorkerSettings,
        *,
        now: bool = False,
        remover: ObjectRemover | None = None,
        keeps: AskLogKeeps | None = None,
        write_rows: WriteRows | None = None,
        hand_over: HandOver | None = None,
    ) -> JobContext:
        """A context with an empty cache."""
        leaves = LeafCache(settings.leaf_cache_bytes_max)
        return JobContext(store, log, environment, settings, leaves, now, remover, keeps, write_rows, hand_over)

    @property
    def reads(self) -> ObjectStore:
        """The store, with a deadline of its own for each request: decoding Avro leaves in between takes long."""
        return TimedReads(self.store, self.settings.request_timeout_s)


class JobOutcome(StrEnum):
    """What came of one look at one table."""

    NOTHING_DUE = "nothing-due"
    PLANNED = "planned"  # and not carried out
    COMMITTED = "committed"
    STALE = "stale"  # everything changed under the plan, again and again
    REJECTED = "rejected"
    UNKNOWN = "unknown"
    REMOVED = "removed"  # objects that nothing names any more, and no intent was due


class Removed(NamedTuple):
    """Objects of one kind that were removed, or would be."""

    kind: str
    objects: int
    size_in_bytes: int


@dataclass(frozen=True, slots=True)
class JobReport:
    """`version`: the root that holds the result, or was planned from. `code` and `message`: of a rejection.

    `has_leaves`: whether the table has leaves; known when nothing was due, or when the job committed. `again_s`: when
    to look again even if the table does not change. `condemned`: by a sweep, to be removed later. `troubles`: what
    stays although nothing here needs it, a sentence each with the object, the reason and the way out.
    """

    outcome: JobOutcome
    leaves: int = 0
    entries: int = 0
    version: int | None = None
    code: str | None = None
    message: str | None = None
    has_leaves: bool = False
    removed: tuple[Removed, ...] = ()
    again_s: float | None = None
    condemned: tuple[Removed, ...] = ()
    troubles: tuple[str, ...] = ()


class Job(Protocol):
    """One kind of maintenance, for any number of tables, one look at a time.

    Both methods raise `Unavailable` when the store or the log cannot be reached, `Corrupt` when stored bytes of the
    table are damaged, and `Invalid` (`property-invalid`) for one of the table's properties. Nothing needs
    undoing then.
    """

    async def run(self, table: TableName) -> JobReport:
        """Do to `table` what is due."""
        ...

    async def dry_run(self, table: TableName) -> JobReport:
        """What `run` would do first; nothing is written."""
        ...
