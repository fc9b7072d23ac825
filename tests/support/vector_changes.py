"""The deletion vectors that one version changed."""

from __future__ import annotations

from dataclasses import dataclass

from rootline.schemas.content_entry import ContentEntry, ContentType
from rootline.tree.check.root_diff import Changes


@dataclass(frozen=True, slots=True)
class VectorChange:
    """The deletion vector of `data_location` before and after; `None`: it had, or has, none."""

    data_location: str
    before: ContentEntry | None
    after: ContentEntry | None


def vector_changes(changes: Changes) -> tuple[VectorChange, ...]:
    """Vectors that were added, removed or replaced, by data file."""
    before, after = _vectors(changes.removed), _vectors(changes.added)
    return tuple(
        VectorChange(location, before.get(location), after.get(location)) for location in sorted(before | after)
    )


def _vectors(entries: tuple[ContentEntry, ...]) -> dict[str, ContentEntry]:
    return {
        entry.referenced_file or "": entry for entry in entries if entry.content_type is ContentType.POSITION_DELETE
    }
