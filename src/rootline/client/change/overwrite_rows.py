"""Replacing rows: files that match whole are removed, files that match in part are rewritten without those rows.

Owns: the plan of an overwrite, and planning it anew when somebody else was first. Does not own: which rows match
(`file_rows`), whether the change is possible (`rootline.tree`).
Invariants: one atomic intent; every removed file names the vector that was seen on it, so a concurrent delete is
never undone; with `serializable` isolation no row that may match can slip in between.

Source: protocol page, section 2, `overwrite`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from rootline.client.change.replan_policy import replan_delay_s
from rootline.client.read.file_plan import FilePlan, plan_files
from rootline.client.read.file_rows import Match, match_rows, seen_vector, surviving_rows
from rootline.client.session.commit import Commit
from rootline.client.session.session import Session
from rootline.client.session.writer_stamp import WriterStamp
from rootline.client.write.append_files import commit_intent, write_and_store
from rootline.client.write.new_files import NewFiles, for_intent
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import TableName
from rootline.schemas.intent import DataFile, Intent, IntentKind, Isolation, RemovedFile
from rootline.tree.scan.scan_plan import DeletesFor

EVERY_ROW: Final = "true"
LEAST_WAIT_S: Final = 1.0
"""A verdict is waited for at least so long, however much of the caller's time the planning took."""


@dataclass(frozen=True, slots=True)
class ChangeOptions:
    """What every change by filter takes. `target_bytes`: size of the data files that are written."""

    timeout_s: float
    isolation: Isolation
    target_bytes: int
    summary: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Removal:
    removed: tuple[RemovedFile, ...]
    rewritten: tuple[DataFile, ...]


async def overwrite_rows(
    session: Session,
    stamp: WriterStamp,
    table: TableName,
    data: pa.Table,
    where: str | None,
    options: ChangeOptions,
) -> Commit | None:
    """Replace the rows that match `where` (every row without one) by `data`.

    Returns:
        The commit; `None` when there was nothing to remove and nothing to add.

    Raises:
        Invalid: `filter-invalid`, `rows-invalid`; or a rejection that a new plan does not mend, or did not in time.
        OutcomeUnknown: `verdict-timeout`.

    """
    deadline_s = session.environment.monotonic_s() + options.timeout_s
    added: list[DataFile] | None = None
    replans = 0
    while True:
        plan = await plan_files(session, table, where, deletes_for=DeletesFor.EVERY_ROW)
        if added is None:  # written once: a rejected intent leaves its files unused, so the next one may name them
            added = []
            if data.num_rows:
                added = await write_and_store(session, table, plan.definition, data, target_bytes=options.target_bytes)
        removal = await _removal(session, plan, options)
        if not added and not removal.removed:
            return None
        new = await for_intent(session, table, plan.definition, [*added, *removal.rewritten])
        intent = _intent(session, plan, where, new, removal, options)
        rest_s = deadline_s - session.environment.monotonic_s()
        try:
            return await commit_intent(session, stamp, intent, timeout_s=max(rest_s, LEAST_WAIT_S))
        except Invalid as error:
            rest_s = deadline_s - session.environment.monotonic_s()
            delay_s = replan_delay_s(error, replans, session.environment.jitter(), rest_s)
            if delay_s is None:
                raise
            replans += 1
            await asyncio.sleep(delay_s)


async def _removal(session: Session, plan: FilePlan, options: ChangeOptions) -> _Removal:
    removed: list[RemovedFile] = []
    rewritten: list[DataFile] = []
    for task in plan.scan.tasks():
        matched = await match_rows(session, plan, task)
        if matched.extent is Match.NONE:
            continue
        if matched.extent is Match.PART:
            rest = await surviving_rows(session, plan, task, matched)
            rewritten += await write_and_store(
                session, plan.table, plan.definition, rest, target_bytes=options.target_bytes
            )
        removed.append(RemovedFile(location=task.data.location, vector=seen_vector(task)))
    return _Removal(tuple(removed), tuple(rewritten))


def _intent(
    session: Session,
    plan: FilePlan,
    where: str | None,
    new: NewFiles,
    removal: _Removal,
    options: ChangeOptions,
) -> Intent:
    return Intent(
        intent_id=session.environment.fresh_id(),
        table=plan.table,
        table_uuid=plan.definition.table_uuid,
        kind=IntentKind.OVERWRITE,
        schema_id=plan.definition.current_schema_id,
        read_version=plan.root.header.version,
        read_sequence_number=plan.sequence_number,
        isolation=options.isolation,
        filter=where or EVERY_ROW,
        add_data_files=new.files,
        add_manifests=new.leaves,
        remove_files=removal.removed,
        summary=dict(options.summary),
    )
