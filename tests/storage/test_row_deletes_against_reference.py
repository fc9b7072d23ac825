"""Scans with random vectors, equality deletes and position deletes against a dictionary of rows."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rootline.schemas.content_entry import ContentEntry
from rootline.schemas.table_definition import PartitionSpec
from tests.storage.stored_deletes import at, equality_delete, parquet, position_delete
from tests.storage.stored_tables import FLIGHTS, StoredTable, flights_definition, replaced

IDS = st.integers(0, 5) | st.none()
CARRIERS = st.sampled_from(["UA", "AA", None])
DELAYS = st.sampled_from([0.0, -0.0, 1.5, float("nan"), None])
ROWS = st.lists(st.fixed_dictionaries({"id": IDS, "carrier": CARRIERS, "delay": DELAYS}), min_size=1, max_size=6)
KEYS = {1: "id", 2: "carrier", 3: "delay"}
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

ADD = st.tuples(st.just("add"), ROWS, st.booleans())
EQUALITY = st.tuples(
    st.just("equality"), ROWS, st.lists(st.sampled_from([1, 2, 3]), min_size=1, max_size=3, unique=True), st.booleans()
)
POSITIONS = st.tuples(st.just("positions"), st.lists(st.integers(0, 40), min_size=1, max_size=6))
VECTORS = st.tuples(st.just("vector"), st.integers(0, 40), st.sets(st.integers(0, 5), min_size=1))


def _same(one: object, other: object) -> bool:
    return one == other or (one is not None and one != one and other is not None and other != other)


@given(
    steps=st.lists(ADD | EQUALITY | POSITIONS | VECTORS, min_size=1, max_size=8),
    is_partitioned=st.booleans(),
    where=st.sampled_from(list(FILTERS)),
)
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_scan_yields_the_rows_that_a_dictionary_would_keep(
    steps: list[tuple],
    is_partitioned: bool,
    where: str | None,  # type: ignore[type-arg]
) -> None:
    definition = flights_definition("carrier") if is_partitioned else flights_definition()
    table = StoredTable(replace(definition, partition_specs=(*definition.partition_specs, PartitionSpec(1))))
    rows: dict[tuple[str, int], dict[str, object]] = {}  # (file, position) -> row
    files: dict[str, ContentEntry] = {}
    vectors: dict[str, ContentEntry] = {}
    in_data_leaf: list[ContentEntry] = []
    in_delete_leaf: list[ContentEntry] = []
    in_root: list[ContentEntry] = []
    for number, (kind, *step) in enumerate(steps, start=1):
        if kind == "add":
            for entry in table.write(pa.Table.from_pylist(step[0], FLIGHTS)):
                placed = at(entry, number)
                (in_data_leaf if step[1] else in_root).append(placed)
                files[entry.location] = placed
                mine = [r for r in step[0] if not is_partitioned or r["carrier"] == entry_carrier(entry)]
                rows |= {(entry.location, position): row for position, row in enumerate(mine)}
        elif kind == "equality":
            deleted, ids, is_global = step
            like = None if is_global or not files else next(iter(files.values()))
            columns = [KEYS[one] for one in ids]
            delete = equality_delete(
                table, pa.Table.from_pylist(deleted, FLIGHTS).select(columns), ids, number, partition_of=like, spec_id=1
            )
            in_root.append(delete)
            rows = {
                place: row
                for place, row in rows.items()
                if files[place[0]].version_info.sequence_number == number
                or (like is not None and is_partitioned and not _same(row["carrier"], entry_carrier(like)))
                or not any(all(_same(row[name], other[name]) for name in columns) for other in deleted)
            }
        elif kind == "positions" and rows:
            places = sorted(rows)
            like = files[places[step[0][0] % len(places)][0]]
            chosen = sorted({places[n % len(places)] for n in step[0]})
            newest = max(files[location].version_info.sequence_number or 0 for location, _ in chosen)
            in_delete_leaf.append(position_delete(table, chosen, like, newest))  # reaches files as old as itself
            carrier = entry_carrier(like)
            rows = {
                place: row
                for place, row in rows.items()
                if place not in chosen or (is_partitioned and not _same(row["carrier"], carrier))
            }
        elif kind == "vector" and files:
            location = sorted(files)[step[0] % len(files)]
            positions = [position for position in step[1] if position < files[location].record_count]
            if positions and location not in vectors:
                vectors[location] = table.vector(files[location], positions)
                rows = {place: row for place, row in rows.items() if place not in {(location, p) for p in positions}}
    table.entries = [*in_root, *vectors.values()]
    for entries, leaf in [(in_data_leaf, table.leaf), (in_delete_leaf, table.adopted_leaf)]:
        if entries:
            table.entries.append(leaf(entries))
    table.commit()
    found = table.scan(where, ["_file", "_pos", "id", "carrier", "delay"]).to_pylist()
    expected = {place: row for place, row in rows.items() if FILTERS[where](row)}
    assert {(row["_file"], row["_pos"]) for row in found} == set(expected)
    for row in found:
        assert all(_same(row[name], expected[row["_file"], row["_pos"]][name]) for name in KEYS.values())


def entry_carrier(entry: ContentEntry) -> object:
    return entry.content_stats[2].lower_bound


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
