"""The parts that every job works with: its context, leaves in memory, removal in batches, reports and their counts.

Owns: `Job`, `JobContext`, `JobReport`, the cache of leaves and its bound, the counts of a worker. Does not own: the
jobs (`*_job`, `*_jobs`), the kinds (`rootline.workers.kinds`), reading and proving a leaf
(`rootline.storage.metadata.object_reader`), how counts are shown.
Invariants: a context and a report are values, and making a context starts nothing. The cache is bounded by the leaves'
stored bytes, and losing all of it costs time only. An object that cannot be removed delays no other, and is reported
at the end. All counts but `tables` and `jobs_running` only grow, and only the worker's own loop writes them.
"""

from __future__ import annotations

import uuid
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

import pyarrow as pa

from rootline.ports.environment import Environment
from rootline.ports.intent_log import AskLogKeeps, IntentSink, VerdictSource
from rootline.ports.object_remover import ObjectRemover
from rootline.ports.object_store import ObjectStore
from rootline.schemas.bytes.leaf_codec import Leaf
from rootline.schemas.content_entry import ContentEntry
from rootline.schemas.errors import Unavailable
from rootline.schemas.identifiers import ObjectKey, TableName
from rootline.schemas.intent import DataFile
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.metadata.object_reader import read_leaf
from rootline.storage.stored_objects import TimedReads
from rootline.workers.settings import WorkerSettings


class LeafCache:
    """The leaves used last, up to `bytes_max` stored bytes of all tables together."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._kept: OrderedDict[tuple[TableName, str], tuple[Leaf, int]] = OrderedDict()
        self._bytes = 0

    async def leaves(
        self,
        store: ObjectStore,
        table: TableName,
        entries: Iterable[ContentEntry],
        definition: TableDefinition | None = None,
    ) -> dict[str, Leaf]:
        """Location → leaf of every root row in `entries`; absent ones are read, as `read_leaf` reads them."""
        return {entry.location: await self._leaf(store, table, entry, definition) for entry in entries}

    async def _leaf(
        self, store: ObjectStore, table: TableName, entry: ContentEntry, definition: TableDefinition | None
    ) -> Leaf:
        key = (table, entry.location)
        kept = self._kept.get(key)
        if kept is not None:
            self._kept.move_to_end(key)
            return kept[0]
        leaf = await read_leaf(store, table, entry, definition=definition)
        self._keep(key, leaf, entry.file_size_in_bytes or 0)
        return leaf

    def _keep(self, key: tuple[TableName, str], leaf: Leaf, size_in_bytes: int) -> None:
        if key in self._kept or size_in_bytes > self._bytes_max:
            return
        self._kept[key] = (leaf, size_in_bytes)
        self._bytes += size_in_bytes
        while self._bytes > self._bytes_max:
            _, (_, freed) = self._kept.popitem(last=False)
            self._bytes -= freed


FAILING_S_MAX: Final = 60.0
"""After failures that took so long together the rest waits for the next look: a store that is away answers slowly."""


async def remove_batches(
    remover: ObjectRemover, batches: AsyncIterator[Sequence[ObjectKey]], monotonic_s: Callable[[], float]
) -> Unavailable | None:
    """Remove all that goes; the first error if anything was left. An error of `batches` is raised."""
    left: Unavailable | None = None
    failing_s = 0.0
    async for keys in batches:
        began_s = monotonic_s()
        try:
            await remover.remove(keys)
        except Unavailable as error:
            left = left or error
            failing_s += monotonic_s() - began_s
            if failing_s > FAILING_S_MAX:
                break
    return left


async def in_batches(keys: Sequence[ObjectKey], size: int) -> AsyncIterator[Sequence[ObjectKey]]:
    """`keys`, at most `size` at a time."""
    for start in range(0, len(keys), size):
        yield keys[start : start + size]


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
