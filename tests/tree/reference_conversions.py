"""Conversions of equality deletes: what the reference model makes of them, and drawing one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.tree.reference_plan import FileName, Plan, PlannedVector
from tests.tree.reference_rules import Rejected

if TYPE_CHECKING:
    from tests.tree.reference_model import ReferenceTable


def check_conversion(table: ReferenceTable, plan: Plan, view: ReferenceTable) -> None:
    if table.restored_through > view.number:
        raise Rejected("stale-source")
    listed = {*plan.clean, *(vector.target for vector in plan.vectors)}
    for name in plan.converts:
        if name not in table.equality or table.equality[name].came > view.number:
            raise Rejected("stale-source")
    for name in reached(table, plan.converts):
        if name not in listed or table.files[name].came > view.number:
            raise Rejected("stale-source")


def reached(table: ReferenceTable, converts: Sequence[FileName]) -> list[FileName]:
    deletes = [table.equality[name] for name in converts]
    return [name for name, file in table.files.items() if any(table.near(delete, file) for delete in deletes)]


def convert(table: ReferenceTable, plan: Plan, view: ReferenceTable) -> None:
    """No row changes, and nothing is remembered as removed."""
    values, newest = table.values(), max(table.equality[name].number for name in plan.converts)
    within = reached(table, plan.converts)
    for vector in plan.vectors:
        if vector.target not in within:
            continue
        file, before = table.files[vector.target], view.files[vector.target]
        union = file.deleted | (vector.positions - before.deleted)
        if file.vector != before.vector and union == file.deleted:
            continue
        is_its_own = file.vector == before.vector or union == vector.positions
        age = max(newest, file.rows_left if file.vector is not None else 0)
        file.vector = plan.intent_id if is_its_own else f"{plan.intent_id}, merged"
        file.vector_number, file.converted, file.vector_leaf = table.number, age, None
        file.deleted = union
    for name in plan.converts:
        del table.equality[name]
        table.rewritten.setdefault(name, table.number)
    assert table.values() == values


def conversion_of(picks: Sequence[int], flag: bool, view: ReferenceTable, plan: Plan) -> Plan | None:
    """Of one or two equality deletes; now and then a worker leaves a file out."""
    deletes = sorted(view.equality)
    if not deletes:
        return None
    chosen = tuple(dict.fromkeys(deletes[pick % len(deletes)] for pick in picks[: 1 + flag]))
    within = sorted(reached(view, chosen))[picks[5] == 0 :]
    vectors: list[PlannedVector] = []
    for name in within:
        file = view.files[name]
        gone = {
            position
            for position, row in enumerate(file.ids)
            for delete in (view.equality[one] for one in chosen)
            if delete.value == row and delete.number > file.number and delete.carrier in (None, file.carrier)
        }
        if gone - file.deleted:
            vectors.append(PlannedVector(name, frozenset(gone | file.deleted)))
    named = {vector.target for vector in vectors}
    clean = tuple(name for name in within if name not in named)
    return replace(plan, converts=chosen, vectors=tuple(vectors), clean=clean)
