"""The ledger's move to pages: the records that were not seen for longest move first.

Owns: which records and parts of records move, and merging them. Does not own: the meaning of records (`ledger`), the
pages' bytes (`rootline.schemas.bytes.root.ledger_page`), when a part moves and which pages are merged (`page_merge`).
Invariants: Nothing is lost except records of `process/` writers idle beyond the retention.

Source: protocol page, section 1. Format page, "Pages".
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Final

from rootline.schemas.bytes.root.ledger_page import (
    LEDGER_PAGES,
    LedgerPage,
    LedgerRows,
    decode_ledger_row,
    encode_ledger_row,
    last_seen_of,
)
from rootline.schemas.identifiers import WriterId
from rootline.schemas.intent import PROCESS_WRITER_PREFIX
from rootline.schemas.parts.ledger import HeaderLedger, WriterRecord, encode_record
from rootline.tree.parts.ledger import for_page, united
from rootline.tree.parts.page_merge import Fitted, Spill

_Rows = dict[WriterId, bytes]


def fit_ledger(
    ledger: HeaderLedger,
    pages: tuple[LedgerPage, ...],
    *,
    limit_bytes: int,
    oldest_ms: int,
    table_uuid: uuid.UUID,
    salt: bytes = b"",
) -> Fitted[HeaderLedger, LedgerRows]:
    """`ledger` within `limit_bytes`, with the rest in pages.

    Args:
        ledger: as it would be in the header.
        pages: of the parent.
        limit_bytes: of the header's part, encoded.
        oldest_ms: records of `process/` writers last seen before this time are dropped from merged pages.
        table_uuid: of the pages' table.
        salt: of a new page's name.
    """

    def merged(contents: Sequence[LedgerRows], header: HeaderLedger) -> LedgerRows | None:
        rows: _Rows = {}
        for newer in contents:
            rows = _merged(rows, newer.rows)
        rows = _without_idle(rows, header, oldest_ms)
        return LedgerRows(rows) if rows else None

    return _SPILL.fitted(ledger, pages, limit_bytes, merged, table_uuid=table_uuid, salt=salt)


def _fits(ledger: HeaderLedger, limit_bytes: int) -> bool:
    return ledger.size_in_bytes <= limit_bytes


def _divided(ledger: HeaderLedger, target: int) -> tuple[LedgerRows, HeaderLedger]:
    """(the rows to move, the ledger that stays)."""
    spilled, kept = _records_to_move(ledger, target)
    rows = {writer: encode_ledger_row(writer, for_page(record)) for writer, record in spilled.items()}
    return LedgerRows(rows), ledger.advanced(kept, spilled)


def _records_to_move(
    ledger: HeaderLedger, target: int
) -> tuple[dict[WriterId, WriterRecord], dict[WriterId, WriterRecord]]:
    """(the records to move, the remaining parts of split records): least recently seen first, down to `target` bytes.

    The most recently seen record is split if it is too large alone. Its newest runs and rejections stay in the header.
    """
    size_in_bytes = ledger.size_in_bytes
    spilled: dict[WriterId, WriterRecord] = {}
    kept: dict[WriterId, WriterRecord] = {}
    for writer, record in ledger.records.items():
        if size_in_bytes <= target:
            break
        size = ledger.size_of(writer)
        if len(spilled) == len(ledger) - 1:
            newest = _newest_of(writer, record, target - (size_in_bytes - size))
            if newest is not None:
                kept[writer] = newest
                record = _rest_of(record, newest)
        spilled[writer] = record
        size_in_bytes -= size
    return spilled, kept


def _newest_of(writer: WriterId, record: WriterRecord, budget: int) -> WriterRecord | None:
    """The newest rejections (up to half of `budget` bytes) and runs of a record, or `None` if not even one fits."""
    room = budget - len(encode_record(writer, WriterRecord(last_seen_ms=record.last_seen_ms))) - 1
    rejections = runs = 0
    bare = len(encode_record(writer, WriterRecord()))
    for item in reversed(record.rejected):
        size = len(encode_record(writer, WriterRecord(rejected=(item,)))) - bare + 1
        if size > room - (budget - budget // 2):
            break
        room, rejections = room - size, rejections + 1
    for run in reversed(record.committed):
        size = len(encode_record(writer, WriterRecord(committed=(run,)))) - bare + 1
        if size > room:
            break
        room, runs = room - size, runs + 1
    if not rejections and not runs:
        return None
    return WriterRecord(
        record.committed[len(record.committed) - runs :],
        record.rejected[len(record.rejected) - rejections :],
        record.last_seen_ms,
    )


def _rest_of(record: WriterRecord, newest: WriterRecord) -> WriterRecord:
    return WriterRecord(
        record.committed[: len(record.committed) - len(newest.committed)],
        record.rejected[: len(record.rejected) - len(newest.rejected)],
        record.last_seen_ms,
    )


def _merged(older: Mapping[WriterId, bytes], newer: Mapping[WriterId, bytes]) -> _Rows:
    rows = {**older, **newer}
    for writer in older.keys() & newer.keys():
        record = united(decode_ledger_row(older[writer]), decode_ledger_row(newer[writer]))
        rows[writer] = encode_ledger_row(writer, record)
    return rows


def _without_idle(rows: _Rows, header: HeaderLedger, oldest_ms: int) -> _Rows:
    idle = [
        writer
        for writer, row in rows.items()
        if writer.startswith(PROCESS_WRITER_PREFIX) and last_seen_of(row) < oldest_ms and writer not in header.records
    ]
    for writer in idle:
        del rows[writer]
    return rows


_SPILL: Final = Spill(LEDGER_PAGES, _fits, _divided)
