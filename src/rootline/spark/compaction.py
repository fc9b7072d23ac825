"""`rootline.spark.compact`: rewrites the data files of a table on a Spark cluster, in groups.

Owns: the caller's request, the number of concurrent groups, one intent for each group, groups that were too late, the
counts. Does not own: the choice of groups (`rootline.maintenance.data_compaction_plan`), writing a group's rows
(`rewrite_jobs`), the check that an intent still fits (`rootline.tree`).
Invariants: the request is checked before a job starts. When this returns or raises, none of its jobs runs any more. No
row changes, and no row id. A refused group stops no other, is replanned from the live files, and only a few times.
After any other failure, committed groups stay committed.

Source: docs/spark.md, "Compaction".
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Final

from rootline.client import checks
from rootline.client.checks import DEFAULT_TIMEOUT_S
from rootline.client.lake import Lake
from rootline.client.matched_rows import seen_vector
from rootline.client.new_files import NewFiles, commit_intent
from rootline.client.planned_change import planned_intent
from rootline.client.planned_files import FilePlan, plan_files
from rootline.client.row_changes import whole_tasks
from rootline.client.session import Commit, Session
from rootline.library_log import library_logger
from rootline.maintenance.data_compaction_plan import (
    DataCompactionLimits,
    groups_to_order,
    groups_to_pack,
    size_of,
)
from rootline.schemas.errors import Invalid
from rootline.schemas.intent import IntentKind
from rootline.spark.connection import committing_lake
from rootline.spark.daemon import classic_context, use_this_python
from rootline.spark.data_source import described_jobs, session_defaults
from rootline.spark.options import SourceOptions, parse_options
from rootline.spark.rewrite_jobs import Curve, FilesOfGroup, GroupWork, RowOrder, ordered, packed
from rootline.storage.replanning import is_fixed_by_replan
from rootline.tree.scan.file_task import FileTask
from rootline.tree.scan.scan_plan import DeletesFor

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDERED_TARGET_MAX: Final = 1 << 30
"""Bytes of a new file with rows from several tasks, because the serialized rows of all of them are in one column."""
_ORDERED_TARGETS: Final = 64
_log = library_logger("rootline.spark")
Group = tuple[FileTask, ...]


class Due(StrEnum):
    """The files to pack: all that are small or have deleted rows, or those that a worker would find due."""

    ALL = "all"
    AS_WORKERS = "as workers"


class Strategy(StrEnum):
    """The way in which files are rewritten."""

    BIN_PACK = "bin-pack"
    SORT = "sort"
    Z_ORDER = "z-order"


@dataclass(frozen=True, slots=True)
class Compaction:
    """The result of a compaction.

    `files_before`, `bytes_before`: of the replaced data files. `files_after`, `bytes_after`, `rows`: of the new ones.
    `groups`: the number of groups in the first plan. `refused`: the number of groups that were rejected, because
    their files changed meanwhile. `planned_again`: the number of groups that were made from rejected ones.
    `files_left`: the number of live files in rejected groups that were not retried, because they were rejected each
    time, or because a rewrite of what remains is not worthwhile.
    """

    strategy: Strategy
    groups: int = 0
    commits: tuple[Commit, ...] = ()
    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    rows: int = 0
    refused: int = 0
    planned_again: int = 0
    files_left: int = 0

    def _with(self, outcome: _Outcome) -> Compaction:
        more = replace(
            self,
            refused=self.refused + outcome.refused,
            planned_again=self.planned_again + (len(outcome.again) if outcome.refused else 0),
            files_left=self.files_left + outcome.left,
        )
        if outcome.landed is None:
            return more
        group, files = outcome.landed.group, outcome.landed.written.files
        return replace(
            more,
            commits=(*self.commits, outcome.landed.commit),
            files_before=self.files_before + len(group),
            files_after=self.files_after + len(files),
            bytes_before=self.bytes_before + sum(map(size_of, group)),
            bytes_after=self.bytes_after + sum(file.file_size_in_bytes for file in files),
            rows=self.rows + sum(file.record_count for file in files),
        )


@dataclass(frozen=True, slots=True)
class Asked:
    """The caller's arguments, checked. The order of rows is resolved once the definition is known."""

    strategy: Strategy
    where: str | None
    sort_by: tuple[str, ...] | None
    target_bytes: int | None
    group_bytes: int | None
    tries: int
    timeout_s: float
    summary: Mapping[str, str]
    due: Due = Due.ALL


@dataclass(frozen=True, slots=True)
class _Planned:
    """A planned group, and the number of its remaining tries."""

    plan: FilePlan
    group: Group
    tries: int


@dataclass(frozen=True, slots=True)
class _Landed:
    group: Group
    written: FilesOfGroup
    commit: Commit


@dataclass(frozen=True, slots=True)
class _Outcome:
    """The outcome of one try of a group. `again`: new groups of its files, to be tried.

    `left`: the number of its files that are not retried. `refused`: 1 if the group changed while it was written.
    """

    landed: _Landed | None = None
    again: tuple[_Planned, ...] = ()
    left: int = 0
    refused: int = 0


@dataclass(frozen=True, slots=True)
class GroupRuns:
    """One compaction. `write` writes the new files of a group. It is called from several threads concurrently."""

    lake: Lake
    options: SourceOptions
    asked: Asked
    write: Callable[[GroupWork], FilesOfGroup]

    def groups(self) -> list[_Planned]:
        """The groups of the newest version."""
        plan = self._plan()
        self._order(plan)  # raises for an invalid order even if there are no files
        return [_Planned(plan, group, self.asked.tries) for group in self._grouped(plan, plan.scan.tasks())]

    def _grouped(self, plan: FilePlan, tasks: Iterable[FileTask]) -> Iterable[Group]:
        limits = DataCompactionLimits.of_properties(plan.definition.properties)
        limits = limits.now if self.asked.due is Due.ALL else limits
        target = self._target(plan)
        if self.asked.strategy is Strategy.BIN_PACK:
            return groups_to_pack(tasks, plan.definition, replace(limits, target_bytes=target))
        return groups_to_order(tasks, plan.definition, self.asked.group_bytes or _ORDERED_TARGETS * target)

    def carried_out(
        self, groups: Sequence[_Planned], threads: int, begin_thread: Callable[[], None] = lambda: None
    ) -> Compaction:
        """Run all groups, and the groups made from refused ones, on this number of threads."""
        done, began_s = Compaction(self.asked.strategy, groups=len(groups)), time.monotonic()
        with ThreadPoolExecutor(threads, "rootline compaction", begin_thread) as pool:
            running: set[Future[_Outcome]] = {pool.submit(self._settled, group) for group in groups}
            try:
                while running:
                    ended, running = wait(running, return_when=FIRST_COMPLETED)
                    for outcome in [future.result() for future in ended]:
                        done = done._with(outcome)
                        _log.info(
                            "group of files compacted on Spark",
                            action="spark-group-compacted",
                            table=self.options.table,
                            committed=len(done.commits),
                            groups=done.groups,
                        )
                        running |= {pool.submit(self._settled, group) for group in outcome.again}
            finally:
                for future in running:
                    future.cancel()
        _log.info(
            "data files compacted on Spark",
            action="spark-compacted",
            table=self.options.table,
            strategy=self.asked.strategy.value,
            groups=done.groups,
            committed=len(done.commits),
            refused=done.refused,
            planned_again=done.planned_again,
            files_before=done.files_before,
            files_after=done.files_after,
            files_left=done.files_left,
            seconds=round(time.monotonic() - began_s, 3),
        )
        return done

    def _settled(self, of_old: _Planned) -> _Outcome:
        """The outcome of one group."""
        groups, left = self._as_it_is_now(of_old)
        if len(groups) != 1:
            return _Outcome(again=groups, left=left)
        tried = self._tried(groups[0])
        return replace(tried, left=tried.left + left)

    def _tried(self, planned: _Planned) -> _Outcome:
        try:
            written = self._written(planned)
        except Exception:
            refused = self._planned_again(planned)
            if refused is None:  # its files are unchanged, so the error has another cause
                raise
            return refused
        try:
            return _Outcome(_Landed(planned.group, written, self._committed(planned, written)))
        except Invalid as error:
            if not is_fixed_by_replan(error.code):
                raise
            plan = self._plan()  # replan, because a delete that the files' tasks lack would be undone
            return self._planned_again(planned) or self._tried_again(planned, plan, _live(plan, planned))

    def _written(self, planned: _Planned) -> FilesOfGroup:
        plan = planned.plan
        shares = (whole_tasks(planned.group),)
        order = self._order(plan)
        work = GroupWork(self.options, plan.definition.to_json(), shares, self._target(plan), order)
        return self.write(work)

    def _committed(self, planned: _Planned, written: FilesOfGroup) -> Commit:
        async def operation(session: Session) -> Commit:
            if written.oldest_ms is not None:  # a swept table checks the age of files, which only the executors know
                for file in written.files:
                    session.uploads.note(self.options.table, file.location, written.oldest_ms)
            added = NewFiles(written.files)
            kind, summary = IntentKind.REWRITE, self.asked.summary
            intent = planned_intent(session, planned.plan, kind, summary, added=added, removed=planned.group)
            return await commit_intent(session, self.lake.stamp, intent, timeout_s=self.asked.timeout_s)

        return self.lake.holder.run(operation)

    def _as_it_is_now(self, planned: _Planned) -> tuple[tuple[_Planned, ...], int]:
        """Plan the group for the newest version, because it may have waited for long.

        Returns the group (or several, if the table's properties changed), and the number of its live files that no
        longer need a rewrite.
        """
        plan = self._plan()
        if plan.root.header.version == planned.plan.root.header.version:
            return (planned,), 0
        live = _live(plan, planned)
        groups = tuple(replace(planned, plan=plan, group=group) for group in self._grouped(plan, live))
        return groups, len(live) - sum(len(of_new.group) for of_new in groups)

    def _planned_again(self, planned: _Planned) -> _Outcome | None:
        """Replan a group, with its changed and unchanged files in separate groups. `None`: no file has changed."""
        plan = self._plan()
        names = {task.location: seen_vector(task) for task in planned.group}
        live = _live(plan, planned)
        changed = tuple(task for task in live if seen_vector(task) != names[task.location])
        if not changed and len(live) == len(names):
            return None
        kept = tuple(task for task in live if seen_vector(task) == names[task.location])
        half = len(changed) // 2
        pieces = (kept, changed) if kept else (changed[:half], changed[half:])
        return self._tried_again(planned, plan, *pieces)

    def _tried_again(self, planned: _Planned, plan: FilePlan, *pieces: Group) -> _Outcome:
        tries, files = planned.tries - 1, sum(map(len, pieces))
        if tries < 1:
            return _Outcome(left=files, refused=1)
        groups = [group for piece in pieces for group in self._grouped(plan, piece)]
        again = tuple(_Planned(plan, group, tries) for group in groups)
        return _Outcome(again=again, left=files - sum(map(len, groups)), refused=1)

    def _plan(self) -> FilePlan:
        table, where = self.options.table, self.asked.where
        return self.lake.holder.run(lambda session: plan_files(session, table, where, deletes_for=DeletesFor.EVERY_ROW))

    def _target(self, plan: FilePlan) -> int:
        own = DataCompactionLimits.of_properties(plan.definition.properties).target_bytes
        target = self.asked.target_bytes or own
        return target if self.asked.strategy is Strategy.BIN_PACK else min(target, ORDERED_TARGET_MAX)

    def _order(self, plan: FilePlan) -> RowOrder | None:
        if self.asked.strategy is Strategy.BIN_PACK:
            return None
        curve = Curve.Z if self.asked.strategy is Strategy.Z_ORDER else Curve.LINEAR
        return RowOrder.of(self.asked.sort_by, curve, plan.definition)


def _live(plan: FilePlan, planned: _Planned) -> Group:
    """The files of a group that are still in a later plan."""
    names = {task.location for task in planned.group}
    return tuple(plan.scan.tasks_at(names))


TRIES: Final = 4
_ORDERED_AT_ONCE: Final = 2
_CLUSTER_AT_ONCE: Final = 4


def compact(
    spark: SparkSession,
    name: str,
    *,
    strategy: Strategy | str = Strategy.BIN_PACK,
    where: str | None = None,
    sort_by: Sequence[str] | None = None,
    target_file_size_bytes: int | None = None,
    group_bytes: int | None = None,
    groups_max: int | None = None,
    groups_at_once: int | None = None,
    tries: int = TRIES,
    only_due: bool = False,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    summary: Mapping[str, str] | None = None,
    warehouse: str | None = None,
    log: str | None = None,
) -> Compaction:
    """Rewrite the data files of a table on the cluster: small files are merged, and deleted rows are dropped.

    No row changes, and no `_row_id`. No change feed shows it. Each group of files is a separate commit. A group that
    was too late, because one of its files was removed or lost rows meanwhile, is replanned. The others commit.

    Args:
        spark: the session, with the same settings as for `rootline.spark.register`.
        name: `namespace.table`.
        strategy: `bin-pack`: small files, and those with deleted rows, in the table's own order. `sort`: all files,
            with rows in order within and across the new ones. `z-order`: the same, with all columns of equal weight.
        where: only files that may match this filter.
        sort_by: the terms of `sort` and `z-order`, as in `create_table`. The default of `sort` is the table's order.
        target_file_size_bytes: the approximate size of a new file. The default is the table's property
            `rootline.compact.data-target-bytes` (128 MiB). A task has the rows of one such file in memory.
        group_bytes: the most bytes of files that are sorted together. The default is 64 new files.
        groups_max: the largest number of groups to rewrite in this call.
        groups_at_once: the number of concurrent groups. The default is the number of the cluster's
            cores, and 2 for `sort` and `z-order`.
        tries: how often the files of a group are tried, if other commits change them meanwhile.
        only_due: `bin-pack` uses the thresholds of the table's properties `rootline.compact.…`, as workers do, instead
            of two small files, or one deleted row in a hundred.
        timeout_s: seconds to wait for the verdict on each group.
        summary: text to text, stored in the snapshots.
        warehouse: instead of the session's `spark.rootline.warehouse`.
        log: instead of the session's `spark.rootline.log`.

    Raises:
        Invalid: `table-unknown`, `filter-invalid`, `definition-invalid`, `setting-invalid`; or a rejection that another
            plan cannot avoid. Earlier groups stay committed.
        OutcomeUnknown: `verdict-timeout`, of one group. A repeated call is safe.

    """
    given = {"path": checks.text(name, "name"), "warehouse": warehouse, "log": log}
    options = parse_options({**session_defaults(spark), **{key: value for key, value in given.items() if value}})
    chosen = _strategy(strategy)
    asked = Asked(
        chosen,
        checks.filter_text(where),
        None if sort_by is None else checks.texts(sort_by, "sort_by"),
        checks.whole_or_none(target_file_size_bytes, "target_file_size_bytes", least=1),
        checks.whole_or_none(group_bytes, "group_bytes", least=1),
        checks.whole(tries, "tries", least=1),
        checks.seconds(timeout_s),
        checks.text_map(summary, "summary"),
        Due.AS_WORKERS if checks.truth(only_due, "only_due") else Due.ALL,
    )
    most = checks.whole_or_none(groups_max, "groups_max", least=1)
    at_once = checks.whole_or_none(groups_at_once, "groups_at_once", least=1)
    if asked.sort_by is not None and chosen is Strategy.BIN_PACK:
        raise Invalid("setting-invalid", "sort_by is for the strategies 'sort' and 'z-order': name one of them")
    use_this_python(spark)
    with committing_lake(options) as lake, described_jobs(spark, f"rootline: compact {options.table}"):
        runs = GroupRuns(lake, options, asked, partial(_written, spark))
        groups = runs.groups()[:most]
        threads = max(1, min(at_once or _side_by_side(spark, chosen), len(groups)))
        return runs.carried_out(groups, threads, _beginnings(spark, threads))


def _strategy(given: Strategy | str) -> Strategy:
    try:
        return Strategy(given)
    except ValueError as error:
        known = ", ".join(Strategy)
        raise Invalid("setting-invalid", f"strategy {given!r:.80}: write one of {known}") from error


def _side_by_side(spark: SparkSession, strategy: Strategy) -> int:
    if strategy is not Strategy.BIN_PACK:
        return _ORDERED_AT_ONCE
    context = classic_context(spark)
    return _CLUSTER_AT_ONCE if context is None else max(1, int(context.defaultParallelism))


def _written(spark: SparkSession, work: GroupWork) -> FilesOfGroup:
    return packed(spark, work) if work.order is None else ordered(spark, work)


def _beginnings(spark: SparkSession, threads: int) -> Callable[[], None]:
    """A function that each thread calls first, so that its jobs have the job group, pool and tags of the caller's.

    There is one set of properties for each thread, because Spark modifies them.
    """
    from pyspark import inheritable_thread_target

    prepared = [inheritable_thread_target(spark)(_nothing) for _ in range(threads)]
    return lambda: prepared.pop()()


def _nothing() -> None:
    """Do nothing. Only the side effects of `inheritable_thread_target` are needed."""
