"""The table properties that concern exports.

Owns: their names, defaults and values. Does not own: what follows from them (`exporter`, `table_metadata`).
Invariants: a value that cannot be used is refused by name, never silently replaced.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rootline.catalog.manifest.format_version import FormatVersion
from rootline.maintenance.property_values import whole_number
from rootline.schemas.errors import Invalid

SNAPSHOTS: Final = "rootline.export.snapshots"
FORMAT: Final = "rootline.export.format"
SNAPSHOTS_DEFAULT: Final = 10
SNAPSHOTS_MOST: Final = 1_000


def format_of(properties: Mapping[str, str]) -> FormatVersion:
    """The format that a table is exported in by default: V3 unless its property says otherwise.

    Raises:
        Invalid: `setting-invalid`.

    """
    text = properties.get(FORMAT, "3")
    if text not in ("2", "3"):
        raise Invalid("setting-invalid", f"table property {FORMAT} is {text[:40]!r}; it must be 2 or 3")
    return FormatVersion(int(text))


def snapshots_of(properties: Mapping[str, str]) -> int:
    """How many snapshots an export names, besides those of tags.

    Raises:
        Invalid: `setting-invalid`.

    """
    return whole_number(properties, SNAPSHOTS, SNAPSHOTS_DEFAULT, SNAPSHOTS_MOST)


def check_export_properties(properties: Mapping[str, str]) -> None:
    """Raise `Invalid` (`setting-invalid`) if a property of exports cannot be used."""
    format_of(properties)
    snapshots_of(properties)
