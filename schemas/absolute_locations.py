"""Locations outside a table's own folder, as adopted tables have them.

Owns: which locations are absolute, and of what scheme. Does not own: which an intent may name (`location_rules`), which
a store reads (`rootline.adapters.absolute_keys`).
Invariants: every location is absolute or relative, never both; an absolute one is taken as its writer wrote it:
nothing in it is percent-decoded, because Iceberg's writers do not encode.
"""

from __future__ import annotations

import re
from typing import Final

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*):")


def is_absolute(location: str) -> bool:
    """Whether `location` begins with `/` or a scheme (`s3:`, `file:`), so that it is not below a table's folder."""
    return location.startswith("/") or _SCHEME.match(location) is not None


def scheme_of(location: str) -> str:
    """The scheme in lower case; `file` for a plain path, empty for a relative location."""
    if location.startswith("/"):
        return "file"
    found = _SCHEME.match(location)
    return "" if found is None else found[1].lower()
