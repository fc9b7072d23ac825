"""A page of the writers' ledger: what was decided for writers that the header has no room for.

Owns: the rows' form, and looking a writer up. Does not own: the file around them (`page_codec`), what a record means
(`rootline.tree.ledger.ledger`), which records leave the header (`rootline.tree.ledger.ledger_spill`).
Invariants: a row is kept as bytes and decoded when somebody asks for its writer, so that a page of many writers is
cheap to load and to merge; a writer has one row in a page.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rootline.schemas.bytes.root.page_codec import PageKind, decode_page, encode_page
from rootline.schemas.bytes.values.avro_primitives import (
    LONG_MAX,
    LONG_MIN,
    Unreadable,
    encode_long,
    encode_string,
    read_long,
    read_string,
)
from rootline.schemas.errors import Corrupt
from rootline.schemas.identifiers import WriterId
from rootline.schemas.root_header import CommittedRun, PageReference, RejectedSequence, WriterRecord

_RUN_FIELDS: Final = ("first", "last", "version", "stride")
_SCHEMA: Final[Mapping[str, Any]] = {
    "type": "record",
    "name": "ledger_row",
    "fields": [
        {"name": "writer", "type": "string"},
        {"name": "last_seen_ms", "type": "long"},
        {
            "name": "committed",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "committed_run",
                    "fields": [{"name": name, "type": "long"} for name in _RUN_FIELDS],
                },
            },
        },
        {
            "name": "rejected",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "rejected_sequence",
                    "fields": [
                        {"name": "sequence", "type": "long"},
                        {"name": "intent_id", "type": "string"},
                        {"name": "code", "type": "string"},
                        {"name": "message", "type": "string"},
                    ],
                },
            },
        },
    ],
}
LEDGER_SCHEMA_JSON: Final = json.dumps(_SCHEMA, separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True)
class LedgerPage:
    """Writer → its row. The rows belong to the page: nobody changes them."""

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


def encode_ledger_page(table_uuid: uuid.UUID, rows: Mapping[WriterId, bytes]) -> tuple[LedgerPage, bytes]:
    """(the page, its object's bytes) of at least one row."""
    reference, body = encode_page(PageKind.LEDGER, LEDGER_SCHEMA_JSON, table_uuid, rows.values())
    return LedgerPage(reference, rows), body


def decode_ledger_page(body: bytes, reference: PageReference, table_uuid: uuid.UUID, *, name: str) -> LedgerPage:
    """The page that `reference` names; arguments and `Raises` as `decode_page`."""
    rows: dict[WriterId, bytes] = {}
    found = 0
    try:
        for count, plain in decode_page(body, reference, PageKind.LEDGER, LEDGER_SCHEMA_JSON, table_uuid, name=name):
            position = 0
            for _ in range(count):
                start = position
                writer, position = read_string(plain, position)
                _, position = read_long(plain, position)
                position = _skip_array(plain, _skip_array(plain, position))
                rows[WriterId(writer)] = plain[start:position]
            if position != len(plain):
                raise Unreadable(f"a block has {len(plain) - position} bytes after its rows")
            found += count
        if found != len(rows):
            raise Unreadable("a writer has two rows")
    except Unreadable as error:
        raise Corrupt("page-corrupt", f"{name}: {error}") from None
    return LedgerPage(reference, rows)


def encode_ledger_row(writer: WriterId, record: WriterRecord) -> bytes:
    """One row. Both lists are written with their length in bytes, so that a reader can pass over them."""
    runs = b"".join([encode_long(value) for run in record.committed for value in run])
    rejected = b"".join(
        encode_long(item.sequence)
        + encode_string(item.intent_id)
        + encode_string(item.code)
        # a reason may quote what cannot be encoded; it is there to be read, and nothing compares it
        + encode_string(item.message.encode(errors="backslashreplace").decode())
        for item in record.rejected
    )
    return b"".join(
        (
            encode_string(writer),
            encode_long(record.last_seen_ms),
            _array(len(record.committed), runs),
            _array(len(record.rejected), rejected),
        )
    )


def decode_ledger_row(row: bytes, *, name: str = "a page") -> WriterRecord:
    """The record in a row of the page `name`.

    Raises:
        Corrupt: `page-corrupt`; as the page's digest was right, whoever wrote it was wrong.

    """
    try:
        _, position = read_string(row, 0)
        last_seen_ms, position = read_long(row, position)
        count, position, end = _open_array(row, position)
        numbers = _longs(row[position:end])
        if len(numbers) != count * len(_RUN_FIELDS):
            raise Unreadable(f"{count} runs are announced, there are {len(numbers)} numbers")
        each = iter(numbers)
        committed = tuple(map(CommittedRun._make, zip(each, each, each, each, strict=True)))
        count, position, end = _open_array(row, _close_array(row, end, count))
        rejected: list[RejectedSequence] = []
        for _ in range(count):
            sequence, position = read_long(row, position)
            intent_id, position = read_string(row, position)
            code, position = read_string(row, position)
            message, position = read_string(row, position)
            rejected.append(RejectedSequence(sequence, intent_id, code, message))
        if position != end or _close_array(row, position, count) != len(row):
            raise Unreadable("a row does not end where its bytes do")
    except Unreadable as error:
        raise Corrupt("page-corrupt", f"{name}: a row of the ledger: {error}") from None
    return WriterRecord(committed, tuple(rejected), last_seen_ms)


def last_seen_of(row: bytes) -> int:
    """When the writer of a row was seen last, ms, without decoding the rest."""
    length, position = read_long(row, 0)
    return read_long(row, position + length)[0]


def _array(count: int, items: bytes) -> bytes:
    return b"".join((encode_long(-count), encode_long(len(items)), items, b"\x00")) if count else b"\x00"


def _open_array(data: bytes, position: int) -> tuple[int, int, int]:
    """(number of items, position of the first, position after the last)."""
    count, position = read_long(data, position)
    if count == 0:
        return 0, position, position
    size, position = read_long(data, position)
    if count > 0 or size < 0 or position + size > len(data):
        raise Unreadable("a list does not say how long it is, or ends after its row")
    return -count, position, position + size


def _close_array(data: bytes, position: int, count: int) -> int:
    """The position after a list of `count` items, which end at `position`."""
    if count == 0:
        return position
    if data[position : position + 1] != b"\x00":
        raise Unreadable("a list does not end after its items")
    return position + 1


def _skip_array(data: bytes, position: int) -> int:
    count, _, end = _open_array(data, position)
    return _close_array(data, end, count)


def _longs(data: bytes) -> list[int]:
    """All numbers of bytes that hold nothing else; the runs of a merge are many, and each has four."""
    numbers: list[int] = []
    zigzag = shift = 0
    for byte in data:
        if byte < 0x80:
            zigzag |= byte << shift
            numbers.append((zigzag >> 1) ^ -(zigzag & 1))
            zigzag = shift = 0
        else:
            zigzag |= (byte & 0x7F) << shift
            shift += 7
    if shift or (numbers and not LONG_MIN <= min(numbers) <= max(numbers) <= LONG_MAX):
        raise Unreadable("the bytes end inside a number, or one does not fit 64 bits")
    return numbers
