"""Data compaction: the rows of a table's files, written again into fewer or larger ones.

Owns: which files go together, reading them with their deletes applied, and the intent of each group. Does not own:
whether it still holds when it is decided (`rootline.tree.intents.rewrite`), when to do it.
Invariants: no row changes, and no row id; the files of a group are of one partition; each group is an intent of its
own, so one that lost a race takes no other along; a group whose files are as they should be is left alone.

Source: format page, "Rewrites"; decision 0034.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from rootline.client.change.planned_change import planned_intent
from rootline.client.read.file_plan import FilePlan, plan_files
from rootline.client.session.commit import Commit
from rootline.client.session.session import Session
from rootline.client.session.writer_stamp import WriterStamp
from rootline.client.write.append_files import commit_intent, store_written
from rootline.client.write.data_file_writer import write_rewritten_files
from rootline.client.write.new_files import NewFiles
from rootline.maintenance.data_compaction_plan import filled, size_of
from rootline.schemas.identifiers import TableName
from rootline.schemas.intent import DataFile, Intent, IntentKind
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.rows.data_file_reader import RowsWanted
from rootline.storage.rows.scan_executor import scan_table
from rootline.tree.scan.file_task import FileTask
from rootline.tree.scan.partition_tuple import partition_tuple
from rootline.tree.scan.scan_plan import DeletesFor


@dataclass(frozen=True, slots=True)
class RewriteOptions:
    """`target_bytes`: size of the files to write, and the most that is read at once, save for a larger single file."""

    timeout_s: float
    target_bytes: int
    summary: Mapping[str, str]


async def rewrite_files(
    session: Session, stamp: WriterStamp, table: TableName, where: str | None, options: RewriteOptions
) -> tuple[Commit, ...]:
    """Rewrite the files that may match `where` (all without one), group by group.

    Returns:
        The commits, one for each group.

    Raises:
        Invalid: `filter-invalid`; or a rejection such as `stale-source`: the groups before it are committed.
        OutcomeUnknown: `verdict-timeout`.

    """
    commits: list[Commit] = []
    async for intent in rewrite_intents(session, table, where, options):
        commit = await commit_intent(session, stamp, intent, timeout_s=options.timeout_s)
        commits.append(replace(commit, added_rows=0, deleted_rows=0))
    return tuple(commits)


async def rewrite_intents(
    session: Session, table: TableName, where: str | None, options: RewriteOptions
) -> AsyncIterator[Intent]:
    """One intent for each group, its new files in the store; all of them read the table at one version."""
    plan = await plan_files(session, table, where, deletes_for=DeletesFor.EVERY_ROW)
    for group in _groups(plan, options.target_bytes):
        whole = whole_tasks(group)
        added = await rewritten_files(session, plan.table, plan.definition, whole, options.target_bytes)
        yield planned_intent(
            session, plan, IntentKind.REWRITE, options.summary, added=NewFiles(tuple(added)), removed=group
        )


def _groups(plan: FilePlan, target_bytes: int) -> Iterator[Sequence[FileTask]]:
    """Files of one partition, small ones together, that are worth writing again."""
    partitions: dict[Hashable, list[FileTask]] = {}
    for task in plan.scan.tasks():
        values = partition_tuple(task.data, plan.definition)
        partitions.setdefault((task.data.partition_spec_id, values), []).append(task)
    for tasks in partitions.values():
        for group in filled(sorted(tasks, key=size_of), target_bytes):
            if len(group) > 1 or _is_worn(group[0], plan):
                yield group


def _is_worn(task: FileTask, plan: FilePlan) -> bool:
    """Whether a file by itself is worth it: rows of it are deleted, or it is of an older partition spec."""
    return bool(task.vectors or task.deletes) or task.data.partition_spec_id != plan.definition.default_spec_id


async def rewritten_files(
    session: Session,
    table: TableName,
    definition: TableDefinition,
    group: Iterable[FileTask],
    target_bytes: int,
) -> list[DataFile]:
    """The rows of `group` that live, in new files with their lineage, which the store holds; nothing is published.

    Raises:
        Corrupt: a file is missing, or not what was written.
        Invalid: `file-unreadable`, `rows-invalid`.
        Unavailable: `store-unavailable`.

    """
    rows: pa.Table = await scan_table(session.store, table, group, RowsWanted.to_rewrite(definition))
    return await store_written(
        session,
        table,
        lambda ids: write_rewritten_files(rows, definition, ids, target_file_size_bytes=target_bytes),
    )


def whole_tasks(group: Iterable[FileTask]) -> tuple[FileTask, ...]:
    """The tasks of a plan by filter, for all rows of their files that live."""
    return tuple(FileTask(task.data, task.vectors, deletes=task.deletes) for task in group)
