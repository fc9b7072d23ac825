"""One Avro block of a root: rows, and their bytes, which are reused from root to root.

Owns: the value types of rows and blocks, sealing rows into a block, reading a block back. Does not own: which rows go
into which block (`rootline.tree`), the file around the blocks (`root_codec`).
Invariants:
* A block is exactly one zstd frame with a checksum.
* Its digest covers count, size, frame and sync marker.
* Nothing decompresses to more than `PLAIN_BYTES_MAX`.
* A row that breaks a rule of `entry_rules` is neither written nor read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rootline.schemas.bytes.avro_encoding import PLAIN_BYTES_MAX, compress, encode_block
from rootline.schemas.bytes.root.entry_codec import EntryCodec, encode_version_info
from rootline.schemas.bytes.root.statistics_codec import LazyStats
from rootline.schemas.content_entry import ContentEntry, VersionInfo, quick
from rootline.schemas.entry_rules import fault_of_row
from rootline.schemas.errors import Corrupt, Internal


@dataclass(frozen=True, slots=True)
class Row:
    """One entry of a root, and its bytes without `version_info`."""

    entry: ContentEntry
    tail: bytes

    @staticmethod
    def of(entry: ContentEntry, codec: EntryCodec) -> Row:
        """A new row. Raises `Invalid` when a value does not fit its type."""
        return quick_row(entry, codec.encode_tail(entry))

    def with_version_info(self, version_info: VersionInfo) -> Row:
        """The same row with another status and other numbers. The tail is reused, not encoded again."""
        return quick_row(self.entry.with_version_info(version_info), self.tail)

    def in_layout_of(self, codec: EntryCodec) -> Row:
        """The same row in the statistics layout of `codec`. Returns `self` if it has no statistics."""
        statistics = self.entry.content_stats
        if not isinstance(statistics, LazyStats) and not statistics:
            return self
        return quick_row(self.entry, codec.encode_tail(self.entry))


quick_row: Final = quick(Row)


@dataclass(frozen=True, slots=True)
class RootBlock:
    """Rows, and `encoded`, the full Avro block: count, size, zstd frame, sync marker. `digest` is its SHA-256."""

    rows: tuple[Row, ...]
    encoded: bytes
    digest: bytes


def row_bytes(row: Row) -> bytes:
    """The bytes of the row inside a block, before compression."""
    return encode_version_info(row.entry.version_info) + row.tail


def seal(rows: Sequence[Row], codec: EntryCodec, sync: bytes) -> RootBlock:
    """The rows as one block.

    Args:
        rows: at least one, with tails in `codec`'s layout.
        codec: of the block's root.
        sync: the table's sync marker, 16 bytes.

    Raises:
        Internal: `invariant-broken`, no rows, one that breaks a rule, or more bytes than a reader accepts.
    """
    parts: list[bytes] = []
    for row in rows:
        fault = fault_of_row(row.entry)
        if fault is not None:
            raise Internal("invariant-broken", f"{row.entry.location!r:.200} cannot be a row of a root: {fault}")
        parts += (encode_version_info(row.entry.version_info), row.tail)
    plain = b"".join(parts)
    if not plain or len(plain) > PLAIN_BYTES_MAX:
        raise Internal("invariant-broken", f"a block of {len(rows)} rows and {len(plain)} bytes cannot be written")
    encoded = encode_block(len(rows), compress(plain), sync)
    return RootBlock(tuple(rows), encoded, hashlib.sha256(encoded).digest())


def read_rows(plain: bytes, count: int, codec: EntryCodec, *, name: str, block: int) -> tuple[Row, ...]:
    """The `count` rows of decompressed block number `block`.

    Raises:
        Corrupt: `root-corrupt`: a row cannot be read or breaks a rule, or bytes follow the last row.
    """
    rows: list[Row] = []
    position = 0
    decode_row = codec.decode_row
    try:
        for _ in range(count):
            entry, tail_start, position = decode_row(plain, position, name=name)
            fault = fault_of_row(entry)
            if fault is not None:
                raise Corrupt("root-corrupt", f"{name}: {entry.content_type.name} {entry.location!r:.200}: {fault}")
            rows.append(quick_row(entry, plain[tail_start:position]))
    except Corrupt as error:
        raise Corrupt("root-corrupt", f"{error.message} (block {block}, row {len(rows)})") from None
    if position != len(plain):
        raise Corrupt("root-corrupt", f"{name}: block {block} has {len(plain) - position} bytes after its rows")
    return tuple(rows)
