"""A page of the writers' ledger: what was decided for writers that the header has no room for.

Owns: the rows' form, and looking a writer up. Does not own: the file around them (`page_codec`), what a record means
(`rootline.tree.ledger.ledger`), which records leave the header (`rootline.tree.ledger.ledger_spill`).
Invariants: a row is kept as bytes and decoded when its writer is first asked for, so that a page of many writers is
cheap to load and to merge; a writer has one row in a page.
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
from rootline.schemas.root_header import CommittedRun, PageReference, RejectedSequence, WriterRecord

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
    """Writer → its row. The rows belong to the page and never change."""

    reference: PageReference
    rows: Mapping[WriterId, bytes]
    _decoded: dict[WriterId, WriterRecord] = field(default_factory=dict, compare=False, repr=False)

    def record_of(self, writer: WriterId) -> WriterRecord | None:
        """What this page says of a writer. Raises as `decode_ledger_row`."""
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
    """(the page, its object's bytes) of at least one row; `salt` as in `encode_page`."""
    reference, body = encode_page(PageKind.LEDGER, LEDGER_SCHEMA_JSON, table_uuid, rows.values(), salt=salt)
    return LedgerPage(reference, rows), body


def decode_ledger_page(body: bytes, reference: PageReference, table_uuid: uuid.UUID, *, name: str) -> LedgerPage:
    """The page that `reference` names; arguments and `Raises` as `decode_page`."""
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
    """One row."""
    rejected = [
        # a reason may quote what cannot be encoded; it is there to be read, and nothing compares it
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
        Corrupt: `page-corrupt`; the page's digest is right, so the page was written wrong.

    """
    try:
        [(value, _)] = decode_values(_ROW, 1, row)
        record = WriterRecord(
            tuple([CommittedRun(**run) for run in value["committed"]]),
            tuple([RejectedSequence(**item) for item in value["rejected"]]),
            value["last_seen_ms"],
        )
        if encode_ledger_row(value["writer"], record) != row:
            raise Unreadable("it is not encoded as the format says")
    except Unreadable as error:
        raise Corrupt("page-corrupt", f"{name}: a row of the ledger: {error}") from None
    return record


def last_seen_of(row: bytes) -> int:
    """When the writer of a row was seen last, ms, without decoding the rest."""
    length, position = read_long(row, 0)
    return read_long(row, position + length)[0]


def _sized(schema: Any, items: Sequence[object]) -> bytes:
    """A list with its length in bytes, as the format says; fastavro reads such lists, and writes none."""
    if not items:
        return b"\x00"
    plain = encode_value(schema, items)
    return encode_long(-len(items)) + encode_bytes(plain[len(encode_long(len(items))) : -1]) + b"\x00"
