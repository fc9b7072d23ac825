"""What a worker says of the rows of random equality deletes, against the rows that a scan shows."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rootline.maintenance.conversion_plan import ConversionLimits, choose_deletes
from rootline.maintenance.data_compaction_plan import TableFiles
from rootline.schemas.content_entry import ContentEntry, ContentType
from rootline.schemas.identifiers import Version
from rootline.schemas.root_header import Totals
from rootline.storage.metadata.root_reader import read_root
from rootline.storage.metadata.table_loader import load_state
from rootline.workers.jobs.data_jobs import read_conversion
from tests.storage.random_deletes import STEPS, RandomTable, random_table
from tests.storage.stored_deletes import at
from tests.storage.stored_tables import TABLE
from tests.support.examples import examples

PLACE = ["_file", "_pos"]


def shown(made: RandomTable) -> set[tuple[str, int]]:
    return {(row["_file"], row["_pos"]) for row in made.table.scan(columns=PLACE).to_pylist()}


async def files_of(made: RandomTable) -> TableFiles:
    """The table as a worker loads it."""
    root = await read_root(made.table.store, TABLE, Version(made.table.version))
    deletes = sum(row.entry.content_type is ContentType.EQUALITY_DELETE for row in root.rows)
    counted = replace(root, header=replace(root.header, totals=Totals(equality_deletes=deletes)))
    kept = {
        row.entry.location: leaf
        for row in root.rows
        if (leaf := made.table.cache.leaf(TABLE, row.entry.location)) is not None
    }
    return TableFiles(await load_state(made.table.store, counted, known_leaves=kept))


def converted(made: RandomTable, at_most: int) -> int:
    """Carry one conversion out as the coordinator would; how many deletes are gone."""
    files = asyncio.run(files_of(made))
    chosen = choose_deletes(files, ConversionLimits(deletes=1), at_most)
    assert chosen.left == ()
    plan = asyncio.run(read_conversion(made.table.store, TABLE, files, chosen))
    listed = {*plan.clean, *plan.vectors}
    assert {task.location for task in files.reached(plan.deletes)} == listed
    gone = {delete.location for delete in plan.deletes}
    of_file = {entry.location: entry for entry in (*made.in_root, *made.in_data_leaf)}

    def stays(entry: ContentEntry) -> bool:
        return entry.location not in gone and entry.referenced_file not in plan.vectors

    made.in_root = [entry for entry in made.in_root if stays(entry)]
    for name, vector in plan.vectors.items():
        made.in_root.append(at(made.table.vector(of_file[name], list(vector.positions)), 1_000))
    made.commit()
    return len(gone)


@given(steps=STEPS, is_partitioned=st.booleans(), at_most=st.integers(1, 3))
@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
def test_vectors_say_what_equality_deletes_said_of_nulls_nan_several_columns_and_every_partition(
    steps: list[tuple[Any, ...]], is_partitioned: bool, at_most: int
) -> None:
    made = random_table(steps, is_partitioned)
    made.commit()
    deletes = sum(entry.content_type is ContentType.EQUALITY_DELETE for entry in made.in_root)
    assert shown(made) == set(made.rows)
    while deletes:
        deletes -= converted(made, at_most)
        assert shown(made) == set(made.rows)
