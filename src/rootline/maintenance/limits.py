"""The thresholds of flushes, compactions, expiry and sweeps, from a table's properties.

Owns: names and defaults of the properties `rootline.flush.*`, `rootline.compact.*`, `rootline.expire*` and those of
sweeps. Does not own: their bounds and parsing (`rootline.schemas.table_properties`), the choice of work (`flush_plan`,
`leaf_compaction_plan`, `expiry_plan`, `orphan_sweep_plan`), limits of data files (`data_compaction_plan`,
`conversion_plan`).
Invariants: the coordinator refuses an unusable value, so a stored one is older than that rule. It counts as not set if
the default only costs work, and raises an error if the default could delete something. Expired roots are kept for at
least ten minutes, whatever a table sets. No property makes the horizon of a sweep (the time before which a file without
a reference is an orphan) later than the log's retention allows. A leaf fits 32-bit ordinals, and is small enough that
its manifest vector has at most 8 KiB. One compaction moves a bounded number of entries.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from rootline.schemas.table_properties import checked_number, checked_switch, switch, whole_number
from rootline.tree.parts.locations import ORPHAN_AGE_PROPERTY, orphan_age_s

EXPIRE: Final = "rootline.expire"
"""The property that enables expiry. Without it, as in tables older than the property, no version expires."""
ROOT_RETENTION_S_MIN: Final = 600
"""Twice the time in which a PUT is confirmed by its root (protocol page, section 1), so no head is lost."""
EVERY_COMMITS: Final = 500
EVERY_COMMITS_IN_FOLDER: Final = 50
"""A folder removes roots as soon as they expire, so frequent expiry keeps it small. Reading its roots is cheap."""


@dataclass(frozen=True, slots=True)
class ExpiryLimits:
    """The versions of a table that stay readable.

    * Every version of the last `all_s` seconds stays, but at most `all_versions` of them.
    * Of older versions, one per minute stays for `minutes_s`, and one per hour for `hours_s`.
    * `every_commits`: an expiry is due when it would expire this many versions.
    * `root_retention_s`: the time for which an expired root is kept in a store that dates its objects.
    """

    is_on: bool = True
    all_s: int = 600
    all_versions: int = 1_000
    minutes_s: int = 3_600
    hours_s: int = 5 * 86_400
    every_commits: int = EVERY_COMMITS
    root_retention_s: int = ROOT_RETENTION_S_MIN

    @staticmethod
    def of_properties(properties: Mapping[str, str], *, every_commits: int = EVERY_COMMITS) -> ExpiryLimits:
        """The limits in a table's properties, with defaults for the rest. `every_commits`: the default of this limit.

        Raises:
            Invalid: `property-invalid`, the value of a property cannot be used. The default does not replace it,
                because it might expire versions that the operator wanted to keep.
        """
        defaults = ExpiryLimits()
        retention_s = checked_number(properties, "rootline.expire.root-retention-seconds", defaults.root_retention_s)
        return ExpiryLimits(
            is_on=checked_switch(properties, EXPIRE),
            all_s=checked_number(properties, "rootline.expire.all-seconds", defaults.all_s),
            all_versions=checked_number(properties, "rootline.expire.all-versions", defaults.all_versions),
            minutes_s=checked_number(properties, "rootline.expire.by-minute-seconds", defaults.minutes_s),
            hours_s=checked_number(properties, "rootline.expire.by-hour-seconds", defaults.hours_s),
            every_commits=checked_number(properties, "rootline.expire.every-commits", every_commits),
            root_retention_s=retention_s,
        )


@dataclass(frozen=True, slots=True)
class FlushLimits:
    """The thresholds of a flush, which moves rows of the root to leaves.

    * `data_files`, `vectors`, `bytes_max`, `vector_bytes_max`: a flush is due when the root has so many rows, or so
      many bytes of rows (encoded, before compression), of data files or of deletes.
    * `leaf_entries`: the target number of entries in a leaf.
    * `delete_leaves`: the most delete leaves that a flush writes for one existing data leaf each. Vectors of other data
      leaves share delete leaves.
    * `hard_entries`, `hard_bytes`: from so many rows or bytes of a root on, the coordinator itself flushes.
    * `retained_bytes`: the target size of one hour's roots. If they would take more, a flush is due much earlier.
    * `stays_small`: whether old versions of the table expire, so that short roots save space.
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
        """The limits in a table's properties, with defaults for the rest."""
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

        Each commit writes a root, and roots are retained: ten of 1 MB a second are 36 GB an hour. If that exceeds
        `retained_bytes`, or a table that stays small has more than `FAST_PER_S` commits a second, a flush is due at
        few rows, because every later root is shorter by them.
        """
        is_fast = self.stays_small and commits_per_s > FAST_PER_S
        if not is_fast and root_bytes * commits_per_s * 3_600 <= self.retained_bytes:
            return self
        return replace(self, data_files=min(self.data_files, FEW_FILES), vectors=min(self.vectors, FEW_VECTORS))


FAST_PER_S: Final = 1.0
FEW_FILES: Final = 100
FEW_VECTORS: Final = 20
"""Fewer rows are not worth a leaf, however fast commits are."""
FLUSH_NOW: Final = FlushLimits(data_files=1, vectors=1)
"""The limits of an operator's command: all rows move to leaves."""


ENTRIES_MAX: Final = 100_000
"""Live entries that one compaction reads and rewrites, unless a single leaf has more."""


@dataclass(frozen=True, slots=True)
class CompactionLimits:
    """The thresholds of a compaction of leaves and vectors.

    * `leaves`: from this number on, small leaves of similar size, or delete leaves of one data leaf, are merged.
    * `dead_percent`: a leaf with this share of dead entries is rewritten.
    * `leaf_entries`: the target number of entries in a leaf.
    * `vector_bytes`, `root_vector_bytes`: manifest vectors, the lists of a leaf's dead entries, move out of the root
      when one of them, or all together, are larger.
    * `vector_files`: from this number on, Puffin files with few deletion vectors are joined.
    * `adopted`: whether data leaves in Avro are rewritten in Parquet.
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
        """The limits in a table's properties, with defaults for the rest."""
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
        """The most live entries of a small leaf."""
        return self.leaf_entries // 2

    @property
    def now(self) -> CompactionLimits:
        """The limits of an operator's command.

        Two leaves or Puffin files are enough to be merged, and 1 % of dead entries for a rewrite.
        """
        return replace(self, leaves=2, dead_percent=1, vector_files=2, adopted=True)


SWEEP_PROPERTY: Final = "rootline.sweep"
"""The property that enables sweeps of the table by workers. The default is off."""
CLIENT_FILES_PROPERTY: Final = "rootline.sweep.client-files"
"""The property that extends sweeps to the files of the REST catalog's clients. Tables that they create have it."""
INTERVAL_PROPERTY: Final = "rootline.sweep.interval-s"
SCAN_RETENTION_PROPERTY: Final = "rootline.sweep.scan-retention-s"
INTERVAL_S_DEFAULT: Final = 300
SCAN_RETENTION_S_DEFAULT: Final = 24 * 3600
SCAN_RETENTION_S_MIN: Final = 600
EXPORT_AGE_S_MIN: Final = 3600
"""Longer than any export takes."""
CLIENT_METADATA_AGE_S_MIN: Final = 30 * 24 * 3600
"""Flink names such files in its checkpoints, and reads them when a job is restored from one."""
LOG_RETENTION_S_MIN: Final = 7 * 24 * 3600
"""The least age of a horizon that coordinators accept, however short the log's retention is (`apply_batch`)."""
CONDEMNED_MAX: Final = 200_000
"""Locations in one page. The rest waits for the next sweep."""


@dataclass(frozen=True, slots=True)
class SweepLimits:
    """The times of a sweep.

    * `orphan_age_ms`: a file that no root references is an orphan from this age on.
    * `scan_retention_ms`: the time from the commit that condemns an object to its deletion.
    * `of_clients`: whether data files of the REST catalog's clients are swept too.
    """

    interval_s: int
    orphan_age_ms: int
    scan_retention_ms: int
    condemned_max: int = CONDEMNED_MAX
    of_clients: bool = False

    @property
    def export_age_ms(self) -> int:
        """The age from which on an exported object may be an orphan.

        A younger one may belong to a metadata.json that is being stored or read.
        """
        return max(self.scan_retention_ms, 1000 * EXPORT_AGE_S_MIN)

    @property
    def client_metadata_age_ms(self) -> int:
        """The age from which on metadata of the REST catalog's clients is swept. No root ever references it."""
        return max(self.orphan_age_ms, 1000 * CLIENT_METADATA_AGE_S_MIN)

    @staticmethod
    def of_properties(properties: Mapping[str, str], records_s: int, dead_letters_s: int = 0) -> SweepLimits:
        """The limits of a table. By default the orphan age includes the time in which dead letters can be replayed.

        Args:
            properties: the table's properties.
            records_s: the log's retention of records, seconds.
            dead_letters_s: the log's retention of dead letters, seconds.

        Raises:
            Invalid: `property-invalid`.
        """
        default_s = orphan_age_s({}, max(records_s, LOG_RETENTION_S_MIN) + dead_letters_s)
        asked_s = checked_number(properties, ORPHAN_AGE_PROPERTY, default_s)
        scan_s = checked_number(properties, SCAN_RETENTION_PROPERTY, SCAN_RETENTION_S_DEFAULT)
        return SweepLimits(
            checked_number(properties, INTERVAL_PROPERTY, INTERVAL_S_DEFAULT),
            1000 * max(asked_s, orphan_age_s({}, max(records_s, LOG_RETENTION_S_MIN))),
            1000 * max(scan_s, SCAN_RETENTION_S_MIN),
            of_clients=checked_switch(properties, CLIENT_FILES_PROPERTY),
        )
