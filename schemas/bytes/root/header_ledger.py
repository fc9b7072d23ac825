"""The part of the writers' ledger that a root's header carries, with its JSON kept ready.

Owns: the order of the records, their encoding, its length. Does not own: what is recorded
(`rootline.tree.ledger.ledger`), what moves to pages (`rootline.tree.ledger.ledger_spill`), the other keys of the header
(`header_codec`).
Invariants: immutable to its users; records are in order, the one seen longest ago first; a record that did not change
is never encoded again, so that a commit pays for the writers it touches and not for all.
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
    """Writer → record. Made with `of`, advanced with `advanced`."""

    __slots__ = ("_lines", "_lines_bytes", "_records")

    def __init__(self, records: dict[WriterId, WriterRecord]) -> None:
        self._records = records
        self._lines: dict[WriterId, bytes] | None = None  # made when first needed: a reader never needs it
        self._lines_bytes = 0

    @staticmethod
    def of(records: Mapping[WriterId, WriterRecord]) -> HeaderLedger:
        """A ledger of these records; itself, if it is one already."""
        if type(records) is HeaderLedger:
            return records
        return HeaderLedger(dict(sorted(records.items(), key=lambda item: _by_last_seen(item[1]))))

    def advanced(self, touched: Mapping[WriterId, WriterRecord], gone: Iterable[WriterId] = ()) -> HeaderLedger:
        """The ledger with the `touched` records, which were seen last, at its end, and without those of `gone`."""
        lines = dict(self._encoded())
        records = self._records.copy()
        changed = self._lines_bytes
        for writer in (*gone, *touched):
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
        """The bytes that a record takes, with the comma after it."""
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
        """The same as a plain dictionary, for loops over all of it."""
        return self._records


def encode_record(writer: WriterId, record: WriterRecord) -> bytes:
    """`"writer":[runs,rejections,last seen]`; ASCII, so that no string can fail."""
    runs = ",".join(map(_run_json, record.committed))
    rejected = _encode_json(record.rejected) if record.rejected else "[]"
    return f"{_encode_json(writer)}:[[{runs}],{rejected},{record.last_seen_ms:d}]".encode()
