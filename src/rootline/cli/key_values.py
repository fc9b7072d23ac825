"""Properties as options: `--property key=value`, each given once or more often."""

from __future__ import annotations

from collections.abc import Sequence

from rootline.schemas.errors import Invalid


def key_values(items: Sequence[str] | None) -> dict[str, str]:
    """The properties; a key that is given twice has its last value. Raises `Invalid` (`setting-invalid`)."""
    pairs: dict[str, str] = {}
    for item in items or ():
        key, equals, value = item.partition("=")
        if not key or not equals:
            raise Invalid("setting-invalid", f"--property {item!r}: write key=value")
        pairs[key] = value
    return pairs
