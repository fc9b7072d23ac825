"""The driver's side of a change of rows: what the tasks said becomes one intent.

Owns: joining the tasks' messages, vectors or removals, the intent. Does not own: running the job (`statements`),
publishing (`batch_commit`).
Invariants: one intent, made from one version; a vector holds the positions of the one that it replaces; a row that two
source rows change refuses the whole change; files that lose all their rows leave when no other file keeps any of its
own, and nothing else needs a vector.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pyroaring import BitMap64

from rootline.client.new_files import NewFiles, upload_all
from rootline.client.planned_change import planned_intent
from rootline.client.planned_files import FilePlan, seen_vector
from rootline.client.session import Session
from rootline.maintenance.plan import vectors_of_puffin
from rootline.schemas.bytes.vector_codec import VectorBlob, encode_puffin, puffin_name
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import TableName
from rootline.schemas.intent import AddedVector, Intent, IntentKind, Isolation
from rootline.spark.file_sink import FilesWritten
from rootline.spark.row_changes.change_tasks import TaskChanges
from rootline.storage.rows.row_deletes import DeletesOfScan
from rootline.storage.stored_objects import gather_bounded
from rootline.tree.scan.file_task import FileTask

_VECTORS_AT_ONCE: Final = 8


@dataclass(frozen=True, slots=True)
class Touched:
    """A file that loses rows: `deleted` before, `gone` now."""

    task: FileTask
    deleted: BitMap64
    gone: BitMap64

    @property
    def is_whole(self) -> bool:
        """Whether no row of it is left."""
        return len(self.deleted | self.gone) >= self.task.record_count


@dataclass(frozen=True, slots=True)
class JobResult:
    """What a job did: its files, and the rows that go, by file."""

    written: tuple[FilesWritten, ...]
    gone: Mapping[str, BitMap64]
    counts: tuple[int, int, int]

    @staticmethod
    def of(table: TableName, said: Sequence[TaskChanges]) -> JobResult:
        """The tasks' messages together.

        Raises:
            Invalid: `merge-ambiguous`, a row of the table was to be changed more than once.

        """
        gone: dict[str, BitMap64] = {}
        twice = sum(changes.ambiguous for changes in said)
        for changes in said:
            for location, body in changes.positions.items():
                more = BitMap64.deserialize(body)
                known = gone.get(location, BitMap64())
                twice += len(known) + len(more) - len(known | more)
                gone[location] = known | more
        if twice:
            raise Invalid(
                "merge-ambiguous",
                f"{table}: more than one row of the source matches a row of the table, {twice} time(s): leave one "
                "source row for each (group or deduplicate the source by the columns of the condition)",
            )
        deleted, updated, inserted = (sum(changes.counts[at] for changes in said) for at in range(3))
        return JobResult(tuple(changes.written for changes in said), gone, (deleted, updated, inserted))


async def touched_files(session: Session, plan: FilePlan, gone: Mapping[str, BitMap64]) -> list[Touched]:
    """The files of `plan` that lose rows, with the positions that are deleted in them already.

    Raises:
        Corrupt: an object is not what was written.

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
        by_position = replace(task.deletes, equality=())  # what they delete is in no vector
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
) -> Intent | None:
    """One intent of all changes, held against the plan's filter; `None`: there are none."""
    if vectors:
        kind = IntentKind.ROW_DELTA
    elif removed:
        kind = IntentKind.OVERWRITE
    elif new.files or new.leaves:
        kind = IntentKind.APPEND
    else:
        return None
    where = plan.pruning.bound.text if isolation is Isolation.SERIALIZABLE else None
    return planned_intent(
        session, plan, kind, {}, isolation=isolation, where=where, added=new, vectors=vectors, removed=removed
    )


async def stored_vectors(session: Session, table: TableName, files: Sequence[Touched]) -> tuple[AddedVector, ...]:
    """Vectors of the files, in one Puffin file, in the store."""
    blobs = [VectorBlob(file.task.location, file.deleted | file.gone) for file in files]
    puffin = await asyncio.to_thread(encode_puffin, blobs)
    location = puffin_name(f"data/{session.environment.fresh_id()}-deletes", puffin.body)
    await upload_all(session, table, [(location, puffin.body)])
    return vectors_of_puffin(location, puffin, blobs, [seen_vector(file.task) for file in files])
