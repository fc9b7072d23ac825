"""Intents of expiry, with the pages that a worker would store before them."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from rootline.schemas.bytes.root.kept_page import KeptVersion, decode_kept_page, encode_kept_page
from rootline.schemas.intent import Intent, IntentKind, StoredPage, VersionReference
from tests.tree.tables import Lake, intent


def kept(lake: Lake, version: int) -> KeptVersion:
    """What a page says of a version."""
    root = lake.states[version].root
    return KeptVersion(root.header.version, root.header.snapshot.timestamp_ms, root.size_in_bytes)


def expire(lake: Lake, oldest: int, keep: Iterable[int] = (), named: str = "", **more: object) -> Intent:
    """Give up what is older than `oldest`, but for `keep`."""
    fields: dict[str, object] = {"ref": VersionReference(version=oldest), "made_from_version": 0}
    rows = [kept(lake, version) for version in keep]
    if rows:
        fields["page"] = store_page(lake, rows, lake.states[oldest].header.table_uuid)
    name = named or f"expire-{oldest}-{len(rows)}-{lake.offset}-{len(lake.kept)}"
    return intent(IntentKind.EXPIRE, name, **(fields | more))


def store_page(lake: Lake, rows: Iterable[KeptVersion], of_table: UUID | None = None) -> StoredPage:
    """A page of kept versions, as an intent names it."""
    table_uuid = of_table or lake.head.header.table_uuid
    page, body = encode_kept_page(table_uuid, rows)
    location, digest, size, *_ = page.reference
    named = StoredPage(location=location, file_size_in_bytes=size, digest=digest)
    lake.kept[named] = decode_kept_page(body, digest, size, table_uuid, name=location)
    return named
