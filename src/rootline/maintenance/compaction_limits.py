"""The thresholds at which leaves are due to be rewritten, from a table's properties.

Owns: names and defaults of the `rootline.compact.*` table properties. Does not own: their bounds
(`rootline.schemas.table_properties`), what is chosen once a threshold is reached (`leaf_load`,
`vector_compaction_plan`).
Invariants: one compaction moves a bounded number of entries.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from rootline.maintenance.flush_limits import FlushLimits
from rootline.maintenance.property_values import switch, whole_number

ENTRIES_MAX: Final = 100_000
"""Live entries that one compaction reads and rewrites, unless a single leaf has more."""


@dataclass(frozen=True, slots=True)
class CompactionLimits:
    """`leaves`: so many small leaves of about one size, or delete leaves of one data leaf, are merged.

    `dead_percent`: a leaf with so many dead entries is rewritten. `leaf_entries`: as for a flush. `vector_bytes`,
    `root_vector_bytes`: manifest vectors move out of a root when one of them, or all together, are larger.
    `vector_files`: so many Puffin files with few vectors of data files are joined. `adopted`: data leaves in Avro are
    rewritten in columns.
    """

    leaves: int = 8
    dead_percent: int = 50
    leaf_entries: int = 50_000
    vector_bytes: int = 16_384
    root_vector_bytes: int = 524_288
    vector_files: int = 16
    adopted: bool = True

    @staticmethod
    def of_properties(properties: Mapping[str, str]) -> CompactionLimits:
        """The limits that a table's properties set, with defaults for the rest."""
        defaults = CompactionLimits()
        return CompactionLimits(
            leaves=max(2, whole_number(properties, "rootline.compact.leaves", defaults.leaves)),
            dead_percent=whole_number(properties, "rootline.compact.dead-percent", defaults.dead_percent),
            leaf_entries=FlushLimits.of_properties(properties).leaf_entries,
            vector_bytes=whole_number(properties, "rootline.compact.vector-bytes", defaults.vector_bytes),
            root_vector_bytes=whole_number(
                properties, "rootline.compact.root-vector-bytes", defaults.root_vector_bytes
            ),
            vector_files=max(2, whole_number(properties, "rootline.compact.vector-files", defaults.vector_files)),
            adopted=switch(properties, "rootline.compact.adopted", default=defaults.adopted),
        )

    @property
    def small(self) -> int:
        """Live entries up to which a leaf is small."""
        return self.leaf_entries // 2

    @property
    def now(self) -> CompactionLimits:
        """For a compaction by hand: everything that can become fewer leaves, leaves in columns or fewer Puffin files
        does, and no dead entry stays.
        """
        return replace(self, leaves=2, dead_percent=1, vector_files=2, adopted=True)
