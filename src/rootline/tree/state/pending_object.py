"""An object that must be stored before the root that names it."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TypeVar

from rootline.schemas.bytes.root.page_codec import Page, PageKind
from rootline.schemas.identifiers import Location

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PendingObject:
    """An object to store before the root, at a relative `location`.

    It is put if absent. An object with identical bytes is not a conflict.
    """

    location: Location
    body: bytes


def pending_page(
    kind: PageKind[T], table_uuid: uuid.UUID, content: T, salt: bytes = b""
) -> tuple[Page[T], PendingObject]:
    """(a new page, the object to store for it). Arguments as in `PageKind.encode`."""
    page, body = kind.encode(table_uuid, content, salt)
    return page, PendingObject(page.reference.location, body)
