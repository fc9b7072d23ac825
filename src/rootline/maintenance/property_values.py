"""Numbers and switches in table properties.

Owns: reading one. Does not own: names, defaults and meanings (`flush_limits`, `compaction_limits`).
Invariants: a value that cannot be used is refused by name, never replaced silently.
"""

from __future__ import annotations

from collections.abc import Mapping

from rootline.schemas.errors import Invalid


def whole_number(properties: Mapping[str, str], name: str, default: int, most: int = 2**31 - 1) -> int:
    """The number that property `name` holds, from 1 to `most`; `default` when it is not set.

    Raises:
        Invalid: `setting-invalid`.

    """
    text = properties.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:12]) <= most and len(text) <= 12):
        raise Invalid(
            "setting-invalid", f"table property {name} is {text[:40]!r}; it must be a number from 1 to {most}"
        )
    return int(text)


def switch(properties: Mapping[str, str], name: str, *, default: bool) -> bool:
    """Whether property `name` is `true`; `default` when it is not set.

    Raises:
        Invalid: `setting-invalid`.

    """
    text = properties.get(name)
    if text is None:
        return default
    if text not in ("true", "false"):
        raise Invalid("setting-invalid", f"table property {name} is {text[:40]!r}; it must be true or false")
    return text == "true"
