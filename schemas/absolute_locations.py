"""Locations outside a table's own folder, as adopted tables have them.

Owns: which locations are absolute, of what scheme, and the form in which they are compared. Does not own: which an
intent may name (`location_rules`), which a store reads (`rootline.adapters.absolute_keys`).
Invariants: every location is absolute or relative, never both; an absolute one is taken as its writer wrote it:
nothing in it is percent-decoded, because Iceberg's writers do not encode.
"""

from __future__ import annotations

import re
from typing import Final

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*):")
_NO_PARTS: Final = re.compile(r"(?:/\.?)+(?=/|\Z)")


def is_absolute(location: str) -> bool:
    """Whether `location` begins with `/` or a scheme (`s3:`, `file:`), so that it is not below a table's folder."""
    return location.startswith("/") or _SCHEME.match(location) is not None


def scheme_of(location: str) -> str:
    """The scheme in lower case; `file` for a plain path, empty for a relative location."""
    if location.startswith("/"):
        return "file"
    found = _SCHEME.match(location)
    return "" if found is None else found[1].lower()


def resolved(location: str) -> str:
    """`location` without empty and `.` parts: what a file system takes for the same file has one such form.

    It is for comparison alone: a bucket takes them for different objects.
    """
    return _NO_PARTS.sub("", location)
