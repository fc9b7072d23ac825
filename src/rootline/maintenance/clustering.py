"""The order of entries inside leaves, so that a leaf's aggregates prune.

Owns: the sort key, and the cut into leaves of even size. Does not own: which entries are flushed (`flush_plan`).
Invariants: total and deterministic: the same entries give the same leaves, in whatever order they came.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from rootline.schemas.content_entry import Bound, ContentEntry, FieldStatistics
from rootline.schemas.table_definition import TableDefinition


def cluster(entries: Sequence[ContentEntry], definition: TableDefinition, spec_id: int) -> list[ContentEntry]:
    """Entries of one spec by partition values, then by lower bounds, then by age and location.

    The lower bounds are those of the default sort order's columns, else of the columns that the spec derives from.
    """
    order = sort_ids(definition, spec_id)

    def key(entry: ContentEntry) -> tuple[Any, ...]:
        stats = entry.content_stats
        bounds = tuple(_rank(stats.get(tracked_id)) for tracked_id in order)
        offset = None if entry.deletion_vector is None else entry.deletion_vector.offset
        return (*bounds, entry.version_info.file_sequence_number or 0, entry.location, offset or 0)

    return sorted(entries, key=key)


def sort_ids(definition: TableDefinition, spec_id: int) -> tuple[int, ...]:
    """Ids by whose lower bounds entries of one spec are sorted, the most significant first."""
    spec = definition.spec_by_id(spec_id)
    columns = _sort_columns(definition) or tuple(definition.transform_of(expr_id)[0] for expr_id in spec.expr_ids)
    return (*spec.expr_ids, *(column for column in columns if column not in spec.expr_ids))


def cut(entries: Sequence[ContentEntry], entries_max: int) -> list[Sequence[ContentEntry]]:
    """Runs of at most `entries_max` entries, of even size: no small last one that is due for compaction at once."""
    pieces = -(-len(entries) // entries_max)
    ends = [len(entries) * piece // pieces for piece in range(pieces + 1)]
    return [entries[start:end] for start, end in pairwise(ends)]


def _sort_columns(definition: TableDefinition) -> tuple[int, ...]:
    for order in definition.sort_orders:
        if order.order_id == definition.default_sort_order_id:
            return tuple(field.source_id for field in order.fields)
    return ()


def _rank(statistics: FieldStatistics | None) -> tuple[int, Bound]:
    # values of one column compare with each other; null, NaN and unknown do not, so they get ranks of their own
    if statistics is None:
        return (3, 0)
    bound = statistics.lower_bound
    if bound is None:
        return (0, 0)
    return (2, 0) if bound != bound else (1, bound)
