"""The check of a leaf that a writer wrote, as far as it does not need the table's live set.

Owns: the rules for its entries, evaluated on columns, and its aggregates and counts.
Does not own: the rules for statistics (`leaf_statistics_rules`), the shape of every leaf (`leaf_columns`), checks
against the live set (`writer_leaves`), the leaf's bytes and digests (`leaf_codec`).
Invariants: The check is pure, so it can run as soon as the leaf has been read. It has no loop over the entries of a
data leaf. An entry that passes inherits its snapshot, sequence numbers and row ids.

Source: format page, "Leaf manifest" and protocol page, section 2, "Validation".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from rootline.schemas.bytes.leaf import Leaf, LeafContent
from rootline.schemas.bytes.leaf_columns import one_chunk
from rootline.schemas.bytes.leaf_schema import CONTENT_STATS
from rootline.schemas.content_entry import ContentType, Status
from rootline.schemas.entry_rules import NUMBERS, ManifestKind, entry_violations
from rootline.schemas.errors import Corrupt, Invalid
from rootline.schemas.intent_rules import DEFAULT_LIMITS, PLAIN_PATTERN, check_location
from rootline.schemas.object_keys import RESERVED_PREFIXES
from rootline.schemas.table_definition import TableDefinition
from rootline.tree.proof.leaf_statistics_rules import Fault, first_fault, first_true, statistics_fault
from rootline.tree.proof.row_limits import is_plausible, limits_of, why_implausible
from rootline.tree.state.aggregates import LeafAggregates, aggregates_in, exact_sum
from rootline.tree.state.leaf_tally import tally_of_leaf
from rootline.tree.state.totals import Tally

_INVALID: Final = "leaf-invalid"


@dataclass(frozen=True, slots=True)
class LeafProof:
    """The result of checking a leaf under `definition`.

    * `fault`: the reason why the leaf cannot be added. The fields after it are empty then.
    * `aggregates`: of all entries. The least sequence number is inherited.
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

    def is_under(self, definition: TableDefinition) -> bool:
        """Whether the leaf was checked under this definition."""
        return self.definition is definition or self.definition == definition


def prove_leaf(leaf: Leaf, definition: TableDefinition) -> LeafProof:
    """Check `leaf`. A fault is part of the result and never raised."""
    spec_id = -1
    try:
        table = leaf.columns(_COLUMNS if not leaf.tracked_ids else [*_COLUMNS, CONTENT_STATS]).combine_chunks()
        spec_id = table.column("partition_spec_id")[0].as_py()
        spec_ids = definition.spec_by_id(spec_id).expr_ids
        fault = _first_fault(leaf, table, definition, spec_ids)
        if fault is not None:
            return LeafProof(definition, spec_id, _invalid(leaf, fault))
        rows = exact_sum(one_chunk(table.column("record_count")))
        return LeafProof(definition, spec_id, None, aggregates_in(table, spec_ids), tally_of_leaf(leaf), rows)
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
]


def _invalid(leaf: Leaf, fault: Fault) -> Invalid:
    if fault.ordinal is None:
        return Invalid(fault.code, f"leaf {leaf.location!r}: {fault.reason}")
    location = leaf.columns(["location"]).column(0)[fault.ordinal].as_py()
    return Invalid(fault.code, f"leaf {leaf.location!r}, entry {fault.ordinal} ({location[:80]!r}): {fault.reason}")


def _first_fault(leaf: Leaf, table: pa.Table, definition: TableDefinition, spec_ids: tuple[int, ...]) -> Fault | None:
    columns = {name: one_chunk(table.column(name)) for name in table.column_names}
    faults = chain(
        _numbers(columns),
        _files(columns, definition),
        _locations(columns["location"], leaf.content),
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
    """Check the row counts.

    If the most rows would fit even the smallest file, every file is plausible. Otherwise each file is checked.
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


def _locations(locations: pa.StringArray, content: LeafContent) -> Iterator[Fault]:
    for prefix in RESERVED_PREFIXES:
        reason = f"its location is in {prefix}, which is reserved for the table's own objects: use data/"
        yield from first_fault(pc.starts_with(locations, pattern=prefix), "location-invalid", reason)
    plain = pc.match_substring_regex(locations, pattern=PLAIN_PATTERN)
    plain = pc.and_(plain, pc.less_equal(pc.utf8_length(locations), DEFAULT_LIMITS.max_location_chars))
    for ordinal in pc.indices_nonzero(pc.invert(plain)).to_pylist():
        try:
            check_location(locations[ordinal].as_py())
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
    """Check deletes one by one. The loop adds little, because each delete is later compared with its data file."""
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


__all__ = ["LeafProof", "prove_leaf"]
