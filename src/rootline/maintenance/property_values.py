"""Numbers and switches in table properties.

Owns: reading one. Does not own: names and bounds (`rootline.schemas.table_properties`), defaults and meanings
(`flush_limits`, `compaction_limits`).
Invariants: the coordinator refuses a value that cannot be used, so one that is stored is older than that rule: it
counts as not set where the default only costs work, and is refused by name where the default could delete something.
"""

from __future__ import annotations

from collections.abc import Mapping

from rootline.schemas.table_properties import checked, usable


def whole_number(properties: Mapping[str, str], name: str, default: int) -> int:
    """The number in property `name`, or `default` when it is not set or cannot be used."""
    text = usable(properties, name)
    return default if text is None else int(text)


def switch(properties: Mapping[str, str], name: str, *, default: bool) -> bool:
    """Whether property `name` is `true`, or `default` when it is not set or cannot be used."""
    text = usable(properties, name)
    return default if text is None else text == "true"


def checked_number(properties: Mapping[str, str], name: str, default: int) -> int:
    """The number in property `name`, or `default` when it is not set. Raises `Invalid` (`property-invalid`)."""
    text = checked(properties, name)
    return default if text is None else int(text)


def checked_switch(properties: Mapping[str, str], name: str, *, default: bool) -> bool:
    """Whether property `name` is `true`, or `default` when it is not set. Raises `Invalid` (`property-invalid`)."""
    text = checked(properties, name)
    return default if text is None else text == "true"
