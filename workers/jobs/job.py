"""The shared parts of all jobs: their context, the caches of leaves and roots, removal in batches, reports, counters.

Owns: `Job`, `JobContext`, `JobReport`, the cache of leaves and its bound, the last root, the counters of a worker. Does
not own: the jobs (`*_job`, `*_jobs`), the kinds (`rootline.workers.kinds`), reading and proving a leaf
(`rootline.storage.metadata.object_reader`), the presentation of counters.
Invariants: a context and a report are values, and making a context starts nothing. The cache is bounded by the leaves'
stored bytes, and losing all of it costs time only. An object that cannot be removed delays no other, and is reported at
the end. All counters except `tables` and `jobs_running` only grow, and only the worker's own loop writes them.
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
from rootline.ports.object_remover import DatedObject, ObjectRemover
from rootline.ports.object_store import ObjectStore
from rootline.schemas.bytes.leaf_codec import Leaf
from rootline.schemas.bytes.root.root_codec import Root
from rootline.schemas.content_entry import ContentEntry
from rootline.schemas.errors import Unavailable
from rootline.schemas.identifiers import ObjectKey, TableName, Version
from rootline.schemas.intent import DataFile
from rootline.schemas.object_keys import root_key, roots_prefix, version_of_root_key
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.metadata.object_reader import read_leaf
from rootline.storage.metadata.root_reader import find_head, read_root
from rootline.storage.stored_objects import TimedReads
from rootline.workers.settings import WorkerSettings


class LeafCache:
    """A cache of the most recently used leaves of all tables, up to `bytes_max` stored bytes."""

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
        """Location → leaf for each of `entries`, which are rows of a root. Reads the leaves that are not cached."""
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


class LastRoot:
    """The root that a job read last. The jobs of a task read the same one, or one that shares most of its blocks."""

    def __init__(self) -> None:
        self._root: Root | None = None

    async def read(self, store: ObjectStore, table: TableName, version: Version) -> Root:
        """Root `version` of `table`. Raises the errors of `read_root`."""
        last, self._root = self._root, None
        known = last if last is not None and last.header.table == table else None
        self._root = await read_root(store, table, version, known=known)
        return self._root


FAILING_S_MAX: Final = 60.0
"""Total time of failed removals after which the rest waits for the next run, because an unavailable store is slow."""


async def remove_batches(
    remover: ObjectRemover, batches: AsyncIterator[Sequence[ObjectKey]], monotonic_s: Callable[[], float]
) -> Unavailable | None:
    """Remove all keys, as far as the store can. Returns the first error, or `None` if every object was removed.

    Stops after `FAILING_S_MAX` seconds of failed requests. An error of the iterator `batches` is raised.
    """
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


async def stored_roots(remover: ObjectRemover, table: TableName) -> AsyncIterator[tuple[Version, DatedObject]]:
    """The stored roots of a table, with their versions. Other objects in their folder are left out."""
    async for page in remover.inventory(roots_prefix(table)):
        for item in page:
            version = version_of_root_key(item.key)
            if version is not None and item.key == root_key(table, version):
                yield version, item


async def in_batches(keys: Sequence[ObjectKey], size: int) -> AsyncIterator[Sequence[ObjectKey]]:
    """`keys`, in batches of at most `size`."""
    for start in range(0, len(keys), size):
        yield keys[start : start + size]


class WrittenRows(Protocol):
    """A data file to add, and its bytes."""

    @property
    def data_file(self) -> DataFile:
        """The entry of the file in the intent."""
        ...

    @property
    def body(self) -> bytes:
        """The bytes of the file."""
        ...


class WriteRows(Protocol):
    """Encodes data files of rows that a table already contains.

    The last two columns of the rows are their row ids and sequence numbers (Iceberg's row lineage), and are stored too.
    """

    def __call__(
        self,
        rows: pa.Table,
        definition: TableDefinition,
        fresh_ids: Iterable[uuid.UUID],
        *,
        target_file_size_bytes: int,
    ) -> Sequence[WrittenRows]:
        """Encode `rows` as data files of about `target_file_size_bytes`. Raises `Invalid` (`rows-invalid`)."""
        ...


@dataclass(frozen=True, slots=True)
class HandedOver:
    """The result of a compaction on a cluster: `files` data files were replaced.

    `version`: the version that replaced the last of them, `None` if nothing was committed. `refused`: the number of
    commits rejected as stale.
    """

    version: int | None
    files: int
    refused: int


class HandOver(Protocol):
    """Runs a data compaction on a cluster, if one is due by the table's properties."""

    async def __call__(self, table: TableName) -> HandedOver:
        """Compact data files of `table`. Raises `Unavailable` (`spark-unavailable`) and the compaction's errors."""
        ...


class WorkerLog(IntentSink, VerdictSource, Protocol):
    """A log to which a worker publishes intents, and from which it reads their verdicts."""


@dataclass(frozen=True, slots=True)
class JobContext:
    """Ports, settings, and the caches that all jobs of a process share.

    * `now`: an operator started the job, so thresholds do not apply.
    * `remover`: deletes objects. Without it, no job removes anything.
    * `keeps`: returns the retention of the log. Without it, no table is swept.
    * `write_rows`: encodes data files. Without it, no data file is compacted in this process.
    * `hand_over`: runs a data compaction on a cluster. Without it, none runs there.
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
    last_root: LastRoot = field(default_factory=LastRoot)

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

    async def store_ms(self, table: TableName) -> int:
        """The time now: the store's, or this machine's if that is earlier or if the store has no dates."""
        head = await find_head(self.reads, table)
        stated, now_ms = None if head is None else head.store_ms, self.environment.now_ms()
        return now_ms if stated is None else min(stated, now_ms)

    @property
    def reads(self) -> ObjectStore:
        """The store with a deadline for each request. A deadline around a whole plan would include decoding."""
        return TimedReads(self.store, self.settings.request_timeout_s)


class JobOutcome(StrEnum):
    """The outcome of one job on one table."""

    NOTHING_DUE = "nothing-due"
    PLANNED = "planned"  # a dry run
    COMMITTED = "committed"
    STALE = "stale"  # the table changed during each attempt
    REJECTED = "rejected"
    UNKNOWN = "unknown"
    REMOVED = "removed"  # unreferenced objects were removed, and no intent was due


class Removed(NamedTuple):
    """Objects of one kind that were removed, or that a real run would remove."""

    kind: str
    objects: int
    size_in_bytes: int


@dataclass(frozen=True, slots=True)
class JobReport:
    """The report of a job on one table.

    * `version`: the root that contains the job's result. In a dry run, the version that the plan started from.
    * `code`, `message`: of a rejection.
    * `has_leaves`: whether the table has leaves, known only if nothing was due or the job committed.
    * `again_s`: seconds until the next check, even if the table does not change.
    * `condemned`: objects that a sweep will remove later.
    * `troubles`: a sentence for each group of unneeded objects that a sweep did not remove, with reason and next step.
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
    """One kind of maintenance, for any number of tables, one run at a time.

    Both methods raise `Unavailable` if the store or the log cannot be reached, `Corrupt` if stored bytes of the table
    are damaged, and `Invalid` (`property-invalid`) if a property of the table has an invalid value. Nothing needs to be
    undone after an error.
    """

    async def run(self, table: TableName) -> JobReport:
        """Do the work that is due on `table`."""
        ...

    async def dry_run(self, table: TableName) -> JobReport:
        """Report the first step of `run`, without writing anything."""
        ...


@dataclass(slots=True)
class WorkerCounters:
    """Counters since the process started.

    * `looks`: LIST requests for heads.
    * `outcomes`: (kind of maintenance, outcome) → jobs.
    * `objects_removed`, `bytes_removed`: kind of the objects → number.
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
