"""Files that lose rows in a change, with their old and new deleted positions, and the one intent of the change.

Owns: the positions that were deleted before, the vectors of the files, the kind of the intent. Does not own: the choice
of rows (`row_changes`, `row_updates`, Spark's job), new files (`new_files`), the fields that all intents share
(`planned_change`).
Invariants: a vector contains the positions of the vector that it replaces. An intent that adds vectors removes no file.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pyroaring import BitMap64

from rootline.client.matched_rows import seen_vector
from rootline.client.new_files import NewFiles, upload_all
from rootline.client.planned_change import planned_intent
from rootline.client.planned_files import FilePlan
from rootline.client.session import Session
from rootline.maintenance.plan import vectors_of_puffin
from rootline.schemas.bytes.vector_codec import VectorBlob, encode_puffin, puffin_name
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import TableName
from rootline.schemas.intent import AddedVector, Intent, IntentKind, Isolation
from rootline.storage.rows.row_deletes import DeletesOfScan
from rootline.storage.stored_objects import gather_bounded
from rootline.tree.scan.file_task import FileTask

_VECTORS_AT_ONCE: Final = 8
_NO_SUMMARY: Final[Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True)
class Touched:
    """A file that loses rows, with the positions that were `deleted` before, and those deleted now (`gone`)."""

    task: FileTask
    deleted: BitMap64
    gone: BitMap64

    @property
    def is_whole(self) -> bool:
        """Whether the file loses all its remaining rows."""
        return len(self.deleted | self.gone) >= self.task.record_count


async def touched_files(session: Session, plan: FilePlan, gone: Mapping[str, BitMap64]) -> list[Touched]:
    """The files of `plan` that lose rows, with the positions that are already deleted.

    Raises:
        Corrupt: an object has other bytes than were written.
    """
    if not gone:
        return []
    tasks = [task for task in plan.scan.tasks() if task.location in gone]
    if len(tasks) != len(gone):
        missing = next(iter(set(gone) - {task.location for task in tasks}))
        raise Invalid(
            "file-not-live",
            f"{plan.table}: {missing!r}, whose rows were read, is not part of version {plan.root.header.version}: "
            "run the change again",
        )
    reading = DeletesOfScan(session.store, plan.table, plan.definition)

    async def touched(task: FileTask) -> Touched:
        by_position = replace(task.deletes, equality=())  # rows that equality deletes delete are in no vector
        deletes = await reading.of_task(FileTask(task.data, task.vectors, deletes=by_position))
        return Touched(task, deletes.positions or BitMap64(), gone[task.location])

    try:
        return await gather_bounded(tasks, touched, _VECTORS_AT_ONCE)
    finally:
        await reading.close()


def change_intent(
    session: Session,
    plan: FilePlan,
    isolation: Isolation,
    new: NewFiles,
    vectors: tuple[AddedVector, ...] = (),
    removed: Sequence[FileTask] = (),
    summary: Mapping[str, str] = _NO_SUMMARY,
    conflicts: str | None = None,
) -> Intent | None:
    """One intent of all changes, or `None` if there are no changes.

    If it is serializable, it is checked against the filter `conflicts`, by default the plan's.
    """
    if vectors:
        kind = IntentKind.ROW_DELTA
    elif removed:
        kind = IntentKind.OVERWRITE
    elif new.files or new.leaves:
        kind = IntentKind.APPEND
    else:
        return None
    where = (conflicts or plan.pruning.bound.text) if isolation is Isolation.SERIALIZABLE else None
    return planned_intent(
        session, plan, kind, summary, isolation=isolation, where=where, added=new, vectors=vectors, removed=removed
    )


async def stored_vectors(session: Session, table: TableName, files: Sequence[Touched]) -> tuple[AddedVector, ...]:
    """The vectors of the files, stored in one Puffin file."""
    blobs = [VectorBlob(file.task.location, file.deleted | file.gone) for file in files]
    puffin = await asyncio.to_thread(encode_puffin, blobs)
    location = puffin_name(f"data/{session.environment.fresh_id()}-deletes", puffin.body)
    await upload_all(session, table, [(location, puffin.body)])
    return vectors_of_puffin(location, puffin, blobs, [seen_vector(file.task) for file in files])
