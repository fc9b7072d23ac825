from __future__ import annotations

import random
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap, BitMap64

from rootline.schemas.bytes.vector_codec import VECTOR_MAGIC as MAGIC
from rootline.schemas.bytes.vector_codec import decode_inline, decode_vector, encode_inline, encode_vector
from rootline.schemas.errors import Corrupt
from tests.golden_files import golden

POSITIONS = [0, 1, 2, 3, 1_000, *range(70_000, 90_000), *range(200_000, 260_000, 7), 2**33, 2**62]


def framed(bitmap: bytes) -> bytes:
    body = MAGIC + bitmap
    return len(body).to_bytes(4, "big") + body + zlib.crc32(body).to_bytes(4, "big")


def refuse(blob: bytes, *, cardinality: int | None = None) -> str:
    with pytest.raises(Corrupt, match="blob seven") as caught:
        decode_vector(blob, name="blob seven", cardinality=cardinality)
    assert caught.value.code == "vector-corrupt"
    return caught.value.message


@given(st.sets(st.integers(0, 2**64 - 1)), st.lists(st.tuples(st.integers(0, 2**40), st.integers(1, 200_000))))
def test_a_vector_reads_back_as_it_was_written(single: set[int], ranges: list[tuple[int, int]]) -> None:
    vector = BitMap64(single)
    for start, length in ranges[:5]:
        vector.add_range(start, start + length)
    blob = encode_vector(vector)
    assert decode_vector(blob, name="v", cardinality=len(vector)) == vector
    assert blob[4:8] == bytes.fromhex("d1d33964")


@given(st.sets(st.integers(0, 2**32 - 1)), st.lists(st.tuples(st.integers(0, 2**31), st.integers(1, 200_000))))
def test_an_inline_vector_reads_back_as_it_was_written(single: set[int], ranges: list[tuple[int, int]]) -> None:
    vector = BitMap(single)
    for start, length in ranges[:5]:
        vector.add_range(start, start + length)
    assert decode_inline(encode_inline(vector), name="v", cardinality=len(vector)) == vector


def test_vectors_that_were_released_stay_readable() -> None:
    blob = golden("vector.bin", encode_vector(BitMap64(POSITIONS)))
    assert list(decode_vector(blob, name="v")) == POSITIONS
    inline = golden("vector-inline.bin", encode_inline(BitMap([1, 2, 3, 65_535])))
    assert list(decode_inline(inline, name="v")) == [1, 2, 3, 65_535]


def test_writing_a_vector_leaves_it_as_it_was() -> None:
    vector = BitMap64(range(1000))
    before = vector.serialize()
    encode_vector(vector)
    assert vector.serialize() == before


def test_every_flipped_bit_and_every_cut_is_noticed() -> None:
    blob = encode_vector(BitMap64([3, 5, 9, 2**33]))
    for bit in range(8 * len(blob)):
        changed = bytearray(blob)
        changed[bit // 8] ^= 1 << bit % 8
        refuse(bytes(changed))
    for size in range(len(blob)):
        refuse(blob[:size])
    refuse(blob + b"\x00")


def test_each_reason_is_named() -> None:
    blob = encode_vector(BitMap64([3]))
    assert "it has 1 positions, its entry says 2" in refuse(blob, cardinality=2)
    assert "length field" in refuse(blob[:-1])
    assert "magic" in refuse(blob[:4] + b"\x00" + blob[5:])
    assert "CRC" in refuse(blob[:-1] + bytes([blob[-1] ^ 1]))
    assert "follow the bitmap" in refuse(framed(blob[8:-4] + b"\x00"))


def _mutations(bitmap: bytes, seed: int) -> list[bytes]:
    seeded = random.Random(seed)
    found = []
    for _ in range(1500):
        changed = bytearray(bitmap)
        for _ in range(seeded.choice((1, 1, 1, 2, 5))):
            changed[seeded.randrange(min(len(changed), 200))] = seeded.randrange(256)
        found.append(bytes(changed[: seeded.choice((len(changed), len(changed), seeded.randrange(len(changed))))]))
    return found


@pytest.mark.parametrize(
    "positions",
    [[1, 5, 9], range(50), [*range(5000, 70_000, 2)], [1, 2**16, 2**17, 2**18, 2**33, *range(2**20, 2**21)]],
)
def test_bytes_with_a_right_crc_are_either_the_bitmap_they_look_like_or_refused(positions: list[int]) -> None:
    """A hostile writer can make the CRC agree: what passes must be a bitmap that says the same when written again."""
    vector = BitMap64(positions)
    vector.run_optimize()
    for bitmap in _mutations(vector.serialize(), len(vector)):
        _same_or_refused(lambda data: decode_vector(framed(data), name="v"), bitmap)
    inline = BitMap([position for position in positions if position < 2**32])
    inline.run_optimize()
    for bitmap in _mutations(inline.serialize(), len(inline)):
        _same_or_refused(lambda data: decode_inline(data, name="v"), bitmap)


def _same_or_refused(decode: Callable[[bytes], BitMap | BitMap64], bitmap: bytes) -> None:
    try:
        read = decode(bitmap)
    except Corrupt as error:
        assert error.code == "vector-corrupt"  # noqa: PT017
    else:
        assert read.serialize() == bitmap
        assert len(read) < 2**22
        assert type(read)(read.to_array()) == read


def test_forged_structures_are_refused_before_the_library_sees_them() -> None:
    def array(*values: int, claimed: int | None = None) -> bytes:
        header = (12346).to_bytes(4, "little") + (1).to_bytes(4, "little") + bytes(2)
        count = (len(values) if claimed is None else claimed) - 1
        offset = (16).to_bytes(4, "little")
        return header + count.to_bytes(2, "little") + offset + b"".join(v.to_bytes(2, "little") for v in values)

    def runs(*pairs: tuple[int, int], claimed: int) -> bytes:
        header = (12347).to_bytes(4, "little") + b"\x01" + bytes(2) + (claimed - 1).to_bytes(2, "little")
        body = b"".join(v.to_bytes(2, "little") for pair in pairs for v in pair)
        return header + len(pairs).to_bytes(2, "little") + body

    assert list(decode_inline(array(1, 2), name="v")) == [1, 2]
    assert list(decode_inline(runs((1, 1), (5, 0), claimed=3), name="v")) == [1, 2, 5]
    for forged in (
        array(2, 1),
        array(1, 1),
        array(1, 2, claimed=3),
        array(1, 2, claimed=1),
        array(1, claimed=5000),
        runs((5, 0), (1, 1), claimed=3),
        runs((1, 5), (3, 1), claimed=8),
        runs((65_535, 1), claimed=2),
        runs((1, 1), claimed=3),
        runs(claimed=1),
        (12347 | 0xFFFF << 16).to_bytes(4, "little"),
        (12346).to_bytes(4, "little") + b"\xff" * 4,
        b"",
    ):
        with pytest.raises(Corrupt, match="inline"):
            decode_inline(forged, name="inline")
    refuse(framed(b"\xff" * 8))
    refuse(framed((2).to_bytes(8, "little") + 2 * (bytes(4) + array(1))))
