from __future__ import annotations

import io
import json
import struct
from itertools import pairwise

import pytest
from pyroaring import BitMap64

from rootline.schemas.bytes.vector_codec import (
    BlobPlace,
    DecodedBlob,
    VectorBlob,
    decode_puffin,
    decode_vector,
    encode_puffin,
    puffin_name,
    spread_offset,
    spread_puffin,
    verify_puffin_name,
)
from rootline.schemas.errors import Corrupt
from tests.golden_files import golden

BLOBS = [
    VectorBlob("data/part-0.parquet", BitMap64([1, 2, 3, 70_000])),
    VectorBlob("data/größe.parquet", BitMap64(range(5_000))),
]


def refuse(body: bytes, name: str) -> str:
    with pytest.raises(Corrupt) as caught:
        decode_puffin(body, name=name)
    assert caught.value.code == "vector-corrupt"
    assert caught.value.message.startswith(name)
    return caught.value.message


def test_vectors_read_back_as_they_were_written() -> None:
    encoded = encode_puffin(BLOBS)
    name = puffin_name("metadata/vectors/merged", encoded.body)
    assert decode_puffin(encoded.body, name=name) == [
        DecodedBlob(blob.referenced_data_file, place, blob.vector)
        for blob, place in zip(BLOBS, encoded.places, strict=True)
    ]


def test_a_place_is_all_that_a_reader_needs() -> None:
    encoded = encode_puffin(BLOBS)
    for blob, place in zip(BLOBS, encoded.places, strict=True):
        part = encoded.body[place.offset : place.offset + place.size]
        assert decode_vector(part, name="blob", cardinality=place.cardinality) == blob.vector


def test_the_footer_is_what_the_puffin_specification_says() -> None:
    encoded = encode_puffin(BLOBS)
    size, flags, magic = struct.unpack("<i4s4s", encoded.body[-12:])
    footer_magic, payload = encoded.body[-16 - size : -12 - size], encoded.body[-12 - size : -12]
    assert (encoded.body[:4], footer_magic, magic, flags) == (b"PFA1", b"PFA1", b"PFA1", bytes(4))
    first, second = json.loads(payload)["blobs"]
    assert first == {
        "type": "deletion-vector-v1",
        "fields": [2147483645],
        "snapshot-id": -1,
        "sequence-number": -1,
        "offset": 4,
        "length": encoded.places[0].size,
        "properties": {"referenced-data-file": "data/part-0.parquet", "cardinality": "4"},
    }
    assert second["offset"] == encoded.places[1].offset


def test_a_file_that_was_released_stays_readable() -> None:
    body = golden("vectors.puffin", encode_puffin(BLOBS).body)
    assert [blob.vector for blob in decode_puffin(body, name="vectors.puffin")] == [blob.vector for blob in BLOBS]


def test_a_file_without_vectors_is_a_file() -> None:
    assert decode_puffin(encode_puffin([]).body, name="empty.puffin") == []


def test_every_flipped_bit_and_every_cut_is_noticed() -> None:
    encoded = encode_puffin(BLOBS[:1])
    name = puffin_name("metadata/vectors/merged", encoded.body)
    for bit in range(8 * len(encoded.body)):
        changed = bytearray(encoded.body)
        changed[bit // 8] ^= 1 << bit % 8
        refuse(bytes(changed), name)
    for size in range(len(encoded.body)):
        refuse(encoded.body[:size], name)
    refuse(encoded.body + b"\x00", name)


def test_only_names_of_ours_carry_a_digest() -> None:
    body = encode_puffin(BLOBS).body
    assert verify_puffin_name(puffin_name("a/b", body), body)
    assert not verify_puffin_name("data/00000-0-7b7d0a4e-55a0-4e4f-93ad-5b2b3a2f0c6d-00001-deletes.puffin", body)
    assert not verify_puffin_name("data/7b7d0a4e-55a0-4e4f-93ad-5b2b3a2f0c6d.puffin", body)


def _with_payload(payload: bytes, *, blobs: bytes = b"", flags: bytes = bytes(4)) -> bytes:
    return b"".join([b"PFA1", blobs, b"PFA1", payload, len(payload).to_bytes(4, "little"), flags, b"PFA1"])


def test_a_foreign_file_that_is_no_puffin_file_is_refused_with_the_reason() -> None:
    body = encode_puffin(BLOBS).body
    payload = body[body.rindex(b'{"blobs"') : -12]
    blobs = body[4 : body.rindex(b"PFA1{")]

    def altered(**changes: object) -> bytes:
        described = json.loads(payload)
        described["blobs"][0].update(changes)
        return _with_payload(json.dumps(described).encode(), blobs=blobs)

    assert decode_puffin(altered(), name="x.puffin")
    assert "magic" in refuse(b"", "x.puffin")
    assert "magic" in refuse(body[:-1], "x.puffin")
    assert "footer" in refuse(body[:-12] + b"\xff" * 4 + body[-8:], "x.puffin")
    assert "footer" in refuse(body[:-12] + b"\xff\xff\xff\x7f" + body[-8:], "x.puffin")
    assert "compressed" in refuse(_with_payload(b"{}", flags=b"\x01\0\0\0"), "x.puffin")
    for junk in (b"{}", b"[]", b"nonsense", b'{"blobs":7}', b'{"blobs":[7]}', b"[" * 100_000, b"\xff"):
        assert "describe" in refuse(_with_payload(junk), "x.puffin")
    assert "outside" in refuse(altered(offset=0), "x.puffin")
    assert "outside" in refuse(altered(length=10**30), "x.puffin")
    assert "outside" in refuse(altered(length=-1), "x.puffin")
    assert "describe" in refuse(altered(offset="4"), "x.puffin")
    assert "describe" in refuse(altered(offset=True), "x.puffin")
    assert "compressed" in refuse(altered(**{"compression-codec": "zstd"}), "x.puffin")
    assert "its entry says 5" in refuse(
        altered(properties={"referenced-data-file": "a", "cardinality": "5"}), "x.puffin"
    )


def test_blobs_of_other_types_are_passed_over() -> None:
    body = io.BytesIO()
    payload = {"blobs": [{"type": "apache-datasketches-theta-v1", "offset": 4, "length": 0}]}
    body.write(_with_payload(json.dumps(payload).encode()))
    assert decode_puffin(body.getvalue(), name="x.puffin") == []


def test_places_are_values() -> None:
    assert encode_puffin(BLOBS).places[0] == BlobPlace(4, encode_puffin(BLOBS).places[0].size, 4)


def test_spread_vectors_do_not_touch_and_stand_where_their_old_place_says() -> None:
    blobs = [*BLOBS, *(VectorBlob(f"data/{at}.parquet", BitMap64([at])) for at in range(300))]
    encoded = encode_puffin(blobs)
    spread = spread_puffin(encoded.body, "s3://b/t/{}".format, name="v.puffin")
    found = decode_puffin(spread, name="v.puffin")
    assert [(one.referenced_data_file, one.vector) for one in found] == [
        (f"s3://b/t/{blob.referenced_data_file}", blob.vector) for blob in blobs
    ]
    assert [one.place for one in found] == [
        BlobPlace(spread_offset(place.offset), place.size, place.cardinality) for place in encoded.places
    ]
    for one, following in pairwise(found):
        end = one.place.offset + one.place.size
        assert end < following.place.offset
        assert not any(spread[end : following.place.offset])
    assert len(spread) < 1.2 * len(encoded.body) + len(blobs) * len("s3://b/t/")


def test_the_first_vector_stays_where_it_is_and_other_kinds_of_blobs_are_left_out() -> None:
    encoded = encode_puffin(BLOBS[:1])
    footer_at = encoded.body.rindex(b"PFA1{")
    footer = json.loads(encoded.body[footer_at + 4 : -12])
    footer["blobs"].insert(0, {"type": "apache-datasketches-theta-v1", "fields": [1], "offset": 4, "length": 0})
    payload = json.dumps(footer).encode()
    body = encoded.body[: footer_at + 4] + payload + len(payload).to_bytes(4, "little") + bytes(4) + b"PFA1"
    assert spread_puffin(body, str, name="v.puffin") == encoded.body


def test_what_is_no_sound_puffin_file_is_not_spread() -> None:
    encoded = encode_puffin(BLOBS)
    flipped = bytearray(encoded.body)
    flipped[encoded.places[0].offset + 9] ^= 1
    for body in (b"", encoded.body[:-1], encoded.body.replace(b'"blobs"', b'"blabs"'), bytes(flipped)):
        with pytest.raises(Corrupt, match=r"v\.puffin"):
            spread_puffin(body, str, name="v.puffin")
    with pytest.raises(Corrupt, match="digest"):
        spread_puffin(encoded.body, str, name="v-0123456789abcdef.puffin")
