"""Scans with random vectors, equality deletes and position deletes against a dictionary of rows."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.storage.random_deletes import KEYS, STEPS, random_table, same
from tests.storage.stored_deletes import at, equality_delete, parquet
from tests.storage.stored_tables import FLIGHTS, StoredTable, flights_definition, replaced
from tests.support.examples import examples

FILTERS = {
    None: lambda row: True,
    "id = 3": lambda row: row["id"] == 3,
    "id > 1 and carrier = 'UA'": lambda row: row["id"] is not None and row["id"] > 1 and row["carrier"] == "UA",
    "not (id = 3 or carrier = 'AA')": lambda row: (
        row["id"] is not None and row["id"] != 3 and row["carrier"] is not None and row["carrier"] != "AA"
    ),
    "(carrier = 'UA' and id >= 2) or delay is nan": lambda row: (
        (row["carrier"] == "UA" and row["id"] is not None and row["id"] >= 2) or row["delay"] != row["delay"]
    ),
    "carrier = 'AA' and id in (0, 4) and delay is not null": lambda row: (
        row["carrier"] == "AA" and row["id"] in (0, 4) and row["delay"] is not None
    ),
    "carrier is null or delay < 1": lambda row: (
        row["carrier"] is None or (row["delay"] is not None and row["delay"] < 1)
    ),
}


@given(steps=STEPS, is_partitioned=st.booleans(), where=st.sampled_from(list(FILTERS)))
@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
def test_a_scan_yields_the_rows_that_a_dictionary_would_keep(
    steps: list[tuple[Any, ...]], is_partitioned: bool, where: str | None
) -> None:
    made = random_table(steps, is_partitioned)
    made.commit()
    found = made.table.scan(where, ["_file", "_pos", "id", "carrier", "delay"]).to_pylist()
    expected = {place: row for place, row in made.rows.items() if FILTERS[where](row)}
    assert {(row["_file"], row["_pos"]) for row in found} == set(expected)
    for row in found:
        assert all(same(row[name], expected[row["_file"], row["_pos"]][name]) for name in KEYS.values())


def test_a_set_larger_than_a_batch_deletes_the_same_rows_across_batches_and_row_groups() -> None:
    table = StoredTable(flights_definition())
    count = 200_000
    rows = pa.table({"id": range(count), "carrier": ["UA"] * count, "delay": [0.0] * count}, FLIGHTS)
    body = parquet(rows, row_group_size=70_000)
    (small,) = table.write(rows.slice(0, 1))
    deleted = pa.table({"id": pa.array([*range(0, count, 2), None], pa.int64())})
    table.entries = [
        at(replaced(table, small, body, count), 1),
        equality_delete(table, deleted, [1], 2),
    ]
    table.commit()
    found = table.scan(columns=["_pos", "id"])
    assert found.column("id").to_pylist() == found.column("_pos").to_pylist() == list(range(1, count, 2))
    assert max(batch.num_rows for batch in found.to_batches()) <= 65_536
    assert table.scan("id > 199990", ["id"]).column("id").to_pylist() == [199991, 199993, 199995, 199997, 199999]
