"""The Avro file of an exported manifest or manifest list: deflate, which every Avro library reads.

The same rows make the same bytes, as far as zlib does: builds of it may compress differently, so a caller that finds
other bytes under the same name compares what they say.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from typing import Final

from rootline.schemas.bytes import avro_encoding as avro_container
from rootline.schemas.bytes.avro_encoding import SYNC_BYTES

CODEC: Final = "deflate"
"""The one codec besides none that every Avro library has."""
_BLOCK_BYTES: Final = 256 * 1024
_LEVEL: Final = 1
"""With statistics of 20 columns 0.4 of the time of zlib's default for 1.03 of the bytes, 0.63 of them uncompressed."""


def encode_container(metadata: Mapping[str, bytes], rows: Iterable[bytes], sync: bytes) -> bytes:
    """The file of `rows`; arguments as `avro_container.encode_container`, which owns the form. The codec is added."""
    metadata = {**metadata, "avro.codec": CODEC.encode()}
    return avro_container.encode_container(metadata, rows, sync, pack=_deflated, block_bytes=_BLOCK_BYTES)


def _deflated(plain: bytes) -> bytes:
    """Without zlib's own header and checksum, as Avro has it."""
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    return packer.compress(plain) + packer.flush()


__all__ = ["CODEC", "SYNC_BYTES", "encode_container"]
