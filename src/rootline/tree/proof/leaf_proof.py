"""The check of a leaf that a writer wrote, as far as it does not need the table's live set.

Owns: the rules for its entries and their statistics, evaluated on columns, and its aggregates and counts.
Does not own: the same rules for the statistics of one file (`file_proof`, `statistics_violations`), the shape of every
leaf (`leaf_columns`), checks against the live set (`leaf_rules`), the leaf's bytes and digests (`leaf_codec`).
Invariants:
* The check is pure, so it can run as soon as the leaf has been read. It has no loop over the entries of a data leaf.
* Statistics that pass here pass file by file (checked by `tests/tree/proof/test_leaf_proof.py`). The first fault names
  its entry.
* An entry that passes inherits its snapshot, sequence numbers and row ids.

Source: format page, "Leaf manifest", "Absent and null", "Partition values are statistics", and protocol page, section
2, "Validation".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from rootline.schemas.bytes.leaf import Leaf, LeafContent
from rootline.schemas.bytes.leaf_columns import one_chunk
from rootline.schemas.bytes.leaf_schema import CONTENT_STATS, COUNT_FIELDS, arrow_type_of_bound, physical_column
from rootline.schemas.content_entry import CROSSED_BOUNDS, GREATER_MEAN, MORE_NULLS, ContentType, Status
from rootline.schemas.entry_rules import NUMBERS, ManifestKind, entry_violations
from rootline.schemas.errors import Corrupt, Invalid
from rootline.schemas.intent_rules import DEFAULT_LIMITS, PLAIN_PATTERN, check_location
from rootline.schemas.object_keys import RESERVED_PREFIXES
from rootline.schemas.table_definition import TableDefinition
from rootline.tree.proof.file_proof import (
    MORE_VALUES,
    NO_PARTITION_VALUE,
    UNEQUAL_BOUNDS,
    is_plausible,
    limits_of,
    why_implausible,
)
from rootline.tree.state.aggregates import LeafAggregates, aggregates_in, exact_sum, tally_in
from rootline.tree.state.totals import Tally

__all__ = ["Fault", "LeafProof", "first_fault", "first_true", "prove_leaf", "statistics_fault"]

_STATISTICS_INVALID: Final = "statistics-invalid"
_STATISTICS_MISSING: Final = "statistics-missing"
_WIDENED: Final = ((pa.int32(), pa.int64()), (pa.float32(), pa.float64()))
"""The types of bounds that a writer may use if it did not know yet that a column was promoted."""
_COUNTS: Final = tuple(name for name, _, kind in COUNT_FIELDS if not pa.types.is_boolean(kind))


class Fault(NamedTuple):
    """A broken rule: its error code, the first entry that breaks it (`None` for the whole leaf), and the message."""

    code: str
    ordinal: int | None
    reason: str


def first_true(mask: pa.Array) -> int | None:
    """The first index at which `mask` is true, or `None`."""
    if not pc.any(mask).as_py():
        return None
    found: int = pc.index(mask, pa.scalar(True)).as_py()
    return found


def first_fault(mask: pa.Array, code: str, reason: str) -> Iterator[Fault]:
    """The fault of the first entry where `mask` is true, if there is one."""
    ordinal = first_true(mask)
    if ordinal is not None:
        yield Fault(code, ordinal, reason)


def statistics_fault(
    statistics: pa.StructArray | None, record_counts: pa.Array, definition: TableDefinition, spec_ids: tuple[int, ...]
) -> Fault | None:
    """The first fault of a leaf's statistics, or `None`.

    Args:
        statistics: the column `content_stats`, in one chunk, or `None` if the leaf has none.
        record_counts: the row counts of the same entries.
        definition: the definition of the table, with the known ids and their types.
        spec_ids: the members of the leaf's partition spec.
    """
    columns: dict[int, pa.StructArray] = {}
    if statistics is not None:
        for field, column in zip(statistics.type, statistics.flatten(), strict=True):
            columns[int(field.name[1:])] = column
        if len(columns) != statistics.type.num_fields:
            return Fault(_STATISTICS_INVALID, None, "it has two columns of statistics for one id")
    for spec_id in spec_ids:
        if spec_id not in columns:
            return Fault(_STATISTICS_MISSING, 0, f"id {spec_id}: {NO_PARTITION_VALUE}")
    for tracked_id, column in columns.items():
        fault = next(_statistics_faults(tracked_id, column, record_counts, definition, tracked_id in spec_ids), None)
        if fault is not None:
            return fault
    return None


def _statistics_faults(
    tracked_id: int, column: pa.StructArray, record_counts: pa.Array, definition: TableDefinition, is_member: bool
) -> Iterator[Fault]:
    tracked = definition.tracked_by_id.get(tracked_id)
    if tracked is None:
        yield Fault(_STATISTICS_INVALID, None, f"it has statistics of id {tracked_id}, which the table does not have")
        return
    members: dict[str, pa.Array] = {
        field.name: child for field, child in zip(column.type, column.flatten(), strict=True)
    }
    expected = arrow_type_of_bound(tracked.type)
    found = members["lower_bound"].type if "lower_bound" in members else None
    if found != expected and (found, expected) not in _WIDENED and not _is_wider_decimal(found, expected):
        reason = f"bounds of id {tracked_id} are {found}, but the table's type {tracked.type} needs {expected}"
        yield Fault(_STATISTICS_INVALID, None, f"{reason}: load the table again and write the leaf with its types")
        return
    counts = {name: members[name] for name in _COUNTS}
    yield from _of_counts(tracked_id, counts, record_counts)
    if expected is not None:
        lower, upper = physical_column(members["lower_bound"]), physical_column(members["upper_bound"])
        if is_member:
            yield from _of_member(tracked_id, column, lower, upper)
        elif pa.types.is_floating(lower.type):
            is_nan = pc.or_kleene(pc.is_nan(lower), pc.is_nan(upper))
            yield from first_fault(is_nan, _STATISTICS_INVALID, f"id {tracked_id}: a bound is NaN")
        yield from first_fault(pc.greater(lower, upper), _STATISTICS_INVALID, f"id {tracked_id}: {CROSSED_BOUNDS}")


def _is_wider_decimal(found: pa.DataType | None, expected: pa.DataType | None) -> bool:
    if found is None or expected is None or not (pa.types.is_decimal128(found) and pa.types.is_decimal128(expected)):
        return False
    return bool(found.scale == expected.scale and found.precision < expected.precision)


def _of_counts(tracked_id: int, counts: Mapping[str, pa.Array], record_counts: pa.Array) -> Iterator[Fault]:
    for name, column in counts.items():
        if column.null_count < len(column) and pc.min(column).as_py() < 0:
            yield from first_fault(pc.less(column, 0), _STATISTICS_INVALID, f"id {tracked_id}: {name} is negative")
    values = counts["value_count"]
    yield from first_fault(pc.greater(values, record_counts), _STATISTICS_INVALID, f"id {tracked_id}: {MORE_VALUES}")
    nulls, nans = pc.fill_null(counts["null_value_count"], 0), pc.fill_null(counts["nan_value_count"], 0)
    more = pc.or_(pc.greater(nulls, values), pc.greater(nans, pc.subtract(values, nulls)))  # a sum might overflow
    yield from first_fault(more, _STATISTICS_INVALID, f"id {tracked_id}: {MORE_NULLS}")
    means, greatest = counts["avg_value_size_in_bytes"], counts["max_value_size_in_bytes"]
    yield from first_fault(pc.greater(means, greatest), _STATISTICS_INVALID, f"id {tracked_id}: {GREATER_MEAN}")


def _of_member(tracked_id: int, column: pa.StructArray, lower: pa.Array, upper: pa.Array) -> Iterator[Fault]:
    """The faults of partition values."""
    absent = pc.or_(column.is_null(), pc.and_(lower.is_null(), upper.is_valid()))
    yield from first_fault(absent, _STATISTICS_MISSING, f"id {tracked_id}: {NO_PARTITION_VALUE}")
    differ = pc.not_equal(lower, upper)
    if pa.types.is_floating(lower.type):
        differ = pc.and_not(differ, pc.and_(pc.is_nan(lower), pc.is_nan(upper)))
    yield from first_fault(differ, _STATISTICS_INVALID, f"id {tracked_id}: {UNEQUAL_BOUNDS}")


_INVALID: Final = "leaf-invalid"


@dataclass(frozen=True, slots=True)
class LeafProof:
    """The result of checking a leaf under `definition`, whose data files may be below `prefixes` too.

    * `fault`: the reason why the leaf cannot be added. The fields after it are empty then.
    * `aggregates`: the aggregated statistics and counts of all entries. The least sequence number is still to be
    inherited.
    * `rows`: the rows of all entries, for which row ids are assigned.
    * `file_faults`: the faults of stored data files, or `None` if the files were not verified.
    """

    definition: TableDefinition
    spec_id: int
    fault: Invalid | None
    aggregates: LeafAggregates | None = None
    tally: Tally | None = None
    rows: int = 0
    file_faults: tuple[Invalid, ...] | None = None
    prefixes: tuple[str, ...] = ()

    def is_under(self, definition: TableDefinition, prefixes: Sequence[str] = ()) -> bool:
        """Whether the leaf was checked under this definition and these prefixes, or would have the same result."""
        is_same = self.definition is definition or self.definition == definition
        return is_same and (self.prefixes == tuple(prefixes) or (self.fault is None and not self.prefixes))


def prove_leaf(leaf: Leaf, definition: TableDefinition, prefixes: Sequence[str] = ()) -> LeafProof:
    """Check `leaf`. A fault is part of the result and never raised.

    `prefixes`: absolute locations that end in a slash, below which its data files may be.
    """
    return replace(_proven(leaf, definition, prefixes), prefixes=tuple(prefixes))


def _proven(leaf: Leaf, definition: TableDefinition, prefixes: Sequence[str]) -> LeafProof:
    spec_id = -1
    try:
        table = leaf.columns(_COLUMNS).combine_chunks()
        spec_id = table.column("partition_spec_id")[0].as_py()
        spec_ids = definition.spec_by_id(spec_id).expr_ids
        fault = _first_fault(leaf, table, definition, spec_ids, prefixes)
        if fault is not None:
            return LeafProof(definition, spec_id, _invalid(leaf, fault))
        rows, tally = exact_sum(one_chunk(table.column("record_count"))), tally_in(table, leaf.content)
        return LeafProof(definition, spec_id, None, aggregates_in(table, spec_ids), tally, rows)
    except (Corrupt, Invalid) as error:
        code = error.code if isinstance(error, Invalid) else _INVALID
        message = error.message.removeprefix(f"{leaf.location}: ")
        return LeafProof(definition, spec_id, Invalid(code, f"leaf {leaf.location!r}: {message}"))


_COLUMNS: Final = [
    "content_type",
    "location",
    "file_format",
    "version_info",
    "deletion_vector",
    "partition_spec_id",
    "sort_order_id",
    "record_count",
    "file_size_in_bytes",
    "referenced_file",
    "split_offsets",
    "equality_ids",
    "first_row_id",
    CONTENT_STATS,
]


def _invalid(leaf: Leaf, fault: Fault) -> Invalid:
    if fault.ordinal is None:
        return Invalid(fault.code, f"leaf {leaf.location!r}: {fault.reason}")
    location = leaf.columns(["location"]).column(0)[fault.ordinal].as_py()
    return Invalid(fault.code, f"leaf {leaf.location!r}, entry {fault.ordinal} ({location[:80]!r}): {fault.reason}")


def _first_fault(
    leaf: Leaf, table: pa.Table, definition: TableDefinition, spec_ids: tuple[int, ...], prefixes: Sequence[str]
) -> Fault | None:
    columns = {name: one_chunk(table.column(name)) for name in table.column_names}
    faults = chain(
        _numbers(columns),
        _files(columns, definition),
        _locations(columns["location"], leaf.content, prefixes),
        _rows(columns, definition) if leaf.content is LeafContent.DATA else (),
        _deletes(leaf) if leaf.content is LeafContent.DELETE else (),
    )
    return next(faults, None) or statistics_fault(
        columns.get(CONTENT_STATS), columns["record_count"], definition, spec_ids
    )


def _numbers(columns: dict[str, pa.Array]) -> Iterator[Fault]:
    info = columns["version_info"]
    status = pc.struct_field(info, "status")
    yield from first_fault(
        pc.not_equal(status, int(Status.ADDED)),
        _INVALID,
        "its status is not ADDED: write every entry of a new leaf as ADDED",
    )
    for name in NUMBERS:
        yield from first_fault(
            pc.struct_field(info, name).is_valid(),
            _INVALID,
            f"it has a {name}, which only the commit assigns: write null",
        )
    yield from first_fault(
        columns["first_row_id"].is_valid(),
        _INVALID,
        "it has a first_row_id, which only the commit assigns: write null",
    )


def _files(columns: dict[str, pa.Array], definition: TableDefinition) -> Iterator[Fault]:
    orders = columns["sort_order_id"]
    if orders.null_count < len(orders):
        known = pa.array([0, *(order.order_id for order in definition.sort_orders)], orders.type)
        unknown = pc.and_not(orders.is_valid(), pc.is_in(orders, value_set=known))
        yield from first_fault(unknown, _INVALID, "the table has no sort order with its sort_order_id")
    offsets = columns["split_offsets"]
    if offsets.null_count < len(offsets):
        negative = first_true(pc.less(pc.list_flatten(offsets), 0))
        if negative is not None:
            owner = pc.list_parent_indices(offsets)[negative].as_py()
            yield Fault(_INVALID, owner, "split_offsets are negative")


def _rows(columns: dict[str, pa.Array], definition: TableDefinition) -> Iterator[Fault]:
    """Check the row counts. If the smallest file may have the greatest number of rows, every file is plausible.
    Otherwise each file is checked.
    """
    limits = limits_of(definition)
    counts, sizes = columns["record_count"], columns["file_size_in_bytes"]
    most, least = pc.max(counts).as_py() or 0, pc.min(sizes).as_py() or 0
    if sizes.null_count == 0 and is_plausible(most, least, limits):
        return
    for ordinal, (rows, size) in enumerate(zip(counts.to_pylist(), sizes.to_pylist(), strict=True)):
        if not is_plausible(rows, size or 0, limits):
            yield Fault("row-count-implausible", ordinal, why_implausible(rows, size or 0, limits))
            return


def _locations(locations: pa.StringArray, content: LeafContent, prefixes: Sequence[str]) -> Iterator[Fault]:
    for prefix in RESERVED_PREFIXES:
        reason = f"its location is in {prefix}, which is reserved for the table's own objects: use data/"
        yield from first_fault(pc.starts_with(locations, pattern=prefix), "location-invalid", reason)
    plain = pc.match_substring_regex(locations, pattern=PLAIN_PATTERN)
    plain = pc.and_(plain, pc.less_equal(pc.utf8_length(locations), DEFAULT_LIMITS.max_location_chars))
    for ordinal in pc.indices_nonzero(pc.invert(plain)).to_pylist():
        try:
            check_location(locations[ordinal].as_py(), prefixes=prefixes if content is LeafContent.DATA else ())
        except Invalid as error:
            yield Fault(error.code, ordinal, error.message)
            return
    if content is LeafContent.DATA and pc.count_distinct(locations).as_py() < len(locations):
        first: dict[str, int] = {}
        for ordinal, location in enumerate(locations.to_pylist()):
            if first.setdefault(location, ordinal) != ordinal:
                yield Fault("file-named-twice", ordinal, f"entry {first[location]} has this location already")
                return


def _deletes(leaf: Leaf) -> Iterator[Fault]:
    """Check deletes one by one. The loop adds little time, because each delete is later compared with its data file
    anyway.
    """
    seen: set[object] = set()
    targets: set[str | None] = set()
    for ordinal, entry in enumerate(leaf.entries()):
        for rule in entry_violations(entry, ManifestKind.LEAF):
            yield Fault(_INVALID, ordinal, rule)
            return
        is_vector = entry.content_type is ContentType.POSITION_DELETE
        if entry.place in seen or (is_vector and entry.referenced_file in targets):
            yield Fault("file-named-twice", ordinal, "this delete, or another of its data file, is in the leaf already")
            return
        seen.add(entry.place)
        if is_vector:
            targets.add(entry.referenced_file)
