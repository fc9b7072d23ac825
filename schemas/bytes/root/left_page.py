"""A page of retired locations. Adding one of their files again must not double its rows.

Owns: the rows' form. Does not own: the file around them (`page_codec`), which locations are retired and when they are
forgotten (`rootline.tree.ledger.left_spill`), the effect on an intent (`rootline.tree.commit.arrival_rules`).
Invariants: An encoded page decodes to an equal page. Any other bytes raise `Corrupt` only.

The hashes of each set ascend from row to row. The rows of rewritten locations are last.

Source: format page, "Pages". Decision 0063.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from typing import Final

import fastavro

from rootline.schemas.bytes.avro_encoding import Unreadable
from rootline.schemas.bytes.root.page_codec import (
    PageKind,
    decode_page,
    decode_values,
    encode_page,
    encode_value,
    record_schema,
)
from rootline.schemas.errors import Corrupt
from rootline.schemas.location_hashes import HASH_BYTES, LocationHashes
from rootline.schemas.parts.page_reference import PageReference

_ROW_HASHES: Final = 32_768
_SCHEMA: Final = record_schema("left", rewritten="boolean", hashes="bytes")
LEFT_SCHEMA_JSON: Final = json.dumps(_SCHEMA, separators=(",", ":")).encode()
_ROW: Final = fastavro.parse_schema(json.loads(LEFT_SCHEMA_JSON))


@dataclass(frozen=True, slots=True)
class RetiredPage:
    """`rewritten`: other files now contain the rows. `removed`: all other retired locations. No location is in both."""

    reference: PageReference
    removed: LocationHashes
    rewritten: LocationHashes

    def __len__(self) -> int:
        """The number of locations."""
        return len(self.removed) + len(self.rewritten)


def encode_retired_page(
    table_uuid: uuid.UUID, removed: LocationHashes, rewritten: LocationHashes, salt: bytes = b""
) -> tuple[RetiredPage, bytes]:
    """(the page, its object's bytes) of at least one location. `salt` as in `encode_page`."""
    step = _ROW_HASHES * HASH_BYTES
    rows = [
        encode_value(_ROW, {"rewritten": is_rewritten, "hashes": hashes.packed[at : at + step]})
        for is_rewritten, hashes in ((False, removed), (True, rewritten))
        for at in range(0, len(hashes.packed), step)
    ]
    reference, body = encode_page(PageKind.LEFT, LEFT_SCHEMA_JSON, table_uuid, rows, salt=salt)
    return RetiredPage(reference, removed, rewritten), body


def decode_retired_page(body: bytes, reference: PageReference, table_uuid: uuid.UUID, *, name: str) -> RetiredPage:
    """The page of `reference`. `name`: for error messages. Raises `Corrupt` as `decode_page`."""
    hashes: dict[bool, list[bytes]] = {False: [], True: []}
    try:
        for count, plain in decode_page(body, reference, PageKind.LEFT, LEFT_SCHEMA_JSON, table_uuid, name=name):
            for row, _ in decode_values(_ROW, count, plain):
                hashes[row["rewritten"]].append(row["hashes"])
        removed, rewritten = (LocationHashes(b"".join(hashes[item])) for item in (False, True))
    except (Unreadable, ValueError) as error:
        raise Corrupt("page-corrupt", f"{name}: {error}") from None
    return RetiredPage(reference, removed, rewritten)
