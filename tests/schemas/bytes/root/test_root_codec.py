"""A root as one object: readable by plain Avro, spliced without re-encoding, and whole or Corrupt."""

from __future__ import annotations

import datetime
import hashlib
import io
import sys
import uuid
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from functools import cache
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.types import LongType

from rootline.schemas.bytes.avro_encoding import PLAIN_BYTES_MAX, encode_bytes, encode_long, encode_string
from rootline.schemas.bytes.root.entry_codec import EntryCodec
from rootline.schemas.bytes.root.root_codec import Root, Row, decode_root, encode_root, row_bytes, seal, sync_marker
from rootline.schemas.content_entry import ContentEntry, Status, VersionInfo
from rootline.schemas.errors import Corrupt, Internal
from rootline.schemas.identifiers import Location, LogId
from rootline.schemas.parts.page_reference import CoveredOffset, PageReference
from rootline.schemas.table_definition import TrackedField
from tests.golden_files import kept
from tests.schemas.entry_values import TABLE_UUID, TRACKED, content_stats, example_entry, example_header
from tests.schemas.sound_entries import root_rows

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

CHECKED: Mapping[int, int] = {zstd.CompressionParameter.checksum_flag: 1}
CODEC = EntryCodec(TRACKED)
SYNC = sync_marker(TABLE_UUID)
NAME = "shop/orders/metadata/roots/7fffffffffffffff-0.avro"


def root_of(*blocks: list[ContentEntry], codec: EntryCodec = CODEC) -> tuple[Root, bytes]:
    sealed = [seal([Row.of(entry, codec) for entry in block], codec, SYNC) for block in blocks]
    return encode_root(example_header(), sealed, codec, SYNC)


@cache
def small_root() -> bytes:
    codec = EntryCodec([TrackedField(1, "id", LongType())])
    bare = replace(example_entry(), content_stats={}, split_offsets=None)
    return root_of([bare], [replace(bare, location="data/b.parquet")], codec=codec)[1]


def forged(metadata: dict[str, bytes], blocks: list[bytes], sync: bytes = SYNC) -> bytes:
    """A file whose digest agrees although the rest may not: what an attacker could write."""
    metadata = {**metadata, "rootline.digest": b"0" * 64}
    parts = [b"Obj\x01", encode_long(len(metadata))]
    for key, value in metadata.items():
        parts += [encode_string(key), encode_bytes(value)]
    head = b"".join(parts)
    end = b"\x00" + sync
    digest = hashlib.sha256(head + end + b"".join(hashlib.sha256(block).digest() for block in blocks)).hexdigest()
    return head[:-64] + digest.encode() + end + b"".join(blocks)


def forged_block(count: int, plain: bytes) -> bytes:
    return encode_long(count) + encode_bytes(zstd.compress(plain, options=CHECKED)) + SYNC


def metadata_of(body: bytes) -> dict[str, bytes]:
    reader = fastavro.reader(io.BytesIO(body))
    metadata = {key: value.encode() for key, value in reader.metadata.items()}
    del metadata["rootline.digest"]
    return metadata


class TestReading:
    def test_a_root_reads_back_equal(self) -> None:
        root, body = root_of([example_entry(0), example_entry(1)], [example_entry(2)])
        again = decode_root(body, name=NAME)
        assert again == root
        assert [row.entry.location for row in again.rows] == [f"data/part-{number}.parquet" for number in range(3)]
        assert again.row_count == 3
        assert again.size_in_bytes == len(body)

    def test_a_root_without_entries_reads_back_equal(self) -> None:
        root, body = root_of()
        assert decode_root(body, name=NAME) == root

    @given(st.lists(st.lists(root_rows(content_stats()), min_size=1, max_size=3), max_size=3))
    def test_any_entries_read_back_equal(self, blocks: list[list[ContentEntry]]) -> None:
        root, body = root_of(*blocks)
        again = decode_root(body, name=NAME)
        assert again == root
        assert [row.entry for row in again.rows] == [entry for block in blocks for entry in block]

    def test_plain_fastavro_reads_a_root_with_its_logical_types(self) -> None:
        _, body = root_of([example_entry(0)], [example_entry(1)])
        reader = fastavro.reader(io.BytesIO(body))
        rows: list[Any] = list(reader)
        assert reader.codec == "zstandard"
        assert reader.metadata["format-version"] == "4"
        assert reader.metadata["rootline.entries"] == "2"
        assert [row["location"] for row in rows] == ["data/part-0.parquet", "data/part-1.parquet"]
        assert rows[0]["version_info"]["status"] == Status.ADDED
        bounds = {name: field["lower_bound"] for name, field in rows[0]["content_stats"].items() if _bounded(field)}
        assert bounds["_6"] == Decimal("-7.00")
        assert bounds["_9"] == datetime.date(1972, 9, 27)
        assert bounds["_11"] == datetime.datetime(1970, 1, 1, 0, 0, 0, 1000, tzinfo=datetime.UTC)
        assert bounds["_15"] == "Ä0"
        assert bounds["_17"] == bytes(range(16))

    def test_the_golden_root_is_still_what_we_read_and_write(self) -> None:
        root, body = root_of([example_entry(0), example_entry(1)], [example_entry(2)])
        held = kept("root-single-file-commits-1.avro", body)  # its compressed bytes depend on the zstd library
        read = decode_root(held, name=NAME)
        assert metadata_of(held) == metadata_of(body)
        assert (read.header, read.codec, read.sync) == (root.header, root.codec, root.sync)
        assert [row_bytes(row) for row in read.rows] == [row_bytes(row) for row in root.rows]
        assert [row.entry for row in read.rows] == [example_entry(number) for number in range(3)]

    def test_the_golden_root_with_pages_is_still_what_we_read_and_write(self) -> None:
        page = PageReference(Location("metadata/pages/p.avro"), bytes(range(32)), 900, 2_000)
        covering = page._replace(covers=(CoveredOffset(LogId("embedded/5f0c"), 0, 7),))
        header = replace(
            example_header(),
            ledger=replace(example_header().ledger, pages=(page, page)),
            outcomes=replace(example_header().outcomes, pages=(covering,)),
        )
        root, body = encode_root(header, [seal([Row.of(example_entry(), CODEC)], CODEC, SYNC)], CODEC, SYNC)
        held = kept("root-single-file-commits-1-pages.avro", body)
        assert metadata_of(held) == metadata_of(body)
        assert decode_root(held, name=NAME).header == root.header == header
        assert "rootline.ledger-pages" in fastavro.reader(io.BytesIO(held)).metadata


def _bounded(field: Any) -> bool:
    return field is not None and "lower_bound" in field


class TestSplicing:
    def test_added_becomes_existing_without_encoding_the_tail_again(self) -> None:
        row = Row.of(example_entry(), CODEC)
        existing = row.with_version_info(VersionInfo(Status.EXISTING, 41, 8, 8))
        assert existing.tail is row.tail
        block = seal([existing], CODEC, SYNC)
        _, body = encode_root(example_header(), [block], CODEC, SYNC)
        (read,) = decode_root(body, name=NAME).rows
        assert read.entry.version_info == VersionInfo(Status.EXISTING, 41, 8, 8)
        assert read.tail == row.tail

    def test_blocks_of_a_decoded_root_are_reused_as_bytes(self) -> None:
        _, body = root_of([example_entry(0)], [example_entry(1)])
        blocks = decode_root(body, name=NAME).blocks
        fresh = seal([Row.of(example_entry(2), CODEC)], CODEC, SYNC)
        _, next_body = encode_root(example_header(8), [*blocks, fresh], CODEC, SYNC)
        assert all(block.encoded in next_body for block in blocks)
        assert decode_root(next_body, name=NAME).row_count == 3

    def test_the_same_root_is_the_same_bytes(self) -> None:
        assert root_of([example_entry()])[1] == root_of([example_entry()])[1]

    def test_a_block_of_another_table_is_refused(self) -> None:
        foreign = sync_marker(uuid.UUID(int=5))
        block = seal([Row.of(example_entry(), CODEC)], CODEC, foreign)
        with pytest.raises(Internal, match="sync marker"):
            encode_root(example_header(), [block], CODEC, SYNC)
        with pytest.raises(Internal, match="sync marker"):
            encode_root(example_header(), [], CODEC, foreign)

    def test_a_block_without_rows_is_refused(self) -> None:
        with pytest.raises(Internal, match="block of 0 rows"):
            seal([], CODEC, SYNC)


class TestIntegrity:
    def test_every_flipped_bit_is_corrupt_and_named(self) -> None:
        body = small_root()
        for position in range(len(body)):
            for bit in range(8):
                flipped = bytearray(body)
                flipped[position] ^= 1 << bit
                with pytest.raises(Corrupt) as caught:
                    decode_root(bytes(flipped), name=NAME)
                assert caught.value.code == "root-corrupt"
                assert caught.value.message.startswith(f"{NAME}: ")

    def test_every_cut_tail_is_corrupt_and_named(self) -> None:
        body = small_root()
        for length in range(len(body)):
            with pytest.raises(Corrupt, match=NAME) as caught:
                decode_root(body[:length], name=NAME)
            assert caught.value.code == "root-corrupt"

    def test_bytes_after_the_last_block_are_corrupt(self) -> None:
        for tail in (b"\x00", SYNC, small_root()):
            with pytest.raises(Corrupt, match=NAME):
                decode_root(small_root() + tail, name=NAME)

    def test_a_missing_repeated_or_moved_block_is_corrupt(self) -> None:
        root = decode_root(small_root(), name=NAME)
        first, second = (block.encoded for block in root.blocks)
        head = small_root()[: -len(first + second)]
        for blocks in (first, second, first + first + second, second + first, b""):
            with pytest.raises(Corrupt, match="digest"):
                decode_root(head + blocks, name=NAME)


class TestHostileBytes:
    @given(st.binary(max_size=400))
    def test_any_bytes_are_corrupt(self, hostile: bytes) -> None:
        with pytest.raises(Corrupt, match=NAME):
            decode_root(hostile, name=NAME)

    @given(st.data())
    def test_a_file_that_was_changed_in_places_is_corrupt(self, data: st.DataObject) -> None:
        body = bytearray(small_root())
        for position in data.draw(st.lists(st.integers(0, len(body) - 1), min_size=1, max_size=8, unique=True)):
            body[position] ^= data.draw(st.integers(1, 255))
        with pytest.raises(Corrupt, match=NAME):
            decode_root(bytes(body), name=NAME)

    @given(st.data())
    def test_a_forged_header_decodes_or_is_corrupt(self, data: st.DataObject) -> None:
        metadata = metadata_of(small_root())
        key = data.draw(st.sampled_from(sorted(metadata)))
        replaced = data.draw(st.none() | st.binary(max_size=30) | st.text(max_size=30).map(str.encode))
        if replaced is None:
            del metadata[key]
        else:
            metadata[key] = replaced
        self.check(forged(metadata, [block.encoded for block in decode_root(small_root(), name=NAME).blocks]))

    @given(st.data())
    def test_a_forged_block_decodes_or_is_corrupt(self, data: st.DataObject) -> None:
        root = decode_root(small_root(), name=NAME)
        plain = bytearray(row_bytes(next(root.rows)))
        plain[data.draw(st.integers(0, len(plain) - 1))] = data.draw(st.integers(0, 255))
        metadata = {**metadata_of(small_root()), "rootline.entries": b"1", "rootline.blocks": b"1"}
        cut = data.draw(st.integers(1, len(plain)))
        self.check(forged(metadata, [forged_block(1, bytes(plain[:cut]))]))

    def check(self, hostile: bytes) -> None:
        try:
            root = decode_root(hostile, name=NAME)
            for row in root.rows:
                list(row.entry.content_stats)
        except Corrupt as error:
            named = NAME in error.message
        else:
            named = True
        assert named

    def test_a_forgery_with_nothing_wrong_reads(self) -> None:
        blocks = [block.encoded for block in decode_root(small_root(), name=NAME).blocks]
        assert decode_root(forged(metadata_of(small_root()), blocks), name=NAME).row_count == 2

    def test_a_decompression_bomb_is_corrupt(self) -> None:
        bomb = forged_block(1, bytes(PLAIN_BYTES_MAX + 1))
        assert len(bomb) < 100_000
        self.refuse(bomb, "decompresses to more than")

    @pytest.mark.parametrize(
        ("block", "reason"),
        [
            (encode_long(1) + encode_bytes(b"") + SYNC, "not a zstd frame"),
            (encode_long(1) + encode_bytes(zstd.compress(b"x")) + SYNC, "not a zstd frame with a checksum"),
            (encode_long(0) + encode_bytes(b"") + SYNC, "announces 0 entries"),
            (encode_long(-1) + encode_bytes(b"") + SYNC, "announces -1 entries"),
            (encode_long(1) + encode_bytes(b"x") + bytes(16), "does not end with the sync marker"),
            (encode_long(1) + encode_long(2**40) + SYNC, "bytes are announced"),
            (encode_long(1) + encode_long(-1) + SYNC, "bytes are announced"),
        ],
    )
    def test_a_block_that_is_none_is_corrupt_with_the_reason(self, block: bytes, reason: str) -> None:
        self.refuse(block, reason)

    def test_a_frame_cut_or_followed_by_another_is_corrupt(self) -> None:
        frame = zstd.compress(bytes(range(200)), options=CHECKED)
        self.refuse(encode_long(1) + encode_bytes(frame[:-1]) + SYNC, "is cut")
        self.refuse(encode_long(1) + encode_bytes(frame + frame) + SYNC, "bytes follow the zstd frame")

    def test_bytes_after_the_rows_of_a_block_are_corrupt(self) -> None:
        row = next(decode_root(small_root(), name=NAME).rows)
        self.refuse(forged_block(1, row_bytes(row) + b"\x00"), "has 1 bytes after its rows")

    @pytest.mark.parametrize("key", ["rootline.entries", "rootline.blocks"])
    @pytest.mark.parametrize("count", [b"1", b"3", b"02", b"", b"9" * 50])
    def test_a_count_that_is_not_that_of_the_blocks_is_corrupt(self, key: str, count: bytes) -> None:
        blocks = [block.encoded for block in decode_root(small_root(), name=NAME).blocks]
        with pytest.raises(Corrupt, match="but the header counts"):
            decode_root(forged({**metadata_of(small_root()), key: count}, blocks), name=NAME)

    @pytest.mark.parametrize(
        ("key", "value", "code"),
        [
            ("rootline.profile", b"single-file-commits/3", "profile-unknown"),
            ("format-version", b"5", "profile-unknown"),
            ("content", b"data", "root-corrupt"),
            ("avro.codec", b"deflate", "root-corrupt"),
            ("avro.schema", b'"long"', "root-corrupt"),
            ("rootline.table-uuid", b"11111111-1111-1111-1111-111111111111", "root-corrupt"),
        ],
    )
    def test_a_file_of_another_kind_is_corrupt(self, key: str, value: bytes, code: str) -> None:
        blocks = [block.encoded for block in decode_root(small_root(), name=NAME).blocks]
        with pytest.raises(Corrupt, match=NAME) as caught:
            decode_root(forged({**metadata_of(small_root()), key: value}, blocks), name=NAME)
        assert caught.value.code == code

    def refuse(self, block: bytes, reason: str) -> None:
        metadata = {**metadata_of(small_root()), "rootline.entries": b"1", "rootline.blocks": b"1"}
        with pytest.raises(Corrupt, match=reason) as caught:
            decode_root(forged(metadata, [block]), name=NAME)
        assert caught.value.code == "root-corrupt"
        assert caught.value.message.startswith(NAME)
