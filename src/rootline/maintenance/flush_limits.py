"""When the root's own rows are due for leaves: a table's thresholds, as its properties say them.

Owns: names, defaults and bounds of the `rootline.flush.*` table properties. Does not own: what is chosen once a
threshold is reached (`flush_plan`).
Invariants: a value that cannot be used is refused by name, never replaced in silence; a leaf fits 32-bit ordinals
and stays under the limit that keeps its manifest vector at 8 KiB.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rootline.schemas.errors import Invalid
from rootline.schemas.leaf_codec import MAX_ENTRIES


@dataclass(frozen=True, slots=True)
class FlushLimits:
    """Counts are rows in the root; `bytes_max` counts their encoded bytes before compression.

    A flush is due when a count is *reached*. `leaf_entries` is how many entries a leaf should hold.
    """

    data_files: int = 1_000
    vectors: int = 200
    bytes_max: int = 4_000_000
    leaf_entries: int = 50_000

    @staticmethod
    def of_properties(properties: Mapping[str, str]) -> FlushLimits:
        """The limits that a table's properties set; defaults for the rest.

        Raises:
            Invalid: `setting-invalid`, a property is not a whole number within its bounds.

        """
        defaults = FlushLimits()
        return FlushLimits(
            data_files=_whole(properties, "rootline.flush.data-files", defaults.data_files),
            vectors=_whole(properties, "rootline.flush.vectors", defaults.vectors),
            bytes_max=_whole(properties, "rootline.flush.bytes", defaults.bytes_max),
            leaf_entries=_whole(properties, "rootline.flush.leaf-entries", defaults.leaf_entries, MAX_ENTRIES),
        )


FLUSH_NOW: Final = FlushLimits(data_files=1, vectors=1, bytes_max=1)
"""Everything that can go to leaves goes: what an operator asks for by hand."""


def _whole(properties: Mapping[str, str], name: str, default: int, most: int = 2**31 - 1) -> int:
    text = properties.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:12]) <= most and len(text) <= 12):
        raise Invalid(
            "setting-invalid", f"table property {name} is {text[:40]!r}; it must be a number from 1 to {most}"
        )
    return int(text)
