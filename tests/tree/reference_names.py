"""What a name is: drops, purges, tables made again, and replaces, in the reference model.

Owns: what these do to the model, which intents are for another table or for what a table held before, drawing them.
Does not own: files and rows (`reference_model`), restores (`reference_versions`).
Invariants: a table is told by the intent that made it; the versions between two batches count as one moment, and a drop
is named by the moment that it ends in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from rootline.schemas.intent import IntentKind
from tests.tree.reference_plan import Plan
from tests.tree.reference_rules import Rejected

if TYPE_CHECKING:
    from tests.tree.reference_model import ReferenceTable

_OF_DROPPED = (IntentKind.DROP, IntentKind.PURGE, IntentKind.RESTORE, IntentKind.EXPIRE, IntentKind.CREATE)
_OF_FILES = (IntentKind.APPEND, IntentKind.REMOVE, IntentKind.OVERWRITE, IntentKind.ROW_DELTA, IntentKind.REWRITE)
_OF_ANY_SCHEMA = (
    IntentKind.REPLACE,
    IntentKind.CREATE,
    IntentKind.FLUSH,
    IntentKind.COMPACT_LEAVES,
    IntentKind.CONVERT_EQUALITY_DELETES,
    IntentKind.EXPIRE,
)


def is_of_this(table: ReferenceTable, plan: Plan, view: ReferenceTable) -> bool:
    """Whether what became of earlier intents says anything of this one: it does not of a `create` of another table."""
    if plan.kind is IntentKind.CREATE:
        return plan.intent_id == table.made_by
    if not plan.names_table:
        if table.drops:
            raise Rejected("table-uuid-missing")
        return True
    if view.made_by != table.made_by:
        raise Rejected("table-uuid-mismatch")
    return True


def check_name(table: ReferenceTable, plan: Plan, view: ReferenceTable) -> None:
    if plan.kind is IntentKind.CREATE:
        if not table.is_dropped:
            raise Rejected("table-exists")
        if plan.intent_id in table.drops:
            raise Rejected("table-dropped")
        return
    if table.is_dropped and plan.kind not in _OF_DROPPED:
        raise Rejected("table-dropped")
    if table.first_schema and plan.kind not in _OF_ANY_SCHEMA:
        if not plan.names_schema and (plan.adds or plan.equality or plan.vectors_in_leaf):
            raise Rejected("schema-id-missing")
        if plan.names_schema and view.schema < table.first_schema:
            raise Rejected("table-replaced")


def check_drop(table: ReferenceTable, _plan: Plan, _view: ReferenceTable) -> None:
    if table.is_dropped:
        raise Rejected("table-dropped")


def check_purge(table: ReferenceTable, _plan: Plan, _view: ReferenceTable) -> None:
    if table.is_purged:
        raise Rejected("table-dropped")


def drop(table: ReferenceTable, _plan: Plan, _view: ReferenceTable) -> None:
    table.is_dropped, table.dropped_in = True, table.moment + 1
    table.drops = (*table.drops, table.made_by)


def purge(table: ReferenceTable, plan: Plan, view: ReferenceTable) -> None:
    """Nothing of it is left, and nothing before can be read."""
    if not table.is_dropped:
        drop(table, plan, view)
    table.is_purged = True
    table.files, table.equality, table.tags = {}, {}, {}
    table.oldest, table.kept = table.moment + 1, frozenset()


def begin(table: ReferenceTable, plan: Plan, view: ReferenceTable) -> None:
    """Another table, which knows nothing of the one that was, and has the files that came with it."""
    table.made_by, table.is_dropped, table.is_purged = plan.intent_id, False, False
    table.files, table.equality, table.tags, table.rewritten = {}, {}, {}, {}
    table.committed, table.rejected, table.jobs = {}, {}, {}
    table.schemas, table.schema, table.first_schema = ((),), 0, 0
    table.restored_through = table.removed_at = 0
    table.oldest, table.kept = table.moment + 1, frozenset()
    table.change_files(plan, view)


def replace_all(table: ReferenceTable, plan: Plan, view: ReferenceTable) -> None:
    """All that is live leaves; the schema is new, even where it is equal to one that was."""
    table.files, table.equality = {}, {}
    table.restored_through = table.number
    table.first_schema = table.schema = len(table.schemas)
    table.schemas = (*table.schemas, plan.columns)
    table.change_files(plan, view)


def about_name(plan: Plan, picks: Sequence[int], flag: bool, view: ReferenceTable) -> Plan:
    """A plan of one of these kinds, and the kind that one plans who sees no table."""
    if view.is_dropped and not (plan.kind in _OF_FILES and flag) and plan.kind not in (*_NAMES, IntentKind.RESTORE):
        plan = replace(plan, kind=_INSTEAD[picks[0] % len(_INSTEAD)])
    if plan.kind in (*_NAMES, IntentKind.RESTORE):
        is_named = plan.names_table or plan.kind in (IntentKind.DROP, IntentKind.PURGE)
        return replace(plan, serializable=None, names_table=is_named)
    return plan


_NAMES = (IntentKind.DROP, IntentKind.PURGE, IntentKind.CREATE)
_INSTEAD = (IntentKind.RESTORE, IntentKind.RESTORE, IntentKind.CREATE, IntentKind.PURGE, IntentKind.CREATE)
