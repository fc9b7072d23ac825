"""The part `row_ids`: the next row id to assign."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rootline.schemas.parts.header_part import HeaderPart, decimal_of, number_of

NEXT_ROW_ID_KEY: Final = "rootline.next-row-id"
PARENT_NEXT_ROW_ID_KEY: Final = "rootline.parent-next-row-id"


@dataclass(frozen=True, slots=True)
class RowIds:
    """The `next` row id to assign, and the next row id of the previous root. It is repeated here because the previous
    root may be deleted.

    `next_of_parent` is `None` in a root that is older than this field.
    """

    next: int = 0
    next_of_parent: int | None = None


def _encode_parents(row_ids: RowIds) -> bytes | None:
    return None if row_ids.next_of_parent is None else number_of(row_ids.next_of_parent)


def _decode(metadata: Mapping[str, bytes]) -> RowIds:
    of_parent = metadata.get(PARENT_NEXT_ROW_ID_KEY)
    return RowIds(decimal_of(metadata[NEXT_ROW_ID_KEY]), None if of_parent is None else decimal_of(of_parent))


ROW_IDS: Final[HeaderPart[RowIds]] = HeaderPart(
    "row_ids",
    {NEXT_ROW_ID_KEY: lambda row_ids: number_of(row_ids.next), PARENT_NEXT_ROW_ID_KEY: _encode_parents},
    _decode,
)
