"""The thresholds at which the root's own rows are due to move to leaves, from a table's properties.

Owns: names and defaults of the `rootline.flush.*` table properties. Does not own: their bounds
(`rootline.schemas.table_properties`), what is chosen once a threshold is reached (`flush_plan`).
Invariants: a leaf fits 32-bit ordinals and stays under the limit that keeps its manifest vector at 8 KiB.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from rootline.maintenance.expiry_limits import EXPIRE
from rootline.maintenance.property_values import switch, whole_number


@dataclass(frozen=True, slots=True)
class FlushLimits:
    """Counts are rows in the root; bytes are encoded, before compression, of data files or of deletes.

    A flush is due when a number is *reached*. `leaf_entries` is how many entries a leaf should hold. `delete_leaves`:
    how many delete leaves a flush writes for single data leaves that are there already; vectors of further ones go to
    leaves that belong to none. From `hard_entries` rows on, or a root of `hard_bytes`, the coordinator itself flushes.
    `retained_bytes`: what the roots of one hour may take; while they would take more, a flush is due much earlier.
    `stays_small`: its old versions expire, so that it is worth while to keep the roots of its newest ones short.
    """

    data_files: int = 1_000
    vectors: int = 200
    bytes_max: int = 4_000_000
    vector_bytes_max: int = 1_000_000
    leaf_entries: int = 50_000
    delete_leaves: int = 16
    hard_entries: int = 5_000
    hard_bytes: int = 16_000_000
    retained_bytes: int = 4_000_000_000
    stays_small: bool = False

    @staticmethod
    def of_properties(properties: Mapping[str, str]) -> FlushLimits:
        """The limits that a table's properties set, with defaults for the rest."""
        defaults = FlushLimits()
        data_files = whole_number(properties, "rootline.flush.data-files", defaults.data_files)
        vectors = whole_number(properties, "rootline.flush.vectors", defaults.vectors)
        bytes_max = whole_number(properties, "rootline.flush.bytes", defaults.bytes_max)
        above = max(
            defaults.hard_entries, 4 * (data_files + vectors)
        )  # more than a worker leaves in a root when it keeps up
        above_bytes = max(defaults.hard_bytes, 4 * bytes_max)
        return FlushLimits(
            data_files=data_files,
            vectors=vectors,
            bytes_max=bytes_max,
            vector_bytes_max=whole_number(properties, "rootline.flush.vector-bytes", defaults.vector_bytes_max),
            leaf_entries=whole_number(properties, "rootline.flush.leaf-entries", defaults.leaf_entries),
            delete_leaves=whole_number(properties, "rootline.flush.delete-leaves", defaults.delete_leaves),
            retained_bytes=whole_number(properties, "rootline.flush.retained-bytes", defaults.retained_bytes),
            hard_entries=whole_number(properties, "rootline.flush.hard-entries", above),
            hard_bytes=whole_number(properties, "rootline.flush.hard-bytes", above_bytes),
            stays_small=switch(properties, EXPIRE, default=False),
        )

    def at_pace(self, root_bytes: int, commits_per_s: float) -> FlushLimits:
        """The limits of a table whose commits write roots of about `root_bytes`.

        Each commit writes a root, and roots are kept: ten of 1 MB a second are 36 GB an hour. Where that is more than
        `retained_bytes`, or commits of a table that stays small come faster than `FAST_PER_S`, few rows are enough for
        a flush, because every later root is shorter by them.
        """
        is_fast = self.stays_small and commits_per_s > FAST_PER_S
        if not is_fast and root_bytes * commits_per_s * 3_600 <= self.retained_bytes:
            return self
        return replace(self, data_files=min(self.data_files, FEW_FILES), vectors=min(self.vectors, FEW_VECTORS))


FAST_PER_S: Final = 1.0
FEW_FILES: Final = 100
FEW_VECTORS: Final = 20
"""With fewer rows a flush is not worth a leaf, however fast commits are."""
FLUSH_NOW: Final = FlushLimits(data_files=1, vectors=1)
"""For a flush by hand: everything that can move to leaves does."""
