"""The properties of a table that decide which of its versions are kept.

Owns: names and defaults of the `rootline.expire` properties. Does not own: their bounds
(`rootline.schemas.table_properties`), what follows from them (`expiry_plan`), removing roots (`rootline.workers`).
Invariants: a value that cannot be used is refused by name, never replaced silently; roots stay for at least ten minutes
after they became unaddressable, whatever a table sets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rootline.maintenance.property_values import checked_number, checked_switch

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
