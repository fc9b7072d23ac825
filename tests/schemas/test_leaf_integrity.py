from __future__ import annotations

import random

import pytest

from rootline.schemas.errors import Corrupt
from rootline.schemas.leaf_codec import EncodedLeaf, LeafContent, decode_leaf, encode_leaf
from tests.schemas.leaf_examples import LEAF_UUID, data_entry, definition, equality_entry


@pytest.fixture(scope="module")
def small() -> EncodedLeaf:
    return encode_leaf([equality_entry(1)], definition(), leaf_uuid=LEAF_UUID, content=LeafContent.DELETE)


@pytest.fixture(scope="module")
def large() -> EncodedLeaf:
    entries = [data_entry(number) for number in range(500)]
    return encode_leaf(entries, definition(), leaf_uuid=LEAF_UUID, content=LeafContent.DATA)


def refuse(body: bytes, location: str) -> None:
    with pytest.raises(Corrupt) as caught:
        decode_leaf(body, location=location)
    assert caught.value.code == "leaf-corrupt"
    assert caught.value.message.startswith(f"{location}: ")


def flipped(body: bytes, bit: int) -> bytes:
    changed = bytearray(body)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def test_every_flipped_bit_of_a_small_leaf_is_noticed(small: EncodedLeaf) -> None:
    for bit in range(8 * len(small.body)):
        refuse(flipped(small.body, bit), small.location)


def test_flipped_bits_of_a_large_leaf_are_noticed(large: EncodedLeaf) -> None:
    seeded = random.Random(20260)
    for _ in range(400):
        refuse(flipped(large.body, seeded.randrange(8 * len(large.body))), large.location)


def test_every_cut_tail_and_head_is_noticed(small: EncodedLeaf) -> None:
    for size in range(len(small.body)):
        refuse(small.body[:size], small.location)
    for start in range(1, 100):
        refuse(small.body[start:], small.location)


def test_added_bytes_are_noticed(small: EncodedLeaf, large: EncodedLeaf) -> None:
    refuse(small.body + b"\x00", small.location)
    refuse(b"\x00" + small.body, small.location)
    refuse(small.body + small.body, small.location)
    refuse(small.body[:4] + bytes(8) + small.body[4:], small.location)
    refuse(large.body, small.location)


def test_a_name_without_the_digest_proves_nothing(small: EncodedLeaf) -> None:
    for location in (
        "metadata/leaves/leaf.parquet",
        small.location.replace("-delete-", "-"),
        small.location.removesuffix(".parquet"),
        small.location + "/x",
        "",
    ):
        refuse(small.body, location)
    refuse(small.body, small.location.replace("-delete-", "-data-"))


def test_the_name_counts_wherever_the_leaf_rests(small: EncodedLeaf) -> None:
    absolute = f"s3://bucket/other/{small.location}"
    assert decode_leaf(small.body, location=absolute).location == absolute
