"""How large a bit vector of random positions is, by encoding, density and length, beside the specification's figures.

Owns: drawing positions, encoding them four ways, the table. Does not own: the vectors' codecs.
Invariants: the same seed gives the same table; every encoding is of the same positions, and decodes to them.

Source: the table "Compressed Sizes (bytes) of Bit Vectors" in the appendix of Iceberg's single file commits proposal.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from statistics import median
from typing import Final

import pyarrow as pa
from pyroaring import BitMap

from rootline.schemas.bytes.vector_codec import decode_inline, encode_inline

LENGTHS: Final = (1_000, 10_000, 100_000, 1_000_000)
DENSITIES: Final = (0.01, 0.05, 0.1, 0.2)
_DRAWS: Final = 5
_SEED: Final = 7
_THEIRS: Final[dict[str, tuple[tuple[int, ...], ...]]] = {
    "Roaring": (
        (36, 216, 2_024, 20_136),
        (116, 1_016, 10_024, 100_136),
        (216, 2_016, 15_340, 126_440),
        (416, 4_016, 16_408, 129_918),
    ),
    "raw": (
        (123, 1_247, 12_485, 124_980),
        (123, 1_247, 12_494, 124_985),
        (123, 1_247, 12_500, 125_000),
        (125, 1_250, 12_500, 125_000),
    ),
    "LZ4": (
        (57, 383, 3_545, 32_713),
        (98, 920, 8_480, 75_451),
        (130, 1_155, 10_600, 108_987),
        (135, 1_264, 12_541, 125_493),
    ),
    "ZSTD-3": (
        (46, 224, 1_826, 17_690),
        (93, 533, 4_727, 46_987),
        (97, 715, 6_599, 67_170),
        (129, 981, 9_227, 91_923),
    ),
}
"""Bytes: a row for each density, a column for each length."""


_READING: Final = (
    "Roaring costs two bytes a position until a container of 65,536 is a sixteenth full, and 8 KiB a container from "
    "there. ZSTD over plain bits is half of that at five positions in a hundred, and no better at one in a hundred. "
    "The manifest vector of a leaf, 65,536 entries at most, is a single container."
)


def section() -> str:
    """The chapter as Markdown."""
    lines = [
        f"Bytes of a vector of random positions (median of {_DRAWS} draws, seed {_SEED}), in brackets the figure "
        "of the proposal. Roaring is what we write: portable, 32 bits, run-optimised. LZ4 and ZSTD compress the raw "
        "bits.",
        "",
        "| encoding | density | " + " | ".join(f"{length:,}" for length in LENGTHS) + " |",
        "|---|---|" + "---:|" * len(LENGTHS),
    ]
    lines += [_row(name, at) for name in _THEIRS for at in range(len(DENSITIES))]
    return "\n".join([*lines, "", _READING])


def sizes_of(positions: frozenset[int]) -> dict[str, int]:
    """Encoding → bytes of the vector that holds `positions`."""
    raw = raw_bits(positions)
    encoded = {name: encode(raw, positions) for name, encode in _ENCODINGS.items()}
    assert set(decode_inline(encoded["Roaring"], name="this vector")) == positions
    return {name: len(body) for name, body in encoded.items()}


def drawn(length: int, density: float) -> Iterator[frozenset[int]]:
    """Positions to delete, `density` of `length`, drawn again each time."""
    chance = random.Random(f"{_SEED}/{length}/{density}")
    while True:
        yield frozenset(chance.sample(range(length), round(length * density)))


def _row(name: str, at: int) -> str:
    cells = []
    for column, length in enumerate(LENGTHS):
        draws = drawn(length, DENSITIES[at])
        ours = median(sizes_of(next(draws))[name] for _ in range(_DRAWS))
        cells.append(f"{ours:,.0f} ({_THEIRS[name][at][column]:,})")
    return f"| {name} | {DENSITIES[at]:g} | " + " | ".join(cells) + " |"


def raw_bits(positions: frozenset[int]) -> bytes:
    """One bit for each position, up to the last that is set."""
    bits = bytearray(max(positions, default=-1) // 8 + 1)
    for position in positions:
        bits[position >> 3] |= 1 << (position & 7)
    return bytes(bits)


_ENCODINGS: Final[dict[str, Callable[[bytes, frozenset[int]], bytes]]] = {
    "Roaring": lambda _, positions: encode_inline(BitMap(sorted(positions))),
    "raw": lambda raw, _: raw,
    "LZ4": lambda raw, _: pa.Codec("lz4").compress(raw, asbytes=True),
    "ZSTD-3": lambda raw, _: pa.Codec("zstd", compression_level=3).compress(raw, asbytes=True),
}
