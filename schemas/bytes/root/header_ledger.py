"""The header's part of the writers' ledger, with each record's JSON cached.

Owns: the order of the records, their encoding, its length. Does not own: the content of records
(`rootline.tree.ledger.ledger`), which records move to pages (`rootline.tree.ledger.ledger_spill`), the other keys of
the header (`header_codec`).
Invariants: Immutable for its users. Records are ordered by their last-seen times, oldest first. An unchanged record is
never encoded again, so the cost of a commit depends on the writers in the batch, not on all writers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from operator import attrgetter
from typing import Final

from rootline.schemas.identifiers import WriterId
from rootline.schemas.root_header import WriterRecord

_encode_json: Final = json.JSONEncoder(separators=(",", ":")).encode
_by_last_seen: Final = attrgetter("last_seen_ms")
_run_json: Final = "[%d,%d,%d,%d]".__mod__


class HeaderLedger(Mapping[WriterId, WriterRecord]):
    """A mapping from writer to record. `of` creates one, `advanced` returns an updated copy."""

    __slots__ = ("_lines", "_lines_bytes", "_records")

    def __init__(self, records: dict[WriterId, WriterRecord]) -> None:
        self._records = records
        self._lines: dict[WriterId, bytes] | None = None  # made on first use, as readers never need it
        self._lines_bytes = 0

    @staticmethod
    def of(records: Mapping[WriterId, WriterRecord]) -> HeaderLedger:
        """A ledger of these records, or `records` unchanged if it is a ledger."""
        if type(records) is HeaderLedger:
            return records
        return HeaderLedger(dict(sorted(records.items(), key=lambda item: _by_last_seen(item[1]))))

    def advanced(self, touched: Mapping[WriterId, WriterRecord], removed: Iterable[WriterId] = ()) -> HeaderLedger:
        """The ledger without the `removed` writers, and with the `touched` records, just seen, at its end."""
        lines = dict(self._encoded())
        records = self._records.copy()
        changed = self._lines_bytes
        for writer in (*removed, *touched):
            if writer in records:
                del records[writer]
                changed -= len(lines.pop(writer))
        for writer, record in touched.items():
            records[writer] = record
            line = lines[writer] = encode_record(writer, record)
            changed += len(line)
        after = HeaderLedger(records)
        after._lines, after._lines_bytes = lines, changed
        return after

    def encode(self) -> bytes:
        """The records as one JSON object."""
        return b"{" + b",".join(self._encoded().values()) + b"}"

    @property
    def size_in_bytes(self) -> int:
        """The length of `encode()`."""
        self._encoded()
        return self._lines_bytes + max(1, len(self._records)) + 1

    def size_of(self, writer: WriterId) -> int:
        """The bytes of a record, with the comma after it."""
        return len(self._encoded()[writer]) + 1

    def _encoded(self) -> dict[WriterId, bytes]:
        lines = self._lines
        if lines is None:
            lines = self._lines = {writer: encode_record(writer, record) for writer, record in self._records.items()}
            self._lines_bytes = sum(map(len, lines.values()))
        return lines

    def __getitem__(self, writer: WriterId) -> WriterRecord:
        return self._records[writer]

    def __iter__(self) -> Iterator[WriterId]:
        return iter(self._records)

    def __len__(self) -> int:
        return len(self._records)

    def __repr__(self) -> str:
        return f"HeaderLedger({self._records!r})"

    @property
    def records(self) -> Mapping[WriterId, WriterRecord]:
        """The records as a plain dictionary, which is faster in loops."""
        return self._records


def encode_record(writer: WriterId, record: WriterRecord) -> bytes:
    """The JSON object member for one writer: `"writer":[runs,rejections,last seen]`.

    The text is ASCII with escapes, so that every string can be encoded.
    """
    runs = ",".join(map(_run_json, record.committed))
    rejected = _encode_json(record.rejected) if record.rejected else "[]"
    return f"{_encode_json(writer)}:[[{runs}],{rejected},{record.last_seen_ms:d}]".encode()
