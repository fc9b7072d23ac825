"""Leaves that a reader keeps are read by several plans at once, each on a thread of its own."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from rootline.schemas.content_entry import FieldStatistics
from rootline.schemas.identifiers import Version
from rootline.storage.metadata.root_reader import read_root
from rootline.storage.metadata.scan_loader import plan_scan
from rootline.tree.filter.pruning import PruningFilter
from tests.storage.stored_tables import TABLE, StoredTable, flights, flights_definition

FILES = 20_000  # two row groups


def test_one_leaf_answers_many_threads_as_it_answers_one() -> None:
    table = StoredTable(flights_definition())
    (file,) = table.write(flights(1))
    entries = [
        replace(file, location=f"data/{n}.parquet", content_stats={1: FieldStatistics(n, n + 1, True, 1, 0)})
        for n in range(FILES)
    ]
    table.entries = [table.leaf(entries)]
    table.commit()
    root = asyncio.run(read_root(table.store, TABLE, Version(0)))

    def planned(number: int) -> list[tuple[str, object]]:
        first = number * 2_000 % FILES
        pruning = PruningFilter.of(f"id > {first} and id <= {first + 5}", table.definition)
        found = asyncio.run(plan_scan(table.store, root, table.definition, pruning, cache=table.cache))
        return [(task.location, task.data.content_stats[1].lower_bound) for task in found.tasks()]

    alone = [planned(number) for number in range(20)]
    with ThreadPoolExecutor(8) as threads:
        together = list(threads.map(planned, range(20)))
    assert together == alone
    assert alone[0] == [(f"data/{n}.parquet", n) for n in range(6)]
