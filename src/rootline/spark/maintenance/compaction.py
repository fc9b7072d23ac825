"""`rootline.spark.compact`: the data files of a table, written again by a Spark cluster.

Owns: what a caller asks for, and how many groups run side by side. Does not own: what becomes of each group
(`group_runs`), the Spark jobs of one (`group_jobs`).
Invariants: what is asked for is checked before a job starts; when this returns or raises, no job of it runs any more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from rootline.client import checks
from rootline.client.producer import DEFAULT_TIMEOUT_S
from rootline.schemas.errors import Invalid
from rootline.spark.connection import committing_lake
from rootline.spark.data_source import session_defaults
from rootline.spark.maintenance.group_jobs import ordered, packed
from rootline.spark.maintenance.group_runs import Asked, Compaction, Due, GroupRuns, Strategy
from rootline.spark.maintenance.group_tasks import FilesOfGroup, GroupWork
from rootline.spark.options import parse_options
from rootline.spark.worker_python import use_this_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
    """Write the data files of a table again, on the cluster: small ones together, without the rows that are deleted.

    No row changes, and no `_row_id`; no change feed shows it. Each group of files is a commit of its own. One that came
    too late, because a file of it was removed or rows of it were deleted meanwhile, is planned again; the others land.

    Args:
        spark: the session; what `rootline.spark.register` reads of its settings is read here too.
        name: `namespace.table`.
        strategy: `bin-pack`: small files, and those with deleted rows, in the table's own order; `sort`: all files,
            with rows in order within and across the new ones; `z-order`: the same, with several columns counting alike.
        where: only files that may match this filter.
        sort_by: what `sort` and `z-order` order by, as in `create_table`; `sort` takes the table's order without it.
        target_file_size_bytes: about how large a new file gets; without it, what the table's property
            `rootline.compact.data-target-bytes` says (128 MiB). A task holds the rows of one such file in memory.
        group_bytes: most bytes of files that are put in order together; 64 new files without it.
        groups_max: no more groups than so many.
        groups_at_once: so many run side by side; without it, as many as the cluster has cores, and 2 of ordered ones.
        tries: how often the files of a group are tried.
        only_due: `bin-pack` does what the table's properties `rootline.compact.…` call due, as workers do, and not two
            small files, or one deleted row in a hundred.
        timeout_s: how many seconds to wait for the verdict on each group.
        summary: text to text, kept in the snapshots.
        warehouse: instead of the session's `spark.rootline.warehouse`.
        log: instead of the session's `spark.rootline.log`.

    Raises:
        Invalid: `table-unknown`, `filter-invalid`, `definition-invalid`, `setting-invalid`; or a rejection that another
            plan does not mend. What came before it is committed.
        OutcomeUnknown: `verdict-timeout`, of one group; running it again is safe.

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
    with committing_lake(options) as lake:
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
    try:
        return max(1, int(spark.sparkContext.defaultParallelism))
    except (AttributeError, NotImplementedError):  # Spark Connect does not say
        return _CLUSTER_AT_ONCE


def _written(spark: SparkSession, work: GroupWork) -> FilesOfGroup:
    return packed(spark, work) if work.order is None else ordered(spark, work)


def _beginnings(spark: SparkSession, threads: int) -> Callable[[], None]:
    """What each of so many threads calls first, to have the job group, the pool and the tags of the caller's jobs.

    One for each thread: Spark writes into the properties that it is given.
    """
    from pyspark import inheritable_thread_target

    prepared = [inheritable_thread_target(spark)(_nothing) for _ in range(threads)]
    return lambda: prepared.pop()()


def _nothing() -> None:
    """Done for what comes with the call."""
