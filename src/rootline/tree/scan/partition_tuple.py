"""The partition tuple of a file, rebuilt from its spec and its statistics.

Owns: the tuple as a value that can be compared and hashed, and the test for an unpartitioned spec.
Does not own: computing partition values when writing (`rootline.schemas.bytes.transform_values`).
Invariants: Two files are in the same partition if and only if their specs are the same and their tuples are equal.
Null equals null, and NaN equals NaN. If the statistics lack a value, the whole tuple is `None`.

Source: format page, "Partition values are statistics" and the Single File Commits proposal, "How do we remove partition
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
"""The single object for every NaN. Tuples compare their members by identity first, so NaN equals NaN."""


def partition_tuple(entry: ContentEntry, definition: TableDefinition) -> PartitionTuple | None:
    """The partition values of a file, in the order of its spec, or `None` if the statistics lack one.

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
    """Whether `spec` has no members, or only `void` ones."""
    return all(_is_void(member, definition) for member in spec.expr_ids)


def _is_void(member: int, definition: TableDefinition) -> bool:
    return isinstance(definition.transform_of(member)[1], VoidTransform)
