"""A table is a dictionary of files, each with its deleted rows. Too simple to be wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from rootline.schemas.intent import IntentKind
from rootline.schemas.verdict import VerdictKind
from tests.tree.reference_conversions import check_conversion, convert
from tests.tree.reference_files import EqualityDelete, File
from tests.tree.reference_names import (
    begin,
    check_drop,
    check_name,
    check_purge,
    drop,
    is_of_this,
    purge,
    replace_all,
)
from tests.tree.reference_plan import FileName, Plan, PlannedVector
from tests.tree.reference_rules import Rejected, leaf_of
from tests.tree.reference_versions import change_tag, check_expiry, check_restore, check_tag, expire

Outcome = tuple[VerdictKind, str | None]
STALE = {IntentKind.FLUSH: "flush-stale", IntentKind.COMPACT_LEAVES: "compaction-stale"}


@dataclass
class ReferenceTable:
    files: dict[FileName, File] = field(default_factory=dict)
    equality: dict[FileName, EqualityDelete] = field(default_factory=dict)
    committed: dict[tuple[str, int], bytes | None] = field(default_factory=dict)
    """Of each pair, what its record said of its content."""
    rejected: dict[tuple[str, str], str] = field(default_factory=dict)
    number: int = 0
    next_row_id: int = 0
    restored_through: int = 0
    """When an earlier version was last restored, or the table replaced."""
    removed_at: int = 0
    """When rows last left, or came back because a delete left, that no live file or delete shows any more."""
    moment: int = 0  # names this version, while it is one
    tags: dict[str, int] = field(default_factory=dict)
    oldest: int = 0
    kept: frozenset[int] = frozenset()
    rewritten: dict[FileName, int] = field(default_factory=dict)
    """Files and deletes that a rewrite or a conversion replaced, and the number of the first one that did."""
    schemas: tuple[tuple[str, ...], ...] = ((),)
    """The columns that each has beside the first ones; `schema`: which is current."""
    schema: int = 0
    first_schema: int = 0
    """That counts: those before it are of what the table held before it was replaced."""
    made_by: str = ""
    """The `create` that made it; empty: of the table that the name had first."""
    drops: tuple[str, ...] = ()
    """The tables of the name that were dropped, by what made them."""
    is_dropped: bool = False
    is_purged: bool = False
    dropped_in: int = 0
    """The moment that the last drop ends in."""
    tombstones: frozenset[int] = frozenset()
    """The moments at which there was no table."""
    jobs: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Of each job the number and the id of the intent that moved it, the one that was idle longest first."""
    clients: tuple[int, ...] = ()
    """The snapshots of clients that were committed under the name."""

    @property
    def columns(self) -> tuple[str, ...]:
        return self.schemas[self.schema]

    def apply(self, plan: Plan, view: ReferenceTable) -> Outcome:
        """What becomes of `plan`, whose writer read `view`."""
        try:
            is_of_this_table = is_of_this(self, plan, view)
        except Rejected as error:
            return VerdictKind.REJECTED, error.code  # which is said of another table: nothing is remembered
        if plan.writer is not None:
            known = self.rejected.get((plan.writer, plan.intent_id)) if is_of_this_table else None
            if plan.client is not None:  # a request is refused in every form, also one for the next table of the name
                known = known or self.rejected.get((plan.writer, plan.intent_id.partition("/")[0]))
            if known is not None:
                return VerdictKind.REJECTED, known
        if is_of_this_table and plan.writer is not None and (plan.writer, plan.sequence) in self.committed:
            said = self.committed[plan.writer, plan.sequence]
            if said and plan.says and said != plan.says:
                self.rejected[plan.writer, plan.intent_id] = "sequence-reused"
                return VerdictKind.REJECTED, "sequence-reused"
            return VerdictKind.DUPLICATE, None
        try:
            if plan.refuses:
                raise Rejected("request-refused")
            self._check(plan, view)
            if self._repeats(plan):
                return VerdictKind.DUPLICATE, None
            self._check_jobs(plan, view)
        except Rejected as error:
            if plan.writer is not None:
                self.rejected[plan.writer, plan.intent_id] = error.code
            return VerdictKind.REJECTED, error.code
        self._change(plan, view)
        if plan.writer is not None:
            self.committed[plan.writer, plan.sequence] = plan.says
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

    def values(self) -> list[int]:
        """The values of all rows that no delete has reached."""
        return sorted(self.files[name].ids[position] for name, rows in self.rows().items() for position in rows)

    def _check(self, plan: Plan, view: ReferenceTable) -> None:
        check_name(self, plan, view)
        if plan.kind is IntentKind.CREATE:  # nothing that was here is of the new table
            return
        if plan.serializable is not None:
            self._check_isolation(plan.serializable, view.number)
        rules = RULES.get(plan.kind, KindRules())
        rules.first(self, plan, view)
        if plan.converts:
            return
        for name in plan.removes:
            if name not in self.files:
                raise Rejected("file-not-live")
            seen = view.files[name].vector if name in view.files else None
            if self.files[name].vector != seen:
                raise Rejected("stale-source")
        rules.of_removals(self, plan, view)
        for name in [name for name, _, _ in (*plan.adds, *plan.equality)]:
            if name in self.files or name in self.equality:
                raise Rejected("file-already-live")
        rules.of_files(self, plan, view)
        if plan.vectors_in_leaf:
            self._check_leaf_of_vectors(plan.vectors, view.number)
            self._check_updated(plan, view)
            return
        for vector in plan.vectors:
            self._check_target(plan, vector)
        self._check_updated(plan, view)
        for vector in plan.vectors:
            if self.files[vector.target].vector is None is not view.files[vector.target].vector:
                raise Rejected("row-conflict")
        for vector in plan.vectors:
            self._check_rows(plan, vector, view)
        rules.last(self, plan, view)

    def _repeats(self, plan: Plan) -> bool:
        """Whether all that it brings has been here, and is in other files since."""
        if plan.kind is IntentKind.CREATE:
            return False
        left = [self.rewritten.get(name) for name, _, _ in (*plan.adds, *plan.equality)]
        if any(number is not None and number <= self.restored_through for number in left):
            raise Rejected("file-removed")
        is_all = not (plan.removes or plan.vectors or plan.kind is IntentKind.REPLACE)
        if left and None not in left and is_all:
            return True
        if any(left):
            raise Rejected("file-removed")
        return False

    def _check_jobs(self, plan: Plan, view: ReferenceTable) -> None:
        if any(job in self.jobs and self.jobs[job][0] > view.number for job in plan.jobs):
            raise Rejected("progress-moved")

    def check_changes(self, _plan: Plan, view: ReferenceTable) -> None:
        if (self.schemas, self.schema, self.first_schema) != (view.schemas, view.schema, view.first_schema):
            raise Rejected("definition-changed")

    def alter(self, plan: Plan, _view: ReferenceTable) -> None:
        self._go_on_with(plan.columns)

    def _go_on_with(self, columns: tuple[str, ...]) -> None:
        """A schema of these columns that the table has is current again, if it counts."""
        if columns == self.columns:
            return
        if columns not in self.schemas[self.first_schema :]:
            self.schemas = (*self.schemas, columns)
        self.schema = self.schemas.index(columns, self.first_schema)

    def check_moves(self, plan: Plan, view: ReferenceTable) -> None:
        if not any(self._moving(plan, view)):
            raise Rejected(STALE[plan.kind])

    def _check_isolation(self, value: int, read: int) -> None:
        if max(self.restored_through, self.removed_at) > read:
            raise Rejected("isolation-conflict")
        for file in self.files.values():
            if max(file.number, file.rows_left) > read and min(file.ids) <= value <= max(file.ids):
                raise Rejected("isolation-conflict")
        if any(delete.number > read and delete.value == value for delete in self.equality.values()):
            raise Rejected("isolation-conflict")

    def check_sources(self, plan: Plan, view: ReferenceTable) -> None:
        """Files and vectors are the very ones that were read, and nothing was brought back since."""
        if self.restored_through > view.number:
            raise Rejected("stale-source")
        for name in plan.removes:
            if name not in self.files or max(self.files[name].came, self.files[name].vector_number) > view.number:
                raise Rejected("stale-source")

    def check_counts(self, plan: Plan, view: ReferenceTable) -> None:
        least = most = 0
        for file in (self.files[name] for name in plan.removes):
            rows = len(file.ids) - len(file.deleted)
            most += rows
            least += (
                0
                if any(delete.number <= view.number and self.near(delete, file) for delete in self.equality.values())
                else rows
            )
        if not least <= sum(len(ids) for _, _, ids in plan.adds) <= most:
            raise Rejected("row-count-mismatch")

    def near(self, delete: EqualityDelete, file: File) -> bool:
        is_within = min(file.ids) <= delete.value <= max(file.ids)
        return delete.number > file.number and delete.carrier in (None, file.carrier) and is_within

    def check_unseen_deletes(self, plan: Plan, view: ReferenceTable) -> None:
        for file in (self.files[name] for name in plan.removes):
            for delete in self.equality.values():
                if delete.came > view.number and self.near(delete, file):
                    raise Rejected("stale-source")

    def _check_target(self, plan: Plan, vector: PlannedVector) -> None:
        if vector.target not in self.files:
            raise Rejected("file-not-live")
        if self.files[vector.target].vector == plan.intent_id:
            raise Rejected("file-already-live")

    def _check_updated(self, plan: Plan, view: ReferenceTable) -> None:
        if not plan.adds:
            return
        for file in (self.files[vector.target] for vector in plan.vectors):
            if any(delete.came > view.number and self.near(delete, file) for delete in self.equality.values()):
                raise Rejected("row-conflict")

    def _check_leaf_of_vectors(self, vectors: Sequence[PlannedVector], read: int) -> None:
        """Nothing of a leaf is merged: file and vector must be those that the writer read."""
        for vector in vectors:
            if vector.target not in self.files:
                raise Rejected("file-not-live")
            file = self.files[vector.target]
            number = file.vector_number if file.vector is not None else 0
            if max(file.came, number, self.restored_through) > read:
                raise Rejected("row-conflict")

    def _check_rows(self, plan: Plan, vector: PlannedVector, view: ReferenceTable) -> None:
        file, before = self.files[vector.target], view.files[vector.target]
        if file.vector == before.vector:
            return
        if plan.adds and (vector.positions - before.deleted) & (file.deleted - before.deleted):
            raise Rejected("row-conflict")

    def _moving(self, plan: Plan, view: ReferenceTable) -> tuple[list[FileName], list[FileName], list[FileName]]:
        """The files, vectors (by their files) and equality deletes of maintenance that still are where they were."""
        places = (None, *plan.replaces)
        files = [
            name
            for name in plan.flushed_files
            if name in self.files and self.files[name].leaf in places and self.files[name].came == view.files[name].came
        ]
        vectors = [
            name
            for name in plan.flushed_vectors
            if name in self.files
            and self.files[name].vector is not None
            and self.files[name].vector == view.files[name].vector
            and self.files[name].vector_number == view.files[name].vector_number
            and self.files[name].vector_leaf in places
            and (not plan.affiliated or name in files)
        ]
        equality = [
            name
            for name in plan.flushed_equality
            if name in self.equality
            and self.equality[name].leaf in places
            and self.equality[name].came == view.equality[name].came
        ]
        return files, vectors, equality

    def _change(self, plan: Plan, view: ReferenceTable) -> None:
        self.number += 1
        RULES.get(plan.kind, KindRules()).change(self, plan, view)
        for job in plan.jobs:
            self.jobs.pop(job, None)
            self.jobs[job] = self.number, plan.intent_id
        if plan.client is not None:
            self.clients = (*self.clients, plan.client)

    def change_places(self, plan: Plan, view: ReferenceTable) -> None:
        files, vectors, equality = self._moving(plan, view)
        for name in files:
            self.files[name].leaf = leaf_of(plan.intent_id, "data", self.files[name].carrier)
        for name in vectors:
            self.files[name].vector_leaf = leaf_of(plan.intent_id, "vectors", self.files[name].carrier)
        for name in equality:
            self.equality[name].leaf = leaf_of(plan.intent_id, "equality", self.equality[name].carrier)

    def change_rewritten(self, plan: Plan, view: ReferenceTable) -> None:
        values, removed_at = self.values(), self.removed_at
        vectors = [self.files[name].rows_left for name in plan.removes if self.files[name].vector is not None]
        self.change_files(plan, view, view.number)
        for name in plan.removes:
            self.rewritten[name] = self.number  # again, after a restore between: the last time counts
        self.removed_at = max(removed_at, *vectors, 0)
        assert self.values() == values

    def change_files(self, plan: Plan, view: ReferenceTable, number: int | None = None) -> None:
        """`number`: how old the files are that come; `None`: new."""
        for name in plan.removes:
            del self.files[name]
            self.removed_at = self.number
        for vector in plan.vectors:
            file = self.files[vector.target]
            union = file.deleted | (vector.positions - view.files[vector.target].deleted)
            if file.vector == view.files[vector.target].vector or union != file.deleted:
                is_its_own = file.vector == view.files[vector.target].vector or union == vector.positions
                file.vector = plan.intent_id if is_its_own else f"{plan.intent_id}, merged"
                file.vector_number, file.converted = self.number, None
                file.vector_leaf = leaf_of(plan.intent_id, "deletes", file.carrier) if plan.vectors_in_leaf else None
                file.deleted = union
        for name, carrier, ids in plan.adds:
            leaf = leaf_of(plan.intent_id, "adds", carrier) if plan.adds_in_leaf else None
            age = self.number if number is None else number
            self.files[name] = File(ids, carrier, age, self.next_row_id, leaf=leaf, came=self.number)
            self.next_row_id += len(ids)
        for name, carrier_of_delete, value in plan.equality:
            self.equality[name] = EqualityDelete(value, carrier_of_delete, self.number)

    def restore(self, _plan: Plan, then: ReferenceTable) -> None:
        """The files and deletes of `then`, as old as they were; where they still are they stay where they are.

        A table that was dropped is there again, and that is all.
        """
        if self.is_dropped:
            self.is_dropped = False
            return
        self.restored_through = self.number
        files: dict[FileName, File] = {}
        for name, old in then.files.items():
            now = self.files.get(name)
            stays = now is not None and now.number == old.number
            leaf, came = (now.leaf, now.came) if now is not None and stays else (None, self.number)
            file = replace(old, deleted=set(old.deleted), leaf=leaf, came=came)
            if now is not None and stays and now.vector == old.vector:
                file.vector_leaf, file.vector_number = now.vector_leaf, now.vector_number
            elif file.vector is not None:
                file.vector_leaf, file.vector_number, file.converted = None, self.number, None
            files[name] = file
        equality: dict[FileName, EqualityDelete] = {}
        for name, delete in then.equality.items():
            known = self.equality.get(name)
            stays = known is not None and known.number == delete.number
            leaf, came = (known.leaf, known.came) if known is not None and stays else (None, self.number)
            equality[name] = replace(delete, leaf=leaf, came=came)
        self.files, self.equality = files, equality
        self._go_on_with(then.columns)
        assert self.rows() == then.rows()


Rule = Callable[[ReferenceTable, Plan, ReferenceTable], None]


def _nothing(_table: ReferenceTable, _plan: Plan, _view: ReferenceTable) -> None:
    pass


@dataclass(frozen=True)
class KindRules:
    """What one kind checks besides what all check, at which point, and what it changes."""

    change: Rule = ReferenceTable.change_files
    first: Rule = _nothing
    of_removals: Rule = _nothing
    of_files: Rule = _nothing
    last: Rule = _nothing


RULES = {
    IntentKind.OVERWRITE: KindRules(of_removals=ReferenceTable.check_unseen_deletes),
    IntentKind.REWRITE: KindRules(
        ReferenceTable.change_rewritten, first=ReferenceTable.check_sources, of_files=ReferenceTable.check_counts
    ),
    IntentKind.CONVERT_EQUALITY_DELETES: KindRules(convert, first=check_conversion),
    IntentKind.FLUSH: KindRules(ReferenceTable.change_places, last=ReferenceTable.check_moves),
    IntentKind.COMPACT_LEAVES: KindRules(ReferenceTable.change_places, last=ReferenceTable.check_moves),
    IntentKind.TAG: KindRules(change_tag, last=check_tag),
    IntentKind.RESTORE: KindRules(ReferenceTable.restore, first=check_restore),
    IntentKind.ALTER: KindRules(ReferenceTable.alter, first=ReferenceTable.check_changes),
    IntentKind.EXPIRE: KindRules(expire, first=check_expiry),
    IntentKind.REPLACE: KindRules(replace_all, first=ReferenceTable.check_changes),
    IntentKind.DROP: KindRules(drop, first=check_drop),
    IntentKind.PURGE: KindRules(purge, first=check_purge),
    IntentKind.CREATE: KindRules(begin),
}
"""A kind without a row adds, removes and deletes rows, and that is all."""
