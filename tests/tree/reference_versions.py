"""Tags, expiry, and which versions can be restored, in the reference model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.tree.reference_plan import Plan
from tests.tree.reference_rules import Rejected

if TYPE_CHECKING:
    from tests.tree.reference_model import ReferenceTable


def check_tag(table: ReferenceTable, plan: Plan, view: ReferenceTable) -> None:
    wanted, now = None if plan.untags else view.moment, table.tags.get(plan.tags or "")
    if now not in (wanted, view.tags.get(plan.tags or "")):
        raise Rejected("tag-conflict")
    if wanted not in (None, now):
        _check_addressable(table, view.moment)


def change_tag(table: ReferenceTable, plan: Plan, view: ReferenceTable) -> None:
    table.tags.pop(plan.tags or "", None)
    if not plan.untags:
        table.tags[plan.tags or ""] = view.moment


def check_expiry(table: ReferenceTable, plan: Plan, view: ReferenceTable) -> None:
    if view.moment < table.oldest:
        raise Rejected("expiry-stale")
    for moment in plan.keeps:
        _check_addressable(table, moment)
    if any(moment < view.moment and moment not in plan.keeps for moment in table.tags.values()):
        raise Rejected("version-tagged")


def expire(table: ReferenceTable, plan: Plan, view: ReferenceTable) -> None:
    table.oldest, table.kept = view.moment, plan.keeps


def check_restore(table: ReferenceTable, _plan: Plan, view: ReferenceTable) -> None:
    """Of a version; or, by one who saw that the table was dropped, of the table."""
    if table.is_purged:
        raise Rejected("table-dropped")
    if table.is_dropped:
        if not view.is_dropped or view.dropped_in != table.dropped_in:
            raise Rejected("restore-impossible")
        return
    wanted = view.dropped_in if view.is_dropped else view.moment
    _check_addressable(table, wanted)
    if view.is_dropped:
        raise Rejected("restore-impossible")


def _check_addressable(table: ReferenceTable, moment: int) -> None:
    if moment < table.oldest and moment not in table.kept:
        raise Rejected("version-unknown")
