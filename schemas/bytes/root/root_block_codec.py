"""One Avro block of a root: rows, and the bytes that stay as they are from root to root.

Owns: a row's and a block's value types, sealing rows into a block, reading a block back. Does not own: which rows go
into which block (`rootline.tree`), the file around the blocks (`root_codec`).
Invariants: a block is one zstd frame with a checksum and is consumed exactly; its digest covers count, size, frame
and sync marker; nothing decompresses to more than `BLOCK_BYTES_MAX`; a row that breaks a rule of shape is neither
written nor read.
"""

from __future__ import annotations

import hashlib
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rootline.schemas.bytes.root.entry_codec import EntryCodec, encode_version_info
from rootline.schemas.bytes.values.avro_primitives import encode_long
from rootline.schemas.content_entry import ContentEntry, VersionInfo
from rootline.schemas.entry_rules import fault_of_row
from rootline.schemas.errors import Corrupt, Internal
from rootline.schemas.quick_values import quick

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

BLOCK_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of one block, decompressed."""
SYNC_BYTES: Final = 16
_COMPRESSION: Final[Mapping[int, int]] = {
    zstd.CompressionParameter.checksum_flag: 1,
    zstd.CompressionParameter.compression_level: 3,
}
_IDLE: Final[deque[zstd.ZstdCompressor]] = deque(maxlen=8)  # compressors that nobody uses at the moment
_DECOMPRESSION: Final[Mapping[int, int]] = {zstd.DecompressionParameter.window_log_max: 26}
_FRAME_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_CHECKSUM_BIT: Final = 0x04


@dataclass(frozen=True, slots=True)
class Row:
    """One entry of a root, and its bytes without `version_info`."""

    entry: ContentEntry
    tail: bytes

    @staticmethod
    def of(entry: ContentEntry, codec: EntryCodec) -> Row:
        """A fresh row. Raises `Invalid` when a value does not fit its type."""
        return quick_row(entry, codec.encode_tail(entry))

    def with_version_info(self, version_info: VersionInfo) -> Row:
        """The same row under another status and other numbers; the tail is shared, not encoded anew."""
        return quick_row(self.entry.with_version_info(version_info), self.tail)


quick_row: Final = quick(Row)


@dataclass(frozen=True, slots=True)
class RootBlock:
    """Rows and `encoded`, the full Avro block: count, size, zstd frame, sync marker; `digest` is its SHA-256."""

    rows: tuple[Row, ...]
    encoded: bytes
    digest: bytes


def row_bytes(row: Row) -> bytes:
    """The row as its block holds it before compression."""
    return encode_version_info(row.entry.version_info) + row.tail


def seal(rows: Sequence[Row], codec: EntryCodec, sync: bytes) -> RootBlock:
    """The rows as one block.

    Args:
        rows: at least one; their tails are in `codec`'s layout.
        codec: of the root that the block is for.
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
    if not plain or len(plain) > BLOCK_BYTES_MAX:
        raise Internal("invariant-broken", f"a block of {len(rows)} rows and {len(plain)} bytes cannot be written")
    frame = compress(plain)
    encoded = b"".join((encode_long(len(rows)), encode_long(len(frame)), frame, sync))
    return RootBlock(tuple(rows), encoded, hashlib.sha256(encoded).digest())


def compress(plain: bytes) -> bytes:
    """One zstd frame with a checksum."""
    # a context of zstd is about a megabyte: making one for each block costs more than compressing the block
    try:
        compressor = _IDLE.pop()
    except IndexError:
        compressor = zstd.ZstdCompressor(options=_COMPRESSION)
    compressor.set_pledged_input_size(len(plain))
    frame = compressor.compress(plain, mode=zstd.ZstdCompressor.FLUSH_FRAME)
    _IDLE.append(compressor)
    return frame


def decompress(frame: bytes, *, name: str) -> bytes:
    """What one zstd frame with a checksum holds.

    Raises:
        Corrupt: `root-corrupt`: not exactly one such frame, or over `BLOCK_BYTES_MAX`.

    """
    if frame[:4] != _FRAME_MAGIC or len(frame) < 5 or not frame[4] & _CHECKSUM_BIT:
        raise Corrupt("root-corrupt", f"{name}: not a zstd frame with a checksum")
    decompressor = zstd.ZstdDecompressor(options=_DECOMPRESSION)
    try:
        plain = decompressor.decompress(frame, max_length=BLOCK_BYTES_MAX + 1)
    except zstd.ZstdError as error:
        raise Corrupt("root-corrupt", f"{name}: {error}") from None
    if len(plain) > BLOCK_BYTES_MAX:
        raise Corrupt("root-corrupt", f"{name}: decompresses to more than {BLOCK_BYTES_MAX} bytes")
    if not decompressor.eof:
        raise Corrupt("root-corrupt", f"{name}: the zstd frame is cut")
    if decompressor.unused_data:
        raise Corrupt("root-corrupt", f"{name}: bytes follow the zstd frame")
    return plain


def read_rows(plain: bytes, count: int, codec: EntryCodec, *, name: str, block: int) -> tuple[Row, ...]:
    """The `count` rows of decompressed block number `block`.

    Raises:
        Corrupt: `root-corrupt`: a row cannot be read or breaks a rule, or the rows do not end where the bytes do.

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
