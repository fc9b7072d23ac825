"""Deleting rows by a filter: whole files are removed, of the others the rows' positions are marked in vectors.

Owns: the plan of a delete. Does not own: which rows match (`file_rows`), committing the plan (`planned_change`), Puffin
(`puffin_codec`), merging with vectors that came meanwhile (`rootline.tree`).
Invariants: one atomic intent: as soon as one file matches in part only, every file gets a vector, because one intent
cannot do both; a vector holds the positions of the one it replaces; all vectors of an intent share one Puffin file.

Source: protocol page, section 2, `row_delta` and `remove`.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from pyroaring import BitMap64

from rootline.client.change.planned_change import ChangeOptions, commit_planned, planned_intent
from rootline.client.read.file_plan import FilePlan, plan_files
from rootline.client.read.file_rows import Match, Matched, match_rows, matched_rows, seen_vector
from rootline.client.session.commit import Commit
from rootline.client.session.session import Session
from rootline.client.session.upload import upload_all
from rootline.client.session.writer_stamp import WriterStamp
from rootline.maintenance.plan import vectors_of_puffin
from rootline.schemas.bytes.vector_codec import VectorBlob, encode_puffin, puffin_name
from rootline.schemas.identifiers import TableName
from rootline.schemas.intent import AddedVector, Intent, IntentKind
from rootline.tree.scan.file_task import FileTask


async def delete_rows(
    session: Session, stamp: WriterStamp, table: TableName, where: str, options: ChangeOptions
) -> Commit | None:
    """Delete the rows that match `where`.

    Returns:
        The commit, with the number of rows; `None` when no row matched, and then nothing was published.

    Raises:
        Invalid: `filter-invalid`; or a rejection that a new plan does not mend, or did not in time.
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
    return commit and replace(commit, added_rows=0, deleted_rows=deleted_rows)


async def _intent(
    session: Session, plan: FilePlan, where: str, matched: list[tuple[FileTask, Matched]], options: ChangeOptions
) -> Intent:
    whole = all(match.extent is Match.WHOLE for _, match in matched)
    return planned_intent(
        session,
        plan,
        IntentKind.REMOVE if whole else IntentKind.ROW_DELTA,
        options.summary,
        isolation=options.isolation,
        where=where,
        removed=[task for task, _ in matched] if whole else (),
        vectors=() if whole else await _vectors(session, plan, matched),
    )


async def _vectors(
    session: Session, plan: FilePlan, matched: list[tuple[FileTask, Matched]]
) -> tuple[AddedVector, ...]:
    blobs = [VectorBlob(task.data.location, match.deleted | _positions(task, match)) for task, match in matched]
    puffin = await asyncio.to_thread(encode_puffin, blobs)
    location = puffin_name(f"data/{session.environment.fresh_id()}-deletes", puffin.body)
    await upload_all(session, plan.table, [(location, puffin.body)])
    return vectors_of_puffin(location, puffin, blobs, [seen_vector(task) for task, _ in matched])


def _positions(task: FileTask, match: Matched) -> BitMap64:
    if match.positions is not None:
        return match.positions
    return BitMap64(range(task.data.record_count))
