"""When a sweep is due, and what must have passed before it condemns and deletes.

Owns: the table properties of sweeps, their defaults. Does not own: what is condemned (`orphan_sweep_plan`), the least
age of orphans, which coordinators hold too (`rootline.tree.intents.sweep`).
Invariants: a value that cannot be used is refused by name; no property makes a horizon younger than the log allows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rootline.maintenance.property_values import checked_number
from rootline.tree.intents.sweep import ORPHAN_AGE_PROPERTY, orphan_age_s

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
