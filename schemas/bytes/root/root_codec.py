"""A root as one object: Avro file header, blocks of rows, and the digest that covers every byte.

Owns: the value types of rows and blocks, sealing rows into a block (encoding, compressing and hashing them), joining
blocks under a header, splitting a root into blocks and proving it intact. Does not own: the header's parts
(`header_codec`), which rows go into which block and which blocks the next root reuses (`rootline.tree`).
Invariants:
* Any Avro library reads a root.
* Every flipped bit and every truncation raises `Corrupt`. Hostile bytes only raise `Corrupt`, and use bounded memory:
  no frame decompresses to more than `PLAIN_BYTES_MAX`.
* Nothing is decompressed or decoded before the digest matches.
* A block is exactly one zstd frame with a checksum. Its digest covers count, size, frame and sync marker.
* A row that breaks a rule of `entry_rules` is neither written nor read.

The digest is SHA-256 over the file header (magic, metadata, sync marker), with its own 64 hex digits as zeros, and then
the SHA-256 of each block in order. Blocks keep their digests, so a commit only hashes the header and the new block.

Source: format page, "Root manifest" and "Integrity".
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Final

from rootline.schemas.bytes.avro_encoding import (
    END_OF_METADATA,
    PLAIN_BYTES_MAX,
    SYNC_BYTES,
    Block,
    Head,
    Unreadable,
    compress,
    decompress,
    encode_block,
    encode_opening,
    encode_pairs,
    read_blocks,
    read_head,
)
from rootline.schemas.bytes.root.entry_codec import EntryCodec, encode_version_info
from rootline.schemas.bytes.root.header_codec import FORMAT_VERSION, PROFILE_KEY, decode_header, encode_header
from rootline.schemas.bytes.root.statistics_codec import LazyStats
from rootline.schemas.content_entry import ContentEntry, VersionInfo, quick
from rootline.schemas.entry_rules import fault_of_row
from rootline.schemas.errors import Corrupt, Internal
from rootline.schemas.field_ids import PROFILE, PROFILE_OF_EXPIRY
from rootline.schemas.parts.name import NameState
from rootline.schemas.root_header import RootHeader

__all__ = [
    "ROOT_ENTRIES_MAX",
    "Root",
    "RootBlock",
    "Row",
    "decode_root",
    "encode_root",
    "row_bytes",
    "seal",
    "sync_marker",
]


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
        """The same row, with its statistics encoded in the layout of `codec`. Returns `self` if the row has no
        statistics.
        """
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
        codec: the codec of the root that will contain the block.
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


ROOT_ENTRIES_MAX: Final = 262_144
ROOT_BYTES_MAX: Final = 4 * PLAIN_BYTES_MAX
"""The most bytes of all blocks, decompressed."""
_DIGEST_KEY: Final = "rootline.digest"
_ENTRIES_KEY: Final = "rootline.entries"
_BLOCKS_KEY: Final = "rootline.blocks"
_DIGEST_ZEROS: Final = b"0" * 64
_CONTENTS: Final = frozenset(state.encode() for state in NameState)
_PROFILES: Final = (PROFILE.encode(), PROFILE_OF_EXPIRY.encode())
_CODE: Final = "root-corrupt"


@dataclass(frozen=True, slots=True)
class Root:
    """An intact root: header, blocks, digest, and the values that the next root needs."""

    header: RootHeader
    blocks: tuple[RootBlock, ...]
    digest: bytes
    sync: bytes
    codec: EntryCodec
    size_in_bytes: int

    @property
    def rows(self) -> Iterator[Row]:
        """All rows, in order."""
        return chain.from_iterable(block.rows for block in self.blocks)

    @property
    def row_count(self) -> int:
        """The number of rows."""
        return sum(len(block.rows) for block in self.blocks)


def sync_marker(table_uuid: uuid.UUID) -> bytes:
    """The 16 bytes that end every block of every root of one table."""
    return hashlib.sha256(table_uuid.bytes).digest()[:SYNC_BYTES]


def encode_root(header: RootHeader, blocks: Sequence[RootBlock], codec: EntryCodec, sync: bytes) -> tuple[Root, bytes]:
    """(the root, its bytes): the header, followed by the blocks unchanged.

    Args:
        header: the header of this root.
        blocks: sealed with `sync`, with rows in `codec`'s layout.
        codec: its schema is stored in the file.
        sync: `sync_marker` of the table.

    Raises:
        Internal: `invariant-broken`: blocks of another table, or more entries than a reader accepts.
    """
    entries = sum([len(block.rows) for block in blocks])
    if entries > ROOT_ENTRIES_MAX:
        raise Internal("invariant-broken", f"a root of {entries} entries: at most {ROOT_ENTRIES_MAX} can be read")
    if sync != sync_marker(header.table_uuid) or not all(block.encoded.endswith(sync) for block in blocks):
        raise Internal("invariant-broken", f"the sync marker is not that of table {header.table_uuid}")
    metadata = {
        **encode_header(header),
        _ENTRIES_KEY: str(entries).encode(),
        _BLOCKS_KEY: str(len(blocks)).encode(),
        _DIGEST_KEY: _DIGEST_ZEROS,
    }
    opening, opening_hashed = _opening(codec.schema_json, len(metadata))
    before_digest = encode_pairs(metadata)[: -len(_DIGEST_ZEROS)]
    after_digest = END_OF_METADATA + sync
    hashing = opening_hashed.copy()
    hashing.update(before_digest + _DIGEST_ZEROS + after_digest)
    digest = _with_blocks(hashing, [block.digest for block in blocks])
    encoded = [block.encoded for block in blocks]
    body = b"".join((opening, before_digest, digest.hex().encode(), after_digest, *encoded))
    return Root(header, tuple(blocks), digest, sync, codec, len(body)), body


@lru_cache(maxsize=64)
def _opening(schema_json: bytes, more_keys: int) -> tuple[bytes, hashlib._Hash]:
    """(the first bytes of a root, their hash). Cached for each schema, because the schema is most of these bytes and
    rarely changes.
    """
    opening = encode_opening(2 + more_keys) + encode_pairs({"avro.schema": schema_json, "avro.codec": b"zstandard"})
    return opening, hashlib.sha256(opening)


def decode_root(body: bytes, *, name: str, known: Root | None = None) -> Root:
    """The root in `body`. Every value that affects a decision is verified.

    Args:
        body: the whole object.
        name: the object's key, for error messages.
        known: a proven root of the same table. Blocks equal to its blocks are not decoded again.

    Raises:
        Corrupt: `root-corrupt`: the bytes were changed; `profile-unknown`: they are intact, but in another format.
    """
    try:
        head = read_head(body)
        found = [(block, hashlib.sha256(block.encoded).digest()) for block in read_blocks(body, head)]
        digest = _proven_digest(body, head, [block_digest for _, block_digest in found])
    except Unreadable as error:
        raise Corrupt(_CODE, f"{name}: {error}") from None
    metadata = head.metadata
    _check_profile(metadata, name)
    try:
        header = decode_header(metadata)
        codec = EntryCodec.of_avro_schema(metadata["avro.schema"])
        _check_counts(metadata, [block.count for block, _ in found])
    except (ValueError, KeyError) as error:
        raise Corrupt(_CODE, f"{name}: {error}") from None
    if metadata.get("avro.codec") != b"zstandard":
        raise Corrupt(_CODE, f"{name}: the blocks' codec is not zstandard")
    if head.sync != sync_marker(header.table_uuid):
        raise Corrupt(_CODE, f"{name}: the sync marker is not that of table {header.table_uuid}")
    at_hand = {} if known is None or known.codec != codec else {block.digest: block for block in known.blocks}
    blocks = _decode_blocks(found, codec, name, at_hand)
    return Root(header, blocks, digest, head.sync, codec, len(body))


def _with_blocks(hashing: hashlib._Hash, block_digests: Sequence[bytes]) -> bytes:
    """The digest of a root. `hashing` already contains its file header."""
    hashing.update(b"".join(block_digests))
    return hashing.digest()


def _proven_digest(body: bytes, head: Head, block_digests: Sequence[bytes]) -> bytes:
    stated = head.metadata.get(_DIGEST_KEY)
    if stated is None:
        raise Unreadable("the file metadata has no digest")
    stated_end = head.value_ends[_DIGEST_KEY]
    zeroed = b"".join((body[: stated_end - len(stated)], b"0" * len(stated), body[stated_end : head.end]))
    digest = _with_blocks(hashlib.sha256(zeroed), block_digests)
    if digest.hex().encode() != stated:
        raise Unreadable(
            f"the digest of the bytes is {digest.hex()[:16]}…, the header has {stated[:16].decode(errors='replace')}…"
        )
    return digest


def _check_profile(metadata: Mapping[str, bytes], name: str) -> None:
    profile = metadata.get(PROFILE_KEY)
    if profile not in _PROFILES or metadata.get("format-version") != FORMAT_VERSION:
        raise Corrupt(
            "profile-unknown", f"{name}: format profile {profile!r:.60}, but this release reads {PROFILE} and 2"
        )
    if metadata.get("content") not in _CONTENTS:
        raise Corrupt(_CODE, f"{name}: the content is {metadata.get('content')!r:.60}, not a root")


def _check_counts(metadata: Mapping[str, bytes], counts: Sequence[int]) -> None:
    entries = sum(counts)
    if metadata[_BLOCKS_KEY] != str(len(counts)).encode():
        raise ValueError(f"{len(counts)} blocks, but the header counts {metadata[_BLOCKS_KEY]!r:.30}")
    if metadata[_ENTRIES_KEY] != str(entries).encode():
        raise ValueError(f"{entries} entries, but the header counts {metadata[_ENTRIES_KEY]!r:.30}")
    if entries > ROOT_ENTRIES_MAX:
        raise ValueError(f"{entries} entries, but at most {ROOT_ENTRIES_MAX} can be read")


def _decode_blocks(
    found: Sequence[tuple[Block, bytes]], codec: EntryCodec, name: str, at_hand: Mapping[bytes, RootBlock]
) -> tuple[RootBlock, ...]:
    blocks: list[RootBlock] = []
    bytes_left = ROOT_BYTES_MAX
    for number, (block, digest) in enumerate(found):
        same = at_hand.get(digest)
        if same is not None:
            blocks.append(same)
            continue
        try:
            plain = decompress(block.packed)
        except Unreadable as error:
            raise Corrupt(_CODE, f"{name}: block {number}: {error}") from None
        bytes_left -= len(plain)
        if bytes_left < 0:
            raise Corrupt(_CODE, f"{name}: the blocks decompress to more than {ROOT_BYTES_MAX} bytes")
        rows = read_rows(plain, block.count, codec, name=name, block=number)
        blocks.append(RootBlock(rows, block.encoded, digest))
    return tuple(blocks)
