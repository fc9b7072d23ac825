"""Planned changes of a table's rows: delete by filter, overwrite, and compaction of data files.

Owns: the plan of each change: files to remove, positions to mark in delete vectors, files to rewrite, groups of files
to compact. Does not own: finding the rows that match (`matched_rows`), committing a plan (`planned_change`), vectors
(`marked_files`), the decision whether the change still fits (`rootline.tree`).
Invariants: a delete and an overwrite are one atomic intent each. If a delete matches only some rows of a file, every
file gets a vector, because one intent cannot add vectors and remove whole files. A new vector also contains the
positions of the vector that it replaces. A row that does not match keeps its `_row_id` and
`_last_updated_sequence_number`. A compaction changes no row and no row id. Each group of files is of one partition and
is one intent.

Source: protocol page, section 2, `row_delta`, `remove` and `overwrite`, format page, "Rewrites", decision 0034.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
from pyroaring import BitMap64

from rootline.client.data_file_writer import write_rewritten_files
from rootline.client.given_rows import GivenRows
from rootline.client.marked_files import Marks, Touched, are_removable, stored_marks
from rootline.client.matched_rows import Match, Matched, match_rows, matched_rows, surviving_rows
from rootline.client.merged_rows import MergePlan, StoredRows, planned
from rootline.client.new_files import (
    NewFiles,
    commit_intent,
    for_intent,
    nothing_appended,
    store_written,
    write_and_store_kept,
)
from rootline.client.planned_change import ChangeOptions, commit_planned, planned_intent
from rootline.client.planned_files import FilePlan, plan_files
from rootline.client.session import Commit, Session, WriterStamp
from rootline.maintenance.data_compaction_plan import filled, size_of
from rootline.schemas.identifiers import TableName
from rootline.schemas.intent import DataFile, Intent, IntentKind
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.rows.data_file_reader import RowsWanted
from rootline.storage.rows.scan_executor import scan_table
from rootline.tree.scan.delete_index import partition_tuple
from rootline.tree.scan.file_task import FileTask
from rootline.tree.scan.scan_plan import DeletesFor


async def delete_rows(
    session: Session, stamp: WriterStamp, table: TableName, where: str, options: ChangeOptions
) -> Commit:
    """Delete the rows that match `where`.

    Returns:
        The commit, with the number of rows, or the newest version if no row matched. Nothing was published then.

    Raises:
        Invalid: `filter-invalid`; or a rejection that a new plan cannot fix, or could not fix in time.
        OutcomeUnknown: `verdict-timeout`.
    """
    deleted_rows: int | None = None

    async def plan_intent() -> Intent | None:
        nonlocal deleted_rows
        plan = await plan_files(session, table, where)
        found = [(task, await match_rows(session, plan, task)) for task in plan.scan.tasks()]
        matched = [(task, match) for task, match in found if match.extent is not Match.NONE]
        deleted_rows = matched_rows(matched)
        return await _intent(session, plan, where, matched, options) if matched else None

    commit = await commit_planned(session, stamp, plan_intent, timeout_s=options.timeout_s)
    if commit is None:
        return await nothing_appended(session, table)
    return replace(commit, added_rows=0, deleted_rows=deleted_rows)


async def _intent(
    session: Session, plan: FilePlan, where: str, matched: list[tuple[FileTask, Matched]], options: ChangeOptions
) -> Intent:
    touched = [_touched(*pair) for pair in matched]
    is_removal = all(match.extent is Match.WHOLE for _, match in matched) and are_removable(touched)
    marks = Marks() if is_removal else await stored_marks(session, plan, touched)
    return planned_intent(
        session,
        plan,
        IntentKind.REMOVE if is_removal else IntentKind.ROW_DELTA,
        options.summary,
        isolation=options.isolation,
        where=where,
        removed=[task for task, _ in matched] if is_removal else (),
        vectors=marks.vectors,
        vector_leaves=marks.leaves,
    )


def _touched(task: FileTask, match: Matched) -> Touched:
    every = BitMap64(range(task.data.record_count)) if match.positions is None else match.positions
    return Touched(task, match.deleted, every)


EVERY_ROW: Final = "true"


@dataclass(frozen=True, slots=True)
class Removal:
    """The plan of a removal: files to remove, new files with the rows that stay, and the number of removed rows.

    `rows`: `None` if unknown.
    """

    removed: tuple[FileTask, ...]
    rewritten: tuple[DataFile, ...]
    rows: int | None = None


async def overwrite_rows(
    session: Session,
    stamp: WriterStamp,
    table: TableName,
    data: GivenRows,
    where: str | None,
    options: ChangeOptions,
    *,
    merge_schema: bool = False,
) -> Commit:
    """Replace the rows that match `where` by `data`. Without `where`, every row is replaced.

    `merge_schema`: columns of `data` that the table lacks are added in the same intent.

    Returns:
        The commit, or the newest version if there was nothing to remove and nothing to add.

    Raises:
        Invalid: `filter-invalid`, `rows-invalid`; or a rejection that a new plan cannot fix, or could not fix in time.
        OutcomeUnknown: `verdict-timeout`.
    """
    stored = StoredRows(session, table, data, options.target_bytes)
    deleted_rows: int | None = None

    async def plan_intent() -> Intent | None:
        nonlocal deleted_rows
        plan = await plan_files(session, table, where, deletes_for=DeletesFor.EVERY_ROW)
        merge = MergePlan(plan.definition)
        if merge_schema:
            merge = await planned(session, table, data, plan.root.header)
        added = await stored.files(merge.definition) if data.num_rows else []
        removal = await removal_of(session, plan, merge.definition, options.target_bytes)
        deleted_rows = removal.rows
        if not added and not removal.removed:
            return None
        return planned_intent(
            session,
            plan,
            IntentKind.OVERWRITE,
            options.summary,
            isolation=options.isolation,
            where=where or EVERY_ROW,
            added=await for_intent(session, table, merge.definition, [*added, *removal.rewritten]),
            removed=removal.removed,
            definition=merge.definition,
            changes=merge.changes,
        )

    commit = await commit_planned(session, stamp, plan_intent, timeout_s=options.timeout_s)
    if commit is None:
        return await nothing_appended(session, table)
    return replace(commit, added_rows=data.num_rows, deleted_rows=deleted_rows)


async def removal_of(session: Session, plan: FilePlan, definition: TableDefinition, target_bytes: int) -> Removal:
    """Plan the removal of rows that match the plan's filter. Store their files' other rows under `definition`."""
    found: list[tuple[FileTask, Matched]] = []
    rewritten: list[DataFile] = []
    for task in plan.scan.tasks():
        matched = await match_rows(session, plan, task)
        if matched.extent is Match.NONE:
            continue
        if matched.extent is Match.PART:
            kept = await surviving_rows(session, plan, task, matched)
            rewritten += await write_and_store_kept(session, plan.table, definition, kept, target_bytes)
        found.append((task, matched))
    return Removal(tuple(task for task, _ in found), tuple(rewritten), matched_rows(found))


@dataclass(frozen=True, slots=True)
class RewriteOptions:
    """Options of a rewrite. `target_bytes` is the size of new files, and the maximum size of the files in one group. A
    single file that is larger is its own group.
    """

    timeout_s: float
    target_bytes: int
    summary: Mapping[str, str]


async def rewrite_files(
    session: Session, stamp: WriterStamp, table: TableName, where: str | None, options: RewriteOptions
) -> tuple[Commit, ...]:
    """Rewrite the files that may match `where`, group by group. Without `where`, all files are rewritten.

    Returns:
        The commits, one for each group.

    Raises:
        Invalid: `filter-invalid`; or a rejection such as `stale-source`. The groups before it are committed.
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
    """Yield one intent for each group, with its new files in the store. All of them read the table at one version."""
    plan = await plan_files(session, table, where, deletes_for=DeletesFor.EVERY_ROW)
    for group in _groups(plan, options.target_bytes):
        whole = whole_tasks(group)
        added = await rewritten_files(session, plan.table, plan.definition, whole, options.target_bytes)
        yield planned_intent(
            session, plan, IntentKind.REWRITE, options.summary, added=NewFiles(tuple(added)), removed=group
        )


def _groups(plan: FilePlan, target_bytes: int) -> Iterator[Sequence[FileTask]]:
    """Yield groups of files of one partition that are worth rewriting, small files together."""
    partitions: dict[Hashable, list[FileTask]] = {}
    for task in plan.scan.tasks():
        values = partition_tuple(task.data, plan.definition)
        partitions.setdefault((task.data.partition_spec_id, values), []).append(task)
    for tasks in partitions.values():
        for group in filled(sorted(tasks, key=size_of), target_bytes):
            if len(group) > 1 or _is_delete_heavy(group[0], plan):
                yield group


def _is_delete_heavy(task: FileTask, plan: FilePlan) -> bool:
    """Whether a group of this one file is worth rewriting: some of its rows are deleted, or it has an older partition
    spec.
    """
    return bool(task.vectors or task.deletes) or task.data.partition_spec_id != plan.definition.default_spec_id


async def rewritten_files(
    session: Session,
    table: TableName,
    definition: TableDefinition,
    group: Iterable[FileTask],
    target_bytes: int,
) -> list[DataFile]:
    """Write the live rows of `group` into new files with their lineage, and store them. Nothing is published.

    Raises:
        Corrupt: a file is missing or damaged.
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
    """The tasks of a filtered plan, changed to read all live rows of their files."""
    return tuple(FileTask(task.data, task.vectors, deletes=task.deletes) for task in group)
