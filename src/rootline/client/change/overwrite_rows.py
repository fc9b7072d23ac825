"""Replacing rows: files that match whole are removed, files that match in part are rewritten without those rows.

Owns: the plan of an overwrite. Does not own: which rows match (`file_rows`), committing the plan (`planned_change`),
whether the change is possible (`rootline.tree`).
Invariants: one atomic intent; with `serializable` isolation no row that may match can slip in between; a row that does
not match keeps its `_row_id` and `_last_updated_sequence_number`.

Source: protocol page, section 2, `overwrite`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from rootline.client.change.merged_rows import MergePlan, StoredRows, planned
from rootline.client.change.planned_change import ChangeOptions, commit_planned, planned_intent
from rootline.client.read.file_plan import FilePlan, plan_files
from rootline.client.read.file_rows import Match, Matched, match_rows, matched_rows, surviving_rows
from rootline.client.session.commit import Commit
from rootline.client.session.session import Session
from rootline.client.session.writer_stamp import WriterStamp
from rootline.client.write.append_files import write_and_store_kept
from rootline.client.write.given_rows import GivenRows
from rootline.client.write.new_files import for_intent
from rootline.schemas.identifiers import TableName
from rootline.schemas.intent import DataFile, Intent, IntentKind
from rootline.schemas.table_definition import TableDefinition
from rootline.tree.scan.file_task import FileTask
from rootline.tree.scan.scan_plan import DeletesFor

EVERY_ROW: Final = "true"


@dataclass(frozen=True, slots=True)
class Removal:
    """Files to remove, the new files with the rows that remain of them, and the number of removed rows.

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
) -> Commit | None:
    """Replace the rows that match `where` (every row without one) by `data`.

    `merge_schema`: columns of `data` that the table lacks come in the same intent.

    Returns:
        The commit; `None` when there was nothing to remove and nothing to add.

    Raises:
        Invalid: `filter-invalid`, `rows-invalid`; or a rejection that a new plan does not mend, or did not in time.
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
    return commit and replace(commit, added_rows=data.num_rows, deleted_rows=deleted_rows)


async def removal_of(session: Session, plan: FilePlan, definition: TableDefinition, target_bytes: int) -> Removal:
    """What the plan's filter takes out, and what is left of it, written under `definition`."""
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
