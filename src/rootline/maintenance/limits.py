"""The thresholds of flushes, compactions, expiry and sweeps, from a table's properties.

Owns: names and defaults of the properties `rootline.flush.*`, `rootline.compact.*`, `rootline.expire*` and those of
sweeps, reading numbers and switches. Does not own: their bounds (`rootline.schemas.table_properties`), the choice once
a threshold is reached (`flush_plan`, `leaf_compaction_plan`, `expiry_plan`, `orphan_sweep_plan`), limits of data files
(`data_compaction_plan`, `conversion_plan`).
Invariants: the coordinator refuses a value that cannot be used, so a stored one is older than that rule. It counts as
not set where the default only costs work, and is refused by name where the default could delete something. Roots stay
for at least ten minutes after they became unaddressable, whatever a table sets. No property makes a horizon younger
than the log allows. A leaf fits 32-bit ordinals and stays under the limit that keeps its manifest vector at 8 KiB. One
compaction moves a bounded number of entries.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from rootline.schemas.table_properties import checked, usable
from rootline.tree.intents.sweep import ORPHAN_AGE_PROPERTY, orphan_age_s


def whole_number(properties: Mapping[str, str], name: str, default: int) -> int:
    """The number in property `name`, or `default` when it is not set or cannot be used."""
    text = usable(properties, name)
    return default if text is None else int(text)


def switch(properties: Mapping[str, str], name: str, *, default: bool) -> bool:
    """Whether property `name` is `true`, or `default` when it is not set or cannot be used."""
    text = usable(properties, name)
    return default if text is None else text == "true"


def checked_number(properties: Mapping[str, str], name: str, default: int) -> int:
    """The number in property `name`, or `default` when it is not set. Raises `Invalid` (`property-invalid`)."""
    text = checked(properties, name)
    return default if text is None else int(text)


def checked_switch(properties: Mapping[str, str], name: str, *, default: bool) -> bool:
    """Whether property `name` is `true`, or `default` when it is not set. Raises `Invalid` (`property-invalid`)."""
    text = checked(properties, name)
    return default if text is None else text == "true"


EXPIRE: Final = "rootline.expire"
"""The switch. Tables that were made before it have none, and nothing of theirs expires."""
ROOT_RETENTION_S_MIN: Final = 600
"""Twice the time in which an answer about a root confirms it (protocol page, section 1), so no head is lost."""
EVERY_COMMITS: Final = 500
EVERY_COMMITS_IN_FOLDER: Final = 50
"""A folder's roots go as soon as they are given up, so the sooner that is, the less there is; reading them is cheap."""


@dataclass(frozen=True, slots=True)
class ExpiryLimits:
    """Every version for `all_s`, at most the newest `all_versions`; then one a minute for `minutes_s`, one an hour for
    `hours_s`. An expiry is due when it gives up `every_commits` versions.

    `root_retention_s`: how long a root stays in a store that dates its objects, after it can no longer be read.
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
        """The limits that a table's properties set, with defaults for the rest, `every_commits` among them.

        Raises:
            Invalid: `property-invalid`, a property cannot be used: nothing expires by a default that nobody chose.

        """
        defaults = ExpiryLimits()
        retention_s = checked_number(properties, "rootline.expire.root-retention-seconds", defaults.root_retention_s)
        return ExpiryLimits(
            is_on=checked_switch(properties, EXPIRE, default=False),
            all_s=checked_number(properties, "rootline.expire.all-seconds", defaults.all_s),
            all_versions=checked_number(properties, "rootline.expire.all-versions", defaults.all_versions),
            minutes_s=checked_number(properties, "rootline.expire.by-minute-seconds", defaults.minutes_s),
            hours_s=checked_number(properties, "rootline.expire.by-hour-seconds", defaults.hours_s),
            every_commits=checked_number(properties, "rootline.expire.every-commits", every_commits),
            root_retention_s=retention_s,
        )


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


SWEEP_PROPERTY: Final = "rootline.sweep"
"""Whether workers sweep the table, which they do not without it."""
INTERVAL_PROPERTY: Final = "rootline.sweep.interval-s"
SCAN_RETENTION_PROPERTY: Final = "rootline.sweep.scan-retention-s"
INTERVAL_S_DEFAULT: Final = 300
SCAN_RETENTION_S_DEFAULT: Final = 24 * 3600
SCAN_RETENTION_S_MIN: Final = 600
EXPORT_AGE_S_MIN: Final = 3600
"""What is longer than an export takes."""
LOG_RETENTION_S_MIN: Final = 7 * 24 * 3600
"""What coordinators hold every horizon to, however short a log keeps its records (`apply_batch`)."""
CONDEMNED_MAX: Final = 200_000
"""Locations in one page: more wait for the next sweep."""


@dataclass(frozen=True, slots=True)
class SweepLimits:
    """`orphan_age_ms`: how far the horizon stays behind. `scan_retention_ms`: from condemning to deleting."""

    interval_s: int
    orphan_age_ms: int
    scan_retention_ms: int
    condemned_max: int = CONDEMNED_MAX

    @property
    def export_age_ms(self) -> int:
        """How old an object of an export must be: before, its metadata.json may be about to be stored, or just read."""
        return max(self.scan_retention_ms, 1000 * EXPORT_AGE_S_MIN)

    @staticmethod
    def of_properties(properties: Mapping[str, str], records_s: int, dead_letters_s: int = 0) -> SweepLimits:
        """The limits of a table. Without a property, letters that may be replayed are waited for too.

        Args:
            properties: of the table.
            records_s: how long the log keeps a record, seconds.
            dead_letters_s: and a dead letter.

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
        )
