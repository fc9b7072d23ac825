"""Files that lose rows in a change, with their old and new deleted positions, and the one intent of the change.

Owns: the positions that were deleted before, the vectors of the files and their form in the intent, the kind of the
intent, the number of files that one intent can remove. Does not own: the choice of rows (`row_changes`, `row_updates`,
Spark's job), new files and the bytes of leaves (`new_files`), the fields that all intents share (`planned_change`).
Invariants: a vector contains the positions of the vector that it replaces. An intent that adds vectors removes no file.
Vectors are listed in leaves only if the intent has no room for them, because a coordinator never merges a vector of a
leaf with others. No leaf lists removed files.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pyroaring import BitMap64

from rootline.client.matched_rows import seen_vector
from rootline.client.new_files import NewFiles, upload_all, write_vector_leaves
from rootline.client.planned_change import planned_intent
from rootline.client.planned_files import FilePlan
from rootline.client.session import Session
from rootline.maintenance.plan import vectors_of_puffin
from rootline.schemas.bytes.vector_codec import VectorBlob, encode_puffin, puffin_name
from rootline.schemas.content_entry import Status, VersionInfo
from rootline.schemas.errors import Invalid
from rootline.schemas.intent import AddedManifest, AddedVector, Intent, IntentKind, Isolation
from rootline.schemas.intent_rules import DEFAULT_LIMITS
from rootline.storage.rows.row_deletes import DeletesOfScan
from rootline.storage.stored_objects import gather_bounded
from rootline.tree.proof.file_proof import vector_entry
from rootline.tree.scan.file_task import FileTask

_VECTORS_AT_ONCE: Final = 8
NAMES_BYTES_MAX: Final = 400_000
"""The approximate maximum of an intent's vectors or removed files, in bytes. New files may take 500,000 bytes more."""
_NAME_BYTES: Final = 32
_ADDED_FILES_MAX: Final = 1_000
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


@dataclass(frozen=True, slots=True)
class Marks:
    """The vectors of a change, as its intent names them: one by one, or many of them in leaves."""

    vectors: tuple[AddedVector, ...] = ()
    leaves: tuple[AddedManifest, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.vectors or self.leaves)


_NO_MARKS: Final = Marks()


def are_removable(files: Sequence[Touched]) -> bool:
    """Whether all files lose all their rows, and one intent has room to remove them by name."""
    return all(file.is_whole for file in files) and removal_bytes(files) <= NAMES_BYTES_MAX


def removal_bytes(files: Sequence[Touched]) -> int:
    """The size of the names of removed files in an intent, about. A number of files over the limit counts as too
    many bytes.
    """
    if len(files) > DEFAULT_LIMITS.max_files - _ADDED_FILES_MAX:
        return DEFAULT_LIMITS.max_bytes
    seen = (seen_vector(file.task) for file in files)
    return sum(
        _NAME_BYTES + len(file.task.location) + (0 if vector is None else len(vector.location))
        for file, vector in zip(files, seen, strict=True)
    )


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
    marks: Marks = _NO_MARKS,
    removed: Sequence[FileTask] = (),
    summary: Mapping[str, str] = _NO_SUMMARY,
    conflicts: str | None = None,
) -> Intent | None:
    """One intent of all changes, or `None` if there are no changes.

    If it is serializable, it is checked against the filter `conflicts`, by default the plan's.
    """
    if marks:
        kind = IntentKind.ROW_DELTA
    elif removed:
        kind = IntentKind.OVERWRITE
    elif new.files or new.leaves:
        kind = IntentKind.APPEND
    else:
        return None
    where = (conflicts or plan.pruning.bound.text) if isolation is Isolation.SERIALIZABLE else None
    return planned_intent(
        session,
        plan,
        kind,
        summary,
        isolation=isolation,
        where=where,
        added=new,
        vectors=marks.vectors,
        vector_leaves=marks.leaves,
        removed=removed,
    )


async def stored_marks(session: Session, plan: FilePlan, files: Sequence[Touched]) -> Marks:
    """The vectors of the files, stored in one Puffin file. Many of them are also listed in leaves, which are stored
    before this returns.
    """
    blobs = [VectorBlob(file.task.location, file.deleted | file.gone) for file in files]
    puffin = await asyncio.to_thread(encode_puffin, blobs)
    location = puffin_name(f"data/{session.environment.fresh_id()}-deletes", puffin.body)
    await upload_all(session, plan.table, [(location, puffin.body)])
    vectors = vectors_of_puffin(location, puffin, blobs, [seen_vector(file.task) for file in files])
    if sum(map(_size_of, vectors)) <= NAMES_BYTES_MAX:
        return Marks(vectors)
    added = VersionInfo(Status.ADDED)
    entries = [
        vector_entry(plan.definition, vector, file.task.data, added)
        for vector, file in zip(vectors, files, strict=True)
    ]
    return Marks(leaves=await write_vector_leaves(session, plan.table, plan.definition, entries))


def _size_of(vector: AddedVector) -> int:
    replaced = 0 if vector.replaces_vector is None else len(vector.replaces_vector.location)
    return _NAME_BYTES + len(vector.location) + len(vector.referenced_file) + replaced
