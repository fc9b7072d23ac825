"""Tables with random vectors, equality deletes and position deletes, and the rows that a dictionary would keep.

Owns: making them. Does not own: what is asked of them (scans, converted deletes).
Invariants: the dictionary knows nothing of files' statistics, partitions' hashes or how deletes are stored.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from rootline.schemas.content_entry import ContentEntry
from rootline.schemas.table_definition import PartitionSpec
from tests.storage.stored_deletes import at, equality_delete, position_delete
from tests.storage.stored_tables import FLIGHTS, StoredTable, flights_definition

Row = dict[str, Any]
IDS = st.integers(0, 5) | st.none()
CARRIERS = st.sampled_from(["UA", "AA", None])
DELAYS = st.sampled_from([0.0, -0.0, 1.5, float("nan"), None])
ROWS = st.lists(st.fixed_dictionaries({"id": IDS, "carrier": CARRIERS, "delay": DELAYS}), min_size=1, max_size=6)
KEYS = {1: "id", 2: "carrier", 3: "delay"}
ADD = st.tuples(st.just("add"), ROWS, st.booleans())
EQUALITY = st.tuples(
    st.just("equality"), ROWS, st.lists(st.sampled_from([1, 2, 3]), min_size=1, max_size=3, unique=True), st.booleans()
)
POSITIONS = st.tuples(st.just("positions"), st.lists(st.integers(0, 40), min_size=1, max_size=6))
VECTORS = st.tuples(st.just("vector"), st.integers(0, 40), st.sets(st.integers(0, 5), min_size=1))


STEPS = st.lists(ADD | EQUALITY | POSITIONS | VECTORS, min_size=1, max_size=8)


@dataclass
class RandomTable:
    """What `random_table` made: the entries of its leaves and its root, the live rows by (file, position)."""

    table: StoredTable
    rows: dict[tuple[str, int], Row] = field(default_factory=dict)
    in_data_leaf: list[ContentEntry] = field(default_factory=list)
    in_delete_leaf: list[ContentEntry] = field(default_factory=list)
    in_root: list[ContentEntry] = field(default_factory=list)

    def commit(self) -> None:
        """Make it the table's next version."""
        self.table.entries = [*self.in_root]
        for entries, leaf in [(self.in_data_leaf, self.table.leaf), (self.in_delete_leaf, self.table.adopted_leaf)]:
            if entries:
                self.table.entries.append(leaf(entries))
        self.table.commit()


def random_table(steps: list[tuple[Any, ...]], is_partitioned: bool) -> RandomTable:
    """The table after `steps`, one sequence number each; not yet committed."""
    definition = flights_definition("carrier") if is_partitioned else flights_definition()
    table = StoredTable(replace(definition, partition_specs=(*definition.partition_specs, PartitionSpec(1))))
    rows: dict[tuple[str, int], Row] = {}  # (file, position) -> row
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
                or (like is not None and is_partitioned and not same(row["carrier"], entry_carrier(like)))
                or not any(all(same(row[name], other[name]) for name in columns) for other in deleted)
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
                if place not in chosen or (is_partitioned and not same(row["carrier"], carrier))
            }
        elif kind == "vector" and files:
            location = sorted(files)[step[0] % len(files)]
            positions = [position for position in step[1] if position < files[location].record_count]
            if positions and location not in vectors:
                vectors[location] = at(table.vector(files[location], positions), number)
                rows = {place: row for place, row in rows.items() if place not in {(location, p) for p in positions}}
    return RandomTable(table, rows, in_data_leaf, in_delete_leaf, [*in_root, *vectors.values()])


def same(one: object, other: object) -> bool:
    return one == other or (one is not None and one != one and other is not None and other != other)


def entry_carrier(entry: ContentEntry) -> object:
    return entry.content_stats[2].lower_bound
