"""A root as one object: Avro file header, blocks, and the digest that covers every byte.

Owns: joining blocks under a header, taking a root apart and proving it whole. Does not own: rows and blocks
(`root_block_codec`), the header's parts (`header_codec`), which blocks the next root reuses (`rootline.tree`).
Invariants: a root reads in any Avro library; every flipped bit and every cut tail is `Corrupt`; nothing is
decompressed or decoded before the digest agrees; hostile bytes raise `Corrupt` only and bound their memory.

The digest is SHA-256 over the file header (magic, metadata, sync marker), its own 64 hex digits read as zeros, and
then the SHA-256 of each block in order. Blocks keep theirs, so a commit hashes the header and the fresh block only.

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

from rootline.schemas.bytes.root.entry_codec import EntryCodec
from rootline.schemas.bytes.root.header_codec import CONTENT, FORMAT_VERSION, PROFILE_KEY, decode_header, encode_header
from rootline.schemas.bytes.root.root_block_codec import (
    BLOCK_BYTES_MAX,
    SYNC_BYTES,
    RootBlock,
    Row,
    decompress,
    read_rows,
    row_bytes,
    seal,
)
from rootline.schemas.bytes.values.avro_primitives import (
    Unreadable,
    encode_bytes,
    encode_long,
    encode_string,
    read_bytes,
    read_fixed,
    read_long,
    read_string,
)
from rootline.schemas.errors import Corrupt, Internal
from rootline.schemas.field_ids import PROFILE
from rootline.schemas.root_header import RootHeader

ROOT_ENTRIES_MAX: Final = 262_144
ROOT_BYTES_MAX: Final = 4 * BLOCK_BYTES_MAX
"""Of all blocks, decompressed."""
_MAGIC: Final = b"Obj\x01"
_DIGEST_KEY: Final = "rootline.digest"
_ENTRIES_KEY: Final = "rootline.entries"
_BLOCKS_KEY: Final = "rootline.blocks"
_DIGEST_ZEROS: Final = b"0" * 64
_CODE: Final = "root-corrupt"


@dataclass(frozen=True, slots=True)
class Root:
    """A root that is whole: header, blocks, digest, and what the next root needs of it."""

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
        """How many rows there are."""
        return sum(len(block.rows) for block in self.blocks)


@dataclass(frozen=True, slots=True)
class _FileHeader:
    metadata: Mapping[str, bytes]
    sync: bytes
    end: int
    digest_start: int | None


@dataclass(frozen=True, slots=True)
class _FoundBlock:
    count: int
    frame: bytes
    encoded: bytes
    digest: bytes


def sync_marker(table_uuid: uuid.UUID) -> bytes:
    """The 16 bytes that end every block of every root of one table."""
    return hashlib.sha256(table_uuid.bytes).digest()[:SYNC_BYTES]


def encode_root(header: RootHeader, blocks: Sequence[RootBlock], codec: EntryCodec, sync: bytes) -> tuple[Root, bytes]:
    """(the root, its bytes): the header in front of blocks that are joined as they are.

    Args:
        header: of this root.
        blocks: sealed with `sync`, their rows in `codec`'s layout.
        codec: whose schema the file states.
        sync: `sync_marker` of the table.

    Raises:
        Internal: `invariant-broken`: foreign blocks, or more entries than a reader accepts.

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
    parts: list[bytes] = []
    for key, value in metadata.items():
        parts += (_key(key), encode_long(len(value)), value)
    before_digest = b"".join(parts)[: -len(_DIGEST_ZEROS)]
    after_digest = b"\x00" + sync
    hashing = opening_hashed.copy()
    hashing.update(before_digest + _DIGEST_ZEROS + after_digest)
    digest = _with_blocks(hashing, blocks)
    encoded = [block.encoded for block in blocks]
    body = b"".join((opening, before_digest, digest.hex().encode(), after_digest, *encoded))
    return Root(header, tuple(blocks), digest, sync, codec, len(body)), body


_key: Final = lru_cache(maxsize=64)(encode_string)


@lru_cache(maxsize=64)
def _opening(schema_json: bytes, more_keys: int) -> tuple[bytes, hashlib._Hash]:
    """(how the files of a table begin, its hash): the schema is most of a file header, and stays the same."""
    opening = [_MAGIC, encode_long(2 + more_keys)]
    for key, value in (("avro.schema", schema_json), ("avro.codec", b"zstandard")):
        opening += (encode_string(key), encode_bytes(value))
    joined = b"".join(opening)
    return joined, hashlib.sha256(joined)


def decode_root(body: bytes, *, name: str, known: Root | None = None) -> Root:
    """The root that `body` holds; everything that decides something is verified.

    Args:
        body: the whole object.
        name: what an error calls it (its key).
        known: a proven root of the same table; blocks that are equal to its own are not decoded again.

    Raises:
        Corrupt: `root-corrupt`: the bytes are not what was written; `profile-unknown`: they are, in another format.

    """
    try:
        file_header = _read_file_header(body)
        found = _read_blocks(body, file_header)
        digest = _proven_digest(body, file_header, found)
    except Unreadable as error:
        raise Corrupt(_CODE, f"{name}: {error}") from None
    metadata = file_header.metadata
    _check_profile(metadata, name)
    try:
        header = decode_header(metadata)
        codec = EntryCodec.of_avro_schema(metadata["avro.schema"])
        _check_counts(metadata, found)
    except (ValueError, KeyError) as error:
        raise Corrupt(_CODE, f"{name}: {error}") from None
    if metadata.get("avro.codec") != b"zstandard":
        raise Corrupt(_CODE, f"{name}: the blocks' codec is not zstandard")
    if file_header.sync != sync_marker(header.table_uuid):
        raise Corrupt(_CODE, f"{name}: the sync marker is not that of table {header.table_uuid}")
    at_hand = {} if known is None or known.codec != codec else {block.digest: block for block in known.blocks}
    blocks = _decode_blocks(found, codec, name, at_hand)
    return Root(header, blocks, digest, file_header.sync, codec, len(body))


def _with_blocks(hashing: hashlib._Hash, blocks: Sequence[RootBlock] | Sequence[_FoundBlock]) -> bytes:
    """The digest of a root whose file header went into `hashing`."""
    hashing.update(b"".join([block.digest for block in blocks]))
    return hashing.digest()


def _read_file_header(body: bytes) -> _FileHeader:
    if body[: len(_MAGIC)] != _MAGIC:
        raise Unreadable("not an Avro file")
    count, position = read_long(body, len(_MAGIC))
    if not 0 < count <= len(body):
        raise Unreadable(f"the file metadata announces {count} keys")
    metadata: dict[str, bytes] = {}
    digest_start = None
    for _ in range(count):
        key, position = read_string(body, position)
        value, position = read_bytes(body, position)
        if key in metadata:
            raise Unreadable(f"the file metadata has {key[:40]!r} twice")
        metadata[key] = value
        if key == _DIGEST_KEY:
            digest_start = position - len(value)
    end_of_map, position = read_long(body, position)
    if end_of_map != 0:
        raise Unreadable("the file metadata does not end")
    sync, position = read_fixed(body, position, SYNC_BYTES)
    return _FileHeader(metadata, sync, position, digest_start)


def _read_blocks(body: bytes, file_header: _FileHeader) -> list[_FoundBlock]:
    found: list[_FoundBlock] = []
    position = file_header.end
    while position < len(body):
        start = position
        count, position = read_long(body, position)
        frame, position = read_bytes(body, position)
        sync, position = read_fixed(body, position, SYNC_BYTES)
        if count <= 0:
            raise Unreadable(f"block {len(found)} announces {count} entries")
        if sync != file_header.sync:
            raise Unreadable(f"block {len(found)} does not end with the sync marker")
        encoded = body[start:position]
        found.append(_FoundBlock(count, frame, encoded, hashlib.sha256(encoded).digest()))
    return found


def _proven_digest(body: bytes, file_header: _FileHeader, found: Sequence[_FoundBlock]) -> bytes:
    start = file_header.digest_start
    if start is None:
        raise Unreadable("the file metadata has no digest")
    stated = file_header.metadata[_DIGEST_KEY]
    zeroed = b"".join((body[:start], b"0" * len(stated), body[start + len(stated) : file_header.end]))
    digest = _with_blocks(hashlib.sha256(zeroed), found)
    if digest.hex().encode() != stated:
        raise Unreadable(
            f"the digest of the bytes is {digest.hex()[:16]}…, the header says {stated[:16].decode(errors='replace')}…"
        )
    return digest


def _check_profile(metadata: Mapping[str, bytes], name: str) -> None:
    profile = metadata.get(PROFILE_KEY)
    if profile != PROFILE.encode() or metadata.get("format-version") != FORMAT_VERSION:
        raise Corrupt("profile-unknown", f"{name}: format profile {profile!r:.60}, this version reads {PROFILE}")
    if metadata.get("content") != CONTENT:
        raise Corrupt(_CODE, f"{name}: the content is {metadata.get('content')!r:.60}, not a root")


def _check_counts(metadata: Mapping[str, bytes], found: Sequence[_FoundBlock]) -> None:
    entries = sum(block.count for block in found)
    if metadata[_BLOCKS_KEY] != str(len(found)).encode():
        raise ValueError(f"{len(found)} blocks where the header counts {metadata[_BLOCKS_KEY]!r:.30}")
    if metadata[_ENTRIES_KEY] != str(entries).encode():
        raise ValueError(f"{entries} entries where the header counts {metadata[_ENTRIES_KEY]!r:.30}")
    if entries > ROOT_ENTRIES_MAX:
        raise ValueError(f"{entries} entries where at most {ROOT_ENTRIES_MAX} can be read")


def _decode_blocks(
    found: Sequence[_FoundBlock], codec: EntryCodec, name: str, at_hand: Mapping[bytes, RootBlock]
) -> tuple[RootBlock, ...]:
    blocks: list[RootBlock] = []
    bytes_left = ROOT_BYTES_MAX
    for number, block in enumerate(found):
        same = at_hand.get(block.digest)
        if same is not None:
            blocks.append(same)
            continue
        plain = decompress(block.frame, name=f"{name}: block {number}")
        bytes_left -= len(plain)
        if bytes_left < 0:
            raise Corrupt(_CODE, f"{name}: the blocks decompress to more than {ROOT_BYTES_MAX} bytes")
        rows = read_rows(plain, block.count, codec, name=name, block=number)
        blocks.append(RootBlock(rows, block.encoded, block.digest))
    return tuple(blocks)


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
