"""The part `ledger`: each writer's sequences that are committed or rejected, in the header and in pages, and recent
content digests.

A page is an object of records that do not fit in the header. The root references it.

Owns: the value types, the order of the records, their encoding with each record's JSON cached, its length. Does not
own: the content of records (`rootline.tree.parts.ledger`), which records move to pages
(`rootline.tree.parts.ledger`).
Invariants: A `HeaderLedger` is immutable for its users. Records are ordered by their last-seen times, oldest first. An
unchanged record is never encoded again, so the cost of a commit depends on the writers in the batch, not on all
writers.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final, NamedTuple

from rootline.schemas.identifiers import Version, WriterId
from rootline.schemas.parts.header_part import HeaderPart, count_of, encode_json, object_in, string_of
from rootline.schemas.parts.page_reference import PageReference, encode_pages, pages_in

LEDGER_KEY: Final = "rootline.ledger"
LEDGER_PAGES_KEY: Final = "rootline.ledger-pages"
CONTENTS_KEY: Final = "rootline.contents"
_DIGEST_BYTES: Final = 8
"""Bytes of each half of a recorded content digest: of writer and sequence, then of the content."""
_by_last_seen: Final = attrgetter("last_seen_ms")
_run_json: Final = "[%d,%d,%d,%d]".__mod__


class CommittedRun(NamedTuple):
    """Writer sequences `first..last`. Sequence s was committed in `version + (s - first) * stride`, with stride 0 or
    1.
    """

    first: int
    last: int
    version: Version
    stride: int


class RejectedSequence(NamedTuple):
    """A sequence whose intent `intent_id` was rejected with `code`. Another intent may still use the sequence."""

    sequence: int
    intent_id: str
    code: str
    message: str


class ContentDigest(NamedTuple):
    """The content of a committed intent, remembered to recognize another intent with the same sequence.

    * `pair`: 8 bytes of a digest of the writer and the sequence.
    * `content`: 8 bytes of the digest in the record's headers, which the writer computed from the intent's content
      (`rootline.schemas.bytes.record_headers`).
    """

    pair: bytes
    content: bytes


@dataclass(frozen=True, slots=True)
class WriterRecord:
    """The sequences of one writer on this table that are committed or rejected. `last_seen_ms`: the log's time
    (`LogTime`) of the latest one.
    """

    committed: tuple[CommittedRun, ...] = ()
    rejected: tuple[RejectedSequence, ...] = ()
    last_seen_ms: int = 0


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
        """The ledger without the `removed` writers, with the `touched` records, which are the newest, at its end."""
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
    rejected = encode_json(record.rejected) if record.rejected else "[]"
    return f"{encode_json(writer)}:[[{runs}],{rejected},{record.last_seen_ms:d}]".encode()


@dataclass(frozen=True, slots=True)
class WriterLedger:
    """The whole ledger. A writer may have records in `writers` *and* in `pages` (oldest page first), which must be read
    together.

    `contents`: the content digests of the newest committed intents.
    """

    writers: Mapping[WriterId, WriterRecord] = field(default_factory=dict)
    pages: tuple[PageReference, ...] = ()
    contents: tuple[ContentDigest, ...] = ()


def _encode_contents(ledger: WriterLedger) -> bytes | None:
    if not ledger.contents:
        return None
    return base64.b64encode(b"".join([pair + content for pair, content in ledger.contents]))


def _decode(metadata: Mapping[str, bytes]) -> WriterLedger:
    writers = object_in(metadata, LEDGER_KEY).items()
    return WriterLedger(
        HeaderLedger.of({WriterId(writer): _record(*record) for writer, record in writers}),
        pages_in(metadata, LEDGER_PAGES_KEY),
        _contents(metadata[CONTENTS_KEY]) if CONTENTS_KEY in metadata else (),
    )


def _record(committed: Any, rejected: Any, last_seen_ms: Any) -> WriterRecord:
    return WriterRecord(
        tuple(
            CommittedRun(count_of(first), count_of(last), _run_version(version), count_of(stride))
            for first, last, version, stride in committed
        ),
        tuple(
            RejectedSequence(count_of(sequence), string_of(intent_id), string_of(code), string_of(message))
            for sequence, intent_id, code, message in rejected
        ),
        count_of(last_seen_ms),
    )


def _run_version(value: Any) -> Version:
    """The version of a run, or -1 for committed sequences whose version is no longer known
    (`rootline.tree.parts.ledger`).
    """
    return Version(-1) if type(value) is int and value == -1 else Version(count_of(value))


def _contents(value: bytes) -> tuple[ContentDigest, ...]:
    stored = base64.b64decode(value, validate=True)
    each = 2 * _DIGEST_BYTES
    if len(stored) % each:
        raise ValueError(f"{CONTENTS_KEY} has {len(stored)} bytes, which is not a multiple of {each}")
    return tuple(
        ContentDigest(stored[at : at + _DIGEST_BYTES], stored[at + _DIGEST_BYTES : at + each])
        for at in range(0, len(stored), each)
    )


LEDGER: Final[HeaderPart[WriterLedger]] = HeaderPart(
    "ledger",
    {
        LEDGER_KEY: lambda ledger: HeaderLedger.of(ledger.writers).encode(),
        LEDGER_PAGES_KEY: lambda ledger: encode_pages(ledger.pages),
        CONTENTS_KEY: _encode_contents,
    },
    _decode,
)
