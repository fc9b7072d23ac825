"""The retired locations, as one value of the root's header."""

from __future__ import annotations

import base64
import json
from typing import Any, Final

from rootline.schemas.bytes.root.header_numbers import count_of
from rootline.schemas.bytes.root.location_hashes import ascending_hashes
from rootline.schemas.identifiers import SequenceNumber
from rootline.schemas.object_keys import page_location
from rootline.schemas.root_header import PageReference, Retired, RetiredSince

RETIRED_KEY: Final = "rootline.left"
"""Absent if no location is recorded, as in roots of older releases."""
_DIGEST_BYTES: Final = 32


def encode_retired(left: Retired) -> bytes:
    """The value of `rootline.left`. The name of a page follows from its digest, so it is not encoded."""
    pages = [
        [_text(page.digest), page.size_in_bytes, page.content_bytes, since_ms, number]
        for page, since_ms, number in left.pages
    ]
    value = [left.since_ms, left.number, _text(left.removed), _text(left.rewritten), pages]
    return json.dumps(value, separators=(",", ":")).encode()


def decode_retired(value: bytes) -> Retired:
    """The retired locations in a value of `rootline.left`. Raises `ValueError` or `TypeError` if it is invalid."""
    since_ms, number, removed, rewritten, pages = json.loads(value)
    found = Retired(
        ascending_hashes(_bytes(removed)),
        ascending_hashes(_bytes(rewritten)),
        count_of(since_ms),
        SequenceNumber(count_of(number)),
        tuple([_page(*page) for page in pages]),
    )
    if not found:
        raise ValueError(f"{RETIRED_KEY} is empty: it must be absent instead")
    return found


def _page(digest: Any, size: Any, content: Any, since_ms: Any, number: Any) -> RetiredSince:
    digest = _bytes(digest)
    if len(digest) != _DIGEST_BYTES:
        raise ValueError("a digest is not 32 bytes long")
    page = PageReference(page_location(digest.hex()), digest, count_of(size), count_of(content))
    return RetiredSince(page, count_of(since_ms), SequenceNumber(count_of(number)))


def _text(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _bytes(value: Any) -> bytes:
    return base64.b64decode(value, validate=True)
