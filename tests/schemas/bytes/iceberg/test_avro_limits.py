"""The limits of Avro files of other writers: bombs, lies about lengths and counts, and mutated manifests and lists.

Whatever the bytes are, they are read or refused with a documented error, and take no more memory than the limits.
"""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rootline.schemas.bytes.avro_encoding import encode_block, encode_bytes, encode_long, encode_string, read_head
from rootline.schemas.bytes.foreign_avro import MANIFEST_LIMITS, AvroLimits, read_avro
from rootline.schemas.bytes.manifest_codec import (
    decode_manifest,
    decode_manifest_list,
    files_named,
    uncounted_manifests,
)
from rootline.schemas.errors import Corrupt, Invalid
from tests.schemas.bytes.iceberg.test_foreign_avro import PACK, SYNC, container, record
from tests.schemas.iceberg_manifests import DEFINITION, leaf_row, list_entry, manifest, manifest_list, pairs
from tests.schemas.iceberg_manifests import record as entry

MIB: Final = 1 << 20
SMALL = AvroLimits(
    object_bytes=32 * MIB,
    head_bytes=64 << 10,
    schema_bytes=32 << 10,
    plain_bytes=16 * MIB,
    block_bytes=8 * MIB,
    record_bytes=MIB,
    records=1_000,
    values=100_000,
)
PAIRS = {
    "type": "array",
    "logicalType": "map",
    "items": {
        "type": "record",
        "name": "k",
        "fields": [{"name": "key", "type": "int"}, {"name": "value", "type": "long"}],
    },
}
READ_UNDER_LIMITS = """
import resource, sys
from dataclasses import replace
from pathlib import Path
from rootline.schemas.bytes.foreign_avro import MANIFEST_LIMITS, read_avro
from rootline.schemas.errors import Corrupt
limits = replace(MANIFEST_LIMITS, plain_bytes=8 << 20, block_bytes=4 << 20)
bodies = [Path(name).read_bytes() for name in sys.argv[1:]]
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for body in bodies:
    try:
        read_avro(body, name="bomb", limits=limits)
    except Corrupt as error:
        print(error.message)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def with_metadata(body: bytes, changed: dict[str, bytes], tail: bytes | None = None) -> bytes:
    """`body` with other metadata, and other blocks if `tail` is given."""
    found = read_head(body)
    metadata = {**found.metadata, **changed}
    stated = b"".join(encode_string(key) + encode_bytes(value) for key, value in metadata.items())
    blocks = body[found.end :] if tail is None else tail
    return b"Obj\x01" + encode_long(len(metadata)) + stated + b"\x00" + found.sync + blocks


def head(*parts: bytes) -> bytes:
    """The head of a file with these encoded parts between the magic and the marker."""
    return b"".join((b"Obj\x01", *parts, SYNC))


def schema_of(nested: int) -> str:
    """A schema of arrays in arrays."""
    inner = '{"type":"array","items":' * nested + '"int"' + "}" * nested
    return f'{{"type":"record","name":"r","fields":[{{"name":"f","field-id":1,"type":{inner}}}]}}'


@pytest.mark.parametrize("codec", PACK)
def test_a_bomb_of_each_codec_takes_no_more_memory_than_the_limits(codec: str, tmp_path: Path) -> None:
    plain = encode_long(64 * MIB) + bytes(64 * MIB)
    one, many = tmp_path / "one", tmp_path / "many"
    one.write_bytes(container(record("bytes"), codec.encode(), (1, PACK[codec](plain))))
    part = PACK[codec](plain[: 2 * MIB])
    many.write_bytes(container(record("bytes"), codec.encode(), *[(0, part)] * 32))
    command = [sys.executable, "-c", READ_UNDER_LIMITS, str(one), str(many)]
    found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout.splitlines()
    assert "4194304" in found[0]
    assert "rewrite the manifests" in found[0]
    assert "bytes follow the records" in found[1]
    assert int(found[2]) < 32 << 10, "KiB that the process grew by"


@pytest.mark.parametrize("codec", PACK)
def test_blocks_are_decompressed_up_to_the_limit_of_all_of_them(codec: str) -> None:
    packed = PACK[codec](encode_bytes(bytes(MIB - 3)))
    body = container(record("bytes"), codec.encode(), *[(1, packed)] * 20)
    assert read_avro(body, name="f").plain_bytes == 20 * MIB
    with pytest.raises(
        Corrupt, match=r"f: .*(more than 16777216 bytes|to 1048576 bytes, 0 are allowed).*: rewrite the mani"
    ):
        read_avro(body, name="f", limits=SMALL)


def test_pairs_of_two_bytes_are_counted_before_they_fill_the_memory() -> None:
    one = container(record(PAIRS), b"xz", (1, PACK["xz"](encode_long(4 * MIB) + b"\x02\x02" * 4 * MIB + b"\x00")))
    packed = PACK["xz"](encode_long(MIB // 2) + b"\x02\x02" * (MIB // 2) + b"\x00")
    many = container(record(PAIRS), b"xz", *[(1, packed)] * 8)
    assert len(one) + len(many) < 8_000
    for at in (one, many):
        tracemalloc.start()
        with pytest.raises(Corrupt):
            read_avro(at, name="bomb")
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 300 * MIB


def test_values_are_counted_in_lists_maps_and_types_that_no_manifest_has() -> None:
    numbers = encode_long(600) + b"\x02" * 600 + b"\x00"
    texts = encode_long(600) + b"".join(encode_string(f"k{index}") + b"\x02" for index in range(600)) + b"\x00"
    for kind, value in (
        ({"type": "array", "items": "int"}, numbers),
        ({"type": "map", "values": "int"}, texts),
        (["null", "int", {"type": "array", "items": "int"}], b"\x04" + numbers),
        (PAIRS, encode_long(600) + b"\x02\x02" * 600 + b"\x00"),
        ({**PAIRS, "items": {"type": "record", "name": "k", "fields": [
            {"name": "key", "type": "int"}, {"name": "value", "type": {"type": "array", "items": "int"}}]}},
         b"\x02\x02" + numbers + b"\x00"),
    ):  # fmt: skip
        body = container(record(kind), b"null", (1, value))
        assert 600 < read_avro(body, name="f").values < 2_000
        with pytest.raises(Corrupt, match="it has more values than are read of a file of its size"):
            read_avro(body, name="f", limits=replace(SMALL, values=500))


def test_a_record_that_is_longer_than_its_limit_is_not_read() -> None:
    long, short = encode_bytes(bytes(3 * MIB)), encode_bytes(b"x")
    body = container(record("bytes"), b"deflate", (3, PACK["deflate"](short + short + long)))
    assert len(read_avro(body, name="f").records) == 3
    with pytest.raises(Corrupt, match=r"a record has 3145732 bytes, 1048576 are allowed here"):
        read_avro(body, name="f", limits=SMALL)
    assert (
        len(read_avro(container(record("bytes"), b"null", (900, short * 900)), name="f", limits=SMALL).records) == 900
    )


def test_records_are_counted_before_they_are_read() -> None:
    body = container(record("int"), b"deflate", (600, PACK["deflate"](b"\x80" * 600)))
    with pytest.raises(Corrupt, match="its blocks state more than 500 records"):
        read_avro(body, name="f", limits=replace(SMALL, records=500))
    tiny = container(record("int"), b"null", *[(1, b"\x02")] * 1_001)
    with pytest.raises(Corrupt, match="its blocks state more than 1000 records"):
        read_avro(tiny, name="f", limits=SMALL)


def test_the_limits_of_several_files_shrink_with_each() -> None:
    body, limits = manifest(3, [entry(f"f{index}") for index in range(400)]), replace(SMALL, records=1_000)
    first = read_avro(body, name="a", limits=limits)
    limits = limits.after(first)
    assert (limits.records, limits.plain_bytes, limits.values) == (
        600, SMALL.plain_bytes - first.plain_bytes, SMALL.values - first.values,
    )  # fmt: skip
    limits = limits.after(read_avro(body, name="b", limits=limits))
    with pytest.raises(Corrupt, match="c: its blocks state more than 200 records"):
        read_avro(body, name="c", limits=limits)


def test_a_long_object_is_refused_before_anything_is_read() -> None:
    with pytest.raises(Corrupt, match="f: it has 34603008 bytes, 33554432 are allowed: rewrite"):
        read_avro(bytes(33 * MIB), name="f", limits=SMALL)


def test_metadata_is_limited_in_bytes_and_keys() -> None:
    pair = encode_string("k") + encode_bytes(b"v" * 40_000)
    with pytest.raises(Corrupt, match="its metadata has more than 65536 keys, or more than 65536 bytes: rewrite"):
        read_avro(head(encode_long(2), pair, pair, b"\x00"), name="f", limits=SMALL)
    many = b"".join(encode_string(f"k{index}") + encode_bytes(b"") for index in range(70_000))
    with pytest.raises(Corrupt, match="its metadata has more than 65536 keys, or more than 16777216 bytes: rewrite"):
        read_avro(head(encode_long(70_000), many, b"\x00"), name="f")


def test_a_schema_and_a_spec_are_limited_before_they_are_parsed() -> None:
    body = manifest(3, [entry("a")])
    with pytest.raises(Corrupt, match=r"f: a schema or spec in its metadata has \d+ bytes, 100 are allowed: rewrite"):
        read_avro(body, name="f", limits=replace(SMALL, schema_bytes=100))
    long = with_metadata(body, {"partition-spec": b"[" + b"{}," * 20_000 + b"{}]"})
    with pytest.raises(Corrupt, match=r"m: .*a schema or spec in its metadata has 60004 bytes, 32768 are allowed"):
        decode_manifest(long, DEFINITION, leaf_row(long, 1), name="m", limits=replace(SMALL, head_bytes=MIB))


def test_metadata_in_blocks_with_their_length_is_read() -> None:
    schema = json.dumps(record("int")).encode()
    pair = encode_string("avro.schema") + encode_bytes(schema)
    other = encode_string("raw") + encode_bytes(b"\xff")
    body = head(encode_long(-1), encode_long(len(pair)), pair, encode_long(1), other, b"\x00")
    file = read_avro(body + encode_block(1, b"\x0a", SYNC), name="f")
    assert (file.records, file.metadata.keys()) == (({1: 5},), {"avro.schema"})


@pytest.mark.parametrize(
    "parts",
    [
        [encode_long(2**62)],
        [encode_long(-(2**63))],
        [encode_long(-1), encode_long(-5)],
        [encode_long(1), encode_long(-7)],
        [encode_long(1), encode_long(2**40), b"x"],
        [encode_long(1), encode_string("avro.schema"), encode_long(2**50)],
        [encode_long(1), encode_string("avro.schema"), encode_long(-1)],
        [encode_long(1), b"\x02\xff", encode_bytes(b"")],
        [b"\x00"],
        [b"\xff" * 12],
    ],
)
def test_lies_about_metadata_are_refused(parts: list[bytes]) -> None:
    with pytest.raises(Corrupt, match="f: not a readable Avro file"):
        read_avro(head(*parts), name="f", limits=SMALL)


@pytest.mark.parametrize("depth", [450, 3_000, 100_000])
def test_a_schema_that_is_nested_too_deep_is_refused(depth: int) -> None:
    pair = encode_string("avro.schema") + encode_bytes(schema_of(depth).encode())
    with pytest.raises(Corrupt, match=r"levels of nesting: rewrite|recursion|has 2500078 bytes, 1048576 are allowed"):
        read_avro(head(encode_long(1), pair, b"\x00") + encode_block(1, b"\x00", SYNC), name="f")


def test_a_nested_schema_that_an_engine_makes_is_read() -> None:
    pair = encode_string("avro.schema") + encode_bytes(schema_of(64).encode())
    body = head(encode_long(1), pair, b"\x00") + encode_block(1, b"\x00", SYNC)
    assert read_avro(body, name="f").records == ({1: []},)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("string", encode_long(2**40) + b"x"),
        ("string", encode_long(-3) + b"xxx"),
        ("bytes", encode_long(100) + b"x"),
        ({"type": "array", "items": "int"}, encode_long(2**40) + b"\x02"),
        ({"type": "array", "items": "int"}, encode_long(-(2**63)) + encode_long(1) + b"\x02"),
        ({"type": "map", "values": "int"}, encode_long(2**40) + b"\x02a\x02"),
        ({"type": "fixed", "name": "z", "size": 2**40}, b"x"),
        (["null", "int"], b"\x08\x02"),
        ("long", b"\xff" * 11),
        (PAIRS, encode_long(2**40) + b"\x02\x02"),
    ],
)
def test_lengths_beyond_the_block_are_refused(kind: Any, value: bytes) -> None:
    tracemalloc.start()
    with pytest.raises(Corrupt, match="f: not a readable Avro file"):
        read_avro(container(record(kind), b"null", (1, value)), name="f", limits=SMALL)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < MIB


@pytest.mark.parametrize(
    "tail",
    [
        encode_long(-1) + encode_bytes(b"\x02") + SYNC,
        encode_long(2**62) + encode_bytes(b"\x02") + SYNC,
        encode_long(5) + encode_bytes(b"\x02") + SYNC,
        encode_long(1) + encode_bytes(b"\x02") + bytes(15) + b"x",
        encode_long(1) + encode_long(2**50) + b"\x02" + SYNC,
        encode_long(1) + encode_long(-9) + b"\x02" + SYNC,
        encode_long(1) + encode_bytes(b"\x02\x02") + SYNC,
        encode_long(1),
    ],
)
def test_lies_about_blocks_are_refused(tail: bytes) -> None:
    with pytest.raises(Corrupt, match="f: "):
        read_avro(container(record("int"), b"null") + tail, name="f", limits=SMALL)


ENTRIES = [
    entry(
        f"f{index}",
        value_counts=pairs({1: 10, 2: 10}),
        null_value_counts=pairs({1: 0, 2: 3}),
        lower_bounds=pairs({1: struct.pack("<q", index), 2: b"AA"}),
        upper_bounds=pairs({1: struct.pack("<q", index + 9), 2: b"ZZ"}),
        split_offsets=[4, 100],
    )
    for index in range(6)
]
SUMMARIES = [
    {"contains_null": False, "contains_nan": None, "lower_bound": b"AA", "upper_bound": b"ZZ"},
    {"contains_null": False, "contains_nan": None, "lower_bound": b"\x01\0\0\0", "upper_bound": b"\x09\0\0\0"},
]
MANIFESTS = [manifest(version, ENTRIES, codec=codec) for version in (1, 2, 3) for codec in ("null", "deflate")]
LISTS = [
    manifest_list(version, [list_entry(f"m{index}.avro", 900, partitions=SUMMARIES) for index in range(5)], codec=codec)
    for version in (1, 2, 3)
    for codec in ("null", "deflate")
]


def readers(body: bytes) -> list[Callable[[], object]]:
    return [
        lambda: decode_manifest(body, DEFINITION, leaf_row(body, 6), name="m", limits=SMALL).entries(),
        lambda: decode_manifest_list(body, DEFINITION, name="l", limits=SMALL),
        lambda: uncounted_manifests(body, name="l", limits=SMALL),
        lambda: files_named(body, name="m"),
    ]


def read_or_refused(body: bytes) -> None:
    """Read `body` as everything that it may be. Any other error than the documented ones fails the test."""
    for read in readers(body):
        tracemalloc.start()
        try:
            read()
        except (Corrupt, Invalid):
            pass
        finally:
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        assert peak < 24 * MIB


def test_the_real_files_are_read() -> None:
    for body in MANIFESTS:
        assert len(decode_manifest(body, DEFINITION, leaf_row(body, 6), name="m", limits=SMALL)) == 6
    for body in LISTS:
        assert len(decode_manifest_list(body, DEFINITION, name="l", limits=SMALL).rows) == 5


SPLICES = st.lists(
    st.tuples(st.integers(0, 1 << 16), st.integers(0, 12), st.binary(max_size=12)), min_size=1, max_size=6
)


@given(body=st.sampled_from([*MANIFESTS, *LISTS]), splices=SPLICES)
@settings(deadline=None)
def test_mutated_bytes_are_read_or_refused(body: bytes, splices: list[tuple[int, int, bytes]]) -> None:
    for at, dropped, added in splices:
        at %= len(body) + 1
        body = body[:at] + added + body[at + dropped :]
    read_or_refused(body)


LIARS: Final = [
    "null", "boolean", "int", "long", "float", "double", "bytes", "string", ["null", "string"], ["int", "string"],
    {"type": "array", "items": "int"}, {"type": "map", "values": "int"}, {"type": "fixed", "name": "x1", "size": 4},
    {"type": "record", "name": "x2", "fields": []}, {"type": "enum", "name": "x3", "symbols": ["a", "b"]}, PAIRS,
    {"type": "record", "name": "x4", "fields": [{"name": "a", "type": "long", "field-id": 1000}]}, {}, [], 5, "missing",
]  # fmt: skip


def places(schema: Any) -> list[tuple[dict[str, Any], str]]:
    """Every (object, key) of a schema whose value is a type."""
    found: list[tuple[dict[str, Any], str]] = []
    if isinstance(schema, list):
        return [place for choice in schema for place in places(choice)]
    if isinstance(schema, dict):
        for field in schema.get("fields", ()):
            found += [(field, "type"), *places(field["type"])]
        for key in ("items", "values"):
            if key in schema:
                found += [(schema, key), *places(schema[key])]
    return found


@given(
    body=st.sampled_from([*MANIFESTS[::2], *LISTS[::2]]),
    changes=st.lists(st.tuples(st.integers(0, 200), st.sampled_from(LIARS)), min_size=1, max_size=3),
    block=st.none() | st.binary(max_size=200),
)
@settings(deadline=None)
def test_another_schema_than_the_entries_have_is_read_or_refused(
    body: bytes, changes: list[tuple[int, Any]], block: bytes | None
) -> None:
    found = read_head(body)
    schema = json.loads(found.metadata["avro.schema"])
    for at, liar in changes:
        known = places(schema)
        holder, key = known[at % len(known)]
        holder[key] = json.loads(json.dumps(liar))
    tail = None if block is None else encode_block(1, block, found.sync)
    read_or_refused(with_metadata(body, {"avro.schema": json.dumps(schema).encode()}, tail))


@given(text=st.text(max_size=60) | st.sampled_from(["[" * 5_000, '{"fields":[5]}', "[{}]", '[{"field-id":[]}]', "5"]))
@settings(deadline=None)
def test_any_text_for_the_partition_spec_is_read_or_refused(text: str) -> None:
    read_or_refused(with_metadata(MANIFESTS[-2], {"partition-spec": text.encode(errors="surrogatepass")}))


def test_the_limits_of_adoption_are_those_of_no_honest_table() -> None:
    body = manifest_list(3, [list_entry(f"m{index}.avro", 900, partitions=SUMMARIES) for index in range(2_000)])
    file = read_avro(body, name="l")
    each = len(file.records)
    assert file.values / each * 1_000_000 < MANIFEST_LIMITS.values
    assert (file.plain_bytes / each + 200) * 1_000_000 < MANIFEST_LIMITS.plain_bytes, "paths of 200 bytes"
