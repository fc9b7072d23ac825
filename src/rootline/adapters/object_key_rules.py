"""Which keys and prefixes an object store accepts, the same for every adapter.

Owns: the rules. Does not own: which locations an intent may name (`rootline.schemas.location_rules`).
Invariants: an accepted key stays inside the warehouse when it is read as a path; parts that begin with `.rootline`
belong to the adapters (temporary files, locks, the embedded log) and are never part of a key.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from rootline.schemas.absolute_locations import is_absolute
from rootline.schemas.errors import Invalid

RESERVED_PREFIX: Final = ".rootline"
MAX_KEY_BYTES: Final = 1024
MAX_PART_BYTES: Final = 255


def check_key(key: str) -> None:
    """Pass if `key` can name an object.

    Raises:
        Invalid: `location-invalid`, naming the key and the rule.

    """
    reason = _fault_of(key)
    if reason is not None:
        raise Invalid("location-invalid", f"object key {key[:200]!r} {reason}")


def check_prefix(prefix: str) -> None:
    """Pass if `prefix` is empty or a folder's key that ends in `/`.

    Raises:
        Invalid: `location-invalid`.

    """
    if not prefix:
        return
    reason = _fault_of(prefix[:-1]) if prefix.endswith("/") else "is a prefix that does not end in '/'"
    if reason is not None:
        raise Invalid("location-invalid", f"prefix {prefix[:200]!r} {reason}")


@lru_cache(maxsize=4_096)
def _fault_of(key: str) -> str | None:
    if not key:
        return "is empty"
    if not key.isprintable() or "\\" in key:
        return "contains control characters or a backslash"
    if len(key.encode("utf-8", "surrogatepass")) > MAX_KEY_BYTES:
        return f"is longer than {MAX_KEY_BYTES} bytes"
    if is_absolute(key):
        return "is absolute or has a scheme"
    for part in key.split("/"):
        if part in ("", ".", ".."):
            return "has an empty, '.' or '..' part"
        if part.startswith(RESERVED_PREFIX):
            return f"has a part that begins with {RESERVED_PREFIX!r}, which is reserved"
        if len(part.encode("utf-8", "surrogatepass")) > MAX_PART_BYTES:
            return f"has a part longer than {MAX_PART_BYTES} bytes"
    return None
