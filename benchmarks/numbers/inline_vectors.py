"""Whether inline manifest vectors should be compressed before they go into a root, whose blocks are compressed too.

Owns: roots' blocks of manifest vectors, both ways, their bytes and CPU. Does not own: the block codec.
Invariants: both ways hold the same vectors; the times of both are measured in turn.
"""

from __future__ import annotations

import time
from itertools import islice
from typing import Final

from pyroaring import BitMap

from benchmarks.measure import Spread
from benchmarks.numbers.vector_sizes import drawn, raw_bits
from benchmarks.sample_table import definition
from rootline.schemas.bytes.avro_encoding import compress
from rootline.schemas.bytes.root.entry_codec import EntryCodec
from rootline.schemas.bytes.root.root_codec import Row, seal, sync_marker
from rootline.schemas.bytes.vector_codec import encode_inline
from rootline.schemas.content_entry import ContentEntry, ContentType, DeletionVector, FileFormat, Status, VersionInfo

_LEAVES: Final = 20
_ENTRIES: Final = 50_000
_SAMPLES: Final = 15


def section() -> str:
    """The chapter as Markdown."""
    lines = [
        f"A block of {_LEAVES} inline manifest vectors, one for each leaf of {_ENTRIES:,} entries: bytes in the root, "
        f"and CPU to make it (median of {_SAMPLES}, in turn). A root's block is one zstd frame in every case; `twice` "
        "has a frame for each vector inside it; the last column holds plain bits instead of Roaring.",
        "",
        "| dead entries of a leaf | vectors | block as it is | block of compressed vectors | CPU | CPU twice | "
        "block of plain bits |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [_row(f"{dead:,} at random", dead / _ENTRIES) for dead in (5, 50, 500, 2_500, 5_000, 10_000)]
    lines += [_line(f"{dead:,} in a row", [BitMap(range(dead))] * _LEAVES) for dead in (500, 10_000)]
    return "\n".join([*lines, "", *_READING])


_READING: Final = (
    "So they stay as they are: what a compressor can take out of Roaring, the block's own frame takes out already, and "
    "a reader needs no second decoder. Plain bits under zstd would be half as large where one entry in twenty is dead "
    "at random, and a third to a half larger where few are; by then compaction is the better answer. A vector of one "
    "leaf is at most 8 KiB.",
)


def _row(name: str, density: float) -> str:
    return _line(name, [BitMap(sorted(positions)) for positions in islice(drawn(_ENTRIES, density), _LEAVES)])


def _line(name: str, vectors: list[BitMap]) -> str:
    plain = [encode_inline(vector) for vector in vectors]
    bits = [raw_bits(frozenset(vector)) for vector in vectors]
    once, twice = _timed(plain, is_twice=False), _timed(plain, is_twice=True)
    seconds: tuple[list[float], list[float]] = ([], [])
    for _ in range(_SAMPLES):
        seconds[0].append(_timed(plain, is_twice=False)[1])
        seconds[1].append(_timed(plain, is_twice=True)[1])
    cpu = [f"{1_000 * Spread.of(each).median:.2f} ms" for each in seconds]
    sizes = (sum(map(len, plain)), once[0], twice[0])
    as_bits = _timed(bits, is_twice=False)[0]
    return f"| {name} | " + " | ".join(f"{size:,}" for size in sizes) + f" | {cpu[0]} | {cpu[1]} | {as_bits:,} |"


def _timed(plain: list[bytes], *, is_twice: bool) -> tuple[int, float]:
    table = definition()
    codec = EntryCodec.of_definition(table)
    began = time.process_time()
    contents = [compress(content) if is_twice else content for content in plain]
    rows = [Row.of(_entry(number, content), codec) for number, content in enumerate(contents)]
    block = seal(rows, codec, sync_marker(table.table_uuid))
    return len(block.encoded), time.process_time() - began


def _entry(leaf: int, content: bytes) -> ContentEntry:
    location = f"metadata/leaves/{leaf:032x}-data-{leaf:016x}.parquet"
    return ContentEntry(
        content_type=ContentType.MANIFEST_DV,
        location=location,
        file_format=FileFormat.PUFFIN,
        version_info=VersionInfo(Status.EXISTING, 7, 7, 7),
        partition_spec_id=0,
        record_count=1,
        file_size_in_bytes=None,
        deletion_vector=DeletionVector(None, None, content),
        referenced_file=location,
    )
