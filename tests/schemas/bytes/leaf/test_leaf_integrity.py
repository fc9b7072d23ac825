from __future__ import annotations

import hashlib
import random

import pytest

from rootline.schemas.bytes.leaf_codec import EncodedLeaf, LeafContent, decode_leaf, encode_leaf
from rootline.schemas.errors import Corrupt
from rootline.schemas.object_keys import leaf_location
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


def test_the_name_counts_wherever_the_leaf_is_stored(small: EncodedLeaf) -> None:
    absolute = f"s3://bucket/other/{small.location}"
    assert decode_leaf(small.body, location=absolute).location == absolute


def forged(body: bytes, bit: int) -> tuple[bytes, str]:
    """A leaf with one bit flipped by someone who then made both digests agree."""
    footer_start = len(body) - 8 - int.from_bytes(body[-8:-4], "little")
    true_digest = hashlib.sha256(body[:footer_start]).hexdigest().encode()
    changed = flipped(body, bit)
    changed = changed.replace(true_digest, hashlib.sha256(changed[:footer_start]).hexdigest().encode())
    digest = hashlib.sha256(changed[footer_start:-8]).hexdigest()
    return changed, leaf_location(LEAF_UUID, "data", digest)


def test_a_forged_leaf_is_read_or_refused_and_nothing_else() -> None:
    entries = [data_entry(number) for number in range(40)]
    encoded = encode_leaf(entries, definition(), leaf_uuid=LEAF_UUID, content=LeafContent.DATA)
    seeded, refusals = random.Random(3), 0
    for _ in range(150):
        body, location = forged(encoded.body, seeded.randrange(32, 8 * (len(encoded.body) - 8)))
        try:
            leaf = decode_leaf(body, location=location)
            _ = [dict(entry.content_stats) for entry in leaf.entries()], leaf.table.num_rows
        except Corrupt as error:
            refusals += 1
            caught = error
            continue
    assert refusals > 20
    assert caught.code in {"leaf-corrupt", "profile-unknown"}
