"""A reference from a root to a page: an object with rows of a header part that do not fit in the header."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from rootline.schemas.identifiers import Location, LogId
from rootline.schemas.parts.header_part import Metadata, count_of, digest_of, json_of, list_in, string_of


class CoveredOffset(NamedTuple):
    """The last offset of one partition of one log that a page of outcomes covers."""

    log: LogId
    partition: int
    last_offset: int


class PageReference(NamedTuple):
    """A reference to an immutable page.

    `digest` is the SHA-256 of the whole object, `size_in_bytes` its length, `content_bytes` the length of its rows
    before compression. `covers` (for pages of outcomes only): the last offsets in the page. Once the log contains the
    verdicts up to these offsets, the page may be dropped.
    """

    location: Location
    digest: bytes
    size_in_bytes: int
    content_bytes: int
    covers: tuple[CoveredOffset, ...] = ()


def json_of_page(page: PageReference) -> list[Any]:
    """The reference as a list for JSON."""
    return [page.location, page.digest.hex(), page.size_in_bytes, page.content_bytes, page.covers]


def page_of_json(location: Any, digest: Any, size: Any, content: Any, covers: Any) -> PageReference:
    """The reference with these values of a list in JSON. Raises `ValueError` or `TypeError`."""
    return PageReference(
        Location(string_of(location)),
        digest_of(digest),
        count_of(size),
        count_of(content),
        tuple(
            CoveredOffset(LogId(string_of(log)), count_of(partition), count_of(last)) for log, partition, last in covers
        ),
    )


def encode_pages(pages: Sequence[PageReference]) -> bytes | None:
    """The value of a key that lists pages, or `None` without any."""
    return json_of([json_of_page(page) for page in pages]) if pages else None


def pages_in(metadata: Metadata, key: str) -> tuple[PageReference, ...]:
    """The pages that a key lists. Raises `ValueError` or `TypeError`."""
    return tuple(page_of_json(*page) for page in list_in(metadata, key)) if key in metadata else ()
