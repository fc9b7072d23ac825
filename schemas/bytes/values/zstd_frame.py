"""One zstd frame with a checksum: how the blocks of roots and pages are packed.

Owns: packing, and unpacking within bounds. Does not own: the file around the frames (`avro_container`).
Invariants: a frame is exactly one, has its checksum, and is consumed whole; hostile bytes raise `Unreadable` only and
never take more memory than `PLAIN_BYTES_MAX`.

Source: `docs/decisions/0003-zstd-with-checksums.md`.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Mapping
from typing import Final

from rootline.schemas.bytes.values.avro_primitives import Unreadable

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

PLAIN_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of one frame, decompressed."""
_COMPRESSION: Final[Mapping[int, int]] = {
    zstd.CompressionParameter.checksum_flag: 1,
    zstd.CompressionParameter.compression_level: 3,
}
_IDLE: Final[deque[zstd.ZstdCompressor]] = deque(maxlen=8)  # compressors that are not in use at the moment
_DECOMPRESSION: Final[Mapping[int, int]] = {zstd.DecompressionParameter.window_log_max: 26}
_FRAME_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_CHECKSUM_BIT: Final = 0x04


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


def decompress(frame: bytes) -> bytes:
    """What one zstd frame with a checksum holds. Raises `Unreadable`: not exactly one such frame, or too large."""
    if frame[:4] != _FRAME_MAGIC or len(frame) < 5 or not frame[4] & _CHECKSUM_BIT:
        raise Unreadable("not a zstd frame with a checksum")
    decompressor = zstd.ZstdDecompressor(options=_DECOMPRESSION)
    try:
        plain = decompressor.decompress(frame, max_length=PLAIN_BYTES_MAX + 1)
    except zstd.ZstdError as error:
        raise Unreadable(str(error)) from None
    if len(plain) > PLAIN_BYTES_MAX:
        raise Unreadable(f"decompresses to more than {PLAIN_BYTES_MAX} bytes")
    if not decompressor.eof:
        raise Unreadable("the zstd frame is cut")
    if decompressor.unused_data:
        raise Unreadable("bytes follow the zstd frame")
    return plain
