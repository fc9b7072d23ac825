"""The partition tuple of a file, rebuilt from its spec and its statistics.

Owns: the tuple as a value that can be compared and hashed, and what counts as unpartitioned. Does not own: computing
partition values when writing (`rootline.schemas.bytes.transform_values`).
Invariants: two files are in one partition exactly if their specs are the same and their tuples are equal; null equals
null and NaN equals NaN; a value that the statistics lack makes the whole tuple `None`, never a guess.

Source: format page, "Partition values are statistics"; the Single File Commits proposal, "How do we remove partition
tuple".
"""

from __future__ import annotations

import math
from typing import Final

from pyiceberg.transforms import VoidTransform

from rootline.schemas.content_entry import Bound, ContentEntry
from rootline.schemas.table_definition import PartitionSpec, TableDefinition

PartitionTuple = tuple[Bound | None, ...]
_NAN: Final = math.nan
"""One object for every NaN: tuples compare their members by identity first."""


def partition_tuple(entry: ContentEntry, definition: TableDefinition) -> PartitionTuple | None:
    """The values of the entry's own spec, in the spec's order; `None` when a statistic of a member is absent.

    Raises:
        Invalid: `spec-unknown`.

    """
    found: list[Bound | None] = []
    for member in definition.spec_by_id(entry.partition_spec_id).expr_ids:
        if _is_void(member, definition):
            found.append(None)
            continue
        known = entry.content_stats.get(member)
        if known is None or (known.lower_bound is None and known.upper_bound is not None):
            return None
        value = known.lower_bound
        found.append(_NAN if value != value else value)
    return tuple(found)


def is_unpartitioned(spec: PartitionSpec, definition: TableDefinition) -> bool:
    """Whether files of `spec` are in no partition: it has no members, or `void` ones only."""
    return all(_is_void(member, definition) for member in spec.expr_ids)


def _is_void(member: int, definition: TableDefinition) -> bool:
    return isinstance(definition.transform_of(member)[1], VoidTransform)
