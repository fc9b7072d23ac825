"""The table properties that concern exports.

Owns: their names and defaults. Does not own: their bounds (`rootline.schemas.table_properties`), what follows from them
(`exporter`, `table_metadata`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rootline.catalog.manifest.format_version import FormatVersion
from rootline.maintenance.limits import whole_number

SNAPSHOTS: Final = "rootline.export.snapshots"
FORMAT: Final = "rootline.export.format"
SNAPSHOTS_DEFAULT: Final = 10


def format_of(properties: Mapping[str, str]) -> FormatVersion:
    """The format that a table is exported in by default: V3 unless its property says otherwise."""
    return FormatVersion(whole_number(properties, FORMAT, 3))


def snapshots_of(properties: Mapping[str, str]) -> int:
    """The number of snapshots that an export names, besides those of tags."""
    return whole_number(properties, SNAPSHOTS, SNAPSHOTS_DEFAULT)
