"""An Avro file's head and blocks: what any Avro library reads, and nothing else."""

from __future__ import annotations

import io

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rootline.schemas.bytes.avro_encoding import (
    Unreadable,
    compress,
    decompress,
    encode_block,
    encode_bytes,
    encode_container,
    encode_long,
    encode_string,
    read_blocks,
    read_head,
)

SYNC = bytes(range(16))
METADATA = {"avro.schema": b'"string"', "avro.codec": b"zstandard", "more": "größe".encode()}
ROWS = [encode_string(text) for text in ("one", "two", "three")]


def file_of(rows: list[bytes], block_bytes: int = 100) -> bytes:
    return encode_container(METADATA, rows, SYNC, pack=compress, block_bytes=block_bytes)


def plain_blocks(body: bytes) -> list[tuple[int, bytes]]:
    return [(block.count, decompress(block.packed)) for block in read_blocks(body, read_head(body))]


def test_plain_fastavro_reads_the_rows() -> None:
    assert list(fastavro.reader(io.BytesIO(file_of(ROWS)))) == ["one", "two", "three"]


def test_a_file_that_fastavro_wrote_reads() -> None:
    out = io.BytesIO()
    fastavro.writer(out, "string", ["one", "two"], codec="null", metadata={"more": "x"}, sync_marker=SYNC)
    head = read_head(out.getvalue())
    assert (head.metadata["more"], head.sync) == (b"x", SYNC)
    assert [(block.count, block.packed) for block in read_blocks(out.getvalue(), head)] == [(2, ROWS[0] + ROWS[1])]


@given(st.lists(st.binary(min_size=1, max_size=30)), st.integers(1, 60))
def test_a_block_ends_with_the_row_that_brings_it_to_its_size(rows: list[bytes], block_bytes: int) -> None:
    blocks = plain_blocks(file_of(rows, block_bytes))
    assert b"".join(plain for _, plain in blocks) == b"".join(rows)
    assert sum(count for count, _ in blocks) == len(rows)
    at = 0
    for count, plain in blocks[:-1]:
        at += count
        assert len(plain) >= block_bytes > len(plain) - len(rows[at - 1])


def test_the_head_says_where_values_end_and_blocks_begin() -> None:
    body = file_of(ROWS)
    head = read_head(body)
    assert dict(head.metadata) == METADATA
    assert all(body[: head.value_ends[key]].endswith(value) for key, value in METADATA.items())
    [block] = read_blocks(body, head)
    assert body[head.end :] == block.encoded == encode_block(3, compress(b"".join(ROWS)), SYNC)


def test_a_file_without_rows_has_no_block() -> None:
    assert plain_blocks(file_of([])) == []


PAIR = encode_string("a") + encode_bytes(b"b")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "not an Avro file"),
        (b"PAR1", "not an Avro file"),
        (b"Obj\x01" + encode_long(0), "announces 0 keys"),
        (b"Obj\x01" + encode_long(2**40), "announces 1099511627776 keys"),
        (b"Obj\x01" + encode_long(2) + PAIR + PAIR + b"\x00" + SYNC, "'a' twice"),
        (b"Obj\x01" + encode_long(1) + PAIR + b"\x02" + SYNC, "does not end"),
        (b"Obj\x01" + encode_long(1) + PAIR + b"\x00" + SYNC[:-1], "16 bytes are needed"),
    ],
)
def test_a_head_that_is_none_is_unreadable_with_the_reason(body: bytes, reason: str) -> None:
    with pytest.raises(Unreadable, match=reason):
        read_head(body)


@pytest.mark.parametrize(
    ("block", "reason"),
    [
        (encode_block(0, b"x", SYNC), "block 1 announces 0 entries"),
        (encode_block(1, b"x", bytes(16)), "block 1 does not end with the sync marker"),
        (encode_long(1) + encode_long(2**40), "bytes are announced"),
        (encode_block(1, b"x", SYNC)[:-1], "16 bytes are needed"),
    ],
)
def test_a_block_that_is_none_is_unreadable_with_the_reason(block: bytes, reason: str) -> None:
    body = file_of(ROWS)
    with pytest.raises(Unreadable, match=reason):
        read_blocks(body + block, read_head(body))
