"""A table is a dictionary of files, each with its deleted rows. Too simple to be wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rootline.schemas.intent import IntentKind
from rootline.schemas.verdict import VerdictKind

FileName = str
Outcome = tuple[VerdictKind, str | None]


@dataclass
class File:
    """A live data file. `vector` names its deletion vector: the intent that wrote it, or that it was merged for."""

    ids: tuple[int, ...]
    carrier: str
    number: int
    first_row_id: int
    deleted: set[int] = field(default_factory=set)
    vector: str | None = None
    vector_number: int = 0
    in_root: bool = True
    vector_in_root: bool = True


@dataclass
class EqualityDelete:
    """Deletes the rows whose id is `value` from older files of `carrier`; `None`: of every carrier."""

    value: int
    carrier: str | None
    number: int
    in_root: bool = True


@dataclass(frozen=True)
class PlannedVector:
    """All deleted positions of `target`, as a writer who read the view would write them."""

    target: FileName
    positions: frozenset[int]


@dataclass(frozen=True)
class Plan:
    """One intent without the names that differ from table to table (vectors, leaves, sequence numbers)."""

    intent_id: str
    kind: IntentKind
    writer: str | None = None
    sequence: int = 0
    adds: tuple[tuple[FileName, str, tuple[int, ...]], ...] = ()
    equality: tuple[tuple[FileName, str | None, int], ...] = ()
    removes: tuple[FileName, ...] = ()
    vectors: tuple[PlannedVector, ...] = ()
    serializable: int | None = None
    flushed_files: tuple[FileName, ...] = ()
    flushed_vectors: tuple[FileName, ...] = ()
    flushed_equality: tuple[FileName, ...] = ()
    affiliated: bool = False


class Rejected(Exception):
    def __init__(self, code: str) -> None:
        self.code = code


@dataclass
class ReferenceTable:
    files: dict[FileName, File] = field(default_factory=dict)
    equality: dict[FileName, EqualityDelete] = field(default_factory=dict)
    committed: set[tuple[str, int]] = field(default_factory=set)
    rejected: dict[tuple[str, str], str] = field(default_factory=dict)
    number: int = 0
    next_row_id: int = 0

    def apply(self, plan: Plan, view: ReferenceTable) -> Outcome:
        """What becomes of `plan`, whose writer read `view`."""
        if plan.writer is not None:
            known = self.rejected.get((plan.writer, plan.intent_id))
            if known is not None:
                return VerdictKind.REJECTED, known
            if (plan.writer, plan.sequence) in self.committed:
                return VerdictKind.DUPLICATE, None
        try:
            self._check(plan, view)
        except Rejected as error:
            if plan.writer is not None:
                self.rejected[plan.writer, plan.intent_id] = error.code
            return VerdictKind.REJECTED, error.code
        if plan.writer is not None:
            self.committed.add((plan.writer, plan.sequence))
        self._change(plan, view)
        return VerdictKind.COMMITTED, None

    def rows(self) -> dict[FileName, set[int]]:
        """Each live file's rows that no delete has reached."""
        return {
            name: {
                position
                for position, row in enumerate(file.ids)
                if position not in file.deleted
                and not any(
                    delete.value == row and delete.number > file.number and delete.carrier in (None, file.carrier)
                    for delete in self.equality.values()
                )
            }
            for name, file in self.files.items()
        }

    def _check(self, plan: Plan, view: ReferenceTable) -> None:
        if plan.serializable is not None:
            self._check_isolation(plan.serializable, view.number)
        for name in plan.removes:
            if name not in self.files:
                raise Rejected("file-not-live")
            seen = view.files[name].vector if name in view.files else None
            if self.files[name].vector != seen:
                raise Rejected("stale-source")
        if plan.kind is IntentKind.OVERWRITE:
            self._check_unseen_deletes(plan.removes, view.number)
        for name in [name for name, _, _ in (*plan.adds, *plan.equality)]:
            if name in self.files or name in self.equality:
                raise Rejected("file-already-live")
        for vector in plan.vectors:
            self._check_target(plan, vector)
        for vector in plan.vectors:
            if self.files[vector.target].vector is None is not view.files[vector.target].vector:
                raise Rejected("row-conflict")
        for vector in plan.vectors:
            self._check_rows(plan, vector, view)
        if plan.kind is IntentKind.FLUSH and not any(self._moving(plan, view)):
            raise Rejected("flush-stale")

    def _check_isolation(self, value: int, read: int) -> None:
        for file in self.files.values():
            if max(file.number, file.vector_number) > read and min(file.ids) <= value <= max(file.ids):
                raise Rejected("isolation-conflict")
        if any(delete.number > read and delete.value == value for delete in self.equality.values()):
            raise Rejected("isolation-conflict")

    def _check_unseen_deletes(self, removes: Sequence[FileName], read: int) -> None:
        for file in (self.files[name] for name in removes):
            for delete in self.equality.values():
                newer = delete.number > max(read, file.number)
                near = delete.carrier in (None, file.carrier) and min(file.ids) <= delete.value <= max(file.ids)
                if newer and near:
                    raise Rejected("stale-source")

    def _check_target(self, plan: Plan, vector: PlannedVector) -> None:
        if vector.target not in self.files:
            raise Rejected("file-not-live")
        if self.files[vector.target].vector == plan.intent_id:
            raise Rejected("file-already-live")

    def _check_rows(self, plan: Plan, vector: PlannedVector, view: ReferenceTable) -> None:
        file, before = self.files[vector.target], view.files[vector.target]
        if file.vector == before.vector:
            return
        if plan.adds and (vector.positions - before.deleted) & (file.deleted - before.deleted):
            raise Rejected("row-conflict")

    def _moving(self, plan: Plan, view: ReferenceTable) -> tuple[list[FileName], list[FileName], list[FileName]]:
        """The files, vectors (by their files) and equality deletes of a flush that still are where it found them."""
        files = [
            name
            for name in plan.flushed_files
            if name in self.files and self.files[name].in_root and self.files[name].number == view.files[name].number
        ]
        vectors = [
            name
            for name in plan.flushed_vectors
            if name in self.files
            and self.files[name].vector is not None
            and self.files[name].vector == view.files[name].vector
            and self.files[name].vector_in_root
            and (not plan.affiliated or name in files)
        ]
        equality = [
            name
            for name in plan.flushed_equality
            if name in self.equality
            and self.equality[name].in_root
            and self.equality[name].number == view.equality[name].number
        ]
        return files, vectors, equality

    def _change(self, plan: Plan, view: ReferenceTable) -> None:
        self.number += 1
        if plan.kind is IntentKind.FLUSH:
            files, vectors, equality = self._moving(plan, view)
            for name in files:
                self.files[name].in_root = False
            for name in vectors:
                self.files[name].vector_in_root = False
            for name in equality:
                self.equality[name].in_root = False
            return
        for name in plan.removes:
            del self.files[name]
        for vector in plan.vectors:
            file = self.files[vector.target]
            union = file.deleted | vector.positions
            if file.vector == view.files[vector.target].vector or union != file.deleted:
                is_its_own = file.vector == view.files[vector.target].vector or union == vector.positions
                file.vector = plan.intent_id if is_its_own else f"{plan.intent_id}, merged"
                file.vector_number, file.vector_in_root = self.number, True
                file.deleted = union
        for name, carrier, ids in plan.adds:
            self.files[name] = File(ids, carrier, self.number, self.next_row_id)
            self.next_row_id += len(ids)
        for name, carrier_of_delete, value in plan.equality:
            self.equality[name] = EqualityDelete(value, carrier_of_delete, self.number)
