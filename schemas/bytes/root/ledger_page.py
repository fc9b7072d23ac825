"""A page of the writers' ledger: an object with the records of writers that do not fit in the root's header.

Owns: the rows, and finding a writer's row. Does not own: the file around them (`page_codec`), the meaning of a
record, and which records move out of the header (`rootline.tree.parts.ledger`).
Invariants: A row stays encoded until its writer is requested, so that a page of many writers is cheap to load and
merge. A writer has at most one row in a page.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final, TypeAlias

from rootline.schemas.bytes.avro_encoding import Unreadable, encode_bytes, encode_long, encode_string, read_long
from rootline.schemas.bytes.root.page_codec import Page, PageKind, RowSchema, record_schema
from rootline.schemas.errors import Corrupt
from rootline.schemas.identifiers import WriterId
from rootline.schemas.parts.ledger import CommittedRun, RejectedSequence, WriterRecord

_RUN_LIST: Final = {
    "type": "array",
    "items": record_schema("committed_run", first="long", last="long", version="long", stride="long"),
}
_REJECTION_LIST: Final = {
    "type": "array",
    "items": record_schema("rejected_sequence", sequence="long", intent_id="string", code="string", message="string"),
}
_ROW: Final = RowSchema(
    record_schema("ledger_row", writer="string", last_seen_ms="long", committed=_RUN_LIST, rejected=_REJECTION_LIST)
)
_RUNS: Final = RowSchema(_RUN_LIST)
_REJECTIONS: Final = RowSchema(_REJECTION_LIST)


@dataclass(frozen=True, slots=True)
class LedgerRows:
    """Writer → encoded row. The rows never change. `decoded`: the records that were requested so far."""

    rows: Mapping[WriterId, bytes]
    decoded: dict[WriterId, WriterRecord] = field(default_factory=dict, compare=False, repr=False)


LedgerPage: TypeAlias = Page[LedgerRows]


def record_in(page: LedgerPage, writer: WriterId) -> WriterRecord | None:
    """The record of a writer in a page, or `None`. Raises as `decode_ledger_row`."""
    content = page.content
    found = content.decoded.get(writer)
    if found is None:
        row = content.rows.get(writer)
        if row is None:
            return None
        found = content.decoded[writer] = decode_ledger_row(row, name=page.reference.location)
    return found


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
        Corrupt: `page-corrupt`, the row cannot be read. The page's digest matched, so it was written with this fault.
    """
    try:
        [(value, _)] = _ROW.decode(1, row)
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


def _sized(schema: RowSchema, items: Sequence[object]) -> bytes:
    """An Avro list with its length in bytes, as the format requires. Fastavro only reads such lists."""
    if not items:
        return b"\x00"
    plain = schema.encode(items)
    return encode_long(-len(items)) + encode_bytes(plain[len(encode_long(len(items))) : -1]) + b"\x00"


def _rows_of(content: LedgerRows) -> Iterator[bytes]:
    return iter(content.rows.values())


def _content_of(rows: Iterator[tuple[Any, bytes]]) -> LedgerRows:
    found = [(WriterId(value["writer"]), row) for value, row in rows]
    by_writer = dict(found)
    if len(found) != len(by_writer):
        raise Unreadable("a writer has two rows")
    return LedgerRows(by_writer)


LEDGER_PAGES: Final = PageKind("ledger", _ROW, _rows_of, _content_of, attrgetter("ledger.pages"))
