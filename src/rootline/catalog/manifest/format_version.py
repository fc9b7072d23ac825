"""The formats of Iceberg in which a table is exported.

Owns: their numbers. Does not own: what each format can express (`exported_definition`, `manifest_schema`).
Invariants: an export is labelled with the version of its bytes, and never with 4.
"""

from __future__ import annotations

from enum import IntEnum


class FormatVersion(IntEnum):
    """`format-version` of the table metadata."""

    V2 = 2
    """Position delete files; no row ids."""
    V3 = 3
    """Deletion vectors, row ids, default values."""


__all__ = ["FormatVersion"]
