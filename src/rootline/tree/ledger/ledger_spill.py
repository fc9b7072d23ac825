"""Keep the header's part of the ledger small: what was seen longest ago moves to pages.

Owns: which records and parts of records move, and merging them into pages. Does not own: what records mean (`ledger`),
the pages' bytes (`rootline.schemas.bytes.root.ledger_page`), which pages are merged (`page_merge`).
Invariants: no fact is lost but those of `process/` writers idle beyond the retention; the header is within its limit
whatever it held before; it falls to half of it each time, so that a page is made for every few hundred small commits,
not for each; the same ledger and pages give the same page.

Source: protocol page, section 1; format page, "Pages".
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import NamedTuple

from rootline.schemas.bytes.root.header_ledger import HeaderLedger, encode_record
from rootline.schemas.bytes.root.ledger_page import (
    LedgerPage,
    decode_ledger_row,
    encode_ledger_page,
    encode_ledger_row,
    last_seen_of,
)
from rootline.schemas.identifiers import WriterId
from rootline.schemas.intent import PROCESS_WRITER_PREFIX
from rootline.schemas.root_header import WriterRecord
from rootline.tree.ledger.ledger import for_page, united
from rootline.tree.ledger.page_merge import first_to_merge
from rootline.tree.state.pending_object import PendingObject

_Rows = dict[WriterId, bytes]


class FittedLedger(NamedTuple):
    """What the header says, the pages beside it, and the page to store first, if there is a new one."""

    header: HeaderLedger
    pages: tuple[LedgerPage, ...]
    objects: tuple[PendingObject, ...] = ()


def fit_ledger(
    ledger: HeaderLedger,
    pages: tuple[LedgerPage, ...],
    *,
    limit_bytes: int,
    oldest_ms: int,
    table_uuid: uuid.UUID,
    salt: bytes = b"",
) -> FittedLedger:
    """`ledger` within `limit_bytes`.

    Args:
        ledger: as it would be in the header.
        pages: of the parent.
        limit_bytes: of the header's part, encoded.
        oldest_ms: `process/` writers that were last seen before may leave the pages that are merged.
        table_uuid: whose pages they are.
        salt: of a new page's name.

    """
    if ledger.size_in_bytes <= limit_bytes:
        return FittedLedger(ledger, pages)
    spilled, kept = _divided(ledger, limit_bytes // 2)
    header = ledger.advanced(kept, spilled)
    rows = {writer: encode_ledger_row(writer, for_page(record)) for writer, record in spilled.items()}
    first = first_to_merge([page.reference.content_bytes for page in pages], sum(map(len, rows.values())))
    merged: _Rows = {}
    for newer in (*[page.rows for page in pages[first:]], rows):
        merged = _merged(merged, newer)
    merged = _without_idle(merged, header, oldest_ms)
    if not merged:
        return FittedLedger(header, pages[:first])
    fresh, body = encode_ledger_page(table_uuid, merged, salt)
    return FittedLedger(header, (*pages[:first], fresh), (PendingObject(fresh.reference.location, body),))


def _divided(ledger: HeaderLedger, target: int) -> tuple[dict[WriterId, WriterRecord], dict[WriterId, WriterRecord]]:
    """(what moves, what stays of a record that moves in part): the coldest first, until `target` bytes are left.

    The warmest record moves in part if it alone is too large: its newest runs and rejections stay.
    """
    left = ledger.size_in_bytes
    spilled: dict[WriterId, WriterRecord] = {}
    kept: dict[WriterId, WriterRecord] = {}
    for writer, record in ledger.records.items():
        if left <= target:
            break
        size = ledger.size_of(writer)
        if len(spilled) == len(ledger) - 1:
            newest = _newest_of(writer, record, target - (left - size))
            if newest is not None:
                kept[writer] = newest
                record = _rest_of(record, newest)
        spilled[writer] = record
        left -= size
    return spilled, kept


def _newest_of(writer: WriterId, record: WriterRecord, budget: int) -> WriterRecord | None:
    """The newest rejections (up to half of `budget` bytes) and runs of a record; `None` when not even one fits."""
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
