"""Checks table properties before a definition with them is published.

Owns: which modules read properties. Does not own: names, defaults and bounds, which those modules have, nor
properties that a definition is checked for by the coordinator (`definition_rules`).
"""

from __future__ import annotations

from collections.abc import Mapping

from rootline.catalog.export.export_properties import check_export_properties
from rootline.client.write.new_files import leaf_files_of
from rootline.maintenance.compaction_limits import CompactionLimits
from rootline.maintenance.conversion_plan import ConversionLimits
from rootline.maintenance.data_compaction_plan import DataCompactionLimits
from rootline.maintenance.expiry_limits import ExpiryLimits
from rootline.maintenance.property_values import switch, whole_number
from rootline.maintenance.sweep_limits import LOG_RETENTION_S_MIN, SWEEP_PROPERTY, SweepLimits
from rootline.tree.intents.drop import KEPT_PROPERTY, KEPT_S_DEFAULT


def check_properties(properties: Mapping[str, str]) -> None:
    """Raise `Invalid` (`setting-invalid`) if a property that Rootline reads cannot be used.

    Else the first to say so is a worker at night, a writer who set nothing, or an export.
    """
    CompactionLimits.of_properties(properties)  # and those of flushes, which it reads too
    ConversionLimits.of_properties(properties)
    DataCompactionLimits.of_properties(properties)
    ExpiryLimits.of_properties(properties)
    switch(properties, SWEEP_PROPERTY, default=False)
    SweepLimits.of_properties(properties, LOG_RETENTION_S_MIN)
    whole_number(properties, KEPT_PROPERTY, KEPT_S_DEFAULT)
    check_export_properties(properties)
    leaf_files_of(properties)


def check_changed_properties(before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """As `check_properties`, of what `after` sets anew: one that was wrong before must not hinder other changes.

    Raises:
        Invalid: `setting-invalid`.

    """
    check_properties({name: value for name, value in after.items() if before.get(name) != value})
