"""Avro files of other writers: every codec is read, and no file takes more than its bytes can need."""

from __future__ import annotations

import bz2
import io
import lzma
import zlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import cramjam
import fastavro
import pytest

from rootline.schemas.bytes.avro_encoding import encode_block, encode_container, encode_long
from rootline.schemas.bytes.foreign_avro import (
    BROKEN,
    DATA_FILE_LIMITS,
    MANIFEST_LIMITS,
    ForeignAvro,
    read_avro,
)
from rootline.schemas.errors import Corrupt

SYNC = bytes(16)
ROWS = [{"x": index, "s": "long " * (index % 50)} for index in range(5_000)]
STRUCT = {"type": "record", "name": "p", "fields": [{"name": name, "type": ["null", "int"]} for name in "abcdefgh"]}


def record(*types: Any) -> dict[str, Any]:
    fields = [{"name": f"f{at}", "type": kind, "field-id": at + 1} for at, kind in enumerate(types)]
    return {"type": "record", "name": "r", "fields": fields}


def container(schema: dict[str, Any], codec: bytes, *blocks: tuple[int, bytes]) -> bytes:
    text = str(schema).replace("'", '"').encode()
    head = encode_container({"avro.schema": text, "avro.codec": codec}, [], SYNC, pack=bytes, block_bytes=1)
    return head + b"".join(encode_block(count, packed, SYNC) for count, packed in blocks)


def deflated(plain: bytes) -> bytes:
    return zlib.compress(plain, wbits=-15)


def snappy(plain: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(plain)) + zlib.crc32(plain).to_bytes(4, "big")


def zstandard(plain: bytes) -> bytes:
    stream = cramjam.zstd.Compressor()  # states no length, as writers of Java do not
    stream.compress(plain)
    return bytes(stream.finish())


PACK: dict[str, Callable[[bytes], bytes]] = {
    "null": bytes,
    "deflate": deflated,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "snappy": snappy,
    "zstandard": zstandard,
}


@pytest.mark.parametrize("codec", PACK)
def test_files_of_each_codec_are_read(codec: str) -> None:
    schema, sink = record("long", "string"), io.BytesIO()
    fastavro.writer(sink, schema, [{"f0": row["x"], "f1": row["s"]} for row in ROWS], codec="null")
    file = ForeignAvro.of(sink.getvalue())
    assert (file.count, sum(map(len, file.blocks()))) == (5_000, 5_000)
    plain = b"".join(encode_long(number) + encode_long(3) + b"abc" for number in range(1_000))
    body = container(schema, codec.encode(), (1_000, PACK[codec](plain)), (1_000, PACK[codec](plain)))
    found = read_avro(body, name="f").records
    assert [found[0], found[1_999]] == [{1: 0, 2: "abc"}, {1: 999, 2: "abc"}]


@pytest.mark.parametrize("codec", PACK)
def test_a_block_is_not_decompressed_beyond_its_limit(codec: str) -> None:
    packed = PACK[codec](encode_long(3 << 20) + bytes(3 << 20))
    body = container(record("bytes"), codec.encode(), (1, packed), (1, packed))
    assert len(read_avro(body, name="f").records) == 2
    in_all = replace(MANIFEST_LIMITS, plain_bytes=4 << 20)
    with pytest.raises(Corrupt, match=r"f: .*more than 4194304 bytes|f: .*3145732 bytes, 1048572 are allowed"):
        read_avro(body, name="f", limits=in_all)
    of_block = replace(DATA_FILE_LIMITS, block_bytes=2 << 20)
    with pytest.raises(BROKEN, match=r"more than 2097152 bytes|3145732 bytes, 2097152 are allowed"):
        list(ForeignAvro.of(body, of_block).blocks())


def test_snappy_that_states_more_than_its_bytes_can_hold_reserves_nothing() -> None:
    body = container(record("bytes"), b"snappy", (1, b"\xff\xff\xff\x3f" + bytes(20)))
    with pytest.raises(Corrupt, match="a block of 24 bytes states 134217727 bytes"):
        read_avro(body, name="f")
    with pytest.raises(Corrupt, match="a block decompresses to 134217727 bytes, 1000 are allowed"):
        read_avro(body, name="f", limits=replace(MANIFEST_LIMITS, block_bytes=1000))


def test_values_that_take_no_bytes_are_refused_however_they_are_nested() -> None:
    nested: Any = {"type": "record", "name": "l0", "fields": []}
    for depth in range(1, 41):
        fields = [{"name": "a", "type": nested}, {"name": "b", "type": f"l{depth - 1}"}]
        nested = {"type": "record", "name": f"l{depth}", "fields": fields}
    elements = {"type": "array", "items": "null"}
    for schema, block in (
        (record("int", nested), (1, b"\x00")),
        (record(elements), (1, encode_long(1 << 40))),
        (record({"type": "array", "items": {"type": "fixed", "name": "z", "size": 0}}), (1, encode_long(1 << 40))),
    ):
        with pytest.raises(Corrupt, match="more values than its bytes justify"):
            read_avro(container(schema, b"null", block), name="f")
    itself = {"type": "record", "name": "r", "fields": [{"name": "f", "type": "r"}]}
    with pytest.raises(Corrupt, match="part of itself"):
        read_avro(container(itself, b"null", (1, b"\x00")), name="f")


def test_lists_of_optional_structs_and_records_of_nulls_alone_are_read() -> None:
    items = {"type": "array", "items": ["null", STRUCT]}
    pairs = {"type": "array", "items": {"type": "record", "name": "k", "fields": [{"name": "key", "type": "int"}]}}
    schema = record(items, pairs, *[["null", "long"]] * 3, {"type": "record", "name": "none", "fields": []})
    row = encode_long(2) + b"\x00" + b"\x02" + b"\x00" * 8 + b"\x00" + b"\x00" + b"\x00" * 3
    [[first, _]] = ForeignAvro.of(container(schema, b"null", (2, row * 2))).blocks()
    assert first["f0"] == [None, dict.fromkeys("abcdefgh")]


def test_a_codec_that_is_not_read_is_named() -> None:
    body = container(record("int"), b"deflate", (1, deflated(b"\x02")))
    with pytest.raises(BROKEN, match="codec"):
        list(ForeignAvro.of(body.replace(b"\x0edeflate", b"\x0ebrotli1")).blocks())
