"""A page of the writers' ledger: records that do not fit in the header.

Owns: the rows' form, and finding a writer's row. Does not own: the file around them (`page_codec`), the meaning of a
record (`rootline.tree.ledger.ledger`), which records move out of the header (`rootline.tree.ledger.ledger_spill`).
Invariants: A row stays encoded until its writer is requested, so that a page of many writers is cheap to load and
merge. A writer has at most one row in a page.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import fastavro

from rootline.schemas.bytes.avro_encoding import Unreadable, encode_bytes, encode_long, encode_string, read_long
from rootline.schemas.bytes.root.page_codec import (
    PageKind,
    decode_page,
    decode_values,
    encode_page,
    encode_value,
    record_schema,
)
from rootline.schemas.errors import Corrupt
from rootline.schemas.identifiers import WriterId
from rootline.schemas.parts.ledger import CommittedRun, RejectedSequence, WriterRecord
from rootline.schemas.parts.page_reference import PageReference

_RUN_LIST: Final = {
    "type": "array",
    "items": record_schema("committed_run", first="long", last="long", version="long", stride="long"),
}
_REJECTION_LIST: Final = {
    "type": "array",
    "items": record_schema("rejected_sequence", sequence="long", intent_id="string", code="string", message="string"),
}
_SCHEMA: Final = record_schema(
    "ledger_row", writer="string", last_seen_ms="long", committed=_RUN_LIST, rejected=_REJECTION_LIST
)
LEDGER_SCHEMA_JSON: Final = json.dumps(_SCHEMA, separators=(",", ":")).encode()
_ROW: Final = fastavro.parse_schema(_SCHEMA)
_RUNS: Final = fastavro.parse_schema(_RUN_LIST)
_REJECTIONS: Final = fastavro.parse_schema(_REJECTION_LIST)


@dataclass(frozen=True, slots=True)
class LedgerPage:
    """Writer → encoded row. The rows belong to the page and never change."""

    reference: PageReference
    rows: Mapping[WriterId, bytes]
    _decoded: dict[WriterId, WriterRecord] = field(default_factory=dict, compare=False, repr=False)

    def record_of(self, writer: WriterId) -> WriterRecord | None:
        """The record of a writer in this page, or `None`. Raises as `decode_ledger_row`."""
        found = self._decoded.get(writer)
        if found is None:
            row = self.rows.get(writer)
            if row is None:
                return None
            found = self._decoded[writer] = decode_ledger_row(row, name=self.reference.location)
        return found


def encode_ledger_page(
    table_uuid: uuid.UUID, rows: Mapping[WriterId, bytes], salt: bytes = b""
) -> tuple[LedgerPage, bytes]:
    """(the page, its object's bytes) of at least one row. `salt` as in `encode_page`."""
    reference, body = encode_page(PageKind.LEDGER, LEDGER_SCHEMA_JSON, table_uuid, rows.values(), salt=salt)
    return LedgerPage(reference, rows), body


def decode_ledger_page(body: bytes, reference: PageReference, table_uuid: uuid.UUID, *, name: str) -> LedgerPage:
    """The page of `reference`. Arguments and errors as in `decode_page`."""
    rows: dict[WriterId, bytes] = {}
    found = 0
    blocks = decode_page(body, reference, PageKind.LEDGER, LEDGER_SCHEMA_JSON, table_uuid, name=name)
    try:
        for count, plain in blocks:
            rows.update((WriterId(value["writer"]), row) for value, row in decode_values(_ROW, count, plain))
            found += count
        if found != len(rows):
            raise Unreadable("a writer has two rows")
    except Unreadable as error:
        raise Corrupt("page-corrupt", f"{name}: {error}") from None
    return LedgerPage(reference, rows)


def encode_ledger_row(writer: WriterId, record: WriterRecord) -> bytes:
    """A writer's record as an encoded row."""
    rejected = [
        # a message may quote characters that cannot be encoded; it is only for people, so they are escaped
        {**item._asdict(), "message": item.message.encode(errors="backslashreplace").decode()}
        for item in record.rejected
    ]
    return b"".join(
        (
            encode_string(writer),
            encode_long(record.last_seen_ms),
            _sized(_RUNS, [run._asdict() for run in record.committed]),
            _sized(_REJECTIONS, rejected),
        )
    )


def decode_ledger_row(row: bytes, *, name: str = "a page") -> WriterRecord:
    """The record in a row of the page `name`.

    Raises:
        Corrupt: `page-corrupt`. The page's digest was checked before, so its writer encoded it wrongly.
    """
    try:
        [(value, _)] = decode_values(_ROW, 1, row)
        record = WriterRecord(
            tuple([CommittedRun(**run) for run in value["committed"]]),
            tuple([RejectedSequence(**item) for item in value["rejected"]]),
            value["last_seen_ms"],
        )
        if encode_ledger_row(value["writer"], record) != row:
            raise Unreadable("it is not encoded in the way that the format requires")
    except Unreadable as error:
        raise Corrupt("page-corrupt", f"{name}: a row of the ledger: {error}") from None
    return record


def last_seen_of(row: bytes) -> int:
    """The last-seen time (ms) in an encoded row, read without decoding the rest."""
    length, position = read_long(row, 0)
    return read_long(row, position + length)[0]


def _sized(schema: Any, items: Sequence[object]) -> bytes:
    """An Avro list with its length in bytes, as the format requires. Fastavro only reads such lists."""
    if not items:
        return b"\x00"
    plain = encode_value(schema, items)
    return encode_long(-len(items)) + encode_bytes(plain[len(encode_long(len(items))) : -1]) + b"\x00"
