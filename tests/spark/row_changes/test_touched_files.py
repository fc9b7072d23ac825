"""The files that lose rows, with what was deleted in them before."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyroaring import BitMap64

from rootline import Invalid
from rootline.client.lake import Lake
from rootline.client.marked_files import Touched, touched_files
from rootline.client.planned_files import plan_files
from rootline.client.session import Session
from rootline.schemas.identifiers import TableName
from rootline.tree.scan.scan_plan import DeletesFor
from tests.catalog.adopt.test_adopted_deletes import version_2
from tests.catalog.adopted_lake import NAME


def touched(lake: Lake, gone: dict[str, BitMap64]) -> dict[str, Touched]:
    async def operation(session: Session) -> list[Touched]:
        plan = await plan_files(session, TableName(NAME), deletes_for=DeletesFor.EVERY_ROW)
        known = {task.location.rpartition("/")[2]: task.location for task in plan.scan.tasks()}
        return await touched_files(session, plan, {known.get(name, name): rows for name, rows in gone.items()})

    return {file.task.location.rpartition("/")[2]: file for file in lake.holder.run(operation)}


def test_a_vector_is_made_of_what_position_deletes_and_vectors_delete_and_not_of_equality_deletes(
    lake: Lake, tmp_path: Path
) -> None:
    lake.adopt(version_2(tmp_path)[0], NAME)
    found = touched(lake, {"a.parquet": BitMap64([3]), "b.parquet": BitMap64([0])})
    assert {name: set(file.deleted) for name, file in found.items()} == {"a.parquet": {1, 2}, "b.parquet": {9}}
    rest = BitMap64(set(range(10)) - {9})
    assert [touched(lake, {"b.parquet": rows})["b.parquet"].is_whole for rows in (rest, rest - BitMap64([4]))] == [
        True,
        False,
    ]
    with pytest.raises(Invalid, match=r"'data/no.parquet', whose rows were read, is not part of version 0"):
        touched(lake, {"data/no.parquet": BitMap64([1])})
