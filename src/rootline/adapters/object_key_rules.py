"""Which keys and prefixes an object store accepts, the same for every adapter.

Owns: the rules. Does not own: which locations an intent may name (`rootline.schemas.intent_rules`).
Invariants: an accepted key stays inside the warehouse when it is read as a path; parts that begin with `.rootline`
belong to the adapters (temporary files, locks, the embedded log) and are never part of a key.
"""

from __future__ import annotations

from rootline.schemas.errors import Invalid
from rootline.schemas.object_keys import RESERVED_PREFIX, key_fault


def check_key(key: str) -> None:
    """Pass if `key` can name an object.

    Raises:
        Invalid: `location-invalid`, naming the key and the rule.

    """
    reason = key_fault(key)
    if reason is not None:
        raise Invalid("location-invalid", f"object key {key[:200]!r} {reason}")


def check_prefix(prefix: str) -> None:
    """Pass if `prefix` is empty or a folder's key that ends in `/`.

    Raises:
        Invalid: `location-invalid`.

    """
    if not prefix:
        return
    reason = key_fault(prefix[:-1]) if prefix.endswith("/") else "is a prefix that does not end in '/'"
    if reason is not None:
        raise Invalid("location-invalid", f"prefix {prefix[:200]!r} {reason}")


__all__ = ["RESERVED_PREFIX", "check_key", "check_prefix"]
